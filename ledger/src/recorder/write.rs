//! Writes changes to the tables. A batch of attempts that have all ended takes one statement per table, over arrays of columns.
//!
//! Every statement is an upsert that gives the same rows when it runs again. So duplicate events, and commits with an unknown outcome, are
//! harmless.

use std::collections::HashMap;

use chrono::NaiveDate;
use sqlx::PgConnection;

use super::merge::Changes;
use crate::tx::Transaction;

mod actions;
mod array;
mod attempts;
mod inputs;
mod jobs;
mod keys;
mod later;
mod outputs;
mod rollups;
pub(super) mod runs;
mod samples;
mod sessions;
mod workers;

/// Writes one batch. Jobs are written before attempts, which record whether their job's outcome is theirs; workers are written before
/// devices, which refer to them.
#[derive(Debug)]
pub(super) struct RecordChanges<'a> {
    pub(super) changes: &'a Changes,
    /// The day for which the partitions of these changes were created.
    pub(super) today: NaiveDate,
    /// The label keys by which ends are counted; none if they are not counted at all.
    pub(super) counted_by: Option<&'a [String]>,
}

impl Transaction for RecordChanges<'_> {
    const NAME: &'static str = "recording events";
    /// The number of jobs that did not change because they belong to other users.
    type Output = usize;

    async fn run(&self, connection: &mut PgConnection) -> Result<usize, sqlx::Error> {
        let (changes, mut foreign) = (self.changes, 0);
        if !changes.jobs.is_empty() {
            let keys = keys::resolve(&changes.jobs, self.today, connection).await?;
            let jobs = jobs::write(changes, &keys, connection).await?;
            foreign = changes.jobs.len() - jobs.described.len();
            let own = (foreign > 0).then(|| changes.of_jobs(|job| jobs.described.contains_key(job)));
            let changes = own.as_ref().unwrap_or(changes);
            let (attempts, other_runs) = runs::split(&changes.attempts, &jobs, &keys, connection).await?;
            let jobs::Written { outcomes, described } = jobs;
            let written = attempts::write(&attempts, &keys, &outcomes, connection).await?;
            let context = |outcomes, label_keys| rollups::Context {
                outcomes,
                described: &described,
                label_keys,
                today: self.today,
            };
            if let Some(label_keys) = self.counted_by {
                rollups::write(&written, context(&outcomes, label_keys), connection).await?;
            }
            outputs::write(&attempts, &keys, &outcomes, connection).await?;
            inputs::write(&changes.jobs, &outcomes, connection).await?;
            if !other_runs.is_empty() {
                let runs::Written { attempts, outcomes, first_outcomes } =
                    runs::write(other_runs, &keys, connection).await?;
                let ends = attempts.iter().filter_map(|(key, change)| Some((*key, change.end.as_ref()?))).collect();
                let written = attempts::Written { ends, counted_us: HashMap::new(), reports: Vec::new() };
                if let Some(label_keys) = self.counted_by {
                    rollups::write(&written, context(&first_outcomes, label_keys), connection).await?;
                }
                outputs::write(&attempts, &keys, &outcomes, connection).await?;
            }
        }
        if !changes.workers.is_empty() {
            workers::write(&changes.workers, connection).await?;
            workers::write_devices(&changes.devices, connection).await?;
        }
        if !changes.samples.is_empty() {
            samples::write(&changes.samples, connection).await?;
        }
        actions::write(&changes.actions, connection).await?;
        later::write(&changes.later, connection).await?;
        Ok(foreign)
    }
}
