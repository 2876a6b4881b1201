//! The supervisor's handle to an executor child: starts it, runs jobs on it and detects its end.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use gpufleet_blobs::BlobStore;
use gpufleet_schema::{BlobDigest, Failure, Task, Timings};
use tokio::{
    sync::{Notify, Semaphore, watch},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    flight::{Announcer, LatestMemory, Shared, Stop},
    inputs::DeviceInputs,
    link,
    loss::{Loss, RunError, StartError},
    options::{ExecutorOptions, command},
    outgoing::Outgoing,
    printer::{Printer, Printout},
    process::KillOnDrop,
    programs::ProgramKey,
    progress::JobProgress,
    staging::FinishedOutput,
};
use crate::{
    compiler::Compiled,
    ipc::{DeviceInfo, FromExecutor, ToExecutor, message::MemoryReport, slab::Slab},
    scheduler::PoolId,
};

/// A running executor. Dropping it kills the child.
#[derive(Debug)]
pub struct Executor {
    pub(super) shared: Arc<Shared>,
}

/// A job to run. The task has been checked, and a catalog task has been resolved: its buffers, launches and outputs are complete.
#[derive(Debug, Clone, Copy)]
pub struct ExecutorJob<'a> {
    pub task: &'a Task<'a>,
    /// The pool that the job belongs to, by which compilers are shared.
    pub pool: PoolId,
    /// The key of the code, if the caller has already computed it. Hashing a long program takes as long as a tiny job.
    pub program: Option<ProgramKey>,
    /// The compiled source, if the caller has compiled it. Otherwise the executor compiles it first.
    pub compiled: Option<&'a Compiled>,
    /// The maximum run time, from when the executor gets the job. Waits for its neighbours in the driver do not count, and neither does the
    /// time in which arrays move between the blob store and the device. When it has passed, the executor is killed.
    pub time_limit: Duration,
    /// Whether to run the job without neighbours, so that it must be the cause of a fault. For suspects ([`LostCause::Suspect`]).
    pub alone: bool,
    /// Receives the output of a program that may print. Such jobs run one at a time.
    pub printout: Option<&'a Printout>,
    /// Shows how far the job is while it runs.
    pub progress: Option<&'a JobProgress>,
    /// Maximum memory that the executor may cache while this job runs, in bytes; see [`MemoryReport`].
    pub cache_bytes_max: u64,
    /// The store for the blobs that the task names, and for its large outputs.
    pub blobs: Option<&'a BlobStore>,
    /// Cancelled when the outcome is no longer needed. A waiting job then leaves the queue; a running one is killed together with its
    /// executor, because no API stops a kernel.
    pub cancel: &'a CancellationToken,
}

/// How many of a job's inputs from the blob store were already on the device, and how many it had to fetch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InputUse {
    pub resident: u64,
    pub brought: u64,
}

/// A job that has ended.
#[derive(Debug)]
pub struct Finished {
    pub outcome: Result<Vec<FinishedOutput>, Failure>,
    /// All timings except `queue_us` and `wait_us`.
    pub timings: Timings,
    /// The use of inputs from the blob store.
    pub inputs: InputUse,
    /// The time for which it waited inside [`Executor::run`] for staging memory and a stream, without its blobs; a part of `wait_us`.
    pub waited: Duration,
    /// The time for which it waited for the jobs before it in its train, a part of `wait_us`.
    pub behind: Duration,
    /// The time that its outputs took from the device to the blob store, which is not part of its timings.
    pub storing: Duration,
}

impl Executor {
    /// Starts a child and waits until it has opened its device. Cancelling kills the child.
    pub async fn start(options: ExecutorOptions) -> Result<(Self, DeviceInfo), StartError> {
        let (printer, stdout) = Printer::new().map_err(StartError::Spawn)?;
        let spawning = KillOnDrop::spawn(command(&options), Some(stdout));
        let (child, mut incoming, writer) = spawning.await.map_err(StartError::Spawn)?;
        let printer = Arc::new(printer);
        tokio::spawn(Arc::clone(&printer).read());
        let first = match timeout(options.ready_deadline, link::receive(&mut incoming)).await {
            Ok(first) => first,
            Err(_) => return Err(StartError::Timeout { deadline: options.ready_deadline }),
        };
        let (device, memory) = match first {
            Ok(Some(FromExecutor::Ready(device, memory))) => match &options.uuid {
                Some(wanted) if *wanted != device.uuid => {
                    return Err(StartError::WrongDevice { wanted: wanted.clone(), found: device.uuid });
                }
                _ => (device, memory),
            },
            Ok(Some(FromExecutor::Refused(refusal))) => return Err(refusal.into()),
            Ok(_) | Err(_) => {
                let exit = child.end().await;
                return Err(StartError::Died { status: exit.how(), stderr_tail: exit.tail });
            }
        };
        let outgoing = Outgoing::over(writer);
        let shared = Arc::new(Shared {
            device: device.clone(),
            process: child.release(),
            slab: Slab::new(Box::new(Announcer(outgoing.clone()))),
            inputs: DeviceInputs::default(),
            outgoing,
            printer,
            state: Mutex::default(),
            lost: watch::Sender::new(None),
            streams: Arc::new(Semaphore::new(options.streams())),
            streams_max: options.streams(),
            compiler: options.compiler,
            memory: Mutex::new(LatestMemory { last: memory, observer: None }),
            heard: Notify::new(),
        });
        tokio::spawn(link::listen(Arc::clone(&shared), incoming));
        Ok((Self { shared }, device))
    }

