//! The kept outputs of jobs. Small outputs are in the ledger, others in the blob store; the ledger says where each is.

use std::{
    io::{self, Write},
    ops::Range,
};

use chrono::{DateTime, Utc};
use gpufleet_blobs::{BlobError, BlobStore};
use gpufleet_ledger::{JobDetail, Ledger, LedgerError, OutputRow};
use gpufleet_schema::{BlobDigest, Dtype, JobId, JobState};

use crate::{Array, ArrayError, array};

/// The kept outputs of a job that succeeded: see [`Fleet::result`](crate::Fleet::result).
#[derive(Debug, Clone)]
pub struct KeptResult {
    pub job_id: JobId,
    /// The kept outputs, in the order in which the job lists them.
    pub outputs: Vec<KeptOutput>,
}

/// A kept output, which can be read any number of times until it expires.
#[derive(Debug, Clone)]
pub struct KeptOutput {
    job_id: JobId,
    row: OutputRow,
    bytes: u64,
    ledger: Ledger,
    store: Option<BlobStore>,
}

/// Why a kept output can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    #[error("this client has no ledger; set the URL of its database with FleetBuilder::ledger")]
    NoLedger,
    #[error("the ledger has no job {job_id}")]
    UnknownJob { job_id: JobId },
    #[error("job {job_id} has not ended yet: it is {state}")]
    NotEnded { job_id: JobId, state: JobState },
    #[error("job {job_id} has no outputs: it is {state}")]
    NotSucceeded { job_id: JobId, state: JobState },
    #[error("job {job_id} succeeded, but kept no outputs")]
    NotKept { job_id: JobId },
    #[error("the outputs of job {job_id} expired at {}", at.format("%F %T UTC"))]
    Expired { job_id: JobId, at: DateTime<Utc> },
    #[error("job {job_id} has no output {name:?}; its outputs are {kept:?}")]
    NoOutput { job_id: JobId, name: String, kept: Vec<String> },
    #[error(
        "the ledger has no bytes of output {name:?} of job {job_id}: it has just expired, or its worker reported too many bytes"
    )]
    NoBytes { job_id: JobId, name: String },
    #[error(
        "output {name:?} of job {job_id} is {digest}, but this client has no blob store; set it with FleetBuilder::blobs"
    )]
    NoStore { job_id: JobId, name: String, digest: BlobDigest },
    #[error("output {name:?} of job {job_id} is damaged: {problem}")]
    Damaged { job_id: JobId, name: String, problem: ArrayError },
    #[error("failed to write output {name:?} of job {job_id}: {source}")]
    Write { job_id: JobId, name: String, source: io::Error },
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("{0}")]
    Blob(#[from] BlobError),
}

impl KeptResult {
    /// Returns the outputs that a job still keeps.
    pub fn of(detail: JobDetail, ledger: &Ledger, store: Option<&BlobStore>) -> Result<Self, ResultError> {
        Self::new(detail.job.job_id, detail.job.state, detail.outputs, ledger, store)
    }

    /// Creates the result from a job's rows in the ledger.
    pub(crate) fn new(
        job_id: JobId,
        state: JobState,
        rows: Vec<OutputRow>,
        ledger: &Ledger,
        store: Option<&BlobStore>,
    ) -> Result<Self, ResultError> {
        match rows.first() {
            Some(first) if first.is_expired => return Err(ResultError::Expired { job_id, at: first.expires_at }),
            Some(_) => {}
            None if !state.is_final() => return Err(ResultError::NotEnded { job_id, state }),
            None if state == JobState::Succeeded => return Err(ResultError::NotKept { job_id }),
            None => return Err(ResultError::NotSucceeded { job_id, state }),
        }
        let outputs = rows.into_iter().map(|row| KeptOutput::of(job_id, row, ledger, store));
        Ok(Self { job_id, outputs: outputs.collect::<Result<_, _>>()? })
    }

    /// Returns an output by its name.
    pub fn output(&self, name: &str) -> Result<&KeptOutput, ResultError> {
        self.outputs.iter().find(|output| output.row.name == name).ok_or_else(|| ResultError::NoOutput {
            job_id: self.job_id,
            name: name.to_owned(),
            kept: self.outputs.iter().map(|output| output.row.name.clone()).collect(),
        })
    }
}

impl KeptOutput {
    fn of(job_id: JobId, row: OutputRow, ledger: &Ledger, store: Option<&BlobStore>) -> Result<Self, ResultError> {
        let Some(bytes) = array::bytes(row.dtype, &row.shape) else {
            let problem = ArrayError::TooLarge { dtype: row.dtype, shape: row.shape };
            return Err(ResultError::Damaged { job_id, name: row.name, problem });
        };
        Ok(Self { job_id, row, bytes, ledger: ledger.clone(), store: store.cloned() })
    }

