//! `gpufleet map`: runs a kernel over columns of a Parquet file, and writes a Parquet file with the results.
//!
//! The rows are cut into batches of equal size. Each batch is one job, and several jobs are in flight. A finished batch
//! is a file of its own in a folder beside the output; the last step joins these files. So a run that was killed goes
//! on after the batches that it finished, and the output is complete once it has its name.

use std::{convert::Infallible, fs, ops::Range, path::Path, time::Duration};

use arrow_array::RecordBatch;
use futures::{Stream, StreamExt as _, stream};
use gpufleet::{BlobLocation, Fleet, schema::PoolName};

use super::{
    complaint::Complaint,
    connection,
    exit::Exit,
    output,
    waiting::{self, Spinner},
};

mod batches;
mod elements;
mod jobs;
mod kernel;
mod mapping;
mod options;
mod parts;
mod report;
mod settings;
mod table;

use batches::Batches;
use jobs::Jobs;
use mapping::Mapping;
pub use options::Options;
use parts::Parts;
use report::Report;
use table::Table;

/// A worker answers a small batch sooner, and then the check is not worth its cost.
const ASK_AFTER: Duration = Duration::from_millis(500);
const AGAIN: &str = "the finished batches are kept; run the same command again to continue after them";

/// What is decided before anything is sent.
struct Run<'a> {
    options: &'a Options,
    table: Table,
    mapping: Mapping,
    jobs: Jobs<'a>,
    batches: Batches,
}

pub async fn run(options: Options) -> Result<Exit, Complaint> {
    let store = connection::blobs(&options.blobs, &options.producer.broker)?;
    let run = Run::plan(&options, store.is_some())?;
    let Run { table, mapping, batches, .. } = &run;
    let [_, file] = options.files();
    let settings = settings::of(&options, table, mapping, batches)?;
    let mut parts = Parts::open(file, &settings, mapping.schema(), table.compression())?;
    let (resumed, count) = (parts.finished(), batches.count());
    if resumed < count {
        if resumed > 0 {
            output::note(&format!("continuing after {resumed} of {count} batches, which an earlier run finished"));
        }
        run.send(store, &mut parts).await?;
    }
    parts.join()?;
    Report { file, rows: table.rows(), batches: count, resumed_batches: resumed }.print(options.output.format)?;
    Ok(Exit::Success)
}

impl<'a> Run<'a> {
    fn plan(options: &'a Options, has_store: bool) -> Result<Self, Complaint> {
        let [input, output] = options.files();
        let table = Table::open(input)?;
        distinct(input, output)?;
        let mapping = Mapping::plan(options, table.schema())?;
        let jobs = Jobs::plan(options, &mapping, has_store)?;
        table.check_nulls(&mapping)?;
        let rows_each = options.batch_rows.map_or(table.batch_rows(&mapping), u64::from);
        let rows_max = mapping.kernel().rows_max();
        if rows_each > rows_max {
            return Err(Complaint::bad_input(format!(
                "the kernel takes at most {rows_max} rows, and --batch-rows is {rows_each}"
            ))
            .hint("give a smaller --batch-rows, or make the parameter for the number of rows a 64-bit integer"));
        }
        let batches = Batches::of(table.rows(), rows_each);
        Ok(Self { options, table, mapping, jobs, batches })
    }

    /// Connects, and maps the batches that are missing.
    async fn send(&self, store: Option<BlobLocation>, parts: &mut Parts) -> Result<(), Complaint> {
        // The wait for the next batch has a deadline. A single job may wait longer, behind others.
        let mut builder = Fleet::builder().wait_deadline(Duration::MAX);
        if let Some(location) = store {
            builder = builder.blobs(location);
        }
        let connecting = connection::producer(&self.options.producer, builder);
        let fleet = Spinner::new("connecting to the broker").around(connecting).await?;
        let outcome = tokio::select! {
            outcome = self.map_all(&fleet, parts) => outcome,
            never = warn_if_unserved(&fleet, self.jobs.pool()) => match never {},
            () = waiting::interrupt() => Err(Complaint::new(Exit::Interrupted, "interrupted")),
        };
        // The workers report the jobs too, so the last events of the submissions may be lost.
        let _closed_in_time = tokio::time::timeout(connection::CLOSE_DEADLINE, fleet.close()).await;
        outcome.map_err(|complaint| if parts.finished() == 0 { complaint } else { with_hint(complaint, AGAIN) })
    }

    /// Reads batches, keeps some jobs in flight, and writes their results in order.
    async fn map_all(&self, fleet: &Fleet, parts: &mut Parts) -> Result<(), Complaint> {
        let missing = parts.finished()..self.batches.count();
        let spinner = Spinner::of_many("mapping batches", missing.len());
        let read = self.table.read(&self.mapping, &self.batches, missing.start)?;
        let ranges = missing.map(|index| self.batches.rows(index));
        let mapped = stream::iter(ranges.zip(read)).map(|(rows, batch)| self.map_batch(fleet, rows, batch));
        let mut mapped = std::pin::pin!(mapped.buffered(self.options.in_flight as usize));
        let writing = async {
            while let Some(batch) = next_within(self.options.timeout, &mut mapped).await? {
                parts.add(&batch?)?;
                spinner.advance();
            }
            Ok(())
        };
        spinner.clone().around(writing).await
    }

    async fn map_batch(
        &self,
        fleet: &Fleet,
        rows: Range<u64>,
        batch: Result<RecordBatch, Complaint>,
    ) -> Result<RecordBatch, Complaint> {
        let batch = batch?;
        let inputs = self.mapping.inputs(&batch, rows.start)?;
        let outputs = self.jobs.run(fleet, inputs).await.map_err(|complaint| Complaint {
            message: format!("rows {} to {}: {}", rows.start, rows.end - 1, complaint.message),
            ..complaint
        })?;
        self.mapping.output(&batch, &outputs)
    }
}

async fn next_within<T>(
    timeout: Duration,
    mapped: &mut (impl Stream<Item = T> + Unpin),
) -> Result<Option<T>, Complaint> {
    tokio::time::timeout(timeout, mapped.next()).await.map_err(|_| {
        let waited = humantime::format_duration(timeout);
        Complaint::new(Exit::DeadlinePassed, format!("no batch was finished within {waited}"))
            .hint("check with `gpufleet workers` that workers serve the pool, or allow more time with --timeout")
    })
}

/// Warns once if no worker serves the pool.
async fn warn_if_unserved(fleet: &Fleet, pool: PoolName) -> Infallible {
    tokio::time::sleep(ASK_AFTER).await;
    waiting::warn_if_unserved(fleet, &pool, connection::CLOSE_DEADLINE).await;
    std::future::pending().await
}

/// A second run over its own output would map the rows twice.
fn distinct(input: &Path, output: &Path) -> Result<(), Complaint> {
    match (fs::canonicalize(input), fs::canonicalize(output)) {
        (Ok(read), Ok(written)) if read == written => {
            Err(Complaint::bad_input(format!("{} would be read and written", input.display()))
                .hint("write to another file"))
        }
        _ => Ok(()),
    }
}

fn with_hint(complaint: Complaint, hint: &str) -> Complaint {
    let hint = match &complaint.hint {
        Some(first) => format!("{first}\n{hint}"),
        None => hint.to_owned(),
    };
    complaint.hint(hint)
}

/// The complaint about a Parquet file that can't be read or written.
fn unusable(what: &str, path: &Path, problem: &impl std::fmt::Display) -> Complaint {
    Complaint::bad_input(format!("failed to {what} {}: {problem}", path.display()))
}
