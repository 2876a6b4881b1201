//! The supervisor's handle to an executor child: starts it, runs jobs on it and detects its end.

use std::{
    env,
    path::PathBuf,
    process::Command,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use gpufleet_schema::{BlobDigest, Buffer, Data, Failure, FailureCode, Inline, Program, Task, Timings, Verdict};
use gpufleet_transport::BlobStore;
use tokio::{
    sync::{Notify, Semaphore, oneshot, watch},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    CudaSpec,
    fetching::fetch,
    flight::{Announcer, JobEnd, LatestMemory, Pending, Shared, Stop},
    inputs::{DeviceInputs, JobInputs},
    link,
    loss::{Loss, RunError, StartError},
    outgoing::Outgoing,
    printer::{Printer, Printout},
    process::KillOnDrop,
    programs::{Code, ProgramKey},
    staging::{BufferHeader, Layout, OutputBytes},
    untrusted,
};
use crate::{
    compiler::{Compiled, Compiler, Origin},
    ipc::{
        DeviceInfo, FromExecutor, ToExecutor,
        message::MemoryReport,
        slab::{Slab, SlabError},
    },
    own_executable,
    scheduler::PoolId,
};

/// Loading a driver and creating a context takes up to two seconds on a large machine, and far longer if the kernel module is not loaded yet.
pub const READY_DEADLINE: Duration = Duration::from_secs(60);
/// Jobs on the device at once: one copies in, one computes, one copies out, and one is ready to follow.
pub const STREAMS_DEFAULT: usize = 4;
/// The hardware has 32 queues. Streams that share a queue wait for each other, and an executor has one stream more than jobs.
pub const STREAMS_MAX: usize = 31;
/// The driver's variable for the number of queues of a process; eight by default.
const MAX_CONNECTIONS: &str = "CUDA_DEVICE_MAX_CONNECTIONS";
const MAX_CONNECTIONS_DEFAULT: usize = 8;
/// The driver's variable for the devices that a process sees.
pub(crate) const VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";

/// Options for starting an executor.
#[derive(Debug, Clone)]
pub struct ExecutorOptions {
    /// The device's number, for the driver unless there is a `uuid`, and for the log.
    pub device: u32,
    /// The device's name in `nvidia-smi -L`. The child then sees only this device; a MIG slice can be selected only like this.
    pub uuid: Option<String>,
    pub cuda: CudaSpec,
    /// How many jobs run on the device at once, 1 to [`STREAMS_MAX`].
    pub streams: usize,
    /// The most device memory for all jobs together; unlimited by default.
    pub memory_bytes_max: Option<u64>,
    /// The most device memory for inputs that stay after their jobs. They give way to jobs, and to other pools.
    pub resident_bytes_max: u64,
    pub ready_deadline: Duration,
    /// The user of the child if the worker is root: a name or a number; `nobody` by default.
    pub user: Option<String>,
    /// Compiles the CUDA C of jobs. Executors may share a compiler with its cache.
    pub compiler: Arc<Compiler>,
    /// The worker's executable; without it, the one that runs.
    pub executable: Option<PathBuf>,
    /// Variables to set for the child, such as the emulator's.
    pub environment: Vec<(String, String)>,
}

/// A running executor. Dropping it kills the child.
#[derive(Debug)]
pub struct Executor {
    pub(super) shared: Arc<Shared>,
}

/// A job to run. The task has been checked, and a catalog task has been resolved: its buffers, launches and outputs are complete.
#[derive(Debug, Clone, Copy)]
pub struct ExecutorJob<'a> {
    pub task: &'a Task<'a>,
    /// The pool in whose queue it waits for a compiler.
    pub pool: PoolId,
    /// The key of its code, if the caller has computed it, because hashing a long program takes as long as a tiny job.
    pub program: Option<ProgramKey>,
    /// Its compiled source, if the caller has compiled it. Otherwise the executor compiles it first.
    pub compiled: Option<&'a Compiled>,
    /// Counted from the moment at which the executor gets the job; waits for its neighbours in the driver do not count. After it the executor
    /// is killed.
    pub time_limit: Duration,
    /// Run without neighbours, so that the job must be the cause of a fault. For suspects ([`LostCause::Suspect`]).
    pub alone: bool,
    /// Receives the output of a program that may print. Such jobs run one at a time.
    pub printout: Option<&'a Printout>,
    /// The most memory that the executor may cache while this job runs; see [`MemoryReport`].
    pub cache_bytes_max: u64,
    /// The store of the blobs that the task names.
    pub blobs: Option<&'a BlobStore>,
    /// Cancelled when the outcome is no longer needed: a waiting job leaves the queue; a running one is killed with its executor,
    /// because no API stops a kernel.
    pub cancel: &'a CancellationToken,
}

