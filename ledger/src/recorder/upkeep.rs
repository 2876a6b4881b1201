//! Regular work on the tables: merges statistics, frees the bytes of expired outputs, deletes the inputs of jobs that ended long ago, and
//! notes that the recorder has caught up.

use std::time::Duration;

use sqlx::PgConnection;

use crate::{BLOB_GRACE, tx::Transaction};

pub(super) const INTERVAL: Duration = Duration::from_secs(60);
/// The pause after a check of the queue that found no event. The overview shows the time of that check.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// The pause before the first upkeep, after an upkeep that left work, and after a check of the queue that found events.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// The maximum number of rows in a transaction, so that the recorder soon continues with events.
const ROWS_MAX: i64 = 1000;
/// The maximum number of transactions of one kind in a row. No event is recorded between them.
pub(super) const ROUNDS_MAX: usize = 20;

/// Frees the bytes of some expired outputs. Their rows stay, so that people see when they expired. Returns whether there may be more.
pub(super) struct FreeExpired;

/// Deletes some inputs of jobs that ended long ago. Returns whether there may be more.
pub(super) struct ForgetInputs;

/// Notes that all events that were published before this long ago are recorded.
pub(super) struct NoteCaughtUp(pub(super) Duration);

/// Reads the label keys by which jobs are counted.
pub(super) struct ReadLabelKeys;

impl Transaction for ReadLabelKeys {
    const NAME: &'static str = "reading the label keys";
    type Output = Vec<String>;

    async fn run(&self, connection: &mut PgConnection) -> Result<Vec<String>, sqlx::Error> {
        sqlx::query_scalar!("/* recorder::label_keys */ select key from label_keys order by key")
            .fetch_all(connection)
            .await
    }
}

impl Transaction for FreeExpired {
    const NAME: &'static str = "freeing expired outputs";
    type Output = bool;

    async fn run(&self, connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
        let done = sqlx::query!(
            "/* recorder::expiry */
            update job_outputs set data = null where (job_id, position) in (
                select job_id, position from job_outputs
                where expires_at <= now() and data is not null
                order by expires_at limit $1
                for update skip locked)",
            ROWS_MAX,
        )
        .execute(connection)
        .await?;
        Ok(done.rows_affected() == ROWS_MAX as u64)
    }
}

impl Transaction for ForgetInputs {
    const NAME: &'static str = "forgetting inputs";
    type Output = bool;

    async fn run(&self, connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
        let done = sqlx::query!(
            "/* recorder::forget_inputs */
            delete from job_inputs where (job_id, digest) in (
                select job_id, digest from job_inputs
                where ended_at <= now() - make_interval(secs => $1)
                order by ended_at limit $2
                for update skip locked)",
            (2 * BLOB_GRACE).as_secs_f64(),
            ROWS_MAX,
        )
        .execute(connection)
        .await?;
        Ok(done.rows_affected() == ROWS_MAX as u64)
    }
}

impl Transaction for NoteCaughtUp {
    const NAME: &'static str = "noting the recorder's progress";
    type Output = ();

    async fn run(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        sqlx::query!(
            "/* recorder::note_caught_up */
            insert into recorder_progress as known (caught_up_at) values (now() - make_interval(secs => $1))
            on conflict (only_row) do update set caught_up_at = greatest(known.caught_up_at, excluded.caught_up_at)",
            self.0.as_secs_f64(),
        )
        .execute(connection)
        .await?;
        Ok(())
    }
}
