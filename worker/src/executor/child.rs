//! The life of an executor child: it drops its privileges, opens the device, reports that it is ready, then runs jobs until the supervisor
//! stops it or ends.
//!
//! Untrusted code runs on the device and, with the emulator, in this process. So the child runs as an unprivileged user without a way back,
//! and holds only its socket and its output. It loads the driver's library before it drops root, because only root may be able to read the
//! file. It makes the first driver call afterwards.
//!
//! Each thread owns one CUDA stream. Idle threads take turns to read frames: the thread that reads a train of jobs also runs them and
//! writes the answers, so no job waits for another thread to wake. The child has one thread more than the supervisor sends trains at a
//! time. So one thread always reads the socket and notices at once when the supervisor has ended.

use std::{
    collections::HashMap,
    io,
    os::unix::net::UnixStream,
    process::ExitCode,
    sync::{Arc, Mutex, mpsc},
    thread::{self, JoinHandle},
};

use super::{
    Args, CudaSpec, DeviceInfo, bounds,
    cuda::{
        arena::Arena,
        common::Common,
        copier::{self, Errand, StagedPiece},
        device::{self, Device},
        ending::StreamEnd,
        error::{CudaError, Damage},
        fault::{self, FaultOrigin},
        guard::Guard,
        library::DriverLibrary,
        memory::{Chore, DeviceMemory, ReportError},
        pinned::PinnedSegment,
        printing::Printing,
        program::Program,
        progress::Progress,
        running,
        scopes::Scopes,
        stream::Stream,
        trains::{Train, Trains},
        transfers::{Direction, Signal, Transfers},
        upstream::Upstream,
        waits::Waits,
        work::Work,
    },
    sizes::Sizes,
};
use crate::{
    ipc::{
        FromExecutor, ToExecutor,
        frame::{FrameError, FrameReader},
        message::{Contents, JobPlan, MemoryReport, Piece, Refusal},
    },
    own_executable,
    privileges::{self, PrivilegeError},
};

const EXIT_PANICKED: i32 = 101;

pub(super) fn main(args: &Args) -> ExitCode {
    match serve(args) {
        // Skip the driver's exit handlers, which may wait for work that is no longer needed.
        Ok(()) => fault::exit(0),
        Err(error) => give_up(&error),
    }
}

fn give_up(error: &ChildError) -> ! {
    eprintln!("executor: {error}");
    fault::exit(1)
}

/// Why an executor process exits.
#[derive(Debug, thiserror::Error)]
enum ChildError {
    #[error("only `gpufleet-worker run` may start this subcommand: standard input is not a socket")]
    NoSocket(#[source] io::Error),
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("the supervisor sent {0}")]
    Nonsense(String),
    #[error("could not set up: {0}")]
    Cuda(CudaError),
    #[error("could not start a thread: {0}")]
    Thread(io::Error),
    #[error("could not map a segment: {0}")]
    Segment(io::Error),
    #[error("refused to start")]
    Refused,
}

fn serve(args: &Args) -> Result<(), ChildError> {
    ignore_signals();
    print_by_lines();
    bounds::give_way_when_memory_runs_out();
    let locked = privileges::close_inherited().and_then(|()| privileges::refuse_new());
    // A panic in one thread ends the process, because the other threads may share the broken state.
    std::panic::set_hook(Box::new(|info| {
        eprintln!("{info}");
        fault::exit(EXIT_PANICKED)
    }));
    let incoming = own_executable::supervisor_socket().map_err(ChildError::NoSocket)?;
    let upstream = Arc::new(Upstream::over(incoming.try_clone().map_err(ChildError::NoSocket)?));
    let (common, memory) = match locked.map_err(Refusal::from).and_then(|()| open(args, &upstream)) {
        Ok(opened) => opened,
        Err(refusal) => {
            upstream.say(&FromExecutor::Refused(refusal))?;
            return Err(ChildError::Refused);
        }
    };
    let streams = match start(args, &common, incoming) {
        // The device may have memory for a context but not for a stream.
        Err(ChildError::Cuda(error)) => {
            upstream.say(&FromExecutor::Refused(device::refused(error)))?;
            return Err(ChildError::Refused);
        }
        started => started?,
    };
    upstream.say(&FromExecutor::Ready(common.device.info.clone(), memory))?;
    for thread in streams {
        // A panic has already ended the process, so there is no error to handle.
        drop(thread.join());
    }
    Ok(())
}

