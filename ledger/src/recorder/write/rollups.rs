//! Counts the attempts whose end this transaction has written, and appends the counts to `rollup_deltas`.
//!
//! A repeated event writes no end, so each attempt is counted once. The device time of an open session is counted with each report of it, and
//! the rest with its end, so that the time of a session whose worker died counts too. All counts of a transaction with the same time, pool, dimension and
//! value become one row. A row of a whole pool covers five minutes, every other row an hour.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, NaiveDate, Utc};
use gpufleet_schema::{JobId, host_program, session};
use sqlx::PgConnection;

use super::{
    attempts::{AttemptKey, Written},
    jobs::{Described, FinalAttempts},
};
use crate::{
    recorder::{change::End, months},
    rollups::{Dimension, Ended, Grain, Measures, Part, RollupColumns, Sum},
};

/// The key of a row of `rollup_deltas`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key<'a> {
    at: DateTime<Utc>,
    pool: &'a str,
    dimension: &'a str,
    value: &'a str,
}

/// Data about the batch that the counts depend on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) outcomes: &'a FinalAttempts,
    pub(super) described: &'a HashMap<JobId, Described>,
    /// The label keys by which jobs are counted.
    pub(super) label_keys: &'a [String],
    pub(super) today: NaiveDate,
}

/// Counts the attempts whose ends were written, and the device time of open sessions.
pub(super) async fn write(
    written: &Written<'_>,
    context: Context<'_>,
    connection: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    let dimensions: Vec<String> = context.label_keys.iter().map(|key| Dimension::Label(key.clone()).column()).collect();
    let mut deltas: BTreeMap<Key<'_>, Measures> = BTreeMap::new();
    let ends = written.ends.iter().filter_map(|(key, end)| {
        let job = context.described.get(&key.0)?;
        let counted_us = written.counted_us.get(key).copied().unwrap_or_default();
        Some((job, end.at, &end.place, ended(key, end, job, context.outcomes, counted_us)))
    });
    let reports = written.reports.iter().filter_map(|report| {
        let job = context.described.get(&report.key.0)?;
        Some((job, report.open.at, report.place, Ended::session(report.more_us)))
    });
    for (job, at, place, ended) in ends.chain(reports).filter(|(_, _, _, ended)| !ended.counts_nothing()) {
        let at = months::near(at, context.today).unwrap_or_else(Utc::now);
        let (five_minutes, hour) = (Grain::FiveMinutes.begin(at), Grain::Hour.begin(at));
        let fixed = [
            ("", ""),
            ("kernel", job.kernel.as_str()),
            ("user", job.user_id.as_str()),
            ("worker", place.worker.as_str()),
            ("device", place.device_name.as_deref().unwrap_or_default()),
        ];
        let labels = context.label_keys.iter().zip(&dimensions);
        let labels = labels.filter_map(|(key, dimension)| Some((dimension.as_str(), job.labels.get(key)?.as_str())));
        for (dimension, value) in fixed.into_iter().chain(labels) {
            let at = if Grain::FiveMinutes.has(dimension) { five_minutes } else { hour };
            deltas.entry(Key { at, pool: &job.pool, dimension, value }).or_default().count(&ended);
        }
    }
    let mut columns = RollupColumns::default();
    for (Key { at, pool, dimension, value }, measures) in &deltas {
        columns.push(*at, [pool, dimension, value], measures);
    }
    if columns.at.is_empty() { Ok(()) } else { append(&columns, connection).await }
}

fn ended(
    (job_id, attempt): &AttemptKey,
    end: &End,
    job: &Described,
    outcomes: &FinalAttempts,
    counted_us: i64,
) -> Ended {
    if job.program == session::KIND || job.program == host_program::KIND {
        return Ended::session(session_us(end).saturating_sub(counted_us).max(0));
    }
    let timings = &end.timings;
    let part = match end.is_final() {
        false => Part::Lost,
        true if outcomes.get(job_id) == Some(attempt) => Part::Outcome,
        true => Part::Superseded,
    };
    Ended {
        part,
        state: end.state,
        verdict: end.failure.as_ref().map(|failure| failure.verdict),
        queue_us: timings.queue_us.saturating_add(timings.wait_us),
        compile_us: timings.compile_us,
        copy_us: timings.copy_in_us.saturating_add(timings.copy_out_us),
        kernel_us: timings.launches_us.iter().sum(),
        total_us: timings.total_us,
        charged_us: end.charged_us.unwrap_or(timings.total_us),
        input_bytes: job.input_bytes,
        output_bytes: end.output_bytes,
    }
}

/// Returns the device time of a session or a host program: what its pool was charged, or else the time in which the device worked for it. While it is open,
/// the device works for other jobs too.
fn session_us(end: &End) -> i64 {
    let busy_us = end.session.as_ref().map_or(0, |used| used.busy_us);
    end.charged_us.unwrap_or_else(|| i64::try_from(busy_us).unwrap_or(i64::MAX))
}

async fn append(columns: &RollupColumns<'_>, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let sum = |sum: Sum| columns.sums[sum as usize].as_slice();
    sqlx::query!(
        r#"/* recorder::write::rollups */
        insert into rollup_deltas
            (at, pool, dimension, value, succeeded, failed, cancelled, expired, dead, verdict_user, verdict_timeout,
             verdict_out_of_memory, verdict_device, verdict_infrastructure, lost, superseded, device_us, queue_us, input_bytes,
             output_bytes, stages, charged_us)
        select * from unnest(
            $1::timestamptz[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],
            $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[],
            $16::bigint[], $17::bigint[], $18::bigint[], $19::bigint[], $20::bigint[], $21::bytea[],
            $22::bigint[])"#,
        &columns.at,
        &columns.pool as &[&str],
        &columns.dimension as &[&str],
        &columns.value as &[&str],
        sum(Sum::Succeeded),
        sum(Sum::Failed),
        sum(Sum::Cancelled),
        sum(Sum::Expired),
        sum(Sum::Dead),
        sum(Sum::VerdictUser),
        sum(Sum::VerdictTimeout),
        sum(Sum::VerdictOutOfMemory),
        sum(Sum::VerdictDevice),
        sum(Sum::VerdictInfrastructure),
        sum(Sum::Lost),
        sum(Sum::Superseded),
        sum(Sum::DeviceUs),
        sum(Sum::QueueUs),
        sum(Sum::InputBytes),
        sum(Sum::OutputBytes),
        &columns.stages,
        sum(Sum::ChargedUs),
    )
    .execute(connection)
    .await?;
    Ok(())
}
