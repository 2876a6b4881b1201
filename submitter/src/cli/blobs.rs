//! `gpufleet blobs`: stores arrays in the blob store and deletes old ones.

use std::{path::PathBuf, sync::Arc, time::Duration};

use clap::{Args, Subcommand};
use gpufleet::schema::BlobDigest;
use gpufleet_transport::{BlobStore, Pruned};
use serde::Serialize;

use super::{
    complaint::Complaint,
    connection::{self, blob_complaint},
    exit::Exit,
    files::{self, Purpose},
    json,
    options::{BlobOptions, Format},
    output, quantity,
    spec::{self, ArraySpec},
    table::{self, Column},
    waiting::{self, Spinner},
};

/// Store arrays in the blob store, or delete old ones
///
/// The store is a folder or an S3 bucket that the workers share. `gpufleet submit` stores large arrays there by itself. Store an array yourself to name
/// it in task files, or to use it in many jobs.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  gpufleet blobs put weights.npy
  gpufleet blobs prune --older-than 30days";

#[derive(Debug, Subcommand)]
enum Command {
    /// Store arrays and print their digests, for task files: "data": { "blob": "sha256:..." }
    Put(PutOptions),
    /// Delete blobs older than a given age; jobs that still need them fail
    Prune(PruneOptions),
}

#[derive(Debug, Args)]
#[command(after_long_help = json::BLOBS_PUT)]
struct PutOptions {
    /// .npy or .png files, or raw bytes with a dtype and a shape, such as x.bin:f32[1024]
    #[arg(value_name = "FILE", required = true)]
    files: Vec<ArraySpec>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    output: Format,
    #[command(flatten)]
    store: BlobOptions,
}

#[derive(Debug, Args)]
struct PruneOptions {
    /// Minimum time since a blob was last stored, such as 30days. Choose more than the longest time that jobs are queued or clients wait
    /// for outputs
    #[arg(long, value_name = "DURATION", value_parser = spec::duration)]
    older_than: Duration,
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
    tokio::select! {
        exit = perform(options) => exit,
        () = waiting::interrupt() => Err(Complaint::new(Exit::Interrupted, "interrupted; completed work stays, and the command can be repeated")),
    }
}

async fn perform(options: &Options) -> Result<Exit, Complaint> {
    match &options.command {
        Command::Put(options) => {
            let store = connection::blob_store(&options.store).await?;
            let (stored, outcome) = put_all(&store, &options.files).await;
            // After a failure the command still prints the blobs stored before it.
            match options.output {
                Format::Json => output::emit_json(&stored)?,
                Format::Table if stored.is_empty() => {}
                Format::Table => output::emit(&table_of(&stored))?,
            }
            outcome?;
        }
        Command::Prune(options) => {
            let store = connection::blob_store(&options.store).await?;
            let pruning = Spinner::new("deleting blobs").around(store.prune(options.older_than, Arc::default()));
            let pruned = pruning.await.map_err(|error| blob_complaint(&error))?;
            output::emit(&describe(&pruned))?;
        }
    }
    Ok(Exit::Success)
}

/// Stores the files one by one, so that only one is in memory at a time.
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

async fn put(store: &BlobStore, ArraySpec { path, form }: &ArraySpec) -> Result<Stored, Complaint> {
    let array = files::read(path, form.as_ref(), Purpose::StoredInput)?;
    let (dtype, shape, bytes) = (array.dtype().name(), array.shape().to_vec(), array.bytes().len() as u64);
    let storing = Spinner::new(format!("storing {}", path.display())).around(store.put(array.into_bytes()));
    let digest = storing.await.map_err(|error| blob_complaint(&error))?;
    Ok(Stored { file: path.clone(), digest, dtype, shape, bytes })
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

fn describe(pruned: &Pruned) -> String {
    let told = |files: u64, bytes: u64| {
        format!("{files} blob{} ({})", if files == 1 { "" } else { "s" }, quantity::bytes(bytes))
    };
    let Pruned { removed, removed_bytes, left, left_bytes } = *pruned;
    format!("{} deleted, {} left\n", told(removed, removed_bytes), told(left, left_bytes))
}

#[cfg(test)]
mod tests;
