//! Copies the pieces of inputs to the memory of the jobs that wait for them.
//!
//! One thread with a stream of its own, because a device runs one copy at a time in each direction, and the threads of the jobs wait.

use std::sync::{Arc, mpsc};

use gpufleet_schema::{Failure, FailureCode, Verdict};

use super::{
    contents,
    error::{CudaError, Damage},
    pinned::PinnedSegment,
    stream::{Common, Stream, StreamError},
};
use crate::ipc::{FromExecutor, message::Piece};

/// A piece, and the shared memory that has it.
#[derive(Debug)]
pub(crate) struct StagedPiece {
    pub piece: Piece,
    pub segment: Arc<PinnedSegment>,
}

/// Copies and answers pieces until no more can come. An error means that the context is unusable.
pub(crate) fn run(common: &Common, pieces: mpsc::Receiver<StagedPiece>) -> Result<(), CudaError> {
    let mut stream = Stream::new()?;
    stream.make_events(1)?;
    for StagedPiece { piece, segment } in pieces {
        let Piece { job, buffer, .. } = piece;
        let copied = common.transfers.copy(job, buffer, |target| {
            pin(common, &piece, &segment);
            if piece.offset.checked_add(piece.bytes).is_none_or(|end| end > target.bytes) {
                return Err(internal(format!(
                    "a piece of {} bytes at {} is beyond its buffer",
                    piece.bytes, piece.offset
                )));
            }
            contents::copy_in(stream.raw(), &segment, piece.place, piece.bytes, target.address + piece.offset)?;
            Ok(stream.wait(common.library.is_emulator())?)
        });
        // Released before the answer, because the supervisor may then drop the segment.
        drop(segment);
        let outcome = match copied {
            Some(Ok(())) => Ok(()),
            Some(Err(StreamError::Failed(failure))) => Err(failure),
            Some(Err(StreamError::Cuda(error))) if error.damage() == Damage::None => Err(error.into_failure()),
            Some(Err(StreamError::Cuda(error))) => return Err(error),
            Some(Err(StreamError::Released)) | None => Err(Failure::new(
                Verdict::Infrastructure,
                FailureCode::Internal,
                format!("job {job} does not wait for buffer {buffer}"),
            )),
        };
        common.say(&FromExecutor::Copied { job, buffer, outcome });
    }
    Ok(())
}

fn pin(common: &Common, piece: &Piece, segment: &PinnedSegment) {
    if let Err(problem) = segment.pin() {
        common.say(&FromExecutor::Unpinned { segment: piece.place.segment, reason: problem.to_string() });
    }
}

fn internal(message: String) -> StreamError {
    StreamError::Failed(Failure::new(Verdict::Infrastructure, FailureCode::Internal, message))
}