/// How many inputs from the blob store a job found on the device, and how many it brought.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InputUse {
    pub resident: u64,
    pub brought: u64,
}

/// A job that has ended.
#[derive(Debug)]
pub struct Finished {
    pub outcome: Result<Vec<OutputBytes>, Failure>,
    /// All timings except `queue_us` and `wait_us`.
    pub timings: Timings,
    /// The inputs from the blob store that were on the device already, and those that the job brought.
    pub inputs: InputUse,
    /// How long it waited inside [`Executor::run`] for staging memory and a stream, without its blobs; a part of `wait_us`.
    pub waited: Duration,
}

impl ExecutorOptions {
    /// The default options, with a compiler of its own.
    pub fn new(device: u32, cuda: CudaSpec) -> Self {
        Self {
            device,
            uuid: None,
            cuda,
            streams: STREAMS_DEFAULT,
            memory_bytes_max: None,
            resident_bytes_max: u64::MAX,
            ready_deadline: READY_DEADLINE,
            user: None,
            compiler: Arc::new(Compiler::new(None)),
            executable: None,
            environment: Vec::new(),
        }
    }

    fn streams(&self) -> usize {
        self.streams.clamp(1, STREAMS_MAX)
    }
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

    /// Runs a job to its end. Many may be in flight; beyond the number of streams they wait here.
    ///
    /// Cancelling removes a waiting job from the queue. A running job continues to its end or its time limit, and its
    /// outcome is discarded.
    pub async fn run(&self, job: ExecutorJob<'_>) -> Result<Finished, RunError> {
        // Boxed once, because each future around it would hold its size twice.
        match Box::pin(self.attempt(job)).await {
            Ok(finished) => Ok(finished),
            Err(Stop::Failed(failure, timings)) => {
                let (inputs, waited) = Default::default();
                Ok(Finished { outcome: Err(*failure), timings: *timings, inputs, waited })
            }
            Err(Stop::Cancelled) => Err(RunError::Cancelled),
            Err(Stop::Lost(loss, was_running)) => {
                Err(RunError::Lost { cause: loss.cause, reason: loss.reason, was_running })
            }
        }
    }

    /// Resolves when the child has ended and each of its jobs has its answer.
    pub async fn lost(&self) -> Loss {
        self.shared.lost().await
    }

    /// Waits for the jobs in flight up to `grace`, then kills the child. Returns when the child has ended.
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

    /// The last memory report.
    pub fn memory(&self) -> MemoryReport {
        self.shared.memory().last
    }

    /// Passes the last memory report and every later one to `observer`, which replaces an earlier observer. It gets the report about memory
    /// that a job left in use before the job's [`Executor::run`] returns.
    pub fn watch_memory(&self, observer: impl Fn(MemoryReport) + Send + 'static) {
        let mut memory = self.shared.memory();
        observer(memory.last);
        memory.observer = Some(Box::new(observer));
    }

    /// Whether an input is on the device, so that a job need not bring it.
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

    /// Whether the child answers a request in time, because a death or a hang may not have been detected yet. Use it only if no request was
    /// sent lately, because an answer to an earlier request counts too.
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

    /// The number of jobs that it runs at once. Further jobs would only wait here.
    pub fn streams(&self) -> usize {
        self.shared.streams_max
    }

    /// Why staging memory is not pinned, if so. Copies are then slower but correct.
    pub fn unpinned(&self) -> Option<String> {
        self.shared.state().unpinned.clone()
    }

