//! Serves the bytes of kept outputs that are in the ledger. Large outputs are in the blob store, which this server does not read.

use axum::{
    extract::{FromRequestParts, Path, State},
    http::{header, request::Parts},
    response::{IntoResponse as _, Response},
};

use super::{
    answer::{Answered, Refused},
    jobs,
    parameters::refused,
    state::Shared,
};
use crate::problem::{Problem, ProblemKind};

/// The id of a job and the name of an output, from the path.
pub(super) struct OutputName(String, String);

impl<S: Send + Sync> FromRequestParts<S> for OutputName {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<(String, String)>::from_request_parts(parts, state).await {
            Ok(Path((_, name))) if name.contains('\0') => Err(refused("name", "it contains the character U+0000")),
            Ok(Path((id, name))) => Ok(Self(id, name)),
            Err(_) => Err(refused("name", "it is not UTF-8")),
        }
    }
}

/// Get the bytes of a kept output
///
/// They are little-endian elements in C order; the job tells their type and shape. An output with a digest is in the blob store instead.
#[utoipa::path(get, path = "/v1/jobs/{id}/outputs/{name}", operation_id = "getOutput", tag = "jobs", security(("token" = [])),
    params(
        ("id" = String, Path, description = "Id of the job; its beginning or its end is enough if that is unique"),
        ("name" = String, Path, description = "Name of the output"),
    ),
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream"), Refused))]
pub(super) async fn bytes(State(api): Shared, OutputName(id, name): OutputName) -> Answered<Response> {
    let detail = jobs::find(&api.ledger, &id).await?;
    let bytes = api.ledger.output_bytes(detail.job.job_id, &name).await?;
    let bytes = bytes.ok_or_else(|| {
        Problem::new(
            ProblemKind::NotFound,
            "The ledger has no such output",
            "the job keeps no output of this name, it has expired, or its bytes are in the blob store",
            "see `outputs` of /v1/jobs/{id}; one with a digest is in the blob store, where `gpufleet fetch` gets it",
        )
    })?;
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response())
}
