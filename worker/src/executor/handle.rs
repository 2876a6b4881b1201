//! The supervisor's handle to an executor child: start it, run jobs on it, notice its end.

use std::{
    collections::HashMap,
    env, io,
    os::{fd::OwnedFd, unix::net::UnixStream as StdUnixStream},
    path::PathBuf,
    process::{Command, Stdio},
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use gpufleet_schema::{Failure, FailureCode, Program, Task, Timings, Verdict};
use tokio::{
    net::UnixStream,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch},
    time::timeout,
};

use super::{
    CudaSpec,
    keeper::Keeper,
    link::{self, Outgoing},
    programs::{Code, Key, Programs},
    staging::{Header, Layout, OutputBytes},
};
use crate::{
    compiler::{CompileRequest, Compiled, Compiler},
    ipc::{
        DeviceInfo, FromExecutor, ToExecutor,
        message::Refusal,
        segment::Segment,
        slab::{Announce, Slab, SlabError, Slot},
    },
};

/// Loading a driver and making a context takes a second or two on a large machine, and far longer where the driver was not yet loaded.
pub const READY_DEADLINE: Duration = Duration::from_secs(60);
/// Jobs on the device at once: one copies in, one computes, one copies out, and one is ready to follow.
pub const LANES_DEFAULT: usize = 4;
/// More streams than the hardware has queues gain nothing.
pub const LANES_MAX: usize = 32;
/// The `compute-sanitizer`-free variables that the child must not see: everything of ours but what configures the emulator.
const OUR_VARIABLES: &str = "GPUFLEET_";
const EMULATOR_VARIABLES: &str = "GPUFLEET_EMULATOR";

/// How to start an executor.
#[derive(Debug, Clone)]
pub struct ExecutorOptions {
    pub device: u32,
    pub cuda: CudaSpec,
    /// How many jobs run on the device at once, 1 to [`LANES_MAX`].
    pub lanes: usize,
    /// Device memory that jobs may have together; without it, all there is.
    pub memory_bytes_max: Option<u64>,
    pub ready_deadline: Duration,
    /// Compiles the CUDA C that jobs bring. Executors may share one, and with it its cache.
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
    /// From the moment at which the executor gets it. At its end the executor is killed.
    pub time_limit: Duration,
    /// Run with nothing beside it, so that a fault can only be its own. For suspects ([`LostCause::Suspect`]).
    pub alone: bool,
}

/// A job that came to its end.
#[derive(Debug)]
pub struct Finished {
    pub outcome: Result<Vec<OutputBytes>, Failure>,
    /// All but `queue_us` and `wait_us`.
    pub timings: Timings,
    /// How long it waited inside [`Executor::run`] for staging memory and a lane; a part of `wait_us`.
    pub waited: Duration,
}

/// A job that came to no end, through no proven fault of its own.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RunError {
    #[error("run the job: {reason}")]
    Lost {
        cause: LostCause,
        reason: String,
        /// It had been sent to the executor.
        was_running: bool,
    },
}

/// Why an executor took jobs with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostCause {
    /// The child died, and nobody knows why.
    Died,
    /// One of the jobs in flight brought the context down, perhaps this one: run it again alone.
    Suspect,
    /// Another job brought the executor down. This one is not to blame and should not lose an attempt.
    Neighbour,
    /// The device is sick: no job is to blame, and the next executor on it will hardly fare better.
    Device,
    /// The supervisor stopped or killed it.
    Stopped,
}

/// How an executor ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    pub cause: LostCause,
    pub reason: String,
}

/// An executor that did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("start an executor: {hint}")]
    NoDriver { hint: String },
    #[error("start an executor: there is no device {device}, the driver has {devices}")]
    NoDevice { device: u32, devices: u32 },
    #[error("start an executor: {call} answered {name} ({code})")]
    DriverError { call: String, code: u32, name: String },
    #[error("start an executor: the process died: {status}{}", tail_of(.stderr_tail))]
    Died { status: String, stderr_tail: String },
    #[error("start an executor: it was not ready within {} s", .deadline.as_secs())]
    Timeout { deadline: Duration },
    #[error("start an executor process")]
    Spawn(#[source] io::Error),
}

fn tail_of(tail: &str) -> String {
    if tail.trim().is_empty() { String::new() } else { format!("\n{}", tail.trim_end()) }
}

