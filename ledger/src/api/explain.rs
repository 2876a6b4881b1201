//! Explains one job: why it waits, and how well it used its device.

use axum::{Json, extract::State};
use chrono::Utc;
use gpufleet_schema::JobState;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    answer::{Answered, Refused},
    jobs::find,
    parameters::{Id, Query},
    pools,
    state::Shared,
};
use crate::{
    Explanation, Report, WorkerFilter,
    problem::{Problem, ProblemKind},
    why::{Depth, SHARE_WINDOW, Situation},
};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Queues {
    /// The messages in the queues of the job's pool, for a session in the queue of sessions, if the caller has asked the broker.
    #[param(minimum = 0)]
    messages: Option<u64>,
    /// The consumers of these queues. Without both, the heartbeats tell whether a worker serves the pool.
    #[param(minimum = 0)]
    consumers: Option<u32>,
}

/// Explain why a job waits
///
/// The answer is what `gpufleet why -o json` prints. The server does not ask the broker; a caller that has asked it may say what it answered.
#[utoipa::path(get, path = "/v1/jobs/{id}/why", operation_id = "explainJob", tag = "jobs", security(("token" = [])),
    params(("id" = String, Path, description = "Id of the job; its beginning or its end is enough if that is unique"), Queues),
    responses((status = 200, body = Explanation), Refused))]
pub(super) async fn why(State(api): Shared, Id(id): Id, Query(queues): Query<Queues>) -> Answered<Json<Explanation>> {
    let detail = find(&api.ledger, &id).await?;
    let now = Utc::now();
    let (workers, pools) = match detail.job.state {
        JobState::Queued => {
            let workers = api.ledger.workers(&WorkerFilter::default()).await?;
            let pools = pools::among(&api.ledger, &workers, now - SHARE_WINDOW).await?;
            (workers, pools)
        }
        _ => (Vec::new(), Vec::new()),
    };
    let depth = queues.messages.zip(queues.consumers).map(|(messages, consumers)| Depth { messages, consumers });
    Ok(Json(Situation { detail: &detail, depth, workers: &workers, pools: &pools, now }.explain()))
}

/// Show how well a job used its device, with advice
///
/// The answer is what `gpufleet report -o json` prints.
#[utoipa::path(get, path = "/v1/jobs/{id}/report", operation_id = "reportJob", tag = "jobs", security(("token" = [])),
    params(("id" = String, Path, description = "Id of the job; its beginning or its end is enough if that is unique")),
    responses((status = 200, body = Report), Refused))]
pub(super) async fn report(State(api): Shared, Id(id): Id) -> Answered<Json<Report>> {
    let detail = find(&api.ledger, &id).await?;
    let workers = match &detail.job.worker {
        None => Vec::new(),
        name => api.ledger.workers(&WorkerFilter { name: name.clone(), ..WorkerFilter::default() }).await?,
    };
    let report = Report::of(&detail, &workers).ok_or_else(|| {
        Problem::new(
            ProblemKind::NoTimes,
            "The job has no times yet",
            format!("it is {} and has no measured attempt", detail.job.state),
            "ask again when it has ended; /v1/jobs/{id}/why says why it waits",
        )
    })?;
    Ok(Json(report))
}
