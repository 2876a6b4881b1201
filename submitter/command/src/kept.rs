//! Kept outputs of jobs, for the commands that read them.

use gpufleet::{Array, KeptOutput, KeptResult, ResultError, schema::Dtype};
use gpufleet_blobs::BlobStore;
use gpufleet_ledger::{JobDetail, Ledger};

use super::{
    complaint::Complaint,
    connection,
    exit::Exit,
    files::{ArraySource, PartialFile},
};

/// The outputs that a job still keeps.
pub fn result(detail: JobDetail, ledger: &Ledger, store: Option<&BlobStore>) -> Result<KeptResult, Complaint> {
    KeptResult::of(detail, ledger, store).map_err(|error| complaint(&error))
}

impl ArraySource for KeptOutput {
    fn dtype(&self) -> Dtype {
        self.dtype()
    }

    fn shape(&self) -> &[u64] {
        self.shape()
    }

    async fn read(&self) -> Result<Array, Complaint> {
        self.read().await.map_err(|error| complaint(&error))
    }

    async fn write_to(&self, file: PartialFile) -> Result<PartialFile, Complaint> {
        self.write_to(file).await.map_err(|error| complaint(&error))
    }
}

/// The complaint about an output that can't be read.
pub fn complaint(error: &ResultError) -> Complaint {
    let not_found = || Complaint::new(Exit::NotFound, error.to_string());
    match error {
        ResultError::UnknownJob { .. } => {
            not_found().hint("a new job appears within a second; `gpufleet history` lists the latest jobs")
        }
        ResultError::NotEnded { job_id, .. } => not_found().hint(format!("wait for it: gpufleet wait {job_id}")),
        ResultError::NotSucceeded { job_id, .. } => {
            not_found().hint(format!("`gpufleet show {job_id}` shows the reason"))
        }
        ResultError::NotKept { .. } => {
            not_found().hint("submit it again with --keep 1day, or wait for its outputs with --out")
        }
        ResultError::Expired { .. } | ResultError::NoBytes { .. } => {
            not_found().hint("submit the job again, with a longer --keep if that was too short")
        }
        ResultError::NoOutput { job_id, name, kept } => {
            Complaint::new(Exit::NotFound, format!("job {job_id} has no output {name:?}"))
                .hint(format!("its outputs: {}", kept.join(", ")))
        }
        ResultError::Damaged { .. } => {
            Complaint::new(Exit::FleetFailed, error.to_string()).hint("submit the job again")
        }
        ResultError::Ledger(error) => connection::ledger_complaint(error),
        ResultError::Blob(error) => connection::blob_complaint(error),
        ResultError::NoLedger | ResultError::NoStore { .. } | ResultError::Write { .. } => {
            Complaint::new(Exit::Internal, error.to_string())
        }
    }
}
