//! What becomes of a job whose claim checks can't be honoured.

use gpufleet_schema::{Failure, FailureCode, Verdict};
use gpufleet_transport::BlobError;

use crate::disposition::Ending;

/// For a blob that is missing or damaged in a store that works: half a minute, for one that is on its way or that somebody mends.
const BLOB_TRIES_MAX: u32 = 4;
/// For a store that is away: half an hour.
const STORE_TRIES_MAX: u32 = 8;

/// A blob of the wrong length is its producer's mistake. Everything else may be otherwise later.
pub(crate) fn failure(error: &BlobError) -> Failure {
    match error {
        BlobError::Length { .. } => {
            let message = format!("could not {error}, by the shape of its buffer");
            Failure::new(Verdict::User, FailureCode::InvalidTask, message)
        }
        BlobError::Missing { .. } | BlobError::Damaged { .. } => {
            Failure::new(Verdict::Infrastructure, FailureCode::BlobMissing, format!("could not {error}"))
        }
        _ => unavailable(format!("could not {error}")),
    }
}

pub(crate) fn unavailable(message: String) -> Failure {
    Failure::new(Verdict::Infrastructure, FailureCode::BlobUnavailable, message)
}

/// How an attempt ends by this failure.
pub(crate) fn ending(failure: Failure) -> Ending {
    match failure.code {
        FailureCode::BlobMissing => Ending::Unavailable { failure, tries_max: BLOB_TRIES_MAX },
        FailureCode::BlobUnavailable => Ending::Unavailable { failure, tries_max: STORE_TRIES_MAX },
        _ => Ending::Failed(failure),
    }
}