impl ExecutorOptions {
    /// Everything as is usual, with a compiler of its own.
    pub fn new(device: u32, cuda: CudaSpec) -> Self {
        Self {
            device,
            cuda,
            lanes: LANES_DEFAULT,
            memory_bytes_max: None,
            ready_deadline: READY_DEADLINE,
            compiler: Arc::new(Compiler::new(None)),
            executable: None,
            environment: Vec::new(),
        }
    }

    fn lanes(&self) -> usize {
        self.lanes.clamp(1, LANES_MAX)
    }
}

/// What the handle and the two tasks behind it share.
#[derive(Debug)]
pub(super) struct Shared {
    pub device: DeviceInfo,
    pub keeper: Keeper,
    pub outgoing: mpsc::UnboundedSender<Outgoing>,
    pub state: Mutex<State>,
    /// Set once, when the child is gone and every job has its answer.
    pub lost: watch::Sender<Option<Loss>>,
    slab: Slab,
    lanes: Arc<Semaphore>,
    lanes_max: usize,
    compiler: Arc<Compiler>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub pending: HashMap<u64, Pending>,
    pub programs: Programs,
    pub next_job: u64,
    /// The job whose time limit made us kill the child.
    pub timed_out: Option<u64>,
    /// We made it stop; whatever happens to it now was wanted.
    pub stopping: bool,
    pub unpinned: Option<String>,
}

/// A job that the child has.
#[derive(Debug)]
pub(super) struct Pending {
    pub answer: oneshot::Sender<Ended>,
    pub program: Key,
    pub entries: Vec<String>,
    /// Kept here as well as in `run`, so that a cancelled `run` does not free what the child may still write to.
    _slot: Arc<Slot>,
    _lanes: OwnedSemaphorePermit,
}

/// How a job left the child.
#[derive(Debug)]
pub(super) enum Ended {
    Finished { outcome: Result<(), Failure>, timings: Timings },
    Lost(Loss),
}

