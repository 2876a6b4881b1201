//! The compiler child: limits its resources, enters the sandbox, compiles once, answers and exits.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    process::ExitCode,
    time::Duration,
};

use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::{
    check::{self, Checked},
    includes,
    library::Nvrtc,
    nvrtc::Api,
    sandbox::{self, Closed, Opened},
    toolkit::Loaded,
};
use crate::privileges;

/// Time limit for one compilation. Ordinary kernels take tens of milliseconds, heavy templates take seconds.
pub const TIME_LIMIT: Duration = Duration::from_secs(30);
/// Maximum size of an answer (PTX, cubin and log), in bytes: many times that of any real program.
pub(super) const ANSWER_BYTES_MAX: usize = 48 << 20;
/// Maximum size of a request, in bytes: the limit of a task's code, plus options and name expressions.
const REQUEST_BYTES_MAX: usize = 16 << 20;
/// Limit of the child's address space, in bytes. NVRTC maps some hundreds of megabytes and allocates little more, but a template bomb would
/// take everything available.
pub(super) const ADDRESS_SPACE_BYTES_MAX: u64 = 4 << 30;
/// Limit of open files: the libraries, a few headers at a time, and the pipes.
const OPEN_FILES_MAX: u64 = 64;

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    Compile(Compilation),
    /// Load and identify the compiler, without any untrusted code.
    Identify(Nvrtc),
    /// Enter the sandbox, then try forbidden operations.
    Check {
        user: Option<String>,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Compilation {
    pub code: String,
    pub options: Vec<String>,
    pub expressions: Vec<String>,
    pub arch: (u32, u32),
    /// Whether to make a cubin too, if NVRTC knows an architecture whose cubins the device runs.
    pub cubin: bool,
    pub nvrtc: Nvrtc,
    /// Whether to compile only in a complete sandbox.
    pub strict: bool,
    /// The user to run as if this process is root.
    pub user: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Compiled {
        ptx: String,
        cubin: Option<ByteBuf>,
        log: String,
        version: String,
        symbols: BTreeMap<String, String>,
    },
    /// NVRTC rejected the code.
    Rejected {
        problem: String,
        log: String,
    },
    /// The worker's own checks refused the code.
    Refused {
        message: String,
        line: u32,
    },
    NoLibrary(String),
    /// The kernel does not support this layer, and the sandbox is strict.
    Open(String),
    Checked(Checked),
    Identified(Loaded),
    Failed(String),
}

pub(super) fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compile-child: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> io::Result<()> {
    // These limits come first, because some are files of this process, which root owns once the process is hidden.
    limit_resources()?;
    privileges::close_inherited().and_then(|()| privileges::refuse_new()).map_err(io::Error::other)?;
    let answer = match read_request()? {
        Request::Compile(job) => compile(job),
        Request::Identify(nvrtc) => identify(&nvrtc),
        Request::Check { user } => {
            close(&[], user.as_deref()).map_or_else(failed, |closed| Answer::Checked(check::try_everything(closed)))
        }
    };
    let answer = rmp_serde::to_vec(&answer).map_err(io::Error::other)?;
    let mut stdout = io::stdout().lock();
    stdout.write_all(&(answer.len() as u32).to_le_bytes())?;
    stdout.write_all(&answer)?;
    stdout.flush()
}

fn limit_resources() -> io::Result<()> {
    // If memory runs out, the kernel kills the compiler and not its neighbours. Some containers forbid this setting, so errors are ignored.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let cpu_seconds = TIME_LIMIT.as_secs();
    let limits = [
        (Resource::Cpu, cpu_seconds),
        (Resource::As, ADDRESS_SPACE_BYTES_MAX),
        (Resource::Nofile, OPEN_FILES_MAX),
        (Resource::Fsize, 0),
    ];
    for (resource, value) in limits {
        setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })?;
    }
    Ok(())
}

fn read_request() -> io::Result<Request> {
    let mut stdin = io::stdin().lock();
    let mut length = [0; 4];
    stdin.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > REQUEST_BYTES_MAX {
        return Err(io::Error::other(format!("a request of {length} bytes is too long")));
    }
    let mut body = vec![0; length];
    stdin.read_exact(&mut body)?;
    rmp_serde::from_slice(&body).map_err(io::Error::other)
}

/// Starts a thread that ends this process when the supervisor closes standard input, which it keeps open as long as it wants the answer.
/// When this returns, the thread is running and needs no more of the system calls that start threads.
fn exit_with_parent() -> io::Result<()> {
    let (up, started) = std::sync::mpsc::channel();
    std::thread::Builder::new().name("parent-watch".into()).spawn(move || {
        drop(up);
        let mut byte = [0];
        drop(io::stdin().lock().read(&mut byte));
        // SAFETY: _exit ends the process without running any of its code.
        unsafe { libc::_exit(1) }
    })?;
    // An error means that the thread has dropped the sender, so it is running.
    let _up: Result<(), _> = started.recv();
    Ok(())
}

/// Compiles the job. Loads the library first, because the sandbox blocks its folder, and uses the code last.
fn compile(mut job: Compilation) -> Answer {
    let nvrtc = match Api::open(&job.nvrtc.library) {
        Ok(nvrtc) => nvrtc,
        Err(why) => return Answer::NoLibrary(why),
    };
    let mut readable: Vec<_> = job.nvrtc.includes.iter().filter_map(|folder| Opened::open(folder)).collect();
    let folders = readable.len();
    readable.extend(nvrtc.load_builtins().iter().filter_map(|file| Opened::open(file)));
    let closed = match close(&readable, job.user.as_deref()) {
        Ok(closed) => closed,
        Err(error) => return failed(error),
    };
    if let Some(missing) = closed.missing().filter(|_| job.strict) {
        return Answer::Open(missing.to_owned());
    }
    // NVRTC puts a name expression into a line of the code, so expressions are checked too.
    for text in std::iter::once(&job.code).chain(&job.expressions) {
        if let Err((line, message)) = includes::check(text, closed.files) {
            return Answer::Refused { message, line };
        }
    }
    job.nvrtc.includes = readable[..folders].iter().map(Opened::path).collect();
    nvrtc.compile(&job)
}

fn identify(nvrtc: &Nvrtc) -> Answer {
    match Api::open(&nvrtc.library).map(|api| api.identify()) {
        Ok(Some(loaded)) => Answer::Identified(loaded),
        Ok(None) => Answer::Failed("NVRTC reported no version".to_owned()),
        Err(why) => Answer::NoLibrary(why),
    }
}

fn close(readable: &[Opened], user: Option<&str>) -> io::Result<Closed> {
    let closed = sandbox::close_files_and_network(readable, user)?;
    exit_with_parent()?;
    sandbox::close_calls(closed)
}

fn failed(error: io::Error) -> Answer {
    Answer::Failed(format!("failed to close the sandbox: {error}"))
}
