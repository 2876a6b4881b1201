//! `gpufleet-worker compile`: compiles a file as the worker does for jobs.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use super::{CompileError, CompileRequest, Compiled, Target, compile};

/// `gpufleet-worker compile FILE.cu --arch compute_80 -o out.ptx`.
#[derive(Debug, Clone, clap::Args)]
pub struct CompileOptions {
    /// CUDA C file to compile
    pub file: PathBuf,
    /// Virtual architecture, as in compute_80, sm_80 or 8.0
    #[arg(long, value_name = "ARCH", default_value = "compute_80", value_parser = parse_arch)]
    pub arch: (u32, u32),
    /// Option for NVRTC, as in --option=--use_fast_math; repeatable
    #[arg(long = "option", value_name = "OPTION", allow_hyphen_values = true)]
    pub options: Vec<String>,
    /// File to write the PTX to
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// NVRTC library, or the folder that contains it [default: found as the worker does]
    #[arg(long, value_name = "PATH")]
    pub nvrtc: Option<PathBuf>,
}

/// Runs the command. The compile log goes to standard error.
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

/// Compiles a file, and writes the PTX to a file.
pub async fn compile_to_file(args: &CompileOptions) -> anyhow::Result<Compiled> {
    use anyhow::Context as _;
    let code = tokio::fs::read_to_string(&args.file)
        .await
        .with_context(|| format!("failed to read {}", args.file.display()))?;
    let request = CompileRequest {
        code,
        options: args.options.clone(),
        expressions: Vec::new(),
        target: Target::ptx(args.arch),
        nvrtc: args.nvrtc.clone(),
    };
    let compiled = compile(request).await.map_err(|error| {
        let log = match &error {
            CompileError::Source { log, .. } => format!("\n{log}"),
            _ => String::new(),
        };
        anyhow::anyhow!("{}: {error}{log}", args.file.display())
    })?;
    write_whole(&args.output, &compiled.ptx).with_context(|| format!("failed to write {}", args.output.display()))?;
    Ok(compiled)
}

/// Writes the PTX, with exactly one newline at its end, as in a text file.
fn write_whole(path: &Path, ptx: &str) -> std::io::Result<()> {
    std::fs::write(path, format!("{}\n", ptx.trim_end_matches(['\0', '\n'])))
}

/// Parses an architecture: `compute_80`, `sm_80` or `8.0`.
pub fn parse_arch(text: &str) -> Result<(u32, u32), String> {
    let digits = text.strip_prefix("compute_").or_else(|| text.strip_prefix("sm_"));
    let number = match digits {
        Some(digits) => {
            digits.parse::<u32>().ok().filter(|number| *number >= 10).map(|number| (number / 10, number % 10))
        }
        None => text.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?))),
    };
    number.ok_or_else(|| format!("{text:?} is not an architecture; expected one such as compute_80, sm_80 or 8.0"))
}
