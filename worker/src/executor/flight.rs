//! Jobs in flight on one executor: the state shared by the handle and its listener task.

use std::{
    collections::HashMap,
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, mpsc},
    time::{Duration, Instant},
};

use gpufleet_schema::{Failure, FailureCode, Program, Task, Timings, Verdict};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::{
    clocks::Clocks,
    inputs::DeviceInputs,
    loss::{Loss, LostCause},
    outgoing::Outgoing,
    phase::{Phase, RequestSender},
    printer::{PrintPermit, Printer},
    process::ChildProcess,
    programs::{Code, KnownPrograms, ProgramKey, ProgramLease},
    progress::JobProgress,
};
use crate::{
    compiler::{CompileRequest, Compiler, Found},
    ipc::{
        DeviceInfo, ToExecutor,
        frame::{Frame, FrameError},
        message::{JobPlan, MemoryReport},
        segment::Segment,
        slab::{Announce, Slab, StagingMemory},
    },
    scheduler::PoolId,
};

/// The state shared by the handle and its listener task.
#[derive(Debug)]
pub(super) struct Shared {
    pub device: DeviceInfo,
    pub process: ChildProcess,
    pub outgoing: Outgoing,
    pub printer: Arc<Printer>,
    pub state: Mutex<State>,
    /// The loss, set once the child has ended and every job has its answer.
    pub lost: watch::Sender<Option<Loss>>,
    pub slab: Slab,
    pub inputs: DeviceInputs,
    pub streams: Arc<Semaphore>,
    pub streams_max: usize,
    pub compiler: Arc<Compiler>,
    pub memory: Mutex<LatestMemory>,
    /// Notified of each memory report.
    pub heard: Notify,
}

/// The child's last memory report, and the observer that receives each report.
#[derive(Default)]
pub(super) struct LatestMemory {
    pub last: MemoryReport,
    pub observer: Option<MemoryObserver>,
}

pub(super) type MemoryObserver = Box<dyn Fn(MemoryReport) + Send>;

impl fmt::Debug for LatestMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatestMemory").field("last", &self.last).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub pending: HashMap<u64, Pending>,
    /// The clocks of the pending jobs.
    pub clocks: Clocks,
    /// The channels for the answers to pieces, by job and buffer.
    pub copies: HashMap<(u64, u32), mpsc::SyncSender<Result<(), Failure>>>,
    pub programs: KnownPrograms,
    pub next_job: u64,
    /// The job that made the supervisor kill the child.
    pub killed_for: Option<(u64, Cut)>,
    /// Whether the supervisor has stopped the child, so that its end is expected.
    pub stopping: bool,
    pub unpinned: Option<String>,
}

impl State {
    /// Forgets jobs that could not be sent.
    fn forget(&mut self, jobs: &[u64]) {
        for job in jobs {
            self.end(*job, Instant::now());
        }
    }

    /// Removes a job that has ended, and lets the next job of its train begin. Returns `None` if there is no such job.
    pub(super) fn end(&mut self, job: u64, now: Instant) -> Option<Pending> {
        let pending = self.pending.remove(&job)?;
        self.clocks.end(job, now);
        self.programs.release(pending.program);
        if let Some((next, behind)) = pending.next.and_then(|next| Some((next, self.pending.get_mut(&next)?))) {
            behind.phase.begin();
            self.clocks.resume(next, now);
        }
        Some(pending)
    }
}

/// A job sent to the child.
#[derive(Debug)]
pub(super) struct Pending {
    pub answer: oneshot::Sender<JobEnd>,
    pub phase: Phase,
    /// Receives the requests of the child that the phase accepts; only for a job that may have any.
    pub requests: Option<RequestSender>,
    pub program: ProgramKey,
    pub entries: Vec<String>,
    pub progress: Option<JobProgress>,
    /// The permit to print, for a job that may print.
    pub turn: Option<PrintPermit>,
    /// Also held by the caller of `run`. This reference ensures that cancelling the caller does not free memory to which the child may
    /// still write.
    pub _memory: Arc<StagingMemory>,
    /// Shared by the jobs of a train.
    pub _stream: Arc<OwnedSemaphorePermit>,
    /// The next job of its train.
    pub next: Option<u64>,
}

