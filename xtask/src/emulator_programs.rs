//! `cargo xtask emulator-numba`, `emulator-tinygrad` and `emulator-pycuda`: run third-party programs on the emulated
//! driver.
//!
//! The programs find the emulator as they find NVIDIA's driver: by its name on the library path. With `--session` they find our library
//! there, and the emulator is a worker's device.

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use gpufleet_local::{Cuda, LocalFleet, programs::BIN_DIR_VARIABLE, setup::Part};
use tokio::process::Command;

use crate::{
    setup,
    terminal::Terminal,
    test::TestProgram,
    workspace::{self, cargo},
};

const EMULATOR: &str = "libgpufleet_emulator.so";
/// The test that executes the documentation's pages.
const DOCUMENTATION: &str = "documentation";

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Run the program with `gpufleet run`: its calls go to a worker with an emulated device
    #[arg(long)]
    session: bool,
    /// Passed on to the program: for numba, files of tests such as `cudapy/test_print.py`; for PyCUDA, examples such as
    /// `hello_gpu.py`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// A third-party program that runs on the emulated driver.
#[derive(Debug)]
pub struct Program {
    name: &'static str,
    /// The first one has the interpreter.
    parts: &'static [Part],
    /// The Python script to run, relative to the workspace.
    script: &'static str,
    /// A page of the documentation whose examples need the program in the interpreter, and the command that runs them.
    page: Option<(&'static str, &'static str)>,
}

pub const NUMBA: Program = Program {
    name: "numba-cuda's tests",
    parts: &[Part::NumbaCuda],
    script: "emulator/programs/numba/run.py",
    page: None,
};

/// tinygrad. It looks for NVRTC on the library path, unlike numba-cuda, which has its own copy.
pub const TINYGRAD: Program = Program {
    name: "tinygrad",
    parts: &[Part::PythonTools, Part::Compiler],
    script: "emulator/programs/tinygrad/run.py",
    page: None,
};

/// PyCUDA. It is built from source against the emulator, because the package registry has no binary.
pub const PYCUDA: Program = Program {
    name: "PyCUDA's examples",
    parts: &[Part::Pycuda],
    script: "emulator/programs/pycuda/run.py",
    page: Some(("docs/src/guides/session-pycuda.md", "cargo xtask emulator-pycuda --session")),
};

/// Sessions that the processes of a program have at a time.
const SESSIONS: u32 = 4;
/// Device memory of each session.
const SESSION_MEMORY: &str = "2GiB";
/// Memory of the emulated device, which all sessions share.
const DEVICE_MEMORY: &str = "12GiB";

pub async fn run(program: &Program, options: &Options) -> anyhow::Result<()> {
    let terminal = Terminal::new();
    setup::ensure(program.parts, &terminal)?;
    terminal.heading("build");
    if options.session {
        return in_sessions(program, options, &terminal).await;
    }
    workspace::run(cargo(["build", "--package", "gpufleet-emulator"])).await?;
    terminal.heading(&format!("run {}", program.name));
    let mut command = Command::new(program.parts[0].interpreter()?);
    command.arg(program.script).args(&options.arguments);
    configure(&mut command, Some(library_folder()?))?;
    workspace::run(command).await
}

/// Runs the program with `gpufleet run` on a fleet of its own, whose device is emulated.
async fn in_sessions(program: &Program, options: &Options, terminal: &Terminal) -> anyhow::Result<()> {
    setup::ensure(&[Part::Services], terminal)?;
    workspace::build_everything().await?;
    let fleet = LocalFleet::builder().label("programs").ledger(false).bin_dir(workspace::target()?.join("debug"));
    let fleet =
        fleet.pools([format!("default:sessions={SESSIONS},session-memory=100%,session-idle=2h")]).cuda(Cuda::Emulated);
    let fleet =
        fleet.worker_args(["--session-listen", "127.0.0.1:0"]).worker_env("GPUFLEET_EMULATOR_MEMORY", DEVICE_MEMORY);
    let fleet = fleet.start().await?;
    terminal.heading(&format!("run {} in sessions", program.name));
    let ran = async { workspace::run(session_command(program, options, &fleet)?).await }.await;
    fleet.stop().await?;
    ran?;
    match program.page {
        Some((page, command)) => run_page(program, page, command, terminal).await,
        None => Ok(()),
    }
}

fn session_command(program: &Program, options: &Options, fleet: &LocalFleet) -> anyhow::Result<Command> {
    let mut command = Command::new(workspace::target()?.join("debug/gpufleet"));
    command.args(["run", "--quiet", "--memory", SESSION_MEMORY, "--sessions", &SESSIONS.to_string(), "--"]);
    command.arg(program.parts[0].interpreter()?).arg(program.script).args(&options.arguments);
    command.env("GPUFLEET_AMQP_URL", &fleet.endpoints().amqp_url);
    configure(&mut command, None)?;
    Ok(command)
}

/// Has the test of the documentation execute a page, in an environment with the program. The page starts a fleet itself.
async fn run_page(program: &Program, page: &str, command: &str, terminal: &Terminal) -> anyhow::Result<()> {
    setup::ensure(&Part::TESTS, terminal)?;
    terminal.heading(&format!("execute {page}"));
    let tests = TestProgram::build_all()?;
    let test = tests.iter().find(|test| test.target == DOCUMENTATION).context("no test executes the documentation")?;
    let mut run = Command::new(program.parts[0].interpreter()?);
    run.args([program.script, "--"]).arg(&test.executable).arg("every_example");
    run.env("DOCUMENTATION_PAGES", page).env("DOCUMENTATION_COMMAND", command);
    run.env(BIN_DIR_VARIABLE, workspace::target()?.join("debug"));
    configure(&mut run, None)?;
    workspace::run(run).await
}

/// Sets what the programs find in their environment.
fn configure(command: &mut Command, driver: Option<PathBuf>) -> anyhow::Result<()> {
    let compiler = Part::Compiler.folder()?.join("nvidia");
    let libraries = driver.into_iter().chain([compiler.join("cuda_nvrtc/lib")]);
    command.current_dir(workspace::root());
    command.env("LD_LIBRARY_PATH", std::env::join_paths(libraries)?);
    command.env("PROGRAM_LOGS", results()?.join("logs"));
    command.env("DEV", "CUDA").env("CUDA_PATH", compiler.join("cuda_runtime"));
    // Files that the programs share are in the parent folder of theirs.
    command.env("PYTHONPATH", "emulator/programs").env_remove("PYTHONHOME");
    Ok(())
}

/// Returns the folder for what a run needs and writes.
fn results() -> anyhow::Result<PathBuf> {
    let folder = workspace::target()?.join("emulator-programs");
    fs::create_dir_all(&folder).with_context(|| format!("failed to create {}", folder.display()))?;
    Ok(folder)
}

/// Returns a folder in which the emulator has the names of NVIDIA's driver.
fn library_folder() -> anyhow::Result<PathBuf> {
    let folder = results()?.join("lib");
    fs::create_dir_all(&folder).with_context(|| format!("failed to create {}", folder.display()))?;
    let library = workspace::target()?.join("debug").join(EMULATOR);
    for name in ["libcuda.so", "libcuda.so.1"] {
        link(&library, &folder.join(name))?;
    }
    Ok(folder)
}

fn link(library: &Path, name: &Path) -> anyhow::Result<()> {
    match symlink(library, name) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("failed to link {}", name.display()))
        }
        _ => Ok(()),
    }
}
