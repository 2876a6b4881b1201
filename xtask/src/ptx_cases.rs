//! `cargo xtask ptx-cases`: runs PTX cases on the emulator or a GPU's driver, and checks them with NVIDIA's assembler.

use gpufleet_local::setup::{self as parts, Part};
use tokio::process::Command;

use crate::{setup, terminal::Terminal, workspace};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Assemble the cases with NVIDIA's ptxas, at a path or else installed from its Python package (94 MB), and run nothing
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = INSTALLED)]
    ptxas: Option<String>,
    /// Passed on to `ptx-cases`, such as `--summary`, `--cuda system` or `--checksums`; `--help` lists them all
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// The variable for the emulated device's compute capability. By default, the device is the newest one that the cases know. Other drivers
/// ignore the variable.
const CAPABILITY_VARIABLE: &str = "GPUFLEET_EMULATOR_COMPUTE_CAPABILITY";
const CAPABILITY: &str = "9.0";

/// The value of `--ptxas` without a path.
const INSTALLED: &str = "";

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let terminal = Terminal::new();
    let mut arguments = options.arguments.clone();
    if let Some(path) = &options.ptxas {
        let path = if path == INSTALLED {
            setup::ensure(&[Part::Assembler], &terminal)?;
            parts::assembler()?.display().to_string()
        } else {
            path.clone()
        };
        arguments.extend(["--ptxas".to_owned(), path]);
    }
    terminal.heading("build the emulator and the cases");
    workspace::build(&["gpufleet-emulator", "gpufleet-conformance"]).await?;
    terminal.heading("run the cases");
    let mut command = Command::new(workspace::programs()?.join("ptx-cases"));
    command.args(arguments);
    if std::env::var_os(CAPABILITY_VARIABLE).is_none() {
        command.env(CAPABILITY_VARIABLE, CAPABILITY);
    }
    workspace::run(command).await
}
