//! Statistics over time, read from the roll-ups alone.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

use super::{
    ledger::{Ledger, ask},
    stats::Times,
};
use crate::{
    LedgerError,
    rollups::{FIVE_MINUTES_KEPT, Grain, HOURS_KEPT_DAYS, Measures, RollupRecord, Stage, Sum},
};

/// How many jobs ended in each span of time, and how long they took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "serve", derive(utoipa::ToSchema))]
pub struct Series {
    pub grain: Grain,
    /// The oldest first. A span without jobs has none.
    pub points: Vec<SeriesPoint>,
}

/// The jobs that ended in one span.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "serve", derive(utoipa::ToSchema))]
pub struct SeriesPoint {
    /// The beginning of the span, in UTC.
    pub at: DateTime<Utc>,
    /// Jobs with an outcome, without sessions. The next five are the outcomes.
    pub jobs: u64,
    pub succeeded: u64,
    pub failed: u64,
    pub cancelled: u64,
    pub expired: u64,
    pub dead: u64,
    pub attempts_lost: u64,
    pub device_us: u64,
    /// From submission to the start on the device.
    pub queue: Option<Times>,
    /// On the device.
    pub total: Option<Times>,
}

impl Ledger {
    /// Returns counts and times of the jobs that have ended since this time, by five minutes if that is within a day, by the hour within
    /// two months, and by the day otherwise.
    pub async fn series(&self, since: DateTime<Utc>, pool: Option<&str>) -> Result<Series, LedgerError> {
        let now = Utc::now();
        // Nothing was counted before 1970 or will be after today, and chrono can't represent the beginning of some hours outside this
        // range.
        let since = since.clamp(DateTime::UNIX_EPOCH, now.max(DateTime::UNIX_EPOCH));
        let grain = grain(since, now);
        let since = grain.begin(since);
        let mut lease = self.connection.lease().await?;
        let records = ask("reading statistics", read(lease.connection(), grain, since, pool)).await?;
        lease.keep();
        let mut spans: BTreeMap<DateTime<Utc>, Measures> = BTreeMap::new();
        for record in &records {
            spans.entry(grain.begin(record.at)).or_default().merge(&decoded(record)?);
        }
        let points = spans.into_iter().map(|(at, measures)| SeriesPoint::of(at, &measures)).collect();
        Ok(Series { grain, points })
    }
}

pub(super) fn decoded(record: &RollupRecord) -> Result<Measures, LedgerError> {
    record.measures().map_err(|source| LedgerError::Database { operation: "reading statistics", source })
}

/// Returns the finest grain whose rows are kept for that long.
fn grain(since: DateTime<Utc>, now: DateTime<Utc>) -> Grain {
    // A little less than rows are kept, because some may be deleted while this runs.
    if since >= now - FIVE_MINUTES_KEPT + TimeDelta::hours(1) {
        Grain::FiveMinutes
    } else if since >= now - TimeDelta::days(i64::from(HOURS_KEPT_DAYS) - 1) {
        Grain::Hour
    } else {
        Grain::Day
    }
}

/// Reads the rows of whole pools, including deltas that are not merged yet.
pub(super) async fn read(
    connection: &mut PgConnection,
    grain: Grain,
    since: DateTime<Utc>,
    pool: Option<&str>,
) -> Result<Vec<RollupRecord>, sqlx::Error> {
    sqlx::query_as!(
        RollupRecord,
        r#"/* queries::series */
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
            where grain = $1 and dimension = '' and at >= $2
            union all
            select at, pool, dimension, value, succeeded, failed, cancelled, expired, dead, verdict_user, verdict_timeout,
                   verdict_out_of_memory, verdict_device, verdict_infrastructure, lost, superseded, device_us, queue_us,
                   input_bytes, output_bytes, stages, charged_us
            from rollup_deltas
            where dimension = '' and at >= $2
        ) counted
        where $3::text is null or pool = $3"#,
        grain.name(),
        since,
        pool,
    )
    .fetch_all(connection)
    .await
}

impl SeriesPoint {
    fn of(at: DateTime<Utc>, measures: &Measures) -> Self {
        let sum = |sum: Sum| measures[sum].unsigned_abs();
        Self {
            at,
            jobs: measures.jobs().unsigned_abs(),
            succeeded: sum(Sum::Succeeded),
            failed: sum(Sum::Failed),
            cancelled: sum(Sum::Cancelled),
            expired: sum(Sum::Expired),
            dead: sum(Sum::Dead),
            attempts_lost: sum(Sum::Lost),
            device_us: sum(Sum::DeviceUs),
            queue: Times::of(&measures.stages, Stage::Queue),
            total: Times::of(&measures.stages, Stage::Total),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_shown_by_five_minutes_a_month_by_the_hour_and_a_year_by_the_day() {
        let now: DateTime<Utc> = "2026-11-24T15:30:00Z".parse().unwrap();
        for (days, expected) in [(1, Grain::FiveMinutes), (2, Grain::Hour), (31, Grain::Hour), (365, Grain::Day)] {
            assert_eq!(grain(now - TimeDelta::days(days), now), expected, "{days} days");
        }
    }
}
