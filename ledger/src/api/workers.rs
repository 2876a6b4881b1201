//! Lists workers with their devices.

use std::time::Duration;

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    answer::{Answered, Refused},
    parameters::{self, Query, Text},
    state::Shared,
};
use crate::{ListedWorker, WorkerFilter};

/// The maximum of the filter `heard_within_seconds`: a year. To list workers that were silent for longer, callers omit
/// the filter.
const HEARD_WITHIN_SECONDS_MAX: u32 = 365 * 24 * 3600;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Filters {
    /// Only the worker with this name.
    #[param(value_type = Option<String>)]
    name: Option<Text>,
    /// Only workers that have not left and sent a heartbeat within this time.
    #[param(maximum = 31_536_000)]
    #[serde(default, deserialize_with = "parameters::number")]
    heard_within_seconds: Option<u32>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Workers {
    /// At most 1000, the most recently heard from first.
    workers: Vec<ListedWorker>,
}

/// List workers and their devices
///
/// Each worker is as `gpufleet workers -o json` prints it.
#[utoipa::path(get, path = "/v1/workers", operation_id = "listWorkers", tag = "workers", params(Filters), security(("token" = [])),
    responses((status = 200, body = Workers), Refused))]
pub(super) async fn list(State(api): Shared, Query(filters): Query<Filters>) -> Answered<Json<Workers>> {
    if let Some(seconds) = filters.heard_within_seconds.filter(|seconds| *seconds > HEARD_WITHIN_SECONDS_MAX) {
        return Err(parameters::refused(
            "heard_within_seconds",
            &format!("{seconds} is more than {HEARD_WITHIN_SECONDS_MAX}, a year"),
        ));
    }
    let filter = WorkerFilter {
        name: filters.name.map(|text| text.0),
        heard_within: filters.heard_within_seconds.map(|seconds| Duration::from_secs(seconds.into())),
        ..WorkerFilter::default()
    };
    let workers = api.ledger.workers(&filter).await?;
    Ok(Json(Workers { workers: workers.into_iter().map(ListedWorker::from).collect() }))
}