    /// Runs a job to its end. Many may be in flight; those that exceed the number of streams wait here.
    ///
    /// Cancelling removes a waiting job from the queue. A running job continues to its end or its time limit, and its outcome is discarded.
    pub async fn run(&self, job: ExecutorJob<'_>) -> Result<Finished, RunError> {
        // Boxed once, because each enclosing future would otherwise contain it again.
        concluded(Box::pin(self.attempt(job)).await)
    }

    /// Waits until the child has ended and each of its jobs has its answer. Returns the loss.
    pub async fn lost(&self) -> Loss {
        self.shared.lost().await
    }

    /// Waits for the jobs in flight for up to `grace`, then kills the child. Returns when the child has ended.
    pub async fn stop(&self, grace: Duration) {
        self.shared.state().stopping = true;
        self.shared.say(&ToExecutor::Stop);
        if timeout(grace, self.shared.process.exit()).await.is_err() {
            self.kill();
        }
        self.lost().await;
    }

    /// Kills the child. Its jobs are reported as lost.
    pub fn kill(&self) {
        self.shared.state().stopping = true;
        self.shared.process.kill();
    }

    pub fn pid(&self) -> u32 {
        self.shared.process.pid()
    }

    /// Returns the last memory report.
    pub fn memory(&self) -> MemoryReport {
        self.shared.memory().last
    }

    /// Passes the last memory report and every later one to `observer`, which replaces an earlier observer. A report about memory that a
    /// job left in use arrives before the job's [`Executor::run`] returns.
    pub fn watch_memory(&self, observer: impl Fn(MemoryReport) + Send + 'static) {
        let mut memory = self.shared.memory();
        observer(memory.last);
        memory.observer = Some(Box::new(observer));
    }

    /// Returns whether an input is on the device, so that a job need not fetch it.
    pub fn has_input(&self, input: BlobDigest, bytes: u64) -> bool {
        self.shared.inputs.has(input, bytes)
    }

    /// Passes every input that becomes resident, or no longer is, to `observer`, which replaces an earlier observer.
    pub fn watch_inputs(&self, observer: impl Fn(BlobDigest, bool) + Send + 'static) {
        self.shared.inputs.watch(Box::new(observer));
    }

    /// Asks the child to free memory that no job uses. It answers with a memory report.
    pub fn give_back(&self) {
        self.shared.say(&ToExecutor::GiveBack);
    }

    /// Asks the child for a memory report.
    pub fn measure(&self) {
        self.shared.say(&ToExecutor::Measure);
    }

    /// Returns whether the child answers a request in time, because its death or hang may not have been detected yet. Use it only if no
    /// request was sent recently, because an answer to an earlier request also counts.
    pub async fn answers(&self, within: Duration) -> bool {
        let heard = self.shared.heard.notified();
        self.measure();
        tokio::select! {
            biased;
            _ = self.lost() => false,
            () = heard => true,
            () = tokio::time::sleep(within) => false,
        }
    }

    pub fn device(&self) -> &DeviceInfo {
        &self.shared.device
    }

    /// Returns the number of jobs that it runs at once. Further jobs would only wait here.
    pub fn streams(&self) -> usize {
        self.shared.streams_max
    }

    /// Returns why staging memory is not pinned, if it is not. Copies are then slower but correct.
    pub fn unpinned(&self) -> Option<String> {
        self.shared.state().unpinned.clone()
    }
}

pub(super) fn concluded(result: Result<Finished, Stop>) -> Result<Finished, RunError> {
    match result {
        Ok(finished) => Ok(finished),
        Err(Stop::Failed(failure, timings)) => {
            let (inputs, waited, behind, storing) = Default::default();
            Ok(Finished { outcome: Err(*failure), timings: *timings, inputs, waited, behind, storing })
        }
        Err(Stop::Cancelled) => Err(RunError::Cancelled),
        Err(Stop::Lost(loss, was_running)) => {
            Err(RunError::Lost { cause: loss.cause, reason: loss.reason, was_running })
        }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.kill();
    }
}
