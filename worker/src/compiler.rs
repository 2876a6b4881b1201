//! Compiles CUDA C to PTX in a child process that is gone a moment later.
//!
//! NVRTC is a C++ front end that reads text from strangers: it may crash, loop or eat memory, and what it includes shows in its log. So it
//! runs in a child with limits on time, memory and files ([`child`]), without our environment, and with all closed but CUDA's own headers, as
//! far as the kernel can do that ([`sandbox`]). Options come from an allow list ([`options`]).
//!
//! Results are kept, bounded, by code, options and architecture ([`cache`]), and so is the word that code is wrong; equal requests at the same time are
//! compiled once, well or not.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use gpufleet_schema::{Failure, FailureCode, Verdict};
use tokio::{sync::Semaphore, time::timeout};

mod cache;
mod check;
mod child;
mod diagnostics;
pub mod library;
mod options;
mod parent;
mod sandbox;

pub use check::Checked;
pub use child::TIME_LIMIT;
pub use library::{NVRTC_VARIABLE, Nvrtc};
pub use sandbox::{Closed, Sandbox};

use cache::Cache;

use crate::own_executable;

/// Compilers at once: each takes a core and some hundred megabytes for the tens of milliseconds that it lives.
const COMPILERS_MAX: usize = 4;

/// CUDA C and what it is compiled for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileRequest {
    pub code: String,
    /// As a user gives them; see [`options`] for what is allowed.
    pub options: Vec<String>,
    /// The device's compute capability. The newest architecture that NVRTC knows and the device runs is taken.
    pub arch: (u32, u32),
    /// NVRTC's library or its folder, where it is not to be looked for.
    pub nvrtc: Option<PathBuf>,
}

/// PTX, and what the compiler said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    pub ptx: String,
    /// Warnings and remarks, cut to a bound.
    pub log: String,
    /// How long it took; of a kept result, how long it took then.
    pub micros: u64,
    /// NVRTC's version, as `12.9`.
    pub version: String,
}

/// Why there is no PTX.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CompileError {
    /// The code is at fault.
    #[error("compile: {message}")]
    Source { message: String, log: String, line: Option<u32> },
    /// An option or an include that is not allowed.
    #[error("compile: {0}")]
    Refused(String),
    #[error("compile: it took longer than {} s", limit.as_secs())]
    Timeout { limit: Duration },
    /// The compiler crashed over this code, or ran into its limits.
    #[error("compile: the compiler died: {0}")]
    Died(String),
    #[error("compile: NVRTC is not there: {0}")]
    NotFound(String),
    /// The kernel can't close the compiler's sandbox, and the worker insists on it.
    #[error("compile: the kernel has no {0}")]
    Open(String),
    #[error("compile: {0}")]
    Internal(String),
}

/// The supervisor's way to compile, with its cache.
#[derive(Debug)]
pub struct Compiler {
    executable: Option<PathBuf>,
    nvrtc: Option<PathBuf>,
    sandbox: Sandbox,
    time_limit: Duration,
    cache: Cache,
    compilers: Semaphore,
}

impl Compiler {
    /// `nvrtc` is the library or its folder; without it, it is looked for.
    pub fn new(nvrtc: Option<PathBuf>) -> Self {
        Self {
            executable: None,
            nvrtc,
            sandbox: Sandbox::default(),
            time_limit: TIME_LIMIT,
            cache: Cache::default(),
            compilers: Semaphore::new(COMPILERS_MAX),
        }
    }

    /// The worker's executable, where it is not the one that runs.
    #[must_use]
    pub fn with_executable(mut self, executable: PathBuf) -> Self {
        self.executable = Some(executable);
        self
    }

    #[must_use]
    pub fn with_sandbox(mut self, sandbox: Sandbox) -> Self {
        self.sandbox = sandbox;
        self
    }

    /// A shorter time for one compilation than [`TIME_LIMIT`].
    #[must_use]
    pub fn with_time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit.min(TIME_LIMIT);
        self
    }

    /// Has a child close everything that compilers have closed, and try what it can still do. Cancelling ends the child.
    pub async fn check_sandbox(&self) -> Result<Checked, CompileError> {
        parent::check(self.executable.as_deref()).await
    }

    /// The PTX of `request`, compiled or kept. Cancelling kills the compiler, unless another request waits for the same.
    pub async fn compile(&self, mut request: CompileRequest) -> Result<Arc<Compiled>, CompileError> {
        if request.nvrtc.is_none() {
            request.nvrtc.clone_from(&self.nvrtc);
        }
        let cell = self.cache.cell(&request);
        let outcome = cell
            .get_or_init(|| async {
                let _permit = self.compilers.acquire().await.expect("the semaphore is never closed");
                let compiled = parent::compile(&request, self.sandbox, self.executable.as_deref());
                match timeout(self.time_limit, compiled).await {
                    Ok(compiled) => compiled.map(Arc::new),
                    Err(_) => Err(CompileError::Timeout { limit: self.time_limit }),
                }
            })
            .await;
        if outcome.as_ref().is_err_and(CompileError::may_pass) {
            self.cache.forget(&request, &cell);
        }
        outcome.clone()
    }
}

