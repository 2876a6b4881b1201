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
    setup,
    terminal::Terminal,
    workspace::{self, cargo},
};

#[derive(Debug, clap::Args)]
pub struct Options {
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
}

pub const NUMBA: Program =
    Program { name: "numba-cuda's tests", parts: &[Part::NumbaCuda], script: "emulator/programs/numba/run.py" };

/// tinygrad. It looks for NVRTC on the library path, unlike numba-cuda, which has its own copy.
pub const TINYGRAD: Program =
    Program { name: "tinygrad", parts: &[Part::Tinygrad, Part::Compiler], script: "emulator/programs/tinygrad/run.py" };

/// PyCUDA. It is built from source against the emulator, because the package registry has no binary.
pub const PYCUDA: Program =
    Program { name: "PyCUDA's examples", parts: &[Part::Pycuda], script: "emulator/programs/pycuda/run.py" };

pub async fn run(program: &Program, options: &Options) -> anyhow::Result<()> {
    let terminal = Terminal::new();
    setup::ensure(program.parts, &terminal)?;
    terminal.heading("build");
    workspace::run(cargo(["build", "--package", "gpufleet-emulator"])).await?;
    let compiler = Part::Compiler.folder()?.join("nvidia");
    let libraries = std::env::join_paths([library_folder()?, compiler.join("cuda_nvrtc/lib")])?;
    terminal.heading(&format!("run {}", program.name));
    let mut command = Command::new(program.parts[0].interpreter()?);
    command.arg(program.script).args(&options.arguments).current_dir(workspace::root());
    command.env("LD_LIBRARY_PATH", libraries).env("LOGS", workspace::target()?.join("emulator-programs/logs"));
    command.env("DEV", "CUDA").env("CUDA_PATH", compiler.join("cuda_runtime"));
    // Files that the programs share are in the parent folder of theirs.
    command.env("PYTHONPATH", "emulator/programs").env_remove("PYTHONHOME");
    workspace::run(command).await
}

/// Returns a folder in which the emulator has the names of NVIDIA's driver.
fn library_folder() -> anyhow::Result<PathBuf> {
    let folder = workspace::target()?.join("emulator-programs/lib");
    fs::create_dir_all(&folder).with_context(|| format!("failed to create {}", folder.display()))?;
    let library = workspace::target()?.join("debug/libgpufleet_emulator.so");
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
