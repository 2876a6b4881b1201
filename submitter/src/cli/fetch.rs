//! `gpufleet fetch`: writes the kept outputs of a job to files.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use clap::{ArgGroup, Args};
use gpufleet::{
    Array,
    schema::{BlobDigest, JobId, JobState, task::elements},
};
use gpufleet_ledger::{JobDetail, Ledger, OutputRow};
use gpufleet_transport::BlobStore;
use serde::Serialize;

use super::{
    complaint::Complaint,
    connection::{self, blob_complaint},
    exit::{self, Exit},
    files, json,
    options::{BlobOptions, Format, LedgerOptions},
    output, show,
    spec::FileSpec,
    waiting::{self, Spinner},
};

/// Write the kept outputs of a job to files
///
/// A job keeps its outputs if it was submitted with --keep, or detached. They can be fetched from any machine until they expire.
/// `gpufleet show ID` lists them.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}\n\n{}", json::FETCH, exit::TABLE))]
#[command(group = ArgGroup::new("target").args(["out", "dir"]).required(true))]
pub struct Options {
    /// Id of the job; the beginning is enough if it is unique
    id: String,
    /// File to write an output to; the extension decides the format: .npy, .png, else raw bytes. Repeatable
    #[arg(long, value_name = "NAME=FILE")]
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

/// Where the bytes of outputs come from.
struct Sources<'a> {
    job_id: JobId,
    ledger: Ledger,
    /// Opened for the first output that is a blob.
    store: Option<BlobStore>,
    options: &'a BlobOptions,
}

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    tokio::select! {
        exit = perform(options) => exit,
        () = waiting::interrupt() => Err(Complaint::new(Exit::Interrupted, "interrupted; the command can be repeated")),
    }
}

async fn perform(options: &Options) -> Result<Exit, Complaint> {
    let detail = show::find(&options.id, &options.ledger).await?;
    let wanted = wanted(&detail, options)?;
    if let Some(dir) = &options.dir {
        std::fs::create_dir_all(dir).map_err(|problem| files::unwritable(dir, &problem))?;
    }
    let ledger = connection::ledger(&options.ledger).await?;
    let mut sources = Sources { job_id: detail.job.job_id, ledger, store: None, options: &options.blobs };
    let mut fetched = Vec::with_capacity(wanted.len());
    for (output, file) in wanted {
        let array = Spinner::new(format!("fetching {}", output.name)).around(sources.read(output)).await?;
        let (dtype, shape) = (array.dtype().name(), array.shape().to_vec());
        let remark = files::write(&file, &array)?;
        fetched.push(Fetched { name: output.name.clone(), dtype, shape, file, remark });
    }
    match options.output {
        Format::Table => output::emit(&describe(&fetched))?,
        Format::Json => output::emit_json(&fetched)?,
    }
    Ok(Exit::Success)
}

/// The outputs to fetch, each with its file.
fn wanted<'a>(detail: &'a JobDetail, options: &Options) -> Result<Vec<(&'a OutputRow, PathBuf)>, Complaint> {
    if let Some(dir) = &options.dir {
        return Ok(kept(detail)?.iter().map(|output| (output, file_in(dir, &output.name))).collect());
    }
    let mut files = BTreeMap::new();
    for out in &options.out {
        let output = kept_output(detail, &out.name)?;
        files::check_writable(&out.path)?;
        files::check_holds(&out.path, output.dtype)?;
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

/// The kept outputs of a job that has succeeded, unless they have expired.
fn kept(detail: &JobDetail) -> Result<&[OutputRow], Complaint> {
    let (job, outputs) = (&detail.job, &*detail.outputs);
    let id = job.job_id;
    let none = |message: String| Complaint::new(Exit::NotFound, message);
    match outputs.first() {
        Some(first) if first.is_expired => {
            let at = first.expires_at.format("%F %T UTC");
            Err(none(format!("the outputs of job {id} expired at {at}"))
                .hint("submit the job again, with a longer --keep if that was too short"))
        }
        Some(_) => Ok(outputs),
        None if !job.state.is_final() => Err(none(format!("job {id} has not ended yet: it is {}", job.state))
            .hint(format!("wait for it: gpufleet wait {id}"))),
        None if job.state == JobState::Succeeded => Err(none(format!("job {id} succeeded, but kept no outputs"))
            .hint("submit it again with --keep 1day, or wait for its outputs with --out")),
        None => Err(none(format!("job {id} has no outputs: it is {}", job.state))
            .hint(format!("`gpufleet show {id}` shows the reason"))),
    }
}

/// A kept output by its name.
pub(super) fn kept_output<'a>(detail: &'a JobDetail, name: &str) -> Result<&'a OutputRow, Complaint> {
    kept(detail)?.iter().find(|output| output.name == name).ok_or_else(|| no_such_output(detail, name))
}

fn no_such_output(detail: &JobDetail, name: &str) -> Complaint {
    let names: Vec<&str> = detail.outputs.iter().map(|output| output.name.as_str()).collect();
    Complaint::new(Exit::NotFound, format!("job {} has no output {name:?}", detail.job.job_id))
        .hint(format!("its outputs: {}", names.join(", ")))
}

impl Sources<'_> {
    async fn read(&mut self, output: &OutputRow) -> Result<Array, Complaint> {
        let bytes = match output.digest {
            Some(digest) => self.blob(digest, output).await?,
            None => inline(&self.ledger, self.job_id, output).await?,
        };
        let array = Array::new(output.dtype, output.shape.clone(), bytes);
        array.map_err(|problem| damaged(output, self.job_id, &problem.to_string()))
    }

    async fn blob(&mut self, digest: BlobDigest, output: &OutputRow) -> Result<Vec<u8>, Complaint> {
        let store = match self.store.take() {
            Some(store) => store,
            None => connection::blob_store(self.options).await?,
        };
        let bytes = elements(&output.shape).and_then(|count| count.checked_mul(output.dtype.size() as u64));
        let read = store.read(digest, bytes.unwrap_or(u64::MAX)).await;
        self.store = Some(store);
        read.map_err(|error| blob_complaint(&error))
    }
}

/// The bytes of an output that the ledger keeps.
pub(super) async fn inline(ledger: &Ledger, job_id: JobId, output: &OutputRow) -> Result<Vec<u8>, Complaint> {
    let read = ledger.output_bytes(job_id, &output.name).await;
    read.map_err(|error| connection::ledger_complaint(&error))?.ok_or_else(|| {
        Complaint::new(Exit::NotFound, format!("output {} of job {job_id} has just expired", output.name))
            .hint("submit the job again, with a longer --keep if that was too short")
    })
}

pub(super) fn damaged(output: &OutputRow, job_id: JobId, problem: &str) -> Complaint {
    Complaint::new(Exit::FleetFailed, format!("output {} of job {job_id} is damaged: {problem}", output.name))
        .hint("submit the job again")
}

fn describe(fetched: &[Fetched]) -> String {
    let line = |output: &Fetched| {
        let remark = output.remark.as_ref().map(|remark| format!(" ({remark})")).unwrap_or_default();
        format!("{}: {}{:?} written to {}{remark}\n", output.name, output.dtype, output.shape, output.file.display())
    };
    fetched.iter().map(line).collect()
}
