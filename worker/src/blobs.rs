//! Decides the outcome of a job whose blobs cannot be read or stored.

use gpufleet_blobs::BlobError;
use gpufleet_schema::{Failure, FailureCode, Verdict};

use crate::disposition::Ending;

/// Number of tries for a missing or damaged blob in a working store. They take half a minute, because the blob may
/// still be on its way.
const BLOB_TRIES_MAX: u32 = 4;
/// Number of tries while the blob store is unavailable. They take half an hour.
const STORE_TRIES_MAX: u32 = 8;

/// Converts a blob error to the job's failure. A blob of the wrong length is the producer's mistake; all other errors
/// may be temporary.
pub(crate) fn failure(error: &BlobError) -> Failure {
    match error {
        BlobError::Length { .. } => {
            let message = format!("{error} from the shape of the buffer");
            Failure::new(Verdict::User, FailureCode::InvalidTask, message)
        }
        BlobError::Missing { .. } | BlobError::Damaged { .. } => {
            Failure::new(Verdict::Infrastructure, FailureCode::BlobMissing, error.to_string())
        }
        _ => unavailable(error.to_string()),
    }
}

pub(crate) fn unavailable(message: String) -> Failure {
    Failure::new(Verdict::Infrastructure, FailureCode::BlobUnavailable, message)
}

/// Returns how an attempt with this failure ends.
pub(crate) fn ending(failure: Failure) -> Ending {
    match failure.code {
        FailureCode::BlobMissing => Ending::Unavailable { failure, tries_max: BLOB_TRIES_MAX },
        FailureCode::BlobUnavailable => Ending::Unavailable { failure, tries_max: STORE_TRIES_MAX },
        _ => Ending::Failed(failure),
    }
}
