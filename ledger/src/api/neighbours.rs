//! Lists the jobs that a cancellation may interrupt.

use axum::{Json, extract::State};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    answer::{Answered, Refused},
    jobs::find,
    parameters::Id,
    state::Shared,
};
use crate::Neighbour;

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Neighbours {
    neighbours: Vec<Neighbour>,
}

/// List the jobs that may run in the same executor as a job
///
/// They run in the same pool on the same device. If the job is cancelled, its worker kills the executor, and those in it start again from
/// the beginning. The longest running one is first. The list is empty if the job does not run.
#[utoipa::path(get, path = "/v1/jobs/{id}/neighbours", operation_id = "listNeighbours", tag = "jobs", security(("token" = [])),
    params(("id" = String, Path, description = "Id of the job; its beginning or its end is enough if that is unique")),
    responses((status = 200, body = Neighbours), Refused))]
pub(super) async fn list(State(api): Shared, Id(id): Id) -> Answered<Json<Neighbours>> {
    let job_id = find(&api.ledger, &id).await?.job.job_id;
    Ok(Json(Neighbours { neighbours: api.ledger.neighbours(job_id).await? }))
}
