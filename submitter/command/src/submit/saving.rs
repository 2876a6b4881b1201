//! Writes the outputs of a job to their files. Those that are in the blob store go from there to the file.

use std::{collections::BTreeMap, path::PathBuf};

use gpufleet::{Array, Fleet, JobResult, StoreError, StoredArray, UnreadOutput, schema::Dtype};

use super::report::Written;
use crate::{
    complaint::Complaint,
    connection,
    exit::Exit,
    files::{self, ArraySource, PartialFile},
};

/// An output in the blob store.
struct Stored<'a> {
    fleet: &'a Fleet,
    array: &'a StoredArray,
}

/// Writes each output that has a file. Returns all outputs, and the first complaint.
pub async fn save_all(
    fleet: &Fleet,
    result: &JobResult<UnreadOutput>,
    saves: &BTreeMap<String, PathBuf>,
) -> (Vec<Written>, Option<Complaint>) {
    let mut all = Vec::new();
    let mut lost = None;
    for (name, output) in &result.outputs {
        let mut written = Written::of(name, output);
        if let Some(path) = saves.get(name) {
            match save(fleet, output, path).await {
                Ok(remark) => (written.file, written.remark) = (Some(path.clone()), remark),
                Err(complaint) => drop(lost.get_or_insert(complaint)),
            }
        }
        all.push(written);
    }
    (all, lost)
}

async fn save(fleet: &Fleet, output: &UnreadOutput, path: &std::path::Path) -> Result<files::Remark, Complaint> {
    match output {
        UnreadOutput::Array(array) => files::write(path, array),
        UnreadOutput::Stored(array) => files::save(path, &Stored { fleet, array }).await,
    }
}

impl ArraySource for Stored<'_> {
    fn dtype(&self) -> Dtype {
        self.array.dtype()
    }

    fn shape(&self) -> &[u64] {
        self.array.shape()
    }

    async fn read(&self) -> Result<Array, Complaint> {
        self.fleet.read_stored(self.array).await.map_err(|error| complaint(&error))
    }

    async fn write_to(&self, file: PartialFile) -> Result<PartialFile, Complaint> {
        self.fleet.copy_stored(self.array, file).await.map_err(|error| complaint(&error))
    }
}

fn complaint(error: &StoreError) -> Complaint {
    match error {
        StoreError::Blob(error) => connection::blob_complaint(error),
        StoreError::Array(error) => Complaint::new(Exit::FleetFailed, error.to_string()),
        StoreError::NoStore => {
            Complaint::new(Exit::FleetFailed, "the output is in a blob store that this command does not have")
                .hint("name the blob store of the workers: --blobs, or GPUFLEET_BLOBS")
        }
    }
}
