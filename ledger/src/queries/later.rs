//! Lists the kinds of events that only later releases know.

use chrono::{DateTime, Utc};

use super::ledger::{Ledger, ask};
use crate::LedgerError;

/// A kind of event that the recorder does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaterKind {
    pub kind: String,
    pub first_at: DateTime<Utc>,
    pub last_at: DateTime<Utc>,
    /// The latest event as JSON, cut to a maximum length.
    pub last_event: String,
}

impl Ledger {
    /// Returns the kinds of events that the recorder could not record, because only later releases know them.
    pub async fn later_kinds(&self) -> Result<Vec<LaterKind>, LedgerError> {
        let mut lease = self.connection.lease().await?;
        let kinds = sqlx::query_as!(
            LaterKind,
            "/* queries::later */ select kind, first_at, last_at, last_event from later_events order by kind"
        );
        let kinds = ask("reading the events of later releases", kinds.fetch_all(lease.connection())).await?;
        lease.keep();
        Ok(kinds)
    }
}