/// A job to send to the child.
pub(super) struct Passenger<'a> {
    pub run: JobPlan,
    pub pending: Pending,
    pub code: Code<'a>,
    pub time_limit: Duration,
}

/// Why the supervisor kills a child on account of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    TimeLimit,
    Cancelled,
}

/// Lateness of a timer that shows that the whole process was stopped or its machine suspended, while its children may have continued.
/// Normally a timer fires a millisecond late, or about ten on a busy machine.
pub(super) const STOOD_STILL: Duration = Duration::from_millis(100);
/// Time to read the child's messages that have accumulated in the socket.
const CATCHES_UP_WITHIN: Duration = Duration::from_millis(200);

/// Time in which the emulated device ends a kernel on request and the child reports the end.
const EXPLAINS_WITHIN: Duration = Duration::from_millis(500);

/// The end of a job; an error if the child ended before it answered.
pub(super) type Answered = Result<JobEnd, oneshot::error::RecvError>;

/// The end of a job in the child.
#[derive(Debug)]
pub(super) enum JobEnd {
    Finished {
        outcome: Result<(), Failure>,
        timings: Timings,
    },
    /// The child has released the job on request. The job has no outcome.
    Released,
    Cancelled,
    Lost(Loss),
}

/// Why an attempt ended early.
pub(super) enum Stop {
    Failed(Box<Failure>, Box<Timings>),
    Cancelled,
    Lost(Loss, bool),
}

impl Stop {
    pub(super) fn failed(failure: Failure) -> Self {
        Self::Failed(Box::new(failure), Box::default())
    }
}