impl Executor {
    /// Starts a child and waits until it has its device. Cancelling kills the child.
    pub async fn start(options: ExecutorOptions) -> Result<(Self, DeviceInfo), StartError> {
        let (ours, theirs) = StdUnixStream::pair().map_err(StartError::Spawn)?;
        let command = command(&options).map_err(StartError::Spawn)?;
        let keeper = Keeper::spawn(command, Stdio::from(OwnedFd::from(theirs))).await.map_err(StartError::Spawn)?;
        let guard = KillOnDrop(Some(keeper));
        ours.set_nonblocking(true).map_err(StartError::Spawn)?;
        let (mut incoming, writer) = UnixStream::from_std(ours).map_err(StartError::Spawn)?.into_split();
        let first = match timeout(options.ready_deadline, link::receive(&mut incoming)).await {
            Ok(first) => first,
            Err(_) => return Err(StartError::Timeout { deadline: options.ready_deadline }),
        };
        let device = match first {
            Ok(Some(FromExecutor::Ready(device))) => device,
            Ok(Some(FromExecutor::Refused(refusal))) => return Err(refusal.into()),
            Ok(_) | Err(_) => return Err(guard.died().await),
        };
        let (outgoing, queue) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            device: device.clone(),
            keeper: guard.keep(),
            slab: Slab::new(Box::new(Announcer(outgoing.clone()))),
            outgoing,
            state: Mutex::default(),
            lost: watch::Sender::new(None),
            lanes: Arc::new(Semaphore::new(options.lanes())),
            lanes_max: options.lanes(),
            compiler: options.compiler,
        });
        tokio::spawn(link::write(writer, queue));
        tokio::spawn(link::listen(Arc::clone(&shared), incoming));
        Ok((Self { shared }, device))
    }

    /// Runs a job to its end. Many may be in flight; beyond the number of lanes they wait here.
    ///
    /// Cancelling a job that waits takes it out of the line. A job that runs goes on to its end or its time limit, and its
    /// outcome is dropped.
    pub async fn run(&self, job: ExecutorJob<'_>) -> Result<Finished, RunError> {
        let arrived = Instant::now();
        match self.attempt(job, arrived).await {
            Ok(finished) => Ok(finished),
            Err(Stop::Failed(failure, timings)) => {
                Ok(Finished { outcome: Err(*failure), timings: *timings, waited: Duration::ZERO })
            }
            Err(Stop::Lost(loss, was_running)) => {
                Err(RunError::Lost { cause: loss.cause, reason: loss.reason, was_running })
            }
        }
    }

    /// Resolves when the child is gone and every job that was on it has its answer.
    pub async fn lost(&self) -> Loss {
        self.shared.lost().await
    }

    /// Lets the jobs in flight end, for as long as `grace`; then the child is killed. Returns when it is gone.
    pub async fn stop(&self, grace: Duration) {
        self.shared.state().stopping = true;
        self.shared.say(&ToExecutor::Stop);
        if timeout(grace, self.shared.keeper.exit()).await.is_err() {
            self.kill();
        }
        self.lost().await;
    }

    /// Ends the child at once. Its jobs come back as lost.
    pub fn kill(&self) {
        self.shared.state().stopping = true;
        self.shared.keeper.kill();
    }

    pub fn pid(&self) -> u32 {
        self.shared.keeper.pid()
    }

    pub fn device(&self) -> &DeviceInfo {
        &self.shared.device
    }

    /// How many jobs it runs at once. More than that gain nothing by being here.
    pub fn lanes(&self) -> usize {
        self.shared.lanes_max
    }

    /// Why staging memory is not pinned, if it is not: copies are slower then, and still right.
    pub fn unpinned(&self) -> Option<String> {
        self.shared.state().unpinned.clone()
    }

    async fn attempt(&self, job: ExecutorJob<'_>, arrived: Instant) -> Result<Finished, Stop> {
        let shared = &self.shared;
        let compiled = shared.compiled(&job.task.program).await?;
        let code = code(&job.task.program, compiled.as_deref())?;
        let layout = Layout::of(job.task).map_err(Stop::failed)?;
        let compile_us = compiled.as_ref().map_or(0, |compiled| compiled.micros);
        let waiting = Instant::now();
        let mut slot = shared.or_lost(shared.slab.take(layout.bytes)).await?.map_err(no_staging)?;
        let id = shared.next_job();
        let mut run = layout.stage(job.task, &mut slot, id).map_err(Stop::failed)?;
        let headers = Header::of(job.task);
        let entries = run.launches.iter().map(|launch| launch.entry.clone()).collect();
        // Staging comes first and the lane second, always in this order: whoever holds a lane waits for nothing.
        let lanes = if job.alone { shared.lanes_max } else { 1 };
        let permit = shared.or_lost(Arc::clone(&shared.lanes).acquire_many_owned(lanes as u32)).await?;
        let permit = permit.expect("the semaphore is never closed");
        let waited = waiting.elapsed();
        let slot = Arc::new(slot);
        let (answer, ending) = oneshot::channel();
        let pending = Pending { answer, program: code.key(), entries, _slot: Arc::clone(&slot), _lanes: permit };
        let started = Instant::now();
        run.job = id;
        shared.submit(run, pending, code)?;
        let ended = shared.wait(id, ending, job.time_limit).await;
        match ended {
            Ended::Finished { outcome, mut timings } => {
                timings.compile_us = compile_us;
                if timings.total_us == 0 {
                    timings.total_us = started.elapsed().as_micros() as u64;
                }
                let outcome = outcome
                    .map(|()| layout.outputs(&headers, &slot))
                    .map_err(|failure| blame(failure, &job.task.program));
                tracing::trace!(job = id, total = ?arrived.elapsed(), "job left the executor");
                Ok(Finished { outcome, timings, waited })
            }
            Ended::Lost(loss) => Err(Stop::Lost(loss, true)),
        }
    }
}

/// Why an attempt ended early.
enum Stop {
    Failed(Box<Failure>, Box<Timings>),
    Lost(Loss, bool),
}

impl Stop {
    fn failed(failure: Failure) -> Self {
        Self::Failed(Box::new(failure), Box::default())
    }
}

fn no_staging(error: SlabError) -> Stop {
    let (verdict, code) = match &error {
        SlabError::TooLarge { .. } => (Verdict::User, FailureCode::OutputTooLarge),
        SlabError::Segment(_) => (Verdict::Infrastructure, FailureCode::Internal),
    };
    let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
    Stop::failed(Failure::new(verdict, code, format!("could not {error}{source}")))
}

