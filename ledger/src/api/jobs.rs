//! Lists jobs, and shows one job with its attempts and the output of its kernels.

use axum::{Json, extract::State};
use gpufleet_schema::{AttemptState, JobId, JobState, PrintfOutput};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    answer::{Answered, Refused},
    parameters::{self, Id, Label, Query, Text, Time},
    state::Shared,
};
use crate::{
    HistoryFilter, JobDetail, JobMatch, Ledger, Page, PageKey,
    problem::{Problem, ProblemKind},
};

/// The filters of `gpufleet history`.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Filters {
    /// Only jobs in this state. Repeatable: jobs in any of the states.
    #[serde(default, deserialize_with = "parameters::states")]
    state: Vec<JobState>,
    /// Only jobs that ran this catalog kernel, or this entry of a program, and sessions and host programs with this command.
    #[param(value_type = Option<String>)]
    kernel: Option<Text>,
    /// Only jobs of this pool.
    #[param(value_type = Option<String>)]
    pool: Option<Text>,
    /// Only jobs published by this user of the broker, if a worker has reported the user.
    #[param(value_type = Option<String>)]
    user: Option<Text>,
    /// Only jobs whose outcome came from this worker.
    #[param(value_type = Option<String>)]
    worker: Option<Text>,
    /// Only jobs with exactly this name.
    #[param(value_type = Option<String>)]
    name: Option<Text>,
    /// Only host programs in this environment or image.
    #[param(value_type = Option<String>)]
    env: Option<Text>,
    /// Only jobs submitted at this time or later.
    #[param(value_type = Option<chrono::DateTime<chrono::Utc>>)]
    since: Option<Time>,
    /// Only jobs submitted before this time.
    #[param(value_type = Option<chrono::DateTime<chrono::Utc>>)]
    until: Option<Time>,
    /// Only jobs with this label, as `KEY=VALUE`. Repeatable: jobs with all of the labels.
    #[serde(default)]
    #[param(value_type = Vec<String>)]
    label: Vec<Label>,
    /// Most jobs on a page.
    #[serde(default = "default_limit")]
    #[param(minimum = 1, maximum = 1000, default = 50)]
    limit: u32,
    /// Continue an earlier list after this key, which was its `next`.
    #[param(value_type = Option<String>)]
    before: Option<PageKey>,
}

fn default_limit() -> u32 {
    HistoryFilter::LIMIT_DEFAULT
}

impl Filters {
    fn checked(self) -> Answered<HistoryFilter> {
        if !(1..=HistoryFilter::API_LIMIT_MAX).contains(&self.limit) {
            let why = format!("{} is not between 1 and {}", self.limit, HistoryFilter::API_LIMIT_MAX);
            return Err(parameters::refused("limit", &why));
        }
        Ok(HistoryFilter {
            states: self.state,
            kernel: self.kernel.map(|text| text.0),
            pool: self.pool.map(|text| text.0),
            user_id: self.user.map(|text| text.0),
            worker: self.worker.map(|text| text.0),
            name: self.name.map(|text| text.0),
            environment: self.env.map(|text| text.0),
            since: self.since.map(|time| time.0),
            until: self.until.map(|time| time.0),
            labels: self.label.into_iter().map(|label| label.0).collect(),
            limit: self.limit,
            before: self.before,
        })
    }
}

/// List jobs, newest first
///
/// If there are more, `next` has the key with which the next page begins.
#[utoipa::path(get, path = "/v1/jobs", operation_id = "listJobs", tag = "jobs", params(Filters), security(("token" = [])),
    responses((status = 200, body = Page), Refused))]
pub(super) async fn list(State(api): Shared, Query(filters): Query<Filters>) -> Answered<Json<Page>> {
    Ok(Json(api.ledger.history(&filters.checked()?).await?))
}

/// Show a job with its attempts and kept outputs
///
/// The answer is what `gpufleet show -o json` prints.
#[utoipa::path(get, path = "/v1/jobs/{id}", operation_id = "showJob", tag = "jobs", security(("token" = [])),
    params(("id" = String, Path, description = "Id of the job; its beginning or its end is enough if that is unique")),
    responses((status = 200, body = JobDetail), Refused))]
pub(super) async fn job(State(api): Shared, Id(id): Id) -> Answered<Json<JobDetail>> {
    Ok(Json(find(&api.ledger, &id).await?))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AttemptQuery {
    /// Number of the attempt; by default the one that decided the outcome, else the latest.
    #[param(minimum = 1)]
    attempt: Option<u32>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Logs {
    #[schema(value_type = uuid::Uuid)]
    job_id: JobId,
    /// None if the job has not started.
    attempt: Option<u32>,
    state: Option<AttemptState>,
    /// None if the kernels printed nothing, or as long as the attempt runs.
    printf_output: Option<PrintfOutput>,
}

/// Show the printf output of a job's kernels
#[utoipa::path(get, path = "/v1/jobs/{id}/logs", operation_id = "showLogs", tag = "jobs", security(("token" = [])),
    params(("id" = String, Path, description = "Id of the job; its beginning or its end is enough if that is unique"),
        AttemptQuery),
    responses((status = 200, body = Logs), Refused))]
pub(super) async fn logs(State(api): Shared, Id(id): Id, Query(wanted): Query<AttemptQuery>) -> Answered<Json<Logs>> {
    let JobDetail { job, attempts, .. } = find(&api.ledger, &id).await?;
    let job_id = job.job_id;
    let Some(number) = wanted.attempt.or(job.attempt) else {
        return Ok(Json(Logs { job_id, attempt: None, state: None, printf_output: None }));
    };
    let attempt = attempts.into_iter().find(|attempt| attempt.attempt == number).ok_or_else(|| {
        let detail = format!("the job has no attempt {number}");
        Problem::new(
            ProblemKind::UnknownAttempt,
            "There is no such attempt",
            detail,
            "/v1/jobs/{id} lists the attempts",
        )
    })?;
    let (attempt, state, printf_output) = (Some(attempt.attempt), Some(attempt.state), attempt.printf_output);
    Ok(Json(Logs { job_id, attempt, state, printf_output }))
}

pub(super) async fn find(ledger: &Ledger, id: &str) -> Answered<JobDetail> {
    match ledger.find_job(id).await? {
        JobMatch::One(detail) => Ok(*detail),
        JobMatch::None => Err(Problem::new(
            ProblemKind::UnknownJob,
            "There is no such job",
            "no job's id begins or ends with this text",
            "a new job appears within a second; /v1/jobs lists the latest jobs",
        )),
        JobMatch::Many(jobs) => Err(Problem {
            jobs: jobs.iter().map(ToString::to_string).collect(),
            ..Problem::new(
                ProblemKind::AmbiguousJob,
                "The id is ambiguous",
                "the ids of several jobs begin or end with this text",
                "give more characters of the id",
            )
        }),
    }
}
