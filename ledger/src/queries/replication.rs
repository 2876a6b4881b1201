//! Reads the database's clock, whether it is a standby, and how far it is behind.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::ledger::{Ledger, ask};
use crate::{LedgerError, migrate};

/// The database's role in a replication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replication {
    /// It accepts writes. The role's settings may still forbid them.
    Primary,
    /// A copy of a primary. `lag` is the most that it may be behind. It is `None` if the standby has no connection to a primary and has
    /// replayed nothing since its start.
    Standby { lag: Option<Duration> },
}

impl Replication {
    /// Returns how far the database is behind its primary; zero for a primary.
    pub fn lag(self) -> Option<Duration> {
        match self {
            Self::Primary => Some(Duration::ZERO),
            Self::Standby { lag } => lag,
        }
    }
}

impl Ledger {
    /// Checks that the tables match this program.
    pub async fn check_tables(&self) -> Result<(), LedgerError> {
        let mut lease = self.connection.lease().await?;
        migrate::check_version(lease.connection()).await?;
        lease.keep();
        Ok(())
    }

    /// Returns the time of the database's clock.
    pub async fn clock(&self) -> Result<DateTime<Utc>, LedgerError> {
        let mut lease = self.connection.lease().await?;
        let clock = sqlx::query_scalar!(r#"/* queries::clock */ select clock_timestamp() as "clock!""#);
        let at = ask("reading the clock", clock.fetch_one(lease.connection())).await?;
        lease.keep();
        Ok(at)
    }

    /// Returns the role of the database, and how far a standby is behind. A standby that is connected and has replayed everything it
    /// received is not behind. Any other one is behind by at most the age of the last replayed transaction; this age also grows while the
    /// primary writes nothing. If a primary vanishes without closing the connection, the standby notices after its `wal_receiver_timeout`,
    /// by default a minute.
    pub async fn replication(&self) -> Result<Replication, LedgerError> {
        let mut lease = self.connection.lease().await?;
        let row = ask(
            "reading the state of the replication",
            sqlx::query!(
                r#"/* queries::replication */
                select pg_is_in_recovery() as "is_standby!",
                       case when exists (select from pg_stat_wal_receiver)
                                 and pg_last_wal_receive_lsn() <= pg_last_wal_replay_lsn() then 0
                            else greatest(extract(epoch from clock_timestamp() - pg_last_xact_replay_timestamp()), 0)
                       end::float8 as lag"#,
            )
            .fetch_one(lease.connection()),
        )
        .await?;
        lease.keep();
        Ok(match row.is_standby {
            false => Replication::Primary,
            true => Replication::Standby { lag: row.lag.and_then(|lag| Duration::try_from_secs_f64(lag).ok()) },
        })
    }
}