    async fn attempt(&self, job: ExecutorJob<'_>) -> Result<Finished, Stop> {
        let shared = &self.shared;
        let compiling = Instant::now();
        let found = match &job.task.program {
            Program::Source { .. } if job.compiled.is_none() => {
                // Boxed, because this future is rarely used and large.
                let compiling = Box::pin(shared.compiled(job.task, job.pool));
                shared.unless_over(job.cancel, compiling).await??
            }
            _ => None,
        };
        let is_new = found.as_ref().is_some_and(|found| found.origin == Origin::Compiler);
        let compile_us = if is_new { compiling.elapsed().as_micros() as u64 } else { 0 };
        let compiled = job.compiled.or_else(|| found.as_ref().map(|found| &*found.compiled));
        let code = code(&job.task.program, compiled).map_err(Stop::failed)?;
        for counts_on_residents in [true, false] {
            if let Some(mut finished) = self.run_once(&job, code, compiled, counts_on_residents).await? {
                finished.timings.compile_us = compile_us;
                return Ok(finished);
            }
        }
        let message = "the executor reported twice that an input is gone, although the job had brought it";
        Err(Stop::failed(Failure::new(Verdict::Infrastructure, FailureCode::Internal, message)))
    }

    /// Runs a compiled job. `None` if it counted on a resident input that was evicted meanwhile.
    async fn run_once(
        &self,
        job: &ExecutorJob<'_>,
        code: Code<'_>,
        compiled: Option<&Compiled>,
        counts_on_residents: bool,
    ) -> Result<Option<Finished>, Stop> {
        let shared = &self.shared;
        let waiting = Instant::now();
        // A job that waits here holds no resource that others wait for.
        let turn = match job.printout {
            Some(printout) => Some(shared.unless_over(job.cancel, shared.printer.turn(printout)).await?),
            None => None,
        };
        // Always the inputs first, staging second and the stream last, so that jobs never wait for each other in a circle.
        let inputs = match counts_on_residents {
            true => shared.unless_over(job.cancel, shared.inputs.claim(inputs_of(job.task))).await?,
            false => JobInputs::default(),
        };
        let layout = Layout::of(job.task, &inputs).map_err(Stop::failed)?;
        let slot = shared.unless_over(job.cancel, shared.slab.take(layout.bytes)).await?.map_err(no_staging)?;
        let blobs = layout.blobs(job.task, &inputs);
        let brought = InputUse { resident: inputs.resident() as u64, brought: blobs.len() as u64 };
        let fetching = fetch(job.blobs, blobs, slot);
        let (mut slot, fetched) = shared.unless_over(job.cancel, fetching).await?.map_err(Stop::failed)?;
        let id = shared.next_job();
        let mut run = layout.stage(job.task, &inputs, compiled, &mut slot, id).map_err(Stop::failed)?;
        let headers = BufferHeader::of(job.task);
        let entries = run.launches.iter().map(|launch| launch.symbol.clone()).collect();
        let streams = if job.alone { shared.streams_max } else { 1 };
        let permit =
            shared.unless_over(job.cancel, Arc::clone(&shared.streams).acquire_many_owned(streams as u32)).await?;
        let permit = permit.expect("the semaphore is never closed");
        let waited = waiting.elapsed() - fetched;
        let slot = Arc::new(slot);
        let (answer, ending) = oneshot::channel();
        let pending = Pending {
            answer,
            program: job.program.unwrap_or_else(|| code.key()),
            entries,
            turn,
            _slot: Arc::clone(&slot),
            _streams: permit,
        };
        let started = Instant::now();
        (run.job, run.cache_bytes_max, run.prints) = (id, job.cache_bytes_max, job.printout.is_some());
        shared.submit(run, pending, code, job.time_limit)?;
        match shared.wait(id, ending, job.time_limit, job.cancel).await {
            JobEnd::Finished { outcome, timings } => {
                let (launches, device_bytes) = (job.task.launches.len(), shared.device.memory_bytes);
                let mut timings = untrusted::timings(timings, started.elapsed(), launches, device_bytes);
                timings.fetch_us = fetched.as_micros() as u64;
                if timings.total_us == 0 {
                    timings.total_us = started.elapsed().as_micros() as u64;
                }
                let outcome = outcome
                    .map(|()| layout.outputs(&headers, &slot))
                    .map_err(|failure| blame(failure, &job.task.program));
                Ok(Some(Finished { outcome, timings, inputs: brought, waited }))
            }
            JobEnd::InputGone => {
                shared.inputs.forget(&inputs);
                Ok(None)
            }
            JobEnd::Cancelled => Err(Stop::Cancelled),
            JobEnd::Lost(loss) => Err(Stop::Lost(loss, true)),
        }
    }
}

