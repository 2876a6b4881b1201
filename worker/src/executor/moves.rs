//! Runs the supervisor's part of a job in the child. Before the kernels the child may request inputs, and after them it may offer outputs;
//! the job waits while these arrays move.

use std::{
    pin::{Pin, pin},
    time::{Duration, Instant},
};

use gpufleet_blobs::BlobStore;
use gpufleet_schema::{BlobDigest, Buffer, Stage};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{
    bringing::{bring, wanted_inputs},
    flight::{JobEnd, Shared, Stop},
    handle::{Executor, ExecutorJob, InputUse},
    phase::{ChildRequest, RequestReceiver},
    pieces::{Lane, MoveError},
    storing::{LeavingOutput, store},
};
use crate::{blobs, ipc::ToExecutor};

/// The channel and memory of a job that may fetch inputs or store outputs.
pub(super) struct Moves {
    pub requests: RequestReceiver,
    pub lanes: Vec<Lane>,
    pub leaving: Vec<LeavingOutput>,
}

/// The arrays that have moved.
#[derive(Debug, Default)]
pub(super) struct Moved {
    pub inputs: InputUse,
    /// The time in which inputs were fetched.
    pub fetching: Duration,
    /// The outputs that were stored, by the index of their buffer.
    pub stored: Vec<(u32, BlobDigest)>,
    /// The time in which outputs were stored.
    pub storing: Duration,
}

/// Releases the waiting job in the child if its arrays do not move.
struct ReleaseOnDrop<'a> {
    shared: &'a Shared,
    job: u64,
}

impl Executor {
    /// Waits for the end of a job in the child, and moves its arrays on request. The time in which arrays move does not count towards the
    /// job's time limit.
    pub(super) async fn ended(
        &self,
        job: &ExecutorJob<'_>,
        id: u64,
        ending: oneshot::Receiver<JobEnd>,
        moves: Option<Moves>,
    ) -> Result<(JobEnd, Moved), Stop> {
        let shared = &self.shared;
        let Some(Moves { mut requests, mut lanes, leaving }) = moves else {
            let ended = shared.wait(id, ending, job.time_limit, job.cancel).await;
            return Ok((ended, Moved::default()));
        };
        // A cancelled job is released while its arrays move, and otherwise killed with its executor.
        let kill = CancellationToken::new();
        let mut ended = pin!(shared.wait(id, ending, job.time_limit, &kill));
        let blobs = job.task.buffers.iter().filter_map(Buffer::blob).count() as u64;
        let mut moved = Moved { inputs: InputUse { resident: blobs, brought: 0 }, ..Moved::default() };
        loop {
            let request = tokio::select! {
                biased;
                ended = &mut ended => return Ok((ended, moved)),
                Some(request) = requests.recv() => request,
                () = job.cancel.cancelled(), if !kill.is_cancelled() => {
                    kill.cancel();
                    continue;
                }
            };
            let started = Instant::now();
            let ended = match request {
                ChildRequest::Inputs(buffers) => {
                    moved.inputs.brought = buffers.len() as u64;
                    moved.inputs.resident = blobs.saturating_sub(moved.inputs.brought);
                    let bringing = Box::pin(self.bring_inputs(job, id, &buffers, std::mem::take(&mut lanes)));
                    let brought = self.while_it_waits(job, id, ended.as_mut(), bringing).await?;
                    job.progress.iter().for_each(|progress| progress.runs());
                    brought.map(|free| (lanes, moved.fetching) = (free, started.elapsed()))
                }
                ChildRequest::Outputs => {
                    let bytes = leaving.iter().map(|output| output.bytes).sum();
                    job.progress.iter().for_each(|progress| progress.moves(Stage::Storing, bytes));
                    let storing = Box::pin(self.store_outputs(job, id, leaving.clone(), std::mem::take(&mut lanes)));
                    let stored = self.while_it_waits(job, id, ended.as_mut(), storing).await?;
                    stored.map(|stored| (moved.stored, moved.storing) = (stored, started.elapsed()))
                }
            };
            if let Err(ended) = ended {
                return Ok((ended, moved));
            }
        }
    }

    /// Moves arrays while the job waits, then lets it continue. Returns the end of the job if that comes first.
    async fn while_it_waits<T>(
        &self,
        job: &ExecutorJob<'_>,
        id: u64,
        ended: Pin<&mut impl Future<Output = JobEnd>>,
        moving: impl Future<Output = Result<T, MoveError>>,
    ) -> Result<Result<T, JobEnd>, Stop> {
        let shared = &self.shared;
        let release = ReleaseOnDrop { shared, job: id };
        shared.state().clocks.suspend(id, Instant::now());
        let moved = tokio::select! {
            biased;
            ended = ended => return Ok(Err(ended)),
            () = job.cancel.cancelled() => return Err(Stop::Cancelled),
            moved = moving => moved,
        };
        let moved = match moved {
            Ok(moved) => moved,
            Err(MoveError::Failed(failure)) => return Err(Stop::failed(failure)),
            Err(MoveError::Lost) => return Err(Stop::Lost(shared.lost().await, false)),
        };
        release.defuse();
        shared.go(id);
        Ok(Ok(moved))
    }

    async fn bring_inputs(
        &self,
        job: &ExecutorJob<'_>,
        id: u64,
        buffers: &[u32],
        lanes: Vec<Lane>,
    ) -> Result<Vec<Lane>, MoveError> {
        let wanted = wanted_inputs(job.task, buffers)?;
        let bytes = wanted.iter().map(|input| input.bytes).sum();
        job.progress.iter().for_each(|progress| progress.moves(Stage::Fetching, bytes));
        bring(&self.shared, store_of(job)?, id, wanted, lanes).await
    }

    async fn store_outputs(
        &self,
        job: &ExecutorJob<'_>,
        id: u64,
        leaving: Vec<LeavingOutput>,
        lanes: Vec<Lane>,
    ) -> Result<Vec<(u32, BlobDigest)>, MoveError> {
        store(&self.shared, store_of(job)?, id, leaving, lanes).await
    }
}

fn store_of<'a>(job: &ExecutorJob<'a>) -> Result<&'a BlobStore, MoveError> {
    job.blobs.ok_or_else(|| MoveError::Failed(blobs::unavailable("this worker has no blob store".to_owned())))
}

impl ReleaseOnDrop<'_> {
    fn defuse(self) {
        std::mem::forget(self);
    }
}

impl Drop for ReleaseOnDrop<'_> {
    fn drop(&mut self) {
        self.shared.say(&ToExecutor::Release { job: self.job });
        // A child that does not release the job is killed at the job's time limit.
        self.shared.state().clocks.resume(self.job, Instant::now());
    }
}