fn too_large(error: &FrameError) -> Stop {
    let message = format!("the program or its launches are too large: {error}");
    Stop::failed(Failure::new(Verdict::User, FailureCode::InvalidTask, message))
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while holding the state")
    }

    pub(super) fn say(&self, message: &ToExecutor) {
        // `submit` alone can produce a frame that can't be encoded, and it reports the error itself. If a frame can't be sent, the child
        // has ended, which the listener detects.
        if let Ok(frame) = Frame::encode(message, None) {
            self.outgoing.send(frame);
        }
    }

    /// Records a memory report. Reports are handled in the child's order, and before its later answers.
    pub(super) fn memory_is(&self, report: MemoryReport) {
        let mut memory = self.memory();
        memory.last = report;
        memory.observer.iter().for_each(|observer| observer(report));
        self.heard.notify_waiters();
    }

    pub(super) fn memory(&self) -> MutexGuard<'_, LatestMemory> {
        self.memory.lock().expect("no observer panics")
    }

    pub(super) fn next_job(&self) -> u64 {
        let mut state = self.state();
        state.next_job += 1;
        state.next_job
    }

    pub(super) async fn compiled(&self, task: &Task<'_>, pool: PoolId) -> Result<Option<Found>, Stop> {
        let Program::Source { code, options } = &task.program else { return Ok(None) };
        let request = CompileRequest {
            code: code.to_string(),
            options: options.clone(),
            expressions: task.name_expressions(),
            target: self.device.target(),
            nvrtc: None,
        };
        let started = Instant::now();
        match self.compiler.compile_for(pool, request).await {
            Ok(found) => Ok(Some(found)),
            Err(error) => {
                let timings = Timings { compile_us: started.elapsed().as_micros() as u64, ..Timings::default() };
                Err(Stop::Failed(Box::new(error.into()), Box::new(timings)))
            }
        }
    }

    /// Sends jobs to the child, which runs them one after the other, with the programs that the child does not have.
    pub(super) fn submit(&self, train: Vec<Passenger<'_>>) -> Result<(), Stop> {
        // One lock covers all of this, so that frames are sent in the order of their ids and no loss is recorded in between.
        let mut state = self.state();
        if let Some(loss) = &*self.lost.borrow() {
            return Err(Stop::Lost(loss.clone(), false));
        }
        if state.stopping {
            return Err(Stop::Lost(
                Loss { cause: LostCause::Stopped, reason: "the executor is stopping".to_owned() },
                false,
            ));
        }
        let (mut runs, mut sent) = (Vec::with_capacity(train.len()), Vec::with_capacity(train.len()));
        for Passenger { mut run, pending, code, time_limit } in train {
            let lease = state.programs.acquire(pending.program, code);
            run.program = lease.id;
            if let Err(error) = self.tell_program(&lease, code) {
                state.programs.withdraw(pending.program);
                state.forget(&sent);
                return Err(too_large(&error));
            }
            pending.turn.iter().for_each(|turn| self.printer.begin(turn));
            sent.push(run.job);
            state.clocks.start(run.job, time_limit, Instant::now());
            if pending.phase.is_behind() {
                state.clocks.suspend(run.job, Instant::now());
            }
            state.pending.insert(run.job, pending);
            runs.push(run);
        }
        match Frame::encode(&ToExecutor::Run(runs), None) {
            Ok(frame) => {
                self.outgoing.send(frame);
                Ok(())
            }
            Err(error) => {
                state.forget(&sent);
                Err(too_large(&error))
            }
        }
    }

    fn tell_program(&self, lease: &ProgramLease, code: Code<'_>) -> Result<(), FrameError> {
        for &program in &lease.forget {
            self.say(&ToExecutor::ForgetProgram { program });
        }
        if lease.is_new {
            let program = ToExecutor::Program { program: lease.id, image: code.image() };
            self.outgoing.send(Frame::encode(&program, None)?);
        }
        Ok(())
    }

    /// Returns a channel for the answers to a buffer's pieces, of which at most `pieces` are outstanding. It closes when the child ends.
    pub(super) fn copies(&self, job: u64, buffer: u32, pieces: usize) -> mpsc::Receiver<Result<(), Failure>> {
        let (copied, answers) = mpsc::sync_channel(pieces);
        let mut state = self.state();
        // The lock covers both steps, so that no answer is awaited after the loss was recorded.
        if self.lost.borrow().is_none() {
            state.copies.insert((job, buffer), copied);
        }
        answers
    }

    /// Returns the progress of a job in flight.
    pub(super) fn progress(&self, job: u64) -> Option<JobProgress> {
        self.state().pending.get(&job).and_then(|pending| pending.progress.clone())
    }

    /// Lets a job continue whose inputs are complete, or whose outputs have been read. Its time limit starts now.
    pub(super) fn go(&self, job: u64) {
        let mut state = self.state();
        state.clocks.resume(job, Instant::now());
        if let Some(pending) = state.pending.get_mut(&job) {
            pending.phase.go_on();
        }
        drop(state);
        self.say(&ToExecutor::Go { job });
    }

    pub(super) async fn wait(
        self: &Arc<Self>,
        job: u64,
        ending: oneshot::Receiver<JobEnd>,
        time_limit: Duration,
        cancel: &CancellationToken,
    ) -> JobEnd {
        let deadline = Instant::now() + time_limit;
        let cancel = cancel.clone();
        TimeLimitGuard { shared: Arc::clone(self), job, deadline, cancel, ending: Some(ending) }.ended().await
    }

    pub(super) fn kill_for(&self, job: u64, cut: Cut) {
        if self.blame(job, cut) {
            self.process.kill();
        }
    }

    /// Records that the child has to end on account of a job. Returns whether it ends for this reason; if not, it already ends for another
    /// reason, or the job has ended.
    fn blame(&self, job: u64, cut: Cut) -> bool {
        let mut state = self.state();
        let known = state.killed_for;
        // A job that waits behind others is not running yet, and is about to be released.
        if known.is_none() && state.pending.get(&job).is_some_and(|pending| !pending.phase.is_behind()) {
            state.killed_for = Some((job, cut));
        }
        state.killed_for == Some((job, cut))
    }

    /// Lets the emulated device end a job's kernel at the time limit. Returns how the job ended, if it did in time. The device then reports
    /// where the kernel's threads were, which would be lost with a kill.
    async fn interrupt(&self, job: u64, ending: &mut oneshot::Receiver<JobEnd>) -> Option<Answered> {
        if !self.device.emulated || !self.blame(job, Cut::TimeLimit) {
            return None;
        }
        self.say(&ToExecutor::Interrupt { job });
        let ended = tokio::time::timeout(EXPLAINS_WITHIN, ending).await.ok()?;
        // If the job has ended by itself in the meantime, the child continues.
        let mut state = self.state();
        if self.lost.borrow().is_none() && state.killed_for == Some((job, Cut::TimeLimit)) {
            state.killed_for = None;
        }
        Some(ended)
    }

    pub(super) async fn lost(&self) -> Loss {
        let mut lost = self.lost.subscribe();
        let lost = lost.wait_for(Option::is_some).await.expect("the sender is here");
        lost.clone().expect("that is what was waited for")
    }

    /// Waits for `something`. Fails if the child is lost or the job cancelled.
    pub(super) async fn unless_over<T>(
        &self,
        cancel: &CancellationToken,
        something: impl Future<Output = T>,
    ) -> Result<T, Stop> {
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Stop::Cancelled),
            loss = self.lost() => Err(Stop::Lost(loss, false)),
            got = something => Ok(got),
        }
    }
}

