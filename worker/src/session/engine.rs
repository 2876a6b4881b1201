//! The process that makes the driver calls of one process of the program.
//!
//! Its standard input is the program's connection, through the gate. Its standard output is a socket to the gate, on which it gets the
//! driver's file and sends its counters. It holds no network socket.

use std::{
    io::{self, stdout},
    os::{fd::AsFd as _, unix::net::UnixStream},
    process::ExitCode,
    sync::{
        Arc,
        mpsc::{RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use gpufleet_schema::session::TOKEN_BYTES;
use gpufleet_session::{
    Counters, Counts, Limits, Native, NativeError,
    serve::{ServeError, serve},
};
use serde::{Deserialize, Serialize};

use super::driver_file::DriverFile;
use crate::{
    executor::{CudaSpec, StartError, bounds, ignore_signals},
    ipc::{
        frame::{self, FrameError},
        message::Refusal,
    },
    own_executable,
    privileges::{self, PrivilegeError},
};

/// How often the engine sends its counters, if they have changed.
const PERIOD: Duration = Duration::from_millis(500);

/// The command line of an engine. Only a gate starts one.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// CUDA driver to open
    #[arg(long)]
    cuda: CudaSpec,
    /// Device memory of the lease, in bytes
    #[arg(long)]
    memory_bytes: u64,
    /// User to run as when started by root
    #[arg(long)]
    user: Option<String>,
}

/// The counters of an engine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EngineReport {
    pub(super) calls: u64,
    pub(super) waits: u64,
    pub(super) memory_bytes: u64,
    pub(super) memory_bytes_peak: u64,
    pub(super) busy_us: u64,
    /// A call is being made, or the device works.
    pub(super) is_active: bool,
    /// The code with which a kernel made the context unusable; 0 if none has.
    pub(super) fault: i32,
}

/// Why an engine ends without its program.
#[derive(Debug, thiserror::Error)]
enum EngineError {
    #[error("only a gate may start this subcommand: its standard streams are no sockets: {0}")]
    NoSocket(#[source] io::Error),
    #[error(transparent)]
    Privileges(#[from] PrivilegeError),
    #[error("the gate sent no driver: {0}")]
    NoFile(#[from] FrameError),
    #[error("{}", StartError::from(.0.clone()))]
    Refused(Refusal),
    #[error(transparent)]
    Driver(#[from] NativeError),
    #[error("failed to bound the memory: {0}")]
    Bounds(#[source] io::Error),
    #[error("failed to start a thread: {0}")]
    Thread(#[source] io::Error),
    #[error(transparent)]
    Program(#[from] ServeError),
}

/// Runs an engine. Only a gate starts one.
pub fn main(args: &Args) -> ExitCode {
    own_executable::show_as("gpufleet-engine");
    ignore_signals();
    let status = match run(args) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("the engine of a session ended: {error}");
            1
        }
    };
    // The driver's exit handlers may wait for work that is no longer needed, and threads may still be in calls.
    // SAFETY: _exit does not return and touches no memory.
    unsafe { libc::_exit(status) }
}

fn run(args: &Args) -> Result<(), EngineError> {
    bounds::give_way_when_memory_runs_out();
    privileges::close_inherited()?;
    privileges::refuse_new()?;
    let program = own_executable::supervisor_socket().map_err(EngineError::NoSocket)?;
    let gate = take_stdout().map_err(EngineError::NoSocket)?;
    let file = DriverFile::receive(gate.try_clone().map_err(EngineError::NoSocket)?)?;
    let leave = || bounds::leave_root_and_network(&args.cuda, args.user.as_deref());
    let native = Native::start(file.load(&args.cuda, leave).map_err(EngineError::Refused)?)?;
    if native.is_emulated() {
        bounds::bound_an_emulated_session(args.memory_bytes).map_err(EngineError::Bounds)?;
    }
    let counters = Arc::<Counters>::default();
    let reporter = Reporter::start(gate, Arc::clone(&counters)).map_err(EngineError::Thread)?;
    // The gate has checked the token. The program's library has none.
    let limits = Limits { memory: args.memory_bytes };
    let served = serve(Arc::new(native), limits, &[0; TOKEN_BYTES], program, counters);
    reporter.end();
    Ok(served?)
}

/// Takes the socket that is the standard output, and makes standard error the standard output, because drivers print there.
fn take_stdout() -> io::Result<UnixStream> {
    let socket = UnixStream::from(stdout().as_fd().try_clone_to_owned()?);
    socket.peer_addr()?;
    // SAFETY: both descriptors are open, and nothing has written to either.
    match unsafe { libc::dup2(libc::STDERR_FILENO, libc::STDOUT_FILENO) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(socket),
    }
}

/// The thread that sends the counters to the gate.
struct Reporter {
    end: SyncSender<()>,
    thread: JoinHandle<()>,
}

impl Reporter {
    fn start(gate: UnixStream, counters: Arc<Counters>) -> io::Result<Self> {
        let (end, ended) = sync_channel::<()>(0);
        let report = move || {
            let mut sent = EngineReport::default();
            loop {
                let is_over = ended.recv_timeout(PERIOD) != Err(RecvTimeoutError::Timeout);
                let now = EngineReport::from(counters.read());
                // A failed write means that the gate has ended, and this process with it.
                if now != sent && frame::write(&gate, &now).is_err() || is_over {
                    return;
                }
                sent = now;
            }
        };
        let thread = thread::Builder::new().name("reporter".into()).spawn(report)?;
        Ok(Self { end, thread })
    }

    /// Sends the counters a last time.
    fn end(self) {
        drop(self.end);
        drop(self.thread.join());
    }
}

impl From<Counts> for EngineReport {
    fn from(counts: Counts) -> Self {
        let Counts { calls, waits, memory_bytes, memory_bytes_peak, busy_us, is_active, fault } = counts;
        Self { calls, waits, memory_bytes, memory_bytes_peak, busy_us, is_active, fault }
    }
}
