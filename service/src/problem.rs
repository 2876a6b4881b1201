//! An error over HTTP, as problem JSON (RFC 9457): what failed, why, and what to do next.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// The body of every answer that is not a success. It never names the database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[error("{title}: {detail}; {next}")]
pub struct Problem {
    /// The kind of the problem, for programs.
    #[serde(rename = "type")]
    pub kind: ProblemKind,
    /// What failed.
    pub title: Cow<'static, str>,
    /// The HTTP status.
    pub status: u16,
    /// Why it failed.
    pub detail: Cow<'static, str>,
    /// What to do about it.
    pub next: Cow<'static, str>,
    /// Some of the jobs that an ambiguous id could mean.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ProblemKind {
    /// A filter or another parameter is wrong.
    #[serde(rename = "gpufleet:bad-request")]
    BadRequest,
    /// The token is missing or wrong.
    #[serde(rename = "gpufleet:unauthorized")]
    Unauthorized,
    /// There is no such page.
    #[serde(rename = "gpufleet:not-found")]
    NotFound,
    /// The ledger has no such job.
    #[serde(rename = "gpufleet:unknown-job")]
    UnknownJob,
    /// The job has no such attempt.
    #[serde(rename = "gpufleet:unknown-attempt")]
    UnknownAttempt,
    /// The job has no measured attempt yet.
    #[serde(rename = "gpufleet:no-times")]
    NoTimes,
    /// The ids of several jobs begin or end with this text.
    #[serde(rename = "gpufleet:ambiguous-job")]
    AmbiguousJob,
    /// The API only reads.
    #[serde(rename = "gpufleet:method-not-allowed")]
    MethodNotAllowed,
    /// The request is for another host.
    #[serde(rename = "gpufleet:misdirected")]
    Misdirected,
    /// The URL is too long.
    #[serde(rename = "gpufleet:url-too-long")]
    UrlTooLong,
    /// Too many requests at once.
    #[serde(rename = "gpufleet:overloaded")]
    Overloaded,
    /// The database can't be reached.
    #[serde(rename = "gpufleet:database-unavailable")]
    DatabaseUnavailable,
    /// The ledger's tables do not fit this release, or the role lacks a privilege on them.
    #[serde(rename = "gpufleet:tables-unusable")]
    TablesUnusable,
    /// The database took too long.
    #[serde(rename = "gpufleet:too-slow")]
    TooSlow,
    /// The standby is too far behind its primary.
    #[serde(rename = "gpufleet:standby-behind")]
    StandbyBehind,
    /// The console can't reach the read API.
    #[serde(rename = "gpufleet:api-unavailable")]
    ApiUnavailable,
    /// The console has no broker, or can't reach it.
    #[serde(rename = "gpufleet:broker-unavailable")]
    BrokerUnavailable,
    /// The caller may not do this.
    #[serde(rename = "gpufleet:forbidden")]
    Forbidden,
    /// A defect.
    #[serde(rename = "gpufleet:internal")]
    Internal,
    /// A kind that this release does not know.
    #[serde(other, rename = "gpufleet:unknown")]
    Unknown,
}

impl ProblemKind {
    pub const fn status(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound | Self::UnknownJob | Self::UnknownAttempt | Self::NoTimes => 404,
            Self::MethodNotAllowed => 405,
            Self::AmbiguousJob => 409,
            Self::UrlTooLong => 414,
            Self::Misdirected => 421,
            Self::Internal | Self::Unknown => 500,
            Self::Overloaded
            | Self::DatabaseUnavailable
            | Self::TablesUnusable
            | Self::TooSlow
            | Self::StandbyBehind
            | Self::ApiUnavailable
            | Self::BrokerUnavailable => 503,
        }
    }
}

impl Problem {
    pub fn new(
        kind: ProblemKind,
        title: impl Into<Cow<'static, str>>,
        detail: impl Into<Cow<'static, str>>,
        next: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            kind,
            title: title.into(),
            status: kind.status(),
            detail: detail.into(),
            next: next.into(),
            jobs: Vec::new(),
        }
    }
}

#[cfg(feature = "server")]
impl axum::response::IntoResponse for Problem {
    fn into_response(self) -> axum::response::Response {
        use axum::http::{StatusCode, header};

        let status = StatusCode::from_u16(self.status).expect("every kind has a valid status");
        let body = serde_json::to_string(&self).expect("all of its fields are texts and numbers");
        (status, [(header::CONTENT_TYPE, "application/problem+json")], body).into_response()
    }
}
