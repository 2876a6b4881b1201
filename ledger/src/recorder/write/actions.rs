//! Writes rows of `actions`. A repeated event changes nothing.

use std::collections::BTreeMap;

use sqlx::PgConnection;
use uuid::Uuid;

use crate::recorder::change::ActionChange;

pub(super) async fn write(
    actions: &BTreeMap<Uuid, ActionChange>,
    connection: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    for (id, action) in actions {
        sqlx::query!(
            "/* recorder::write::actions */
            insert into actions (action_id, at, who, action, target, origin, reported_by)
            values ($1, $2, $3, $4, $5, $6, $7)
            on conflict (action_id) do nothing",
            id,
            action.at,
            action.who,
            action.action,
            action.target,
            action.origin.as_deref(),
            action.reported_by.as_deref(),
        )
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}
