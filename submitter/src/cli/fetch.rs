//! `gpufleet fetch`: writes the kept outputs of a job to files.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use clap::{ArgGroup, Args};
use gpufleet::{KeptOutput, KeptResult};
use gpufleet_ledger::JobDetail;
use serde::Serialize;

use super::{
    complaint::Complaint,
    connection,
    exit::{self, Exit},
    files, json, kept, lookup,
    options::{BlobOptions, Format, LedgerOptions},
    output,
    spec::FileSpec,
    waiting::{self, Spinner},
};

/// Write the kept outputs of a job to files
///
/// A job keeps its outputs if it was submitted with --keep or --detach, or with a blob store. They can be fetched from any machine until they expire.
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
    /// Folder to write all outputs to, each as NAME.npy. It is created if needed
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "out")]
    dir: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    output: Format,
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
    tokio::select! {
        exit = perform(options) => exit,
        () = waiting::interrupt() => Err(Complaint::new(Exit::Interrupted, "interrupted; the command can be repeated")),
    }
}

async fn perform(options: &Options) -> Result<Exit, Complaint> {
    let ledger = connection::ledger(&options.ledger).await?;
    let detail = Spinner::new("reading the job").around(lookup::in_ledger(&ledger, &options.id)).await?;
    let store = match needs_store(&detail, options) {
        true => Some(connection::blob_store(&options.blobs).await?),
        false => None,
    };
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
    match options.output {
        Format::Table => output::emit(&describe(&fetched))?,
        Format::Json => output::emit_json(&fetched)?,
    }
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
        return Ok(result.outputs.iter().map(|output| (output, file_in(dir, output.name()))).collect());
    }
    let mut files = BTreeMap::new();
    for out in &options.out {
        let output = result.output(&out.name).map_err(|error| kept::complaint(&error))?;
        files::check_writable(&out.path)?;
        files::check_holds(&out.path, output.dtype())?;
        if files.insert(&out.name, (output, out.path.clone())).is_some() {
            return Err(
                Complaint::usage(format!("--out names output {} twice", out.name)).hint("keep one of the two files")
            );
        }
    }
    Ok(files.into_values().collect())
}

/// A name may have any characters, so those that separate folders are replaced.
fn file_in(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{}.npy", name.replace(['/', '\\', '\0'], "_")))
}

fn describe(fetched: &[Fetched]) -> String {
    let line = |output: &Fetched| {
        let remark = output.remark.as_ref().map(|remark| format!(" ({remark})")).unwrap_or_default();
        format!("{}: {}{:?} written to {}{remark}\n", output.name, output.dtype, output.shape, output.file.display())
    };
    fetched.iter().map(line).collect()
}
