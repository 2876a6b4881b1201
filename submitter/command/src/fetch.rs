//! `gpufleet fetch`: writes the kept outputs of a job to files.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use clap::{ArgGroup, Args};
use gpufleet::{KeptOutput, KeptResult, schema::text::is_invisible};
use gpufleet_ledger::JobDetail;
use serde::Serialize;

use super::{
    complaint::Complaint,
    connection,
    exit::{self, Exit},
    files, json, kept, lookup,
    options::{BlobOptions, LedgerOptions, OutputOptions},
    spec::FileSpec,
    waiting::{self, Spinner},
};

mod program;

/// Write the kept outputs of a job to files
///
/// A job keeps its outputs if it was submitted with --keep or --detach, or with a blob store. A host program keeps them also if it failed. They can be fetched from any machine until they expire.
/// `gpufleet show ID` lists them.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}\n\n{}", json::FETCH, exit::TABLE))]
#[command(group = ArgGroup::new("target").args(["out", "dir"]).required(true))]
pub struct Options {
    /// Id of the job. The beginning or the end is enough if it is unique; @last is the job that you submitted last
    id: String,
    /// File to write an output to; the extension decides the format: .npy, .png, else raw bytes. Repeatable
    #[arg(long, visible_alias = "save", value_name = "NAME=FILE")]
    out: Vec<FileSpec>,
    /// Folder to write all outputs to, each as NAME.npy. It is created if needed. The files of a host program are unpacked there, and its
    /// output goes to the file `log`
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "out")]
    dir: Option<PathBuf>,
    /// Replace files that exist in the folder with those of a host program
    #[arg(long, requires = "dir")]
    force: bool,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    ledger: LedgerOptions,
    #[command(flatten)]
    blobs: BlobOptions,
}

const EXAMPLES: &str = "\
Examples:
  gpufleet fetch 01a20400 --out y=result.npy
  gpufleet fetch 01a20400 --dir results";

/// An output, and the file that it went to.
#[derive(Debug, Serialize)]
struct Fetched {
    name: String,
    dtype: &'static str,
    shape: Vec<u64>,
    file: PathBuf,
    #[serde(skip)]
    remark: Option<String>,
}

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    waiting::unless_interrupted(perform(options), "interrupted; the command can be repeated").await
}

async fn perform(options: &Options) -> Result<Exit, Complaint> {
    let ledger = connection::ledger(&options.ledger).await?;
    let detail = Spinner::new("reading the job").around(lookup::in_ledger(&ledger, &options.id)).await?;
    let store = match needs_store(&detail, options) {
        true => Some(connection::blob_store(&options.blobs).await?),
        false => None,
    };
    if let Some(dir) = options.dir.as_deref().filter(|_| detail.job.is_host_program()) {
        std::fs::create_dir_all(dir).map_err(|problem| files::unwritable(dir, &problem))?;
        let fetched = program::fetch(*detail, &ledger, store.as_ref(), dir, options.force).await?;
        ledger.close().await;
        options.output.format.print(&fetched, |fetched| describe(fetched))?;
        return Ok(Exit::Success);
    }
    let result = kept::result(*detail, &ledger, store.as_ref())?;
    let wanted = wanted(&result, options)?;
    if let Some(dir) = &options.dir {
        std::fs::create_dir_all(dir).map_err(|problem| files::unwritable(dir, &problem))?;
    }
    let mut fetched = Vec::with_capacity(wanted.len());
    for (output, file) in wanted {
        let remark = Spinner::new(format!("fetching {}", output.name())).around(files::save(&file, output)).await?;
        let (dtype, shape) = (output.dtype().name(), output.shape().to_vec());
        fetched.push(Fetched { name: output.name().to_owned(), dtype, shape, file, remark });
    }
    ledger.close().await;
    options.output.format.print(&fetched, |fetched| describe(fetched))?;
    Ok(Exit::Success)
}

/// Whether an output to fetch is a blob.
fn needs_store(detail: &JobDetail, options: &Options) -> bool {
    let is_wanted = |name: &str| options.dir.is_some() || options.out.iter().any(|out| out.name == name);
    let mut live = detail.outputs.iter().filter(|output| !output.is_expired);
    live.any(|output| output.digest.is_some() && is_wanted(&output.name))
}

