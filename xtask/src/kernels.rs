//! `cargo xtask kernels`: the catalog's PTX, built from its CUDA C by the worker's own compiler.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use gpufleet_kernels::provenance;
use gpufleet_local::setup::{self as parts, Part};
use tokio::process::Command;

use crate::{setup, terminal::Terminal, workspace};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Change nothing; fail where a PTX is not what its source gives
    #[arg(long)]
    pub check: bool,
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let terminal = Terminal::new();
    setup::ensure(if options.check { &[Part::Compiler] } else { &[Part::Compiler, Part::Assembler] }, &terminal)?;
    terminal.heading("build the compiler");
    workspace::run(workspace::build_of(&["gpufleet-worker"])?).await?;
    let scratch = tempfile::tempdir().context("make a scratch folder")?;
    let mut stale = Vec::new();
    for source in sources()? {
        let fresh = compile(&source, scratch.path()).await?;
        let ptx = source.with_extension("ptx");
        if fs::read_to_string(&ptx).is_ok_and(|committed| committed == fresh) {
            continue;
        }
        if !options.check {
            fs::write(&ptx, fresh).with_context(|| format!("write {}", ptx.display()))?;
            assemble(&ptx).await?;
            eprintln!("built {}", ptx.display());
        }
        stale.push(ptx);
    }
    match (stale.as_slice(), options.check) {
        ([], _) => eprintln!("The catalog's PTX is up to date."),
        (_, false) => {}
        (stale, true) => {
            let names: Vec<_> = stale.iter().map(|path| path.display().to_string()).collect();
            bail!("{} differ from what their sources give; run `cargo xtask kernels`", names.join(", "));
        }
    }
    Ok(())
}

fn sources() -> anyhow::Result<Vec<PathBuf>> {
    let folder = workspace::root().join("kernels");
    let mut sources = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))? {
        let path = entry.with_context(|| format!("list {}", folder.display()))?.path();
        if path.extension().is_some_and(|extension| extension == "cu") {
            sources.push(path);
        }
    }
    sources.sort();
    Ok(sources)
}

/// The PTX of one source with its stamp, as it is committed.
async fn compile(source: &Path, scratch: &Path) -> anyhow::Result<String> {
    let name = source.file_stem().and_then(|stem| stem.to_str()).context("a kernel's name is plain text")?;
    let code = fs::read_to_string(source).with_context(|| format!("read {}", source.display()))?;
    let output = scratch.join(format!("{name}.ptx"));
    let mut command = Command::new(workspace::programs()?.join("gpufleet-worker"));
    command.arg("compile").arg(source).arg("--output").arg(&output);
    for option in provenance::NVRTC_OPTIONS {
        match option.strip_prefix("--gpu-architecture=") {
            Some(arch) => command.args(["--arch", arch]),
            None => command.args(["--option", option]),
        };
    }
    workspace::run(command).await?;
    let ptx = fs::read_to_string(&output).with_context(|| format!("read {}", output.display()))?;
    Ok(provenance::stamped(name, &code, &ptx))
}

/// NVIDIA's assembler tells what the version that the text says does not have.
async fn assemble(ptx: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(parts::assembler()?);
    command.args(["--gpu-name=sm_80", "--output-file=/dev/null"]).arg(ptx);
    let assembled = workspace::run(command).await;
    assembled.with_context(|| format!("{} needs more than PTX {}", ptx.display(), provenance::PTX_VERSION))
}
