//! `cargo xtask kernels`: builds the catalog's PTX from its CUDA C with the worker's own compiler.

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
    /// Change nothing; fail if a PTX file is out of date
    #[arg(long)]
    pub check: bool,
}

/// Compares or renews the PTX file of each source in a folder.
struct Renewal<C, A> {
    folder: PathBuf,
    check: bool,
    /// Compiles a source to PTX.
    compile: C,
    /// Checks PTX with NVIDIA's assembler.
    assemble: A,
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let terminal = Terminal::new();
    setup::ensure(if options.check { &[Part::Compiler] } else { &[Part::Compiler, Part::Assembler] }, &terminal)?;
    terminal.heading("build the compiler");
    workspace::build(&["gpufleet-worker"]).await?;
    let scratch = tempfile::tempdir().context("failed to make a scratch folder")?;
    let renewal = Renewal {
        folder: workspace::root().join("kernels"),
        check: options.check,
        compile: async |source: &Path| compile(source, scratch.path()).await,
        assemble: async |ptx: &str| assemble(ptx, scratch.path()).await,
    };
    let stale = renewal.run().await?;
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

impl<C, A> Renewal<C, A>
where
    C: AsyncFn(&Path) -> anyhow::Result<String>,
    A: AsyncFn(&str) -> anyhow::Result<()>,
{
    /// Returns the PTX files that differ from what their sources give. Unless it only checks, it also renews them; after a failure, the
    /// files before the failed one are renewed.
    async fn run(&self) -> anyhow::Result<Vec<PathBuf>> {
        let mut stale = Vec::new();
        for source in sources(&self.folder)? {
            let fresh = (self.compile)(&source).await?;
            let ptx = source.with_extension("ptx");
            if fs::read_to_string(&ptx).is_ok_and(|committed| committed == fresh) {
                continue;
            }
            if !self.check {
                // Checked before it is written, because the next run would consider a written file correct.
                (self.assemble)(&fresh).await.with_context(|| format!("failed to renew {}", ptx.display()))?;
                fs::write(&ptx, fresh).with_context(|| format!("failed to write {}", ptx.display()))?;
                eprintln!("built {}", ptx.display());
            }
            stale.push(ptx);
        }
        Ok(stale)
    }
}

fn sources(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut sources = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("failed to list {}", folder.display()))? {
        let path = entry.with_context(|| format!("failed to list {}", folder.display()))?.path();
        if path.extension().is_some_and(|extension| extension == "cu") {
            sources.push(path);
        }
    }
    sources.sort();
    Ok(sources)
}

/// Compiles one source to PTX, and adds its stamp.
async fn compile(source: &Path, scratch: &Path) -> anyhow::Result<String> {
    let name = source.file_stem().and_then(|stem| stem.to_str()).context("a kernel's name is plain text")?;
    let code = fs::read_to_string(source).with_context(|| format!("failed to read {}", source.display()))?;
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
    let ptx = fs::read_to_string(&output).with_context(|| format!("failed to read {}", output.display()))?;
    Ok(provenance::stamped(name, &code, &ptx))
}

/// Checks PTX with NVIDIA's assembler. The assembler reports features that the PTX version in the text does not have.
async fn assemble(ptx: &str, scratch: &Path) -> anyhow::Result<()> {
    let file = scratch.join("assembled.ptx");
    fs::write(&file, ptx).with_context(|| format!("failed to write {}", file.display()))?;
    let mut command = Command::new(parts::assembler()?);
    command.args(["--gpu-name=sm_80", "--output-file=/dev/null"]).arg(&file);
    let assembled = workspace::run(command).await;
    assembled.with_context(|| format!("it needs more than PTX {}", provenance::PTX_VERSION))
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, fs::File, time::SystemTime};

    use super::*;

    /// Returns what the tests' fake compiler makes of a source.
    fn compiled(source: &str) -> String {
        format!("PTX of {source}")
    }

    /// Makes a folder in which `changed` is out of date, `new` is missing, and `same` is up to date.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in ["changed", "new", "same"] {
            fs::write(folder.path().join(name).with_extension("cu"), name).unwrap();
        }
        fs::write(folder.path().join("changed.ptx"), "of an older source").unwrap();
        let same = folder.path().join("same.ptx");
        fs::write(&same, compiled("same")).unwrap();
        // A file that is written again would get a later time.
        File::options().write(true).open(same).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        folder
    }

    fn read(folder: &tempfile::TempDir, name: &str) -> Option<String> {
        fs::read_to_string(folder.path().join(name)).ok()
    }

    /// Returns the names of the stale files, or the error.
    async fn renew(folder: &tempfile::TempDir, check: bool, refused: Option<&str>) -> Result<Vec<String>, String> {
        let assembled = RefCell::new(Vec::new());
        let renewal = Renewal {
            folder: folder.path().to_owned(),
            check,
            compile: async |source: &Path| Ok(compiled(&fs::read_to_string(source)?)),
            assemble: async |ptx: &str| {
                assembled.borrow_mut().push(ptx.to_owned());
                anyhow::ensure!(refused.is_none_or(|refused| ptx != compiled(refused)), "no PTX");
                Ok(())
            },
        };
        let stale = renewal.run().await.map_err(|error| format!("{error:#}"))?;
        let name = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
        let stale: Vec<String> = stale.iter().map(name).collect();
        let expected = if check { Vec::new() } else { stale.iter().map(|name| compiled(name)).collect() };
        assert_eq!(assembled.into_inner(), expected, "just what is written is assembled before");
        Ok(stale)
    }

    #[tokio::test]
    async fn what_differs_or_is_missing_is_written_and_what_is_equal_is_left_alone() {
        let folder = folder();
        assert_eq!(renew(&folder, false, None).await.unwrap(), ["changed", "new"]);
        for name in ["changed", "new", "same"] {
            assert_eq!(read(&folder, &format!("{name}.ptx")), Some(compiled(name)));
        }
        let same = fs::metadata(folder.path().join("same.ptx")).unwrap();
        assert_eq!(same.modified().unwrap(), SystemTime::UNIX_EPOCH, "it was written to");
        assert!(renew(&folder, false, None).await.unwrap().is_empty(), "the second time all is there");
    }

    #[tokio::test]
    async fn a_check_names_what_is_stale_and_writes_nothing() {
        let folder = folder();
        assert_eq!(renew(&folder, true, None).await.unwrap(), ["changed", "new"]);
        assert_eq!(read(&folder, "changed.ptx").as_deref(), Some("of an older source"));
        assert_eq!(read(&folder, "new.ptx"), None);
    }

    #[tokio::test]
    async fn a_ptx_that_does_not_assemble_is_not_written_and_found_again_by_the_next_run() {
        let folder = folder();
        for _ in 0..2 {
            let error = renew(&folder, false, Some("changed")).await.unwrap_err();
            assert!(error.contains("changed.ptx") && error.contains("no PTX"), "{error}");
            assert_eq!(read(&folder, "changed.ptx").as_deref(), Some("of an older source"));
        }
    }
}
