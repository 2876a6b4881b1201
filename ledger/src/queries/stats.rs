//! Statistics of jobs that have ended, read from the roll-ups alone.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use futures::TryStreamExt as _;
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

use super::ledger::{Ledger, ask};
use crate::{
    LedgerError,
    rollups::{Dimension, Grain, HOURS_KEPT_DAYS, Measures, RollupRecord, Stage, Stages, Sum},
};

/// The jobs to count, and how to group them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatisticsFilter {
    /// The dimension whose values get one row each. Without it there is one row of all jobs.
    pub by: Option<Dimension>,
    /// Only jobs that ended in this hour or later. Statistics that are older than two months have days instead of hours, so it is this day
    /// then.
    pub since: DateTime<Utc>,
    /// Only jobs of this pool.
    pub pool: Option<String>,
}

/// Statistics since a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "serve", derive(utoipa::ToSchema))]
pub struct Statistics {
    /// The beginning of the first hour or day.
    pub since: DateTime<Utc>,
    /// The one with the most time on devices comes first.
    pub rows: Vec<StatisticsRow>,
    /// Rows with less time on devices that an answer of the read API left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rows_left_out: u64,
}

/// The jobs of one value that have ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "serve", derive(utoipa::ToSchema))]
pub struct StatisticsRow {
    /// Empty for jobs that have none, and for the row of all jobs.
    pub value: String,
    /// Jobs with an outcome, without sessions. The next five are the outcomes, and the five after them the verdicts of jobs that did not succeed.
    pub jobs: u64,
    pub succeeded: u64,
    pub failed: u64,
    pub cancelled: u64,
    pub expired: u64,
    pub dead: u64,
    pub verdict_user: u64,
    pub verdict_timeout: u64,
    pub verdict_out_of_memory: u64,
    pub verdict_device: u64,
    pub verdict_infrastructure: u64,
    /// Attempts after which the job was tried again.
    pub attempts_lost: u64,
    /// Attempts with an outcome after that of another attempt. They count nowhere but here and in `device_us`.
    pub attempts_superseded: u64,
    /// The time on devices of all attempts, superseded ones too. Lost attempts have no measured time. Sessions count only here and in
    /// `charged_us`, with the time in which their devices worked for them.
    pub device_us: u64,
    /// The device time that pools were charged for these attempts: `device_us`, and the wait for memory and for the blob store in a slot. Time
    /// is shared between pools by it.
    #[serde(default)]
    pub charged_us: u64,
    /// From submission to the start on the device, of all jobs together.
    pub queue_us: u64,
    pub input_bytes: u64,
    pub output_bytes: u64,
    pub queue: Option<Times>,
    /// This and the following ones are of jobs that reached a device.
    pub compile: Option<Times>,
    pub copy: Option<Times>,
    pub kernel: Option<Times>,
    pub total: Option<Times>,
}

/// Percentiles, within 2 %, and the longest time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "serve", derive(utoipa::ToSchema))]
pub struct Times {
    pub p50_us: u64,
    pub p95_us: u64,
    pub p99_us: u64,
    pub max_us: u64,
}

/// The maximum number of rows in an answer of the read API. A pool has at most a thousand values in an hour, but may have more over time.
pub const STATISTICS_ROWS_MAX: u32 = 10_000;

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Ledger {
    /// Returns what the recorders have counted, up to their last commit.
    pub async fn statistics(&self, filter: &StatisticsFilter) -> Result<Statistics, LedgerError> {
        let since = begin(filter.since, Utc::now());
        let mut lease = self.connection.lease().await?;
        let values = ask("reading statistics", read(lease.connection(), filter, since)).await?;
        lease.keep();
        let mut rows: Vec<StatisticsRow> =
            values.into_iter().map(|(value, measures)| StatisticsRow::of(value, &measures)).collect();
        rows.sort_by_key(|row| std::cmp::Reverse((row.device_us, row.jobs)));
        Ok(Statistics { since, rows, rows_left_out: 0 })
    }
}

/// Returns the beginning of the first hour or day to count.
fn begin(since: DateTime<Utc>, now: DateTime<Utc>) -> DateTime<Utc> {
    // A day less than hours are kept, because some may be deleted while this runs.
    let oldest_hour = now - TimeDelta::days(i64::from(HOURS_KEPT_DAYS) - 1);
    // Nothing was counted before 1970 or will be after tomorrow, and chrono can't represent the beginning of some hours outside this range.
    let tomorrow = now.max(DateTime::UNIX_EPOCH) + TimeDelta::days(1);
    let since = since.clamp(DateTime::UNIX_EPOCH, tomorrow);
    if since < oldest_hour { Grain::Day.begin(since) } else { Grain::Hour.begin(since) }
}