impl CompileError {
    /// Whether the same request may end otherwise another time.
    fn may_pass(&self) -> bool {
        match self {
            Self::Source { .. } | Self::Refused(_) | Self::Open(_) => false,
            Self::Timeout { .. } | Self::Died(_) | Self::NotFound(_) | Self::Internal(_) => true,
        }
    }
}

/// Compiles once, keeping nothing.
pub async fn compile(request: CompileRequest) -> Result<Compiled, CompileError> {
    parent::compile(&request, Sandbox::default(), None).await
}

/// `gpufleet-worker compile FILE.cu --arch compute_80 -o out.ptx`.
#[derive(Debug, Clone, clap::Args)]
pub struct CompileOptions {
    /// CUDA C to compile.
    pub file: PathBuf,
    /// The virtual architecture, such as `compute_80`.
    #[arg(long, default_value = "compute_80", value_parser = parse_arch)]
    pub arch: (u32, u32),
    /// An option for NVRTC; may be given many times.
    #[arg(long = "option", value_name = "OPTION", allow_hyphen_values = true)]
    pub options: Vec<String>,
    /// Where the PTX goes.
    #[arg(short, long)]
    pub output: PathBuf,
    /// NVRTC's library or its folder, where it is not to be looked for.
    #[arg(long)]
    pub nvrtc: Option<PathBuf>,
}

/// Compiles a file into a file, as a command: the log goes to standard error.
pub fn compile_file(options: &CompileOptions) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(compile_to_file(options))) {
        Ok(compiled) => {
            eprint!("{}", compiled.log);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Compiles a file into a file.
pub async fn compile_to_file(args: &CompileOptions) -> anyhow::Result<Compiled> {
    use anyhow::Context as _;
    let code = tokio::fs::read_to_string(&args.file).await.with_context(|| format!("read {}", args.file.display()))?;
    let request = CompileRequest { code, options: args.options.clone(), arch: args.arch, nvrtc: args.nvrtc.clone() };
    let compiled = compile(request).await.map_err(|error| {
        let log = match &error {
            CompileError::Source { log, .. } => format!("\n{log}"),
            _ => String::new(),
        };
        anyhow::anyhow!("{}: could not {error}{log}", args.file.display())
    })?;
    write_whole(&args.output, &compiled.ptx).with_context(|| format!("write {}", args.output.display()))?;
    Ok(compiled)
}

/// The PTX ends in one newline, as a text file does.
fn write_whole(path: &Path, ptx: &str) -> std::io::Result<()> {
    std::fs::write(path, format!("{}\n", ptx.trim_end_matches(['\0', '\n'])))
}

/// `compute_80`, `sm_80` or `8.0`.
pub fn parse_arch(text: &str) -> Result<(u32, u32), String> {
    let digits = text.strip_prefix("compute_").or_else(|| text.strip_prefix("sm_"));
    let number = match digits {
        Some(digits) => {
            digits.parse::<u32>().ok().filter(|number| *number >= 10).map(|number| (number / 10, number % 10))
        }
        None => text.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?))),
    };
    number.ok_or_else(|| format!("{text:?} is no architecture; write it as compute_80"))
}

/// The life of a compiler child: a request on standard input, an answer on standard output.
pub fn main() -> ExitCode {
    own_executable::show_as("gpufleet-nvrtc");
    child::main()
}

/// What a submitter is told.
impl From<CompileError> for Failure {
    fn from(error: CompileError) -> Self {
        let (verdict, detail, line) = match &error {
            CompileError::Source { log, line, .. } => (Verdict::User, Some(log.clone()), *line),
            CompileError::Refused(_) | CompileError::Timeout { .. } | CompileError::Died(_) => {
                (Verdict::User, None, None)
            }
            CompileError::NotFound(_) | CompileError::Open(_) | CompileError::Internal(_) => {
                (Verdict::Infrastructure, None, None)
            }
        };
        let message = match error {
            CompileError::Source { message, .. } => message,
            CompileError::NotFound(why) => format!(
                "NVRTC was not found on the worker ({why}); install it there (the PyPI package nvidia-cuda-nvrtc-cu12 will do) and point \
                 {NVRTC_VARIABLE} at it, or submit PTX"
            ),
            CompileError::Open(missing) => format!(
                "this worker compiles no CUDA C: it was told --sandbox strict, and its kernel has no {missing}; submit PTX"
            ),
            CompileError::Died(why) => format!(
                "could not compile: the compiler died, as it does when it needs more than {} GiB or {} s: {why}",
                child::ADDRESS_SPACE_BYTES_MAX >> 30,
                TIME_LIMIT.as_secs()
            ),
            other => format!("could not {other}"),
        };
        let failure = Self::new(verdict, FailureCode::CompileError, message).at_line(line);
        match detail {
            Some(detail) => failure.with_detail(detail),
            None => failure,
        }
    }
}

/// Microseconds since `started`, for timings.
fn micros_since(started: Instant) -> u64 {
    started.elapsed().as_micros() as u64
}
