//! Copies pieces of arrays to and from the memory of the jobs that wait for them, and looks how far running jobs are.
//!
//! One thread with a stream of its own does this, because the threads of the jobs are waiting, and a device copies faster than a store
//! reads or writes.

use std::sync::{Arc, mpsc};

use gpufleet_schema::{Failure, FailureCode, Verdict};

use super::{
    common::Common,
    contents,
    ending::{StreamError, internal},
    error::{CudaError, Damage},
    pinned::PinnedSegment,
    stream::Stream,
    transfers::Direction,
};
use crate::{
    executor::options::STREAMS_MAX,
    ipc::{FromExecutor, message::Piece},
};

/// The number of the copier's stream. The threads that run jobs have lower numbers.
const STREAM: usize = STREAMS_MAX + 1;

/// A piece and the shared memory that contains it.
#[derive(Debug)]
pub(crate) struct StagedPiece {
    pub piece: Piece,
    pub direction: Direction,
    pub segment: Arc<PinnedSegment>,
}

/// What the supervisor asks for beside the jobs.
#[derive(Debug)]
pub(crate) enum Errand {
    Copy(StagedPiece),
    Look { job: u64 },
}

/// Creates the stream for [`run`].
pub(crate) fn stream() -> Result<Stream, CudaError> {
    Stream::new(STREAM)
}

/// Runs errands until no more can arrive. Fails if the context has become unusable.
pub(crate) fn run(stream: Stream, common: &Common, errands: mpsc::Receiver<Errand>) -> Result<(), CudaError> {
    for errand in errands {
        let answer = match errand {
            Errand::Copy(staged) => Some(copy(&stream, common, staged)?),
            Errand::Look { job } => common.progress.look(job, &stream, common.library.is_emulator()),
        };
        answer.iter().for_each(|answer| common.say(answer));
    }
    Ok(())
}

/// Copies a piece, and returns the answer.
fn copy(stream: &Stream, common: &Common, staged: StagedPiece) -> Result<FromExecutor, CudaError> {
    let StagedPiece { piece, direction, segment } = staged;
    let Piece { job, buffer, .. } = piece;
    let copied = common.transfers.copy(job, buffer, direction, |block| {
        common.pin(piece.place.segment, &segment);
        if piece.offset.checked_add(piece.bytes).is_none_or(|end| end > block.bytes) {
            return internal(format!("a piece of {} bytes at {} is beyond its buffer", piece.bytes, piece.offset));
        }
        let (raw, address) = (stream.raw(), block.address + piece.offset);
        match direction {
            Direction::ToDevice => contents::copy_in(raw, &segment, piece.place, piece.bytes, address)?,
            Direction::FromDevice => contents::copy_out(raw, &segment, piece.place, piece.bytes, address)?,
        }
        Ok(stream.wait(common.library.is_emulator())?)
    });
    // Release the segment before the answer, because the supervisor may then drop it.
    drop(segment);
    let outcome = match copied {
        Some(Ok(())) => Ok(()),
        Some(Err(StreamError::Failed(failure))) => Err(failure),
        Some(Err(StreamError::Cuda(error))) if error.damage() == Damage::None => Err(error.into_failure()),
        Some(Err(StreamError::Cuda(error))) => return Err(error),
        Some(Err(StreamError::Released)) | None => Err(Failure::new(
            Verdict::Infrastructure,
            FailureCode::Internal,
            format!("job {job} does not wait for a copy of buffer {buffer} {direction}"),
        )),
    };
    Ok(FromExecutor::Copied { job, buffer, outcome })
}