/// Waits for a job's end, and enforces its time limit even if the caller stops waiting.
struct TimeLimitGuard {
    shared: Arc<Shared>,
    job: u64,
    deadline: Instant,
    cancel: CancellationToken,
    /// Taken when the job has ended.
    ending: Option<oneshot::Receiver<JobEnd>>,
}

/// Waits for a job's end. If the time limit or a cancellation comes first, kills the child.
async fn ended(
    shared: &Shared,
    job: u64,
    deadline: Instant,
    cancel: &CancellationToken,
    ending: &mut oneshot::Receiver<JobEnd>,
) -> JobEnd {
    let mut until = deadline;
    let cut = loop {
        tokio::select! {
            biased;
            ended = &mut *ending => break Err(ended),
            () = cancel.cancelled() => break Ok(Cut::Cancelled),
            () = tokio::time::sleep_until(until.into()) => {}
        }
        let now = Instant::now();
        let time_left = shared.state().clocks.time_left(job, now);
        until = match time_left {
            Some(later) => later,
            None if now.duration_since(until) > STOOD_STILL => now + CATCHES_UP_WITHIN,
            None => break Ok(Cut::TimeLimit),
        };
    };
    let ended = match cut {
        Err(ended) => ended,
        Ok(cut) => {
            let interrupted = if cut == Cut::TimeLimit { shared.interrupt(job, ending).await } else { None };
            match interrupted {
                Some(ended) => ended,
                None => kill(shared, job, cut, ending).await,
            }
        }
    };
    answered(ended)
}

/// Returns the end of a job. An error can't happen, because the listener answers every job before it ends.
pub(super) fn answered(ended: Answered) -> JobEnd {
    ended.unwrap_or_else(|_| {
        JobEnd::Lost(Loss { cause: LostCause::Died, reason: "the executor's listener ended".to_owned() })
    })
}

/// Kills the child on account of a job, and waits for the job's end. While the device is ending another job, the kill has no effect. If
/// that job then ends by itself, the child continues, so the kill is repeated.
async fn kill(shared: &Shared, job: u64, cut: Cut, ending: &mut oneshot::Receiver<JobEnd>) -> Answered {
    loop {
        shared.kill_for(job, cut);
        if let Ok(ended) = tokio::time::timeout(2 * EXPLAINS_WITHIN, &mut *ending).await {
            return ended;
        }
    }
}

impl TimeLimitGuard {
    async fn ended(mut self) -> JobEnd {
        let ending = self.ending.as_mut().expect("it is taken only at the end");
        let ended = ended(&self.shared, self.job, self.deadline, &self.cancel, ending).await;
        self.ending = None;
        ended
    }
}

impl Drop for TimeLimitGuard {
    /// Moves the wait to a task without a guard. When the runtime shuts down, it drops that task, which ends the wait.
    fn drop(&mut self) {
        let (Some(mut ending), Ok(runtime)) = (self.ending.take(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        let (shared, job, deadline) = (Arc::clone(&self.shared), self.job, self.deadline);
        let cancel = self.cancel.clone();
        runtime.spawn(async move {
            ended(&shared, job, deadline, &cancel, &mut ending).await;
        });
    }
}

/// Announces segments to the child.
pub(super) struct Announcer(pub Outgoing);

impl Announce for Announcer {
    fn made(&self, id: u32, segment: &Segment) -> io::Result<()> {
        let message = ToExecutor::Segment { segment: id, bytes: segment.len() as u64 };
        let frame = Frame::encode(&message, Some(segment.descriptor()?)).map_err(io::Error::other)?;
        self.0.send(frame);
        Ok(())
    }

    fn dropped(&self, id: u32) {
        if let Ok(frame) = Frame::encode(&ToExecutor::DropSegment { segment: id }, None) {
            self.0.send(frame);
        }
    }
}