/// The code that the executor gets. The catalog's text is the program's own.
fn code<'a>(program: &'a Program<'_>, compiled: Option<&'a Compiled>) -> Result<Code<'a>, Stop> {
    match program {
        Program::Catalog(name) => match gpufleet_kernels::catalog().get(name) {
            Some(kernel) => Ok(Code::Ptx(kernel.ptx())),
            None => Err(Stop::failed(Failure::new(
                Verdict::User,
                FailureCode::UnknownKernel,
                format!("this worker's catalog has no kernel {name:?}"),
            ))),
        },
        Program::Source { .. } => Ok(Code::Ptx(&compiled.expect("a source is compiled before it gets here").ptx)),
        Program::Ptx(text) => Ok(Code::Ptx(text)),
        Program::Cubin(gpufleet_schema::Inline::Bytes(bytes)) => Ok(Code::Cubin(bytes)),
        Program::Cubin(gpufleet_schema::Inline::Numbers(_)) => Err(Stop::failed(Failure::new(
            Verdict::User,
            FailureCode::InvalidTask,
            "program.cubin: a list of numbers is not accepted here; give base64 or MessagePack bin",
        ))),
    }
}

/// A program of our own that does not load is not its user's fault.
fn blame(mut failure: Failure, program: &Program<'_>) -> Failure {
    if failure.code == FailureCode::LoadError && matches!(program, Program::Catalog(_)) {
        failure.verdict = Verdict::Infrastructure;
    }
    failure
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding the state")
    }

    fn say(&self, message: &ToExecutor) {
        // A frame that can't be encoded is refused where it can happen, in `submit`; one that can't be sent belongs to a child that is
        // gone, which the listener notices.
        if let Ok(outgoing) = Outgoing::encode(message, None) {
            drop(self.outgoing.send(outgoing));
        }
    }

    fn next_job(&self) -> u64 {
        let mut state = self.state();
        state.next_job += 1;
        state.next_job
    }

    async fn compiled(&self, program: &Program<'_>) -> Result<Option<Arc<Compiled>>, Stop> {
        let Program::Source { code, options } = program else { return Ok(None) };
        let request = CompileRequest {
            code: code.to_string(),
            options: options.clone(),
            arch: self.device.compute_capability,
            nvrtc: None,
        };
        let started = Instant::now();
        match self.compiler.compile(request).await {
            Ok(compiled) => Ok(Some(compiled)),
            Err(error) => {
                let timings = Timings { compile_us: started.elapsed().as_micros() as u64, ..Timings::default() };
                Err(Stop::Failed(Box::new(error.into()), Box::new(timings)))
            }
        }
    }

    /// Gives the job to the child, with its program if the child does not have it.
    fn submit(&self, mut run: crate::ipc::message::Run, pending: Pending, code: Code<'_>) -> Result<(), Stop> {
        // One lock around all of it: frames leave in the order in which ids were claimed, and no loss slips in between.
        let mut state = self.state();
        if let Some(loss) = &*self.lost.borrow() {
            return Err(Stop::Lost(loss.clone(), false));
        }
        if state.stopping {
            return Err(Stop::Lost(Loss { cause: LostCause::Stopped, reason: "the executor stops".to_owned() }, false));
        }
        let claim = state.programs.claim(pending.program);
        run.program = claim.id;
        let frames = (|| {
            let mut frames = Vec::with_capacity(3);
            if let Some(program) = claim.forget {
                frames.push(Outgoing::encode(&ToExecutor::ForgetProgram { program }, None)?);
            }
            if claim.is_new {
                let program = ToExecutor::Program { program: claim.id, image: code.image() };
                frames.push(Outgoing::encode(&program, None)?);
            }
            let job = run.job;
            frames.push(Outgoing::encode(&ToExecutor::Run(run), None)?);
            Ok::<_, crate::ipc::frame::FrameError>((job, frames))
        })();
        let (job, frames) = match frames {
            Ok(frames) => frames,
            Err(error) => {
                state.programs.withdraw(pending.program, claim.is_new);
                return Err(Stop::failed(Failure::new(
                    Verdict::User,
                    FailureCode::InvalidTask,
                    format!("the program or its launches are too large: could not {error}"),
                )));
            }
        };
        state.pending.insert(job, pending);
        // A closed channel belongs to a child that is gone; the listener answers for the job.
        frames.into_iter().for_each(|frame| drop(self.outgoing.send(frame)));
        Ok(())
    }

    async fn wait(self: &Arc<Self>, job: u64, ending: oneshot::Receiver<Ended>, time_limit: Duration) -> Ended {
        let deadline = Instant::now() + time_limit;
        Watched { shared: Arc::clone(self), job, deadline, ending: Some(ending) }.ended().await
    }

    fn time_out(&self, job: u64) {
        let mut state = self.state();
        if state.pending.contains_key(&job) && state.timed_out.is_none() {
            state.timed_out = Some(job);
            drop(state);
            self.keeper.kill();
        }
    }

    async fn lost(&self) -> Loss {
        let mut lost = self.lost.subscribe();
        let lost = lost.wait_for(Option::is_some).await.expect("the sender is here");
        lost.clone().expect("that is what was waited for")
    }

    /// Waits for something as long as the child lives.
    async fn or_lost<T>(&self, something: impl Future<Output = T>) -> Result<T, Stop> {
        tokio::select! {
            biased;
            loss = self.lost() => Err(Stop::Lost(loss, false)),
            got = something => Ok(got),
        }
    }
}

