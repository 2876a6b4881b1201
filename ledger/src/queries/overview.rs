//! The state of the whole fleet: what ended recently, what has not ended, and how far the recorder is behind.
//!
//! Jobs that have ended come from the roll-ups. Jobs that have not ended are counted from an index, up to a bound. So the cost does not
//! grow with the history.

use chrono::{DateTime, TimeDelta, Utc};
use gpufleet_schema::JobState;
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

use super::{
    ledger::{Ledger, ask},
    series,
    stats::StatisticsRow,
};
use crate::{
    LedgerError,
    rollups::{Grain, Measures},
};

/// The state of the fleet at one time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "serve", derive(utoipa::ToSchema))]
pub struct Overview {
    /// By the clock of the program that asked the database.
    pub at: DateTime<Utc>,
    /// Of the last 15 minutes, hour and day.
    pub windows: Vec<OverviewWindow>,
    /// Jobs that wait or run, by pool and state.
    pub unfinished: Vec<Unfinished>,
    pub recorder: Progress,
}

/// The jobs that ended in the last time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "serve", derive(utoipa::ToSchema))]
pub struct OverviewWindow {
    /// `15m`, `1h` or `24h`.
    pub window: String,
    /// The beginning of the first five minutes or hour that is counted: up to that much longer ago than the name says.
    pub since: DateTime<Utc>,
    /// Jobs with an outcome, over the time since `since`.
    pub jobs_per_second: f64,
    pub statistics: StatisticsRow,
}

/// Jobs without an outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "serve", derive(utoipa::ToSchema))]
pub struct Unfinished {
    /// None if no event has named it yet.
    pub pool: Option<String>,
    pub state: JobState,
    pub jobs: u64,
    /// There are more: only the newest jobs of a state are counted, 10,000 of all pools together.
    pub is_at_least: bool,
}

/// How far the recorders are.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "serve", derive(utoipa::ToSchema))]
pub struct Progress {
    /// When a recorder last found no event waiting; none if never.
    pub caught_up_at: Option<DateTime<Utc>>,
    /// How long ago that was, by the database's clock. An idle recorder looks every ten seconds.
    pub behind_seconds: Option<f64>,
}

/// The names and lengths of the windows, and the grain of the roll-ups for each.
const WINDOWS: [(&str, TimeDelta, Grain); 3] = [
    ("15m", TimeDelta::minutes(15), Grain::FiveMinutes),
    ("1h", TimeDelta::hours(1), Grain::FiveMinutes),
    ("24h", TimeDelta::hours(24), Grain::Hour),
];
/// The maximum number of jobs to count for each state. An exact larger number is not worth the reads.
const COUNTED_MAX: i64 = 10_000;

impl Ledger {
    /// Returns the state of the fleet.
    pub async fn overview(&self) -> Result<Overview, LedgerError> {
        let at = Utc::now();
        let mut lease = self.connection.lease().await?;
        let mut windows = Vec::new();
        for (window, span, grain) in WINDOWS {
            let since = grain.begin(at - span);
            let records = ask("reading statistics", series::read(lease.connection(), grain, since, None)).await?;
            let mut measures = Measures::default();
            for record in &records {
                measures.merge(&series::decoded(record)?);
            }
            let statistics = StatisticsRow::of(String::new(), &measures);
            let seconds = (at - since).as_seconds_f64().max(1.0);
            let jobs_per_second = statistics.jobs as f64 / seconds;
            windows.push(OverviewWindow { window: window.to_owned(), since, jobs_per_second, statistics });
        }
        let unfinished = ask("counting unfinished jobs", unfinished(lease.connection())).await?;
        let recorder = ask("reading the recorder's progress", progress(lease.connection())).await?;
        lease.keep();
        Ok(Overview { at, windows, unfinished, recorder })
    }
}

async fn unfinished(connection: &mut PgConnection) -> Result<Vec<Unfinished>, sqlx::Error> {
    let records = sqlx::query!(
        r#"/* queries::unfinished */
        select pool, state as "state!", count(*) as "jobs!", sum(count(*)) over (partition by state) >= $1 as "is_at_least!"
        from (
            (select pool, state from jobs where state = 'queued' order by id_at desc limit $1)
            union all
            (select pool, state from jobs where state = 'running' order by id_at desc limit $1)
        ) newest
        group by pool, state
        order by pool, state"#,
        COUNTED_MAX,
    )
    .fetch_all(connection)
    .await?;
    let rows = records.into_iter().map(|record| Unfinished {
        pool: record.pool,
        state: JobState::of(&record.state),
        jobs: record.jobs.unsigned_abs(),
        is_at_least: record.is_at_least,
    });
    Ok(rows.collect())
}

async fn progress(connection: &mut PgConnection) -> Result<Progress, sqlx::Error> {
    let record = sqlx::query!(
        r#"/* queries::progress */
        select caught_up_at, greatest(extract(epoch from clock_timestamp() - caught_up_at), 0)::float8 as "behind!"
        from recorder_progress"#
    )
    .fetch_optional(connection)
    .await?;
    Ok(match record {
        Some(record) => Progress { caught_up_at: Some(record.caught_up_at), behind_seconds: Some(record.behind) },
        None => Progress { caught_up_at: None, behind_seconds: None },
    })
}
