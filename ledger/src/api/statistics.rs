//! Statistics of jobs that have ended: totals, totals by one dimension, and series over time.

use axum::{Json, extract::State};
use chrono::{TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    answer::{Answered, Refused},
    parameters::{self, Query, Text, Time},
    state::Shared,
};
use crate::{Dimension, STATISTICS_ROWS_MAX, Series, Statistics, StatisticsFilter};

/// The default time span, which is also that of `gpufleet stats`.
const SINCE_DEFAULT: TimeDelta = TimeDelta::days(7);
/// The default maximum number of rows: more than a person reads. Programs can ask for more.
const ROWS_DEFAULT: u32 = 1000;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Filters {
    /// One row for each value of `pool`, `kernel`, `user`, `worker`, `device` (the model), or `label:KEY` with a declared label key. Without it
    /// one row of all jobs.
    #[param(value_type = Option<String>)]
    by: Option<Text>,
    /// Only jobs that ended at this time or later. It is rounded down to the hour, and to the day if it is more than two months ago. By
    /// default 7 days ago.
    #[param(value_type = Option<chrono::DateTime<chrono::Utc>>)]
    since: Option<Time>,
    /// Only jobs of this pool.
    #[param(value_type = Option<String>)]
    pool: Option<Text>,
    /// Most rows.
    #[serde(default = "default_limit")]
    #[param(minimum = 1, maximum = 10000, default = 1000)]
    limit: u32,
}

fn default_limit() -> u32 {
    ROWS_DEFAULT
}

/// Show outcomes, device time, bytes and percentiles of jobs that have ended
///
/// The answer is what `gpufleet stats -o json` and `gpufleet usage -o json` print. The row with the most time on devices comes first.
#[utoipa::path(get, path = "/v1/statistics", operation_id = "showStatistics", tag = "statistics", params(Filters), security(("token" = [])),
    responses((status = 200, body = Statistics), Refused))]
pub(super) async fn show(State(api): Shared, Query(filters): Query<Filters>) -> Answered<Json<Statistics>> {
    if !(1..=STATISTICS_ROWS_MAX).contains(&filters.limit) {
        let why = format!("{} is not between 1 and {STATISTICS_ROWS_MAX}", filters.limit);
        return Err(parameters::refused("limit", &why));
    }
    let by = filters.by.map(|by| by.0.parse::<Dimension>()).transpose();
    let by = by.map_err(|unknown| parameters::refused("by", &unknown.to_string()))?;
    let since = filters.since.map_or_else(|| Utc::now() - SINCE_DEFAULT, |since| since.0);
    let filter = StatisticsFilter { by, since, pool: filters.pool.map(|pool| pool.0) };
    let mut statistics = api.ledger.statistics(&filter).await?;
    statistics.rows_left_out = (statistics.rows.len() as u64).saturating_sub(filters.limit.into());
    statistics.rows.truncate(filters.limit as usize);
    Ok(Json(statistics))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Span {
    /// The beginning: within a day, the points are of five minutes; within two months, of an hour; else of a day. By default a day ago.
    #[param(value_type = Option<chrono::DateTime<chrono::Utc>>)]
    since: Option<Time>,
    /// Only jobs of this pool.
    #[param(value_type = Option<String>)]
    pool: Option<Text>,
}

/// Show throughput, waits and runs over time
#[utoipa::path(get, path = "/v1/statistics/series", operation_id = "showSeries", tag = "statistics", params(Span), security(("token" = [])),
    responses((status = 200, body = Series), Refused))]
pub(super) async fn series(State(api): Shared, Query(span): Query<Span>) -> Answered<Json<Series>> {
    let since = span.since.map_or_else(|| Utc::now() - TimeDelta::days(1), |since| since.0);
    let pool = span.pool.map(|pool| pool.0);
    Ok(Json(api.ledger.series(since, pool.as_deref()).await?))
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LabelKeys {
    /// The declared label keys, by which jobs are counted and found quickly.
    keys: Vec<String>,
}

/// List the declared label keys
///
/// `gpufleet-ledger labels` declares them.
#[utoipa::path(get, path = "/v1/labels", operation_id = "listLabels", tag = "statistics", security(("token" = [])),
    responses((status = 200, body = LabelKeys), Refused))]
pub(super) async fn labels(State(api): Shared) -> Answered<Json<LabelKeys>> {
    Ok(Json(LabelKeys { keys: api.ledger.label_keys().await? }))
}
