//! Analyzes the partitioned tables once a day. Postgres analyzes each partition by itself, but never the parent tables, whose statistics it
//! uses to plan queries over several months.

use std::time::Duration;

use sqlx::{Connection as _, Executor as _};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{DatabaseUrl, LedgerError, database::Purpose, error::chain, migrate};

/// The pause between two checks whether the tables were analyzed today.
const LOOK_EVERY: Duration = Duration::from_secs(3600);

/// Analyzes the tables whenever that is due, until stopped. If several recorders run, one of them does it. A failure is logged and retried
/// at the next check.
pub async fn run(url: DatabaseUrl, stop: CancellationToken) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        match stop.run_until_cancelled(analyze_if_due(&url)).await {
            Some(Ok(true)) => info!("analyzed the tables of jobs and attempts"),
            Some(Err(error)) => warn!(error = chain(&error), "failed to analyze the tables"),
            Some(Ok(false)) | None => {}
        }
    }
}

/// Analyzes the tables if that is due, and returns whether it did. Analyzing blocks no reader and no writer.
pub async fn analyze_if_due(url: &DatabaseUrl) -> Result<bool, LedgerError> {
    let failed = |source| LedgerError::Database { operation: "analyzing the tables", source };
    let mut connection = migrate::connect(url, Purpose::Maintain).await?;
    let due = sqlx::query_scalar!(
        r#"/* analysis::due */
        select pg_try_advisory_lock(hashtext('gpufleet analyze')) and exists (
            select from pg_stat_user_tables where relid in ('jobs'::regclass, 'attempts'::regclass)
            and coalesce(last_analyze < now() - interval '1 day', true)
        ) as "due!""#
    );
    let due = due.fetch_one(&mut connection).await.map_err(failed)?;
    if due {
        connection.execute("analyze jobs, attempts").await.map_err(failed)?;
    }
    // A failed close is harmless.
    connection.close().await.ok();
    Ok(due)
}