/// The inputs of a task from the blob store, with their lengths.
fn inputs_of(task: &Task<'_>) -> Vec<(BlobDigest, u64)> {
    let input = |buffer: &Buffer<'_>| match buffer.data {
        Data::Blob(digest) => Some((digest, buffer.bytes()?)),
        Data::Zeros | Data::Fill(_) | Data::Inline(_) => None,
    };
    task.buffers.iter().filter_map(input).collect()
}

fn no_staging(error: SlabError) -> Stop {
    let (verdict, code) = match &error {
        SlabError::TooLarge { .. } => (Verdict::User, FailureCode::OutputTooLarge),
        SlabError::Segment(_) => (Verdict::Infrastructure, FailureCode::Internal),
    };
    let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
    Stop::failed(Failure::new(verdict, code, format!("could not {error}{source}")))
}

/// The code for the executor. A catalog program has its own text; a source is replaced by its compiled program.
pub(crate) fn code<'a>(program: &'a Program<'_>, compiled: Option<&'a Compiled>) -> Result<Code<'a>, Failure> {
    match program {
        Program::Catalog(name) => match gpufleet_kernels::catalog().get(name) {
            Some(kernel) => Ok(Code::Ptx(kernel.ptx())),
            None => Err(Failure::new(
                Verdict::User,
                FailureCode::UnknownKernel,
                format!("this worker's catalog has no kernel {name:?}"),
            )),
        },
        Program::Source { .. } => Ok(Code::of(compiled.expect("a source is compiled before it gets here"))),
        Program::Ptx(text) => Ok(Code::Ptx(text)),
        Program::Cubin(Inline::Bytes(bytes)) => Ok(Code::Cubin(bytes)),
        Program::Cubin(Inline::Numbers(_)) => Err(Failure::new(
            Verdict::User,
            FailureCode::InvalidTask,
            "program.cubin: a list of numbers is not accepted; use base64 in JSON, or bin in MessagePack",
        )),
    }
}

/// Changes the verdict for a catalog program that does not load, because that is not its user's fault.
fn blame(mut failure: Failure, program: &Program<'_>) -> Failure {
    if failure.code == FailureCode::LoadError && matches!(program, Program::Catalog(_)) {
        failure.verdict = Verdict::Infrastructure;
    }
    failure
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.kill();
    }
}

fn connections(streams: usize) -> usize {
    (streams + 1).max(MAX_CONNECTIONS_DEFAULT)
}

fn command(options: &ExecutorOptions) -> Command {
    let mut command = own_executable::command(options.executable.as_deref(), "executor");
    match &options.uuid {
        // The child sees only this device, as its first.
        Some(uuid) => command.env(VISIBLE_DEVICES, uuid).arg("--device").arg("0"),
        None => command.arg("--device").arg(options.device.to_string()),
    };
    if env::var_os(MAX_CONNECTIONS).is_none() {
        command.env(MAX_CONNECTIONS, connections(options.streams()).to_string());
    }
    command.arg("--cuda").arg(options.cuda.to_string());
    command.arg("--streams").arg(options.streams().to_string());
    if let Some(bytes) = options.memory_bytes_max {
        command.arg("--memory-bytes-max").arg(bytes.to_string());
    }
    command.arg("--resident-bytes-max").arg(options.resident_bytes_max.to_string());
    if let Some(user) = &options.user {
        command.arg("--user").arg(user);
    }
    command.envs(options.environment.iter().map(|(name, value)| (name, value)));
    command
}
