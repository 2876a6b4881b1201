//! Lists what people did through the console and other programs that act for them.

use chrono::{DateTime, Utc};
use gpufleet_schema::ActionId;
use serde::{Deserialize, Serialize};

use super::ledger::{Ledger, ask};
use crate::LedgerError;

/// Some actions, the newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "serve", derive(utoipa::ToSchema))]
pub struct ActionPage {
    pub actions: Vec<ActionRow>,
    /// The key with which the next page begins, if there is one.
    pub next: Option<String>,
}

/// What one person did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "serve", derive(utoipa::ToSchema))]
pub struct ActionRow {
    #[cfg_attr(feature = "serve", schema(value_type = uuid::Uuid))]
    pub action_id: ActionId,
    /// By the clock of the program that acted.
    pub at: DateTime<Utc>,
    pub who: String,
    /// `cancel`, `replay`, `discard`, or another word of the program.
    pub action: String,
    /// What it was done to, such as the id of a job.
    pub target: String,
    /// Where the person came from, such as an address.
    pub from: Option<String>,
    /// The broker's user of the program, if the broker validated it.
    pub reported_by: Option<String>,
}

/// A position in the list of actions: right after this one. As text it is `MICROSECONDS.ID`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActionKey {
    pub at: DateTime<Utc>,
    pub action_id: ActionId,
}

/// A text that is not an [`ActionKey`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it is not a page key; use the key that the last list ended with")]
pub struct InvalidActionKey;

impl ActionPage {
    /// The maximum number of actions on a page, because a whole page is held in memory.
    pub const LIMIT_MAX: u32 = 1000;
}

impl std::str::FromStr for ActionKey {
    type Err = InvalidActionKey;

    fn from_str(text: &str) -> Result<Self, InvalidActionKey> {
        let (micros, id) = text.split_once('.').ok_or(InvalidActionKey)?;
        let at = micros.parse().ok().and_then(DateTime::from_timestamp_micros).ok_or(InvalidActionKey)?;
        Ok(Self { at, action_id: id.parse().map_err(|_| InvalidActionKey)? })
    }
}

impl std::fmt::Display for ActionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.at.timestamp_micros(), self.action_id)
    }
}

impl Ledger {
    /// Returns a page of the newest actions, or of those after the key `before`.
    pub async fn actions(&self, limit: u32, before: Option<ActionKey>) -> Result<ActionPage, LedgerError> {
        let limit = limit.clamp(1, ActionPage::LIMIT_MAX) as usize;
        let mut lease = self.connection.lease().await?;
        // One row more than the limit shows whether another page follows.
        let records = sqlx::query!(
            r#"/* queries::actions */
            select action_id, at, who, action, target, origin, reported_by from actions
            where $1::timestamptz is null or (at, action_id) < ($1, $2)
            order by at desc, action_id desc
            limit $3"#,
            before.map(|before| before.at),
            before.map(|before| before.action_id.as_uuid()),
            limit as i64 + 1,
        );
        let records = ask("reading actions", records.fetch_all(lease.connection())).await?;
        lease.keep();
        let has_more = records.len() > limit;
        let rows = records.into_iter().take(limit).map(|record| ActionRow {
            action_id: ActionId::from_uuid(record.action_id),
            at: record.at,
            who: record.who,
            action: record.action,
            target: record.target,
            from: record.origin,
            reported_by: record.reported_by,
        });
        let actions: Vec<ActionRow> = rows.collect();
        let last = actions.last().filter(|_| has_more);
        let next = last.map(|last| ActionKey { at: last.at, action_id: last.action_id }.to_string());
        Ok(ActionPage { actions, next })
    }
}