/// Ignores signals to the process group, such as Ctrl-C, because the supervisor decides when the child stops.
pub(crate) fn ignore_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE] {
        // SAFETY: ignoring a signal installs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Makes the C library flush standard output after each line. A GPU's driver writes the output of kernels through the C library, which
/// fully buffers it if the output is a pipe. An executor that skips the exit handlers would lose that text.
fn print_by_lines() {
    unsafe extern "C" {
        static stdout: *mut libc::FILE;
    }
    // SAFETY: `stdout` is the C library's own stream, which nothing has used yet, and the library allocates the buffer itself.
    unsafe { libc::setvbuf(stdout, std::ptr::null_mut(), libc::_IOLBF, 0) };
}

fn open(args: &Args, upstream: &Arc<Upstream>) -> Result<(Arc<Common>, MemoryReport), Refusal> {
    let leave = || bounds::leave_root_and_network(&args.cuda, args.user.as_deref());
    let library = DriverLibrary::open(&args.cuda, leave)?;
    let device = Device::open(&library, args.device)?;
    let bytes_max = args.memory_bytes_max.unwrap_or(u64::MAX);
    let arena = Arena::new(Sizes::of(library.is_emulator()), bytes_max, args.resident_bytes_max);
    let guard = Guard::new(&library, &device).map_err(device::refused)?;
    if guard.protects() {
        arena.protect_inputs();
    }
    let memory = DeviceMemory::new(arena);
    let report = memory.first_report().map_err(device::refused)?;
    if library.is_emulator() {
        let problem =
            |error: io::Error| Refusal::Privileges { problem: format!("bound the executor's memory: {error}") };
        bounds::bound_the_emulator().map_err(problem)?;
    }
    let waits = Waits::new(upstream);
    let (printing, scopes) = (Printing::new(&library), Scopes::new(&library));
    let (transfers, trains, upstream) = (Transfers::default(), Trains::default(), Arc::clone(upstream));
    let progress = Progress::default();
    let common =
        Common { library, device, memory, guard, waits, transfers, trains, printing, progress, scopes, upstream };
    Ok((Arc::new(common), report))
}

/// Lists the devices that the driver shows to this process.
pub(crate) fn list_devices(cuda: &CudaSpec, user: Option<&str>) -> Result<Vec<DeviceInfo>, Refusal> {
    let library = DriverLibrary::open(cuda, || privileges::leave_root(user))?;
    device::list(&library)
}

impl From<PrivilegeError> for Refusal {
    fn from(error: PrivilegeError) -> Self {
        let way_out = match &error {
            PrivilegeError::NoUser(_) | PrivilegeError::NotRoot(_) | PrivilegeError::Become { .. } => {
                "; run the worker as an unprivileged user, or set --executor-user"
            }
            PrivilegeError::Call { .. } | PrivilegeError::Orphaned => "",
        };
        Self::Privileges { problem: format!("{error}{way_out}") }
    }
}

/// Starts all threads. Returns those that run jobs.
fn start(args: &Args, common: &Arc<Common>, incoming: UnixStream) -> Result<Vec<JoinHandle<()>>, ChildError> {
    let chores = start_chores(common)?;
    let errands = start_copier(common)?;
    Printing::start(&common.printing).map_err(ChildError::Thread)?;
    let inbox = Arc::new(Mutex::new(Inbox::new(incoming, chores, errands, Arc::clone(common))));
    start_streams(args.streams.max(1) + 1, common, &inbox)
}

/// Starts the threads that run jobs, each with a stream of its own, until the supervisor stops the executor.
fn start_streams(
    count: usize,
    common: &Arc<Common>,
    inbox: &Arc<Mutex<Inbox>>,
) -> Result<Vec<JoinHandle<()>>, ChildError> {
    let start = |number| {
        let inbox = Arc::clone(inbox);
        let work = move |stream, common: &Common| {
            if let Err(error) = run_stream(stream, &inbox, common) {
                give_up(&error);
            }
        };
        start_thread(format!("stream-{number}"), common, move || Stream::new(number), work)
    };
    (0..count).map(start).collect()
}

/// Starts the thread for the supervisor's requests between jobs. It runs until the process ends.
fn start_chores(common: &Arc<Common>) -> Result<mpsc::Sender<Chore>, ChildError> {
    let (chores, queue) = mpsc::channel::<Chore>();
    let work = move |(), common: &Common| {
        for chore in queue {
            match chore.run(&common.memory, &common.waits, &common.upstream) {
                Ok(()) => {}
                // While no job runs, no other thread calls the driver, so this thread has to report the fault.
                Err(ReportError::Cuda(error)) if error.damage() != Damage::None => {
                    let is_idle = common.memory.arena.usage().is_idle;
                    let seen = if is_idle { FaultOrigin::Idle } else { FaultOrigin::BesideJobs };
                    fault::die(&common.upstream, &common.library, error, seen);
                }
                Err(error) => eprintln!("could not measure the device memory: {error}"),
            }
        }
    };
    start_thread("chores".to_owned(), common, || Ok(()), work)?;
    Ok(chores)
}

/// Starts the thread that copies pieces of arrays and looks how far jobs are. It runs until the process ends.
fn start_copier(common: &Arc<Common>) -> Result<mpsc::Sender<Errand>, ChildError> {
    let (errands, queue) = mpsc::channel();
    let work = move |stream, common: &Common| {
        if let Err(error) = copier::run(stream, common, queue) {
            fault::die(&common.upstream, &common.library, error, FaultOrigin::BesideJobs);
        }
    };
    start_thread("copier".to_owned(), common, copier::stream, work)?;
    Ok(errands)
}

/// Starts a thread in the device's context, and waits until `open` has opened what the thread needs.
fn start_thread<T>(
    name: String,
    common: &Arc<Common>,
    open: impl FnOnce() -> Result<T, CudaError> + Send + 'static,
    work: impl FnOnce(T, &Common) + Send + 'static,
) -> Result<JoinHandle<()>, ChildError> {
    let common = Arc::clone(common);
    let (ready, started) = mpsc::channel();
    let thread = thread::Builder::new().name(name).spawn(move || match common.device.bind().and_then(|()| open()) {
        Ok(opened) => {
            drop(ready.send(Ok(())));
            work(opened, &common);
        }
        Err(error) => drop(ready.send(Err(error))),
    });
    let thread = thread.map_err(ChildError::Thread)?;
    started.recv().expect("the thread reports whether it has opened what it needs").map_err(ChildError::Cuda)?;
    Ok(thread)
}

fn run_stream(mut stream: Stream, inbox: &Mutex<Inbox>, common: &Common) -> Result<(), ChildError> {
    loop {
        // This is a statement of its own so that the lock is released before the job runs.
        let next = inbox.lock().expect("no thread panics while holding the inbox").next_train()?;
        let Some(mut train) = next else { return Ok(()) };
        if run_train(&mut stream, common, &mut train).is_err() {
            // The supervisor has ended, so nothing will use the results of this process.
            fault::exit(1);
        }
    }
}

fn run_train(stream: &mut Stream, common: &Common, train: &mut Train) -> Result<(), FrameError> {
    while let Some(work) = train.next(&common.trains) {
        let answer = run_job(stream, common, work);
        train.answer(common, answer)?;
    }
    common.upstream.flush()
}

/// Runs a job to its end. Returns the answer to the supervisor.
fn run_job(stream: &mut Stream, common: &Common, work: Work) -> FromExecutor {
    let job = work.run.job;
    let die = |error| -> ! { fault::die(&common.upstream, &common.library, error, FaultOrigin::ByJob(job)) };
    let printing = work.run.prints.then(|| common.printing.begin());
    let ended = running::run(stream, common, &work).unwrap_or_else(|error| die(error));
    // Release these before the answer, because the supervisor may then drop the segments and the program of this job.
    drop(work);
    if let Some(printing) = printing {
        printing.end();
    }
    // Report before the answer too, because until then the supervisor counts the job's declared memory.
    common.tell_memory(|| common.waits.waits(job)).unwrap_or_else(|error| die(error));
    common.waits.ends(job);
    match ended {
        StreamEnd::Finished(outcome, timings) => FromExecutor::Finished { job, outcome, timings },
        StreamEnd::Released => FromExecutor::Released { job },
    }
}

/// Reads the supervisor's frames and keeps its programs and segments by id. It never calls the driver, because such a call may wait for a
/// kernel, and no thread would read frames in the meantime.
struct Inbox {
    incoming: FrameReader,
    chores: mpsc::Sender<Chore>,
    errands: mpsc::Sender<Errand>,
    common: Arc<Common>,
    programs: HashMap<u32, Arc<Program>>,
    segments: HashMap<u32, Arc<PinnedSegment>>,
    /// Whether the supervisor has requested a stop.
    stopped: bool,
}

impl Inbox {
    fn new(
        incoming: UnixStream,
        chores: mpsc::Sender<Chore>,
        errands: mpsc::Sender<Errand>,
        common: Arc<Common>,
    ) -> Self {
        let (programs, segments) = Default::default();
        Self { incoming: FrameReader::over(incoming), chores, errands, common, programs, segments, stopped: false }
    }

    /// Reads frames up to the next train of jobs, or `None` when the supervisor requests a stop. If the supervisor has ended, ends the
    /// process together with its running jobs.
    fn next_train(&mut self) -> Result<Option<Train>, ChildError> {
        while !self.stopped {
            let Some((message, descriptor)) = self.incoming.read()? else { fault::exit(0) };
            match (message, descriptor) {
                (ToExecutor::Segment { segment, bytes }, Some(descriptor)) => {
                    let mapped = PinnedSegment::open(descriptor, bytes).map_err(ChildError::Segment)?;
                    self.segments.insert(segment, Arc::new(mapped));
                }
                (ToExecutor::Segment { .. }, None) => return Err(nonsense("a segment without its descriptor")),
                (ToExecutor::DropSegment { segment }, _) => {
                    let dropped = self.segments.remove(&segment);
                    self.leave_to_chores(Chore::Drop(Box::new(dropped)));
                }
                (ToExecutor::Program { program, image }, _) => {
                    self.programs.insert(program, Arc::new(Program::new(image)));
                }
                (ToExecutor::ForgetProgram { program }, _) => {
                    let forgotten = self.programs.remove(&program);
                    self.leave_to_chores(Chore::Drop(Box::new(forgotten)));
                }
                (ToExecutor::Run(jobs), _) => {
                    let works = jobs.into_iter().map(|run| self.work(run)).collect::<Result<Vec<_>, _>>()?;
                    return Ok(Some(self.common.trains.depart(works)));
                }
                (ToExecutor::Disband { jobs }, _) => self.common.trains.disband(&jobs, &self.common.upstream)?,
                (ToExecutor::Bring(piece), _) => self.copy(piece, Direction::ToDevice)?,
                (ToExecutor::Take(piece), _) => self.copy(piece, Direction::FromDevice)?,
                (ToExecutor::Go { job }, _) => self.common.transfers.signal(job, Signal::Go),
                (ToExecutor::Release { job }, _) => self.common.transfers.signal(job, Signal::Release),
                (ToExecutor::Interrupt { job }, _) => self.common.scopes.interrupt(job),
                (ToExecutor::Look { job }, _) => self.leave_to_copier(Errand::Look { job }),
                (ToExecutor::GiveBack, _) => self.leave_to_chores(Chore::GiveBack),
                (ToExecutor::Measure, _) => self.leave_to_chores(Chore::Measure),
                (ToExecutor::Stop, _) => self.stopped = true,
            }
        }
        Ok(None)
    }

    fn leave_to_chores(&self, chore: Chore) {
        // The chores thread lives as long as this inbox.
        drop(self.chores.send(chore));
    }

    fn copy(&self, piece: Piece, direction: Direction) -> Result<(), ChildError> {
        let segment = Arc::clone(self.segment(piece.place.segment)?);
        self.leave_to_copier(Errand::Copy(StagedPiece { piece, direction, segment }));
        Ok(())
    }

    fn leave_to_copier(&self, errand: Errand) {
        // The copier lives as long as this inbox.
        drop(self.errands.send(errand));
    }

    fn work(&self, run: JobPlan) -> Result<Work, ChildError> {
        let program =
            self.programs.get(&run.program).ok_or_else(|| nonsense(format!("a job for program {}", run.program)))?;
        let mut segments = HashMap::new();
        for id in segment_ids(&run) {
            segments.insert(id, Arc::clone(self.segment(id)?));
        }
        Ok(Work { program: Arc::clone(program), segments, run })
    }

    fn segment(&self, id: u32) -> Result<&Arc<PinnedSegment>, ChildError> {
        self.segments.get(&id).ok_or_else(|| nonsense(format!("a job in segment {id}")))
    }
}

fn nonsense(what: impl Into<String>) -> ChildError {
    ChildError::Nonsense(what.into())
}

fn segment_ids(run: &JobPlan) -> impl Iterator<Item = u32> {
    let staged = run.buffers.iter().filter_map(|buffer| match buffer.contents {
        Contents::Staged(place) => Some(place.segment),
        Contents::Zeros | Contents::Pattern(_) | Contents::Input { .. } => None,
    });
    staged.chain(run.outputs.iter().map(|output| output.place.segment))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{fault, print_by_lines};

    const CHILD: &str = "GPUFLEET_TEST_PRINTING_CHILD";
    const TEST: &str = "executor::child::tests::what_the_c_library_printed_outlives_an_exit_without_handlers";

    /// The test runs itself as the child process.
    #[test]
    fn what_the_c_library_printed_outlives_an_exit_without_handlers() {
        if std::env::var_os(CHILD).is_some() {
            print_by_lines();
            // SAFETY: the text ends in NUL.
            unsafe { libc::puts(c"a kernel's words".as_ptr()) };
            fault::exit(0);
        }
        let own = std::env::current_exe().unwrap();
        let output = Command::new(own).args(["--exact", TEST, "--nocapture"]).env(CHILD, "1").output().unwrap();
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stdout).contains("a kernel's words"), "{output:?}");
    }
}
