//! Writes rows of `later_events`: the kinds of events that this release does not know.

use std::collections::BTreeMap;

use sqlx::PgConnection;

/// The maximum number of kinds. Later releases send few new kinds; only a client that invents kinds sends more.
const KINDS_MAX: i64 = 100;

pub(super) async fn write(later: &BTreeMap<String, String>, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    for (kind, last_event) in later {
        sqlx::query!(
            "/* recorder::write::later */
            insert into later_events (kind, first_at, last_at, last_event)
            select $1, now(), now(), $2
            where (select count(*) from later_events) < $3 or exists (select from later_events where kind = $1)
            on conflict (kind) do update set last_at = excluded.last_at, last_event = excluded.last_event",
            kind,
            last_event,
            KINDS_MAX,
        )
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}
