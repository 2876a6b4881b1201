//! The blob store: whether it exists and can be written.

use gpufleet::BlobError;
use gpufleet_blobs::BlobStore;

use super::{
    super::{
        complaint::chain,
        connection, environment,
        options::{BlobOptions, BrokerOptions},
    },
    finding::Finding,
};

const CHECK: &str = "blob store";

pub async fn examine(options: &BlobOptions, broker: &BrokerOptions) -> Finding {
    match connection::blobs(options, broker) {
        Err(complaint) => Finding::of_complaint(CHECK, &complaint),
        Ok(None) => none(),
        Ok(Some(location)) => {
            let shown = location.to_string();
            judge(&shown, probe(location).await)
        }
    }
}

async fn probe(location: gpufleet::BlobLocation) -> Result<(), BlobError> {
    BlobStore::open(location).await?.probe().await
}

fn none() -> Finding {
    Finding::warning(
        CHECK,
        "none is configured, so the inputs and the outputs of a job must fit into messages of 16 MiB",
    )
    .fix(format!("for larger arrays, set {} to a folder or bucket that the workers share", environment::BLOBS))
}

fn judge(location: &str, probed: Result<(), BlobError>) -> Finding {
    match probed {
        Ok(()) => Finding::ok(CHECK, format!("{location} is writable")),
        Err(error) => Finding::error(CHECK, chain(&error)).fix(connection::blob_hint(&error)),
    }
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Arc};

    use super::{super::finding::Status, *};

    #[test]
    fn a_store_that_can_not_be_written_is_an_error_and_none_is_a_warning() {
        assert_eq!(judge("/blobs", Ok(())).status, Status::Ok);
        let store = Arc::new(std::path::PathBuf::from("/blobs").into());
        let read_only = BlobError::Io { step: "write a file", store, source: io::ErrorKind::ReadOnlyFilesystem.into() };
        let finding = judge("/blobs", Err(read_only));
        assert_eq!(finding.status, Status::Error);
        assert!(finding.found.starts_with("failed to write a file in the blob store /blobs"), "{}", finding.found);
        assert!(finding.fix.is_some());
        assert_eq!(none().status, Status::Warning);
    }
}