/// The outputs to fetch, each with its file.
fn wanted<'a>(result: &'a KeptResult, options: &Options) -> Result<Vec<(&'a KeptOutput, PathBuf)>, Complaint> {
    if let Some(dir) = &options.dir {
        let files = files_in(dir, result.outputs.iter().map(KeptOutput::name));
        files.iter().try_for_each(|file| check_no_link(file))?;
        return Ok(result.outputs.iter().zip(files).collect());
    }
    let mut files = BTreeMap::new();
    for out in &options.out {
        let output = result.output(&out.name).map_err(|error| kept::complaint(&error))?;
        files::check_writable(&out.path)?;
        files::check_holds(&out.path, output.dtype(), output.shape())?;
        if files.insert(&out.name, (output, out.path.clone())).is_some() {
            return Err(
                Complaint::usage(format!("--out names output {} twice", out.name)).hint("keep one of the two files")
            );
        }
    }
    Ok(files.into_values().collect())
}

/// A file for each output. Names may have any characters and any length, so two of them may come to the same file name, which the later
/// ones get with a number.
fn files_in<'a>(dir: &Path, names: impl Iterator<Item = &'a str>) -> Vec<PathBuf> {
    let mut taken = BTreeSet::new();
    let file = |name: &str| {
        let stem = file_stem(name);
        let numbered = (2_u32..).map(|number| format!("{stem}-{number}"));
        // Some file systems take names for the same that differ in case only.
        let free = std::iter::once(stem.clone()).chain(numbered).find(|stem| taken.insert(stem.to_lowercase()));
        dir.join(format!("{}.npy", free.expect("there are more numbers than outputs")))
    };
    names.map(file).collect()
}

/// The name without path separators and invisible characters, short enough for every file system.
fn file_stem(name: &str) -> String {
    const BYTES_MAX: usize = 200;
    let replaced = |c: char| if matches!(c, '/' | '\\') || c.is_control() || is_invisible(c) { '_' } else { c };
    let mut stem: String = name.chars().map(replaced).collect();
    stem.truncate(stem.floor_char_boundary(BYTES_MAX));
    stem
}

/// The producer of a job chose the names, so none of them may lead to a file elsewhere.
fn check_no_link(file: &Path) -> Result<(), Complaint> {
    match std::fs::symlink_metadata(file) {
        Ok(metadata) if !metadata.is_file() => {
            Err(Complaint::bad_input(format!("failed to write {}: it is a link or no plain file", file.display()))
                .hint("remove it, choose another folder, or name the file with --out"))
        }
        _ => Ok(()),
    }
}

fn describe(fetched: &[Fetched]) -> String {
    let line = |output: &Fetched| {
        let remark = output.remark.as_ref().map(|remark| format!(" ({remark})")).unwrap_or_default();
        format!("{}: {}{:?} written to {}{remark}\n", output.name, output.dtype, output.shape, output.file.display())
    };
    fetched.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(outputs: &[&str]) -> Vec<String> {
        let files = files_in(Path::new("d"), outputs.iter().copied());
        files.iter().map(|file| file.file_name().unwrap().to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn each_output_has_a_file_of_its_own_in_the_folder() {
        assert_eq!(
            names(&["y", "a/b", "a\\b", "a_b", "A_B"]),
            ["y.npy", "a_b.npy", "a_b-2.npy", "a_b-3.npy", "A_B-4.npy"]
        );
        assert_eq!(names(&["..", "../../etc/x", "\u{202e}x"]), ["...npy", ".._.._etc_x.npy", "_x.npy"]);
        let long = names(&["ä".repeat(127).as_str(), "ä".repeat(128).as_str()]);
        assert!(long.iter().all(|name| name.len() < 255) && long[0] != long[1], "{long:?}");
    }

    #[test]
    fn a_link_in_the_folder_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("y.npy");
        assert!(check_no_link(&file).is_ok());
        std::os::unix::fs::symlink("/etc/hostname", &file).unwrap();
        assert!(check_no_link(&file).unwrap_err().message.contains("it is a link"));
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, "old").unwrap();
        assert!(check_no_link(&file).is_ok(), "a plain file is replaced");
    }
}