/// Reads the measures of each value. Whole days come from the rows of days, the hours before the first whole day from the rows of hours,
/// and the rest from deltas that are not merged yet. Rows are merged as they arrive, because there may be many.
async fn read(
    connection: &mut PgConnection,
    filter: &StatisticsFilter,
    since: DateTime<Utc>,
) -> Result<BTreeMap<String, Measures>, sqlx::Error> {
    let day = Grain::Day.begin(since);
    let first_day = if day == since { day } else { day + TimeDelta::days(1) };
    let mut records = sqlx::query_as!(
        RollupRecord,
        r#"/* queries::statistics */
        select at as "at!", pool as "pool!", dimension as "dimension!", value as "value!", succeeded as "succeeded!",
               failed as "failed!", cancelled as "cancelled!", expired as "expired!", dead as "dead!",
               verdict_user as "verdict_user!", verdict_timeout as "verdict_timeout!",
               verdict_out_of_memory as "verdict_out_of_memory!", verdict_device as "verdict_device!",
               verdict_infrastructure as "verdict_infrastructure!", lost as "lost!", superseded as "superseded!",
               device_us as "device_us!", queue_us as "queue_us!", input_bytes as "input_bytes!",
               output_bytes as "output_bytes!", stages as "stages!",
               greatest(charged_us, device_us) as "charged_us!"
        from (
            select at, pool, dimension, value, succeeded, failed, cancelled, expired, dead, verdict_user, verdict_timeout,
                   verdict_out_of_memory, verdict_device, verdict_infrastructure, lost, superseded, device_us, queue_us,
                   input_bytes, output_bytes, stages, charged_us
            from rollups
            where grain = 'day' and dimension = $1 and at >= $2
            union all
            select at, pool, dimension, value, succeeded, failed, cancelled, expired, dead, verdict_user, verdict_timeout,
                   verdict_out_of_memory, verdict_device, verdict_infrastructure, lost, superseded, device_us, queue_us,
                   input_bytes, output_bytes, stages, charged_us
            from rollups
            where grain = 'hour' and dimension = $1 and at >= $3 and at < $2
            union all
            select at, pool, dimension, value, succeeded, failed, cancelled, expired, dead, verdict_user, verdict_timeout,
                   verdict_out_of_memory, verdict_device, verdict_infrastructure, lost, superseded, device_us, queue_us,
                   input_bytes, output_bytes, stages, charged_us
            from rollup_deltas
            where dimension = $1 and at >= $3
        ) counted
        where $4::text is null or pool = $4"#,
        filter.by.as_ref().map(Dimension::column).unwrap_or_default(),
        first_day,
        since,
        filter.pool.as_deref(),
    )
    .fetch(connection);
    let mut values: BTreeMap<String, Measures> = BTreeMap::new();
    while let Some(record) = records.try_next().await? {
        let measures = record.measures()?;
        let value = match &filter.by {
            None => String::new(),
            Some(Dimension::Pool) => record.pool,
            Some(_) => record.value,
        };
        values.entry(value).or_default().merge(&measures);
    }
    Ok(values)
}

impl StatisticsRow {
    pub(super) fn of(value: String, measures: &Measures) -> Self {
        let sum = |sum: Sum| measures[sum].unsigned_abs();
        let times = |stage: Stage| Times::of(&measures.stages, stage);
        Self {
            value,
            jobs: measures.jobs().unsigned_abs(),
            succeeded: sum(Sum::Succeeded),
            failed: sum(Sum::Failed),
            cancelled: sum(Sum::Cancelled),
            expired: sum(Sum::Expired),
            dead: sum(Sum::Dead),
            verdict_user: sum(Sum::VerdictUser),
            verdict_timeout: sum(Sum::VerdictTimeout),
            verdict_out_of_memory: sum(Sum::VerdictOutOfMemory),
            verdict_device: sum(Sum::VerdictDevice),
            verdict_infrastructure: sum(Sum::VerdictInfrastructure),
            attempts_lost: sum(Sum::Lost),
            attempts_superseded: sum(Sum::Superseded),
            device_us: sum(Sum::DeviceUs),
            charged_us: sum(Sum::ChargedUs),
            queue_us: sum(Sum::QueueUs),
            input_bytes: sum(Sum::InputBytes),
            output_bytes: sum(Sum::OutputBytes),
            queue: times(Stage::Queue),
            compile: times(Stage::Compile),
            copy: times(Stage::Copy),
            kernel: times(Stage::Kernel),
            total: times(Stage::Total),
        }
    }
}

impl Times {
    pub(super) fn of(stages: &Stages, stage: Stage) -> Option<Self> {
        let percentile = |share| stages.percentile_us(stage, share);
        Some(Self {
            p50_us: percentile(0.5)?,
            p95_us: percentile(0.95)?,
            p99_us: percentile(0.99)?,
            max_us: stages.max_us(stage)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_begins_with_an_hour_and_long_ago_with_a_day() {
        let time = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
        let now = time("2026-11-24T15:30:00Z");
        assert_eq!(begin(time("2026-11-20T08:59:00Z"), now), time("2026-11-20T08:00:00Z"));
        assert_eq!(begin(time("2026-03-20T08:59:00Z"), now), time("2026-03-20T00:00:00Z"));
        assert_eq!(begin(DateTime::<Utc>::MIN_UTC, now), DateTime::UNIX_EPOCH);
        let tomorrow = time("2026-11-25T15:00:00Z");
        assert_eq!(begin(DateTime::<Utc>::MAX_UTC, now), tomorrow, "a window in the future has no jobs of today");
    }
}
