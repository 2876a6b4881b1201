//! `gpufleet blobs`: stores arrays in the blob store, and lists, copies and deletes blobs.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use gpufleet::schema::BlobDigest;
use gpufleet_blobs::BlobStore;
use serde::Serialize;

mod getting;
mod listing;
mod removing;

use super::{
    complaint::Complaint,
    connection::{self, blob_complaint},
    exit::Exit,
    files::{self, Purpose},
    json,
    options::{BlobOptions, Format, OutputOptions},
    output, quantity,
    spec::ArraySpec,
    table::{self, Column},
    waiting::{self, Spinner},
};

/// Store, list, copy and delete arrays in the blob store
///
/// The store is a folder or an S3 bucket that the workers share. `gpufleet submit` stores large arrays there by itself. Store an array
/// yourself to name it in task files, or to use it in many jobs.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  gpufleet blobs put weights.npy
  gpufleet blobs ls
  gpufleet blobs get DIGEST --out weights.npy:f32[1000000]
  gpufleet blobs prune";

#[derive(Debug, Subcommand)]
enum Command {
    /// Store arrays and print their digests, for task files: "data": { "blob": "blake3:..." }
    Put(PutOptions),
    /// List blobs with their sizes, their ages and the jobs that use them
    Ls(listing::LsOptions),
    /// Copy a blob to a file
    Get(getting::GetOptions),
    /// Delete blobs, unless a job uses them
    Rm(removing::RmOptions),
    /// Delete old blobs that no job uses
    ///
    /// The ledger knows which blobs are inputs of jobs that have not ended, and which are kept outputs. These stay, and so does any blob
    /// that was in use within the last two days. If the ledger can't be read, or its recorder is hours behind, nothing is deleted.
    Prune(removing::PruneOptions),
}

#[derive(Debug, Args)]
#[command(after_long_help = json::BLOBS_PUT)]
struct PutOptions {
    /// .npy or .png files, or raw bytes with a dtype and a shape, such as x.bin:f32[1024]
    #[arg(value_name = "FILE", required = true)]
    files: Vec<ArraySpec>,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    store: BlobOptions,
}

/// An array that is in the store.
#[derive(Debug, Serialize)]
struct Stored {
    file: PathBuf,
    digest: BlobDigest,
    dtype: &'static str,
    shape: Vec<u64>,
    bytes: u64,
}

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    let message = "interrupted; completed work stays, and the command can be repeated";
    waiting::unless_interrupted(perform(options), message).await
}

async fn perform(options: &Options) -> Result<Exit, Complaint> {
    match &options.command {
        Command::Put(options) => put_files(options).await,
        Command::Ls(options) => listing::ls(options).await,
        Command::Get(options) => getting::get(options).await,
        Command::Rm(options) => removing::rm(options).await,
        Command::Prune(options) => removing::prune(options).await,
    }
}

async fn put_files(options: &PutOptions) -> Result<Exit, Complaint> {
    let store = connection::blob_store(&options.store).await?;
    let (stored, outcome) = put_all(&store, &options.files).await;
    // After a failure the command still prints the blobs stored before it.
    match options.output.format {
        Format::Json => output::emit_json(&stored)?,
        Format::Table if stored.is_empty() => {}
        Format::Table => output::emit(&table_of(&stored))?,
    }
    outcome.map(|()| Exit::Success)
}

/// Stores the files one by one.
async fn put_all(store: &BlobStore, files: &[ArraySpec]) -> (Vec<Stored>, Result<(), Complaint>) {
    let mut stored = Vec::new();
    for file in files {
        match put(store, file).await {
            Ok(one) => stored.push(one),
            Err(complaint) => return (stored, Err(complaint)),
        }
    }
    (stored, Ok(()))
}

/// Stores a file from where it is, or a file to convert through memory.
async fn put(store: &BlobStore, ArraySpec { path, form }: &ArraySpec) -> Result<Stored, Complaint> {
    let spinner = Spinner::new(format!("storing {}", path.display()));
    let (dtype, shape, bytes, digest) = match files::in_place(path, form.as_ref())? {
        Some(array) => {
            let (file, range) = array.parts().map_err(|problem| files::unreadable(path, &problem))?;
            let digest = spinner.around(store.put_file(file, range)).await;
            (array.dtype(), array.shape().to_vec(), array.bytes(), digest)
        }
        None => {
            let array = files::read(path, form.as_ref(), Purpose::Converted)?;
            let (dtype, shape, bytes) = (array.dtype(), array.shape().to_vec(), array.bytes().len() as u64);
            (dtype, shape, bytes, spinner.around(store.put(array.into_bytes())).await)
        }
    };
    let digest = digest.map_err(|error| blob_complaint(&error))?;
    Ok(Stored { file: path.clone(), digest, dtype: dtype.name(), shape, bytes })
}

fn table_of(stored: &[Stored]) -> String {
    let columns = [
        Column::Left("BLOB"),
        Column::Left("DTYPE"),
        Column::Left("SHAPE"),
        Column::Right("SIZE"),
        Column::Left("FILE"),
    ];
    table::render(
        &columns,
        stored.iter().map(|stored| {
            vec![
                stored.digest.to_string(),
                stored.dtype.to_owned(),
                format!("{:?}", stored.shape),
                quantity::bytes(stored.bytes),
                stored.file.display().to_string(),
            ]
        }),
    )
}

#[cfg(test)]
mod tests;
