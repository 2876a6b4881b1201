//! Moves arrays between the blob store and the device in pieces, through shared memory that is used again and again. So a job's arrays take
//! little host memory, whatever their size.

mod input;
mod output;

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex, mpsc},
};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use gpufleet_blobs::BlobError;
use gpufleet_schema::{Failure, FailureCode, Verdict};

pub(super) use self::{input::InputWriter, output::OutputReader};
use super::{flight::Shared, progress::JobProgress};
use crate::{
    blobs,
    ipc::{
        ToExecutor,
        message::Piece,
        slab::{Lending, StagingMemory},
    },
};

/// Maximum size of a piece, in bytes: so large that the round trip to the child costs little compared with the copy.
const PIECE_BYTES: u64 = 4 << 20;
/// Number of pieces for each array: while the device copies one, the store uses the other.
const PIECES: u64 = 2;
/// Maximum number of arrays of one job that move at once.
const LANES_MAX: u64 = 4;
/// Alignment of pieces, in bytes.
const ALIGNMENT: u64 = 256;

/// The shared memory for the arrays of one job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ring {
    lanes: u64,
    piece_bytes: u64,
}

/// The shared memory for one array at a time: its free pieces.
pub(super) type Lane = VecDeque<StagingMemory>;

/// The exchange of one buffer's pieces with the child, which copies them in the order in which they are sent.
struct Exchange {
    shared: Arc<Shared>,
    job: u64,
    buffer: u32,
    progress: Option<JobProgress>,
    free: Lane,
    /// The pieces that the child is copying, in order.
    sent: Lane,
    copied: mpsc::Receiver<Result<(), Failure>>,
}

/// Why an array could not be moved.
#[derive(Debug, thiserror::Error)]
pub(super) enum MoveError {
    #[error("{}", .0.message)]
    Failed(Failure),
    #[error("the executor has ended")]
    Lost,
}

impl Ring {
    pub(super) const BYTES_MAX: u64 = LANES_MAX * PIECES * PIECE_BYTES;

    /// Returns the ring for this number of arrays, the largest of which has `largest` bytes.
    fn new(arrays: usize, largest: u64) -> Self {
        let piece_bytes = largest.clamp(1, PIECE_BYTES).next_multiple_of(ALIGNMENT);
        Self { lanes: (arrays as u64).min(LANES_MAX), piece_bytes }
    }

    /// Returns the ring for a job whose inputs, and later outputs, have these sizes in bytes, or `None` if it moves no arrays.
    pub(super) fn of(inputs: &[u64], outputs: &[u64]) -> Option<Self> {
        let largest = inputs.iter().chain(outputs).max()?;
        Some(Self::new(inputs.len().max(outputs.len()), *largest))
    }

    pub(super) fn bytes(self) -> u64 {
        self.lanes * PIECES * self.piece_bytes
    }

    /// Divides the memory, which has at least [`Ring::bytes`], into lanes.
    pub(super) fn lanes(self, mut memory: StagingMemory) -> Vec<Lane> {
        let mut next = || {
            let rest = memory.split_off(self.piece_bytes);
            std::mem::replace(&mut memory, rest)
        };
        (0..self.lanes).map(|_| (0..PIECES).map(|_| next()).collect()).collect()
    }
}

impl Exchange {
    fn new(shared: &Arc<Shared>, job: u64, buffer: u32, lane: Lane) -> Self {
        let copied = shared.copies(job, buffer, lane.len());
        let (shared, progress) = (Arc::clone(shared), shared.progress(job));
        Self { shared, job, buffer, progress, free: lane, sent: Lane::new(), copied }
    }

    /// Tells the child with `message` to copy the first free piece.
    fn send(&mut self, message: fn(Piece) -> ToExecutor, offset: u64, bytes: u64) {
        let Some(part) = self.free.pop_front() else { return };
        let piece = Piece { job: self.job, buffer: self.buffer, offset, bytes, place: part.place(0) };
        self.shared.say(&message(piece));
        self.progress.iter().for_each(|progress| progress.moved(bytes));
        self.sent.push_back(part);
    }

    /// Waits until the child has copied the oldest piece, and returns its memory, or `None` if the child is copying no piece.
    fn receive(&mut self) -> io::Result<Option<StagingMemory>> {
        if !self.sent.is_empty() {
            let copied = self.copied.recv().map_err(|_| MoveError::Lost);
            copied.and_then(|copied| copied.map_err(MoveError::Failed)).map_err(io::Error::other)?;
        }
        Ok(self.sent.pop_front())
    }

    /// Waits until the child has copied all pieces.
    fn settle(&mut self) -> io::Result<()> {
        while let Some(part) = self.receive()? {
            self.free.push_back(part);
        }
        Ok(())
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.shared.state().copies.remove(&(self.job, self.buffer));
    }
}

impl From<BlobError> for MoveError {
    /// Converts a store error. If it wraps an error from reading or writing pieces, returns that.
    fn from(error: BlobError) -> Self {
        let is_of_pieces = |source: &io::Error| source.get_ref().is_some_and(|inner| inner.is::<Self>());
        match error {
            BlobError::Output { source, .. } | BlobError::Io { source, .. } if is_of_pieces(&source) => {
                source.downcast().expect("that is what it is")
            }
            BlobError::Output { source, .. } => Self::internal(source.to_string()),
            error => Self::Failed(blobs::failure(&error)),
        }
    }
}

impl MoveError {
    pub(super) fn internal(message: String) -> Self {
        Self::Failed(Failure::new(Verdict::Infrastructure, FailureCode::Internal, message))
    }
}

/// Moves arrays, at most as many at a time as there are lanes. Returns the results of `move_one`, and the lanes.
pub(super) async fn move_all<T, R, F>(
    arrays: Vec<T>,
    lanes: Vec<Lane>,
    move_one: impl Fn(T, Lane) -> F,
) -> Result<(Vec<R>, Vec<Lane>), MoveError>
where
    F: Future<Output = Result<(R, Lane), MoveError>>,
{
    let at_once = lanes.len();
    // After a timeout or a cancellation, the memory stays lent until the store has responded. No job waits for that.
    let lending = lanes.iter().flatten().next().map(StagingMemory::lending);
    let lanes = Mutex::new(lanes);
    let free = || lanes.lock().expect("no thread panics while holding the lanes");
    let moves = arrays.into_iter().map(|array| {
        let (free, move_one) = (&free, &move_one);
        async move {
            let lane = free().pop().expect("as many arrays move at once as there are lanes");
            let (moved, lane) = Box::pin(move_one(array, lane)).await?;
            free().push(lane);
            Ok::<_, MoveError>(moved)
        }
    });
    let moved = stream::iter(moves).buffer_unordered(at_once).try_collect().await?;
    lending.into_iter().for_each(Lending::end);
    Ok((moved, lanes.into_inner().expect("no thread panics while holding the lanes")))
}
