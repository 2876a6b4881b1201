//! The outcome of a job whose claim checks cannot be read or stored.

use gpufleet_schema::{Failure, FailureCode, Verdict};
use gpufleet_transport::BlobError;

use crate::disposition::Ending;

/// For a missing or damaged blob in a working store: half a minute, because the blob may still be on its way.
const BLOB_TRIES_MAX: u32 = 4;
/// For a store that is away: half an hour.
const STORE_TRIES_MAX: u32 = 8;

/// A blob of the wrong length is the producer's mistake. All other errors may pass.
pub(crate) fn failure(error: &BlobError) -> Failure {
    match error {
        BlobError::Length { .. } => {
            let message = format!("could not {error} from the shape of the buffer");
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
