//! Health checks: whether the server runs, whether it can answer, and how far its database is behind.

use std::time::Duration;

use axum::{
    Json,
    extract::{Request, State},
    http::{HeaderName, HeaderValue},
    middleware::Next,
    response::Response,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    answer::Answered,
    state::{Api, Shared},
};
use crate::{
    Replication, migrate,
    problem::{Problem, ProblemKind},
};

/// How long the result of a check is valid. Every request needs one.
pub(super) const CHECKED_FOR: Duration = Duration::from_secs(1);

/// The header of every answer from the ledger that says how far the database is behind its primary, in seconds, or
/// `unknown`.
const LAG_HEADER: HeaderName = HeaderName::from_static("gpufleet-lag-seconds");

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Alive {
    /// Always `alive`.
    status: &'static str,
    /// The release of the server.
    version: &'static str,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Ready {
    /// Always `ready`.
    status: &'static str,
    /// The version of the ledger's tables.
    tables: i64,
    /// The database is a standby.
    is_standby: bool,
    /// How far the database is behind its primary at most; 0 for a primary.
    lag_seconds: f64,
}

/// Whether the server runs
///
/// It does not look at the database.
#[utoipa::path(get, path = "/healthz", operation_id = "isAlive", tag = "health", responses((status = 200, body = Alive)))]
pub(super) async fn alive() -> Json<Alive> {
    Json(Alive { status: "alive", version: env!("CARGO_PKG_VERSION") })
}

/// Whether the server can answer
///
/// It can if the database answers, its tables fit this release, and it is not too far behind its primary.
#[utoipa::path(get, path = "/readyz", operation_id = "isReady", tag = "health", responses(
    (status = 200, body = Ready),
    (status = 503, body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn ready(State(api): Shared) -> Answered<Json<Ready>> {
    let replication = api.check().await?;
    let lag = replication.lag().ok_or_else(|| {
        let detail = "the standby has no connection to its primary, and has replayed nothing since its start";
        Problem::new(ProblemKind::StandbyBehind, BEHIND, detail, CATCH_UP)
    })?;
    if lag > api.lag_max {
        let detail =
            format!("it is {:.1} s behind; at most {:.1} s are allowed", lag.as_secs_f64(), api.lag_max.as_secs_f64());
        return Err(Problem::new(ProblemKind::StandbyBehind, BEHIND, detail, CATCH_UP));
    }
    Ok(Json(Ready {
        status: "ready",
        tables: migrate::version_needed(),
        is_standby: replication != Replication::Primary,
        lag_seconds: lag.as_secs_f64(),
    }))
}

const BEHIND: &str = "The standby is too far behind its primary";
const CATCH_UP: &str =
    "wait until it has caught up; if it does not, the operator should check the standby's connection to its primary";

impl Api {
    /// Checks the database, or repeats the result of a recent check.
    async fn check(&self) -> Answered<Replication> {
        self.replication
            .get(async || {
                self.ledger.check_tables().await?;
                Ok(self.ledger.replication().await?)
            })
            .await
    }
}

/// Adds [`LAG_HEADER`] to the answer, unless the database can't be reached.
pub(super) async fn with_lag(State(api): Shared, request: Request, next: Next) -> Response {
    // Checked before the query, so that the answer is at least as recent as the header says.
    let checked = api.check().await;
    let mut response = next.run(request).await;
    if let Ok(replication) = checked {
        let lag = replication.lag().map_or_else(|| "unknown".to_owned(), |lag| format!("{:.3}", lag.as_secs_f64()));
        let value = HeaderValue::try_from(lag).expect("digits and letters are allowed in headers");
        response.headers_mut().insert(LAG_HEADER, value);
    }
    response
}
