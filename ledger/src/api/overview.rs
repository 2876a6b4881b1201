//! Shows the state of the whole fleet.

use std::time::Duration;

use axum::{Json, extract::State};

use super::{
    answer::{Answered, Refused},
    state::Shared,
};
use crate::Overview;

/// How long an overview is valid. The database computes at most one per second, however many callers watch.
pub(super) const SHOWN_FOR: Duration = Duration::from_secs(1);

/// Show throughput, waits, unfinished jobs and the recorder's progress
///
/// It may be a second old. What ended comes from statistics and not from the jobs.
#[utoipa::path(get, path = "/v1/overview", operation_id = "showOverview", tag = "statistics", security(("token" = [])),
    responses((status = 200, body = Overview), Refused))]
pub(super) async fn show(State(api): Shared) -> Answered<Json<Overview>> {
    Ok(Json(api.overview.get(async || Ok(api.ledger.overview().await?)).await?))
}