    pub fn name(&self) -> &str {
        &self.row.name
    }

    pub fn dtype(&self) -> Dtype {
        self.row.dtype
    }

    /// Returns the length of each dimension, slowest first.
    pub fn shape(&self) -> &[u64] {
        &self.row.shape
    }

    /// Returns the length of the output in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the digest of the blob with the elements; `None` if the ledger holds them, as it does for small outputs.
    pub fn digest(&self) -> Option<BlobDigest> {
        self.row.digest
    }

    /// Returns the time until which the output can be read.
    pub fn expires_at(&self) -> DateTime<Utc> {
        self.row.expires_at
    }

    /// Reads the whole output.
    pub async fn read(&self) -> Result<Array, ResultError> {
        let bytes = match self.row.digest {
            Some(digest) => self.store(digest)?.read(digest, self.bytes).await?,
            None => self.inline().await?,
        };
        Array::new(self.row.dtype, self.row.shape.clone(), bytes).map_err(|problem| self.damaged(problem))
    }

    /// Writes the elements, as little-endian bytes in C order, to a writer such as a file, and returns the writer. This takes little
    /// memory, however large the output is. The bytes are checked at the end: after an error, discard them.
    ///
    /// If the future is cancelled, the copy ends at its next piece.
    pub async fn write_to<W: Write + Send + 'static>(&self, mut into: W) -> Result<W, ResultError> {
        if let Some(digest) = self.row.digest {
            return Ok(self.store(digest)?.read_to(digest, self.bytes, into).await?);
        }
        let bytes = self.inline().await?;
        match into.write_all(&bytes) {
            Ok(()) => Ok(into),
            Err(source) => Err(ResultError::Write { job_id: self.job_id, name: self.row.name.clone(), source }),
        }
    }

    /// Reads a range of the output's bytes, and takes only the memory of that range. It reads the whole blob once, because only the whole
    /// can be checked.
    pub async fn read_part(&self, bytes: Range<u64>) -> Result<Vec<u8>, ResultError> {
        Ok(self.write_to(Part { wanted: bytes, at: 0, kept: Vec::new() }).await?.kept)
    }

    fn store(&self, digest: BlobDigest) -> Result<&BlobStore, ResultError> {
        let none = || ResultError::NoStore { job_id: self.job_id, name: self.row.name.clone(), digest };
        self.store.as_ref().ok_or_else(none)
    }

    /// The bytes that the ledger has.
    pub(crate) async fn inline(&self) -> Result<Vec<u8>, ResultError> {
        let found = self.ledger.output_bytes(self.job_id, &self.row.name).await?;
        let bytes = found.ok_or_else(|| ResultError::NoBytes { job_id: self.job_id, name: self.row.name.clone() })?;
        match bytes.len() as u64 {
            given if given == self.bytes => Ok(bytes),
            given => Err(self.damaged(ArrayError::WrongLength {
                dtype: self.row.dtype,
                shape: self.row.shape.clone(),
                given,
                wanted: self.bytes,
            })),
        }
    }

    fn damaged(&self, problem: ArrayError) -> ResultError {
        ResultError::Damaged { job_id: self.job_id, name: self.row.name.clone(), problem }
    }
}

/// A writer that keeps a range of the bytes that are written to it.
#[derive(Debug)]
struct Part {
    wanted: Range<u64>,
    /// The number of bytes written so far.
    at: u64,
    kept: Vec<u8>,
}

impl Write for Part {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let within =
            |at: u64| usize::try_from(at.saturating_sub(self.at)).map_or(bytes.len(), |at| at.min(bytes.len()));
        let (start, end) = (within(self.wanted.start), within(self.wanted.end));
        self.kept.extend_from_slice(bytes.get(start..end).unwrap_or_default());
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_cut_out_of_the_pieces_in_which_the_whole_comes() {
        let whole: Vec<u8> = (0..100).collect();
        for wanted in [0..0, 0..100, 7..8, 13..60, 95..100, 90..200, 200..300] {
            for piece in [1, 7, 100] {
                let mut part = Part { wanted: wanted.clone(), at: 0, kept: Vec::new() };
                whole.chunks(piece).for_each(|piece| part.write_all(piece).unwrap());
                let expected = whole.get(wanted.start as usize..(wanted.end as usize).min(100)).unwrap_or_default();
                assert_eq!(part.kept, expected, "{wanted:?} in pieces of {piece}");
            }
        }
    }
}
