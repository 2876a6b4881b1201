//! Writes an input to the device in pieces, through shared memory that is used again and again. A job's inputs thus take little host
//! memory, whatever their size.

use std::{
    collections::VecDeque,
    io::{self, Seek, SeekFrom, Write},
    sync::{Arc, mpsc},
};

use gpufleet_schema::{Buffer, Failure, Task};

use super::flight::Shared;
use crate::ipc::{ToExecutor, message::Piece, slab::StagingMemory};

/// Large enough that the round trip to the child costs little beside the copy.
const PIECE_BYTES: u64 = 4 << 20;
/// While the device copies one piece, the store fills the next.
const PIECES: u64 = 2;
/// The inputs of one job that come at once.
const LANES_MAX: u64 = 4;
/// The alignment of pieces.
const ALIGNMENT: u64 = 256;

/// The shared memory for the inputs of one job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ring {
    lanes: u64,
    piece_bytes: u64,
}

/// The memory for one input at a time.
pub(super) type Lane = VecDeque<StagingMemory>;

/// A file that is an input on the device.
pub(super) struct InputWriter {
    shared: Arc<Shared>,
    job: u64,
    buffer: u32,
    free: Lane,
    /// Pieces that the child copies now, in their order.
    sent: Lane,
    copied: mpsc::Receiver<Result<(), Failure>>,
    /// The bytes in the first free piece.
    filled: usize,
    /// The bytes sent.
    offset: u64,
}

/// Why a piece did not reach the device.
#[derive(Debug, thiserror::Error)]
pub(super) enum CopyError {
    #[error("{}", .0.message)]
    Failed(Failure),
    #[error("the executor has ended")]
    Lost,
}

impl Ring {
    /// The ring for a task; none without inputs from the blob store.
    pub(super) fn of(task: &Task<'_>) -> Option<Self> {
        let blobs = task.buffers.iter().filter_map(Buffer::blob).map(|(_, bytes)| bytes);
        let largest = blobs.clone().max()?;
        let piece_bytes = largest.clamp(1, PIECE_BYTES).next_multiple_of(ALIGNMENT);
        Some(Self { lanes: (blobs.count() as u64).min(LANES_MAX), piece_bytes })
    }

    pub(super) fn bytes(self) -> u64 {
        self.lanes * PIECES * self.piece_bytes
    }

    /// Divides the memory, which has at least [`Ring::bytes`].
    pub(super) fn lanes(self, mut memory: StagingMemory) -> Vec<Lane> {
        let mut next = || {
            let rest = memory.split_off(self.piece_bytes);
            std::mem::replace(&mut memory, rest)
        };
        (0..self.lanes).map(|_| (0..PIECES).map(|_| next()).collect()).collect()
    }
}

impl InputWriter {
    pub(super) fn new(shared: &Arc<Shared>, job: u64, buffer: u32, lane: Lane) -> Self {
        let (copied, answers) = mpsc::channel();
        shared.state().copies.insert((job, buffer), copied);
        Self {
            shared: Arc::clone(shared),
            job,
            buffer,
            free: lane,
            sent: Lane::new(),
            copied: answers,
            filled: 0,
            offset: 0,
        }
    }

    /// The memory for the next input. All pieces have been copied if the writer was flushed.
    pub(super) fn into_lane(mut self) -> Lane {
        std::mem::take(&mut self.free)
    }

    fn send(&mut self) {
        let Some(part) = self.free.pop_front() else { return };
        let bytes = self.filled as u64;
        let (job, buffer, offset) = (self.job, self.buffer, self.offset);
        self.shared.say(&ToExecutor::Piece(Piece { job, buffer, offset, bytes, place: part.place(0) }));
        self.sent.push_back(part);
        (self.filled, self.offset) = (0, offset + bytes);
    }

    /// Waits until the oldest piece has been copied.
    fn receive(&mut self) -> io::Result<()> {
        let copied = self.copied.recv().map_err(|_| CopyError::Lost);
        copied.and_then(|copied| copied.map_err(CopyError::Failed)).map_err(io::Error::other)?;
        self.free.extend(self.sent.pop_front());
        Ok(())
    }
}

impl Write for InputWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        while self.free.is_empty() {
            self.receive()?;
        }
        let filled = self.filled;
        let part = self.free.front_mut().expect("that is what was waited for");
        let room = &mut part.as_mut()[filled..];
        let length = room.len().min(bytes.len());
        room[..length].copy_from_slice(&bytes[..length]);
        let is_full = length == room.len();
        self.filled += length;
        if is_full {
            self.send();
        }
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.filled > 0 {
            self.send();
        }
        while !self.sent.is_empty() {
            self.receive()?;
        }
        Ok(())
    }
}

impl Seek for InputWriter {
    /// Starts again from the beginning; other positions are not possible.
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        if to != SeekFrom::Start(0) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.flush()?;
        self.offset = 0;
        Ok(0)
    }
}

impl Drop for InputWriter {
    fn drop(&mut self) {
        self.shared.state().copies.remove(&(self.job, self.buffer));
    }
}
