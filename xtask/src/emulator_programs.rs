//! `cargo xtask emulator-numba`, `emulator-tinygrad` and `emulator-pycuda`: run third-party programs on the emulated
//! driver.
//!
//! The programs find the emulator as they find NVIDIA's driver: by its name on the library path.

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use gpufleet_local::setup::Part;
use tokio::process::Command;

use crate::{
    emulator_session::Sessions,
    setup,
    terminal::Terminal,
    workspace::{self, cargo},
};

const EMULATOR: &str = "libgpufleet_emulator.so";
const DRIVER: &str = "libgpufleet_driver.so";

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Run the program in a session: its calls go to a driver in another process
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
    /// A script that runs in a session of its own, and how often it may wait for an answer there.
    counted: Option<(&'static str, u64)>,
    /// The first one has the interpreter.
    parts: &'static [Part],
    /// The Python script to run, relative to the workspace.
    script: &'static str,
}

pub const NUMBA: Program = Program {
    name: "numba-cuda's tests",
    counted: Some(("emulator/programs/numba/launches.py", 40)),
    parts: &[Part::NumbaCuda],
    script: "emulator/programs/numba/run.py",
};

/// tinygrad. It looks for NVRTC on the library path, unlike numba-cuda, which has its own copy.
pub const TINYGRAD: Program =
    // At most six for each of the 80 steps.
    Program {
        name: "tinygrad",
        counted: Some(("emulator/programs/tinygrad/run.py", 480)),
        parts: &[Part::Tinygrad, Part::Compiler],
        script: "emulator/programs/tinygrad/run.py",
    };

/// PyCUDA. It is built from source against the emulator, because the package registry has no binary.
pub const PYCUDA: Program = Program {
    name: "PyCUDA's examples",
    counted: None,
    parts: &[Part::Pycuda],
    script: "emulator/programs/pycuda/run.py",
};

pub async fn run(program: &Program, options: &Options) -> anyhow::Result<()> {
    let terminal = Terminal::new();
    setup::ensure(program.parts, &terminal)?;
    terminal.heading("build");
    workspace::run(cargo(["build", "--package", "gpufleet-emulator", "--package", "gpufleet-driver"])).await?;
    let compiler = Part::Compiler.folder()?.join("nvidia");
    let folder = if options.session { "session" } else { "lib" };
    let library = if options.session { DRIVER } else { EMULATOR };
    let libraries = std::env::join_paths([library_folder(folder, library)?, compiler.join("cuda_nvrtc/lib")])?;
    terminal.heading(&format!("run {}", program.name));
    let command = |script: &str| -> anyhow::Result<Command> {
        let mut command = Command::new(program.parts[0].interpreter()?);
        command.arg(script).current_dir(workspace::root());
        command.env("LD_LIBRARY_PATH", &libraries).env("LOGS", workspace::target()?.join("emulator-programs/logs"));
        command.env("DEV", "CUDA").env("CUDA_PATH", compiler.join("cuda_runtime"));
        // Files that the programs share are in the parent folder of theirs.
        command.env("PYTHONPATH", "emulator/programs").env_remove("PYTHONHOME");
        Ok(command)
    };
    let mut all = command(program.script)?;
    all.args(&options.arguments);
    if !options.session {
        return workspace::run(all).await;
    }
    let sessions = Sessions::start(&workspace::target()?.join("debug").join(EMULATOR))?;
    workspace::run(sessions.of(all)).await?;
    let Some((script, waits_max)) = program.counted else { return Ok(()) };
    terminal.heading(&format!("count how often {script} waits"));
    let sessions = Sessions::start(&workspace::target()?.join("debug").join(EMULATOR))?;
    workspace::run(sessions.of(command(script)?)).await?;
    let waits = sessions.waits().await?;
    println!("{waits} waits; at most {waits_max}");
    anyhow::ensure!(waits <= waits_max, "the program waits more often for the session than it may");
    Ok(())
}

/// Returns a folder in which a library has the names of NVIDIA's driver.
fn library_folder(folder: &str, library: &str) -> anyhow::Result<PathBuf> {
    let folder = workspace::target()?.join("emulator-programs").join(folder);
    fs::create_dir_all(&folder).with_context(|| format!("failed to create {}", folder.display()))?;
    let library = workspace::target()?.join("debug").join(library);
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