/// A job in flight, whose time limit holds also when nobody waits for it any more.
struct Watched {
    shared: Arc<Shared>,
    job: u64,
    deadline: Instant,
    ending: Option<oneshot::Receiver<Ended>>,
}

impl Watched {
    async fn ended(mut self) -> Ended {
        let ending = self.ending.as_mut().expect("it is taken only at the end");
        let ended = match tokio::time::timeout_at(self.deadline.into(), &mut *ending).await {
            Ok(ended) => ended,
            Err(_) => {
                self.shared.time_out(self.job);
                ending.await
            }
        };
        self.ending = None;
        // The listener answers every job before it ends.
        ended.unwrap_or_else(|_| {
            Ended::Lost(Loss { cause: LostCause::Died, reason: "the executor's listener ended".to_owned() })
        })
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let (Some(ending), Ok(runtime)) = (self.ending.take(), tokio::runtime::Handle::try_current()) else { return };
        let rest =
            Watched { shared: Arc::clone(&self.shared), job: self.job, deadline: self.deadline, ending: Some(ending) };
        runtime.spawn(rest.ended());
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Kills the child of a start that failed or was cancelled.
struct KillOnDrop(Option<Keeper>);

impl KillOnDrop {
    fn keep(mut self) -> Keeper {
        self.0.take().expect("it is taken once")
    }

    async fn died(self) -> StartError {
        let keeper = self.0.as_ref().expect("it is taken once");
        keeper.kill();
        let exit = keeper.exit().await;
        StartError::Died { status: exit.status.to_string(), stderr_tail: exit.tail }
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(keeper) = &self.0 {
            keeper.kill();
        }
    }
}

impl From<Refusal> for StartError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NoDriver { hint } => Self::NoDriver { hint },
            Refusal::NoDevice { ordinal, devices } => Self::NoDevice { device: ordinal, devices },
            Refusal::Driver { call, code, name } => Self::DriverError { call, code, name },
        }
    }
}

/// Tells the child about segments.
struct Announcer(mpsc::UnboundedSender<Outgoing>);

impl Announce for Announcer {
    fn made(&self, id: u32, segment: &Segment) -> io::Result<()> {
        let message = ToExecutor::Segment { segment: id, bytes: segment.len() as u64 };
        let outgoing = Outgoing::encode(&message, Some(segment.descriptor()?)).map_err(io::Error::other)?;
        self.0.send(outgoing).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }

    fn dropped(&self, id: u32) {
        if let Ok(outgoing) = Outgoing::encode(&ToExecutor::DropSegment { segment: id }, None) {
            drop(self.0.send(outgoing));
        }
    }
}

fn command(options: &ExecutorOptions) -> io::Result<Command> {
    let executable = match &options.executable {
        Some(path) => path.clone(),
        None => env::current_exe()?,
    };
    let mut command = Command::new(executable);
    command.arg("executor").arg("--device").arg(options.device.to_string());
    command.arg("--cuda").arg(options.cuda.to_string());
    command.arg("--lanes").arg(options.lanes().to_string());
    if let Some(bytes) = options.memory_bytes_max {
        command.arg("--memory-bytes-max").arg(bytes.to_string());
    }
    // The child has no use for the broker's address and password.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with(OUR_VARIABLES) && !name.starts_with(EMULATOR_VARIABLES) {
            command.env_remove(name);
        }
    }
    command.envs(options.environment.iter().map(|(name, value)| (name, value)));
    Ok(command)
}
