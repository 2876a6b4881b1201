//! Named transactions: retried after a conflict, bounded in time, and logged by name.

use std::{
    fmt,
    future::Future,
    time::{Duration, Instant},
};

use sqlx::{Connection, PgConnection};
use tracing::{debug, warn};

use crate::{LedgerError, database::QUERY_TIMEOUT, disposition::Disposition};

/// Statements that are committed together. They may run several times.
pub(crate) trait Transaction: Sync {
    /// The name of the transaction. It completes "the database failed in …".
    const NAME: &'static str;
    type Output: Send;

    fn run(&self, connection: &mut PgConnection) -> impl Future<Output = Result<Self::Output, sqlx::Error>> + Send;
}

/// The maximum number of tries after conflicts. Concurrent transactions lock in the same order, so conflicts are rare, and more in a row
/// indicate a defect.
const TRIES_MAX: u32 = 5;

/// Runs a transaction. After an error, the state of the connection and of the commit is unknown: the caller drops the connection, and may
/// repeat the transaction, because every statement is an upsert. If cancelled, the transaction may or may not be committed.
pub(crate) async fn run<T: Transaction>(
    transaction: &T,
    connection: &mut PgConnection,
) -> Result<T::Output, LedgerError> {
    let begun = Instant::now();
    for tries in 1.. {
        let outcome = tokio::time::timeout(QUERY_TIMEOUT, once(transaction, connection)).await;
        match outcome {
            Ok(Ok(output)) => {
                debug!(transaction = T::NAME, tries, elapsed = %Milliseconds(begun.elapsed()), "transaction committed");
                return Ok(output);
            }
            Ok(Err(error)) if Disposition::is_conflict(&error) && tries < TRIES_MAX => {
                warn!(transaction = T::NAME, tries, %error, "transaction conflict; trying again");
            }
            Ok(Err(source)) => return Err(LedgerError::failed(T::NAME, source)),
            Err(_) => return Err(LedgerError::timed_out()),
        }
    }
    unreachable!("the last try returns its error");
}

async fn once<T: Transaction>(transaction: &T, connection: &mut PgConnection) -> Result<T::Output, sqlx::Error> {
    let mut open = connection.begin().await?;
    match transaction.run(&mut open).await {
        Ok(output) => {
            open.commit().await?;
            Ok(output)
        }
        Err(error) => {
            // After a rollback, a healthy session is usable again. The first error is the one to report.
            open.rollback().await.ok();
            Err(error)
        }
    }
}

struct Milliseconds(Duration);

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} ms", self.0.as_secs_f64() * 1e3)
    }
}
