//! What a job is told whose claim checks can't be honoured.

use gpufleet_schema::{Failure, FailureCode, Verdict};
use gpufleet_transport::BlobError;

/// A blob of the wrong length is its producer's mistake. Everything else may be otherwise on another worker, or later.
pub(crate) fn failure(error: &BlobError) -> Failure {
    match error {
        BlobError::Length { .. } => Failure::new(
            Verdict::User,
            FailureCode::InvalidTask,
            format!("could not {error}, by the shape of its buffer"),
        ),
        _ => unavailable(format!("could not {error}")),
    }
}

pub(crate) fn no_store() -> Failure {
    unavailable(
        "this worker has no blob store, which the task needs; --blobs or GPUFLEET_BLOBS names its folder".to_owned(),
    )
}

fn unavailable(message: String) -> Failure {
    Failure::new(Verdict::Infrastructure, FailureCode::BlobUnavailable, message)
}
