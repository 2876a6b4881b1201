//! `gpufleet export`: writes jobs of the ledger to a file.
//!
//! The jobs are read page by page, newest first, each page in a statement of its own. No snapshot and no lock outlives a page, so an export that
//! takes minutes keeps neither the recorder nor retention waiting. Few pages are in memory: one is read while another is written.

use std::{fs, path::PathBuf};

use clap::{Args, ValueEnum};
use gpufleet_ledger::{HistoryFilter, JobRow};
use tokio::{sync::mpsc, task::JoinHandle};

use super::{
    catch_up,
    complaint::Complaint,
    exit::{self, Exit},
    files::{self, PartialFile},
    history::{Filters, WEEK_SEARCHED},
    output,
    source::{Source, SourceOptions},
    waiting::{self, Spinner},
};

mod columns;
mod writer;

use writer::Writer;

/// Write jobs to a Parquet, CSV or JSON Lines file, newest first
///
/// The file appears when it is complete. Memory does not grow with the number of jobs.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}", exit::TABLE))]
pub struct Options {
    /// File to write. A file of this name is replaced
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Format of the file [default: by its name, which ends in .parquet, .csv or .jsonl]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    #[command(flatten)]
    filters: Filters,
    #[command(flatten)]
    source: SourceOptions,
}

const EXAMPLES: &str = "\
Examples:
  gpufleet export --out jobs.parquet --since 30days
  gpufleet export --out failed.csv --state failed --pool default";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A row for each job, with typed columns
    Parquet,
    /// The columns of `gpufleet history -o csv`
    Csv,
    /// An object in each line, as in `gpufleet history -o json`
    Jsonl,
}

/// The writer may have this many pages besides the one that it writes; the reader has another.
const PAGES_WAITING_MAX: usize = 1;

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    let format = options.format()?;
    let mut interrupt = std::pin::pin!(waiting::interrupt());
    // From here on Ctrl-C removes the unfinished file.
    _ = futures::poll!(interrupt.as_mut());
    let file = PartialFile::create(&options.out).map_err(|error| unwritable(&options.out, &error))?;
    let (pages, waiting) = mpsc::channel(PAGES_WAITING_MAX);
    let writing = write(Writer::new(format, file)?, waiting);
    let read = tokio::select! {
        read = Spinner::new("exporting jobs").around(read(options, pages)) => read,
        () = interrupt => Err(Complaint::new(Exit::Interrupted, "interrupted; no file was written")),
    };
    // The sender is gone, so the writer ends. An unfinished file is removed when it is dropped.
    let (file, jobs) = writing.await.expect("the writer does not panic")?;
    let is_limited = read?;
    file.finish().map_err(|error| unwritable(&options.out, &error))?;
    output::note(&format!("exported {jobs} jobs to {}", options.out.display()));
    if is_limited {
        output::note(WEEK_SEARCHED);
    }
    Ok(Exit::Success)
}

/// Returns whether labels without an index limited the search.
async fn read(options: &Options, pages: mpsc::Sender<Vec<JobRow>>) -> Result<bool, Complaint> {
    let sent = Source::ask(&options.source, async |source| {
        catch_up::all(source).await?;
        send(source, options.filters.filter(), pages).await
    });
    sent.await
}

/// Sends all pages, unless the writer fails.
async fn send(source: &Source, mut filter: HistoryFilter, pages: mpsc::Sender<Vec<JobRow>>) -> Result<bool, Complaint> {
    filter.limit = source.page_jobs_max();
    let mut is_limited = false;
    loop {
        let page = source.history(&filter).await?;
        filter.before = page.next;
        filter.since = filter.since.or(page.searched_since);
        is_limited |= page.searched_since.is_some();
        if pages.send(page.jobs).await.is_err() || filter.before.is_none() {
            return Ok(is_limited);
        }
    }
}

/// Writes pages until there are no more, in a thread of its own, because compressing keeps a core busy.
fn write(
    mut writer: Writer,
    mut pages: mpsc::Receiver<Vec<JobRow>>,
) -> JoinHandle<Result<(PartialFile, u64), Complaint>> {
    tokio::task::spawn_blocking(move || {
        let mut jobs = 0;
        while let Some(page) = pages.blocking_recv() {
            jobs += page.len() as u64;
            writer.add(&page)?;
        }
        Ok((writer.finish()?, jobs))
    })
}

impl Options {
    fn format(&self) -> Result<Format, Complaint> {
        if let Some(format) = self.format {
            return Ok(format);
        }
        let ending = self.out.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
        ending.and_then(|ending| Format::from_str(&ending, false).ok()).ok_or_else(|| {
            Complaint::usage(format!("the format of {} is not clear from its name", self.out.display()))
                .hint("give --format parquet, --format csv or --format jsonl")
        })
    }
}

fn unwritable(path: &std::path::Path, problem: &dyn std::fmt::Display) -> Complaint {
    let complaint = Complaint::bad_input(format!("failed to write {}: {problem}", path.display()));
    match fs::exists(files::folder_of(path)) {
        Ok(false) => complaint.hint("create the folder first"),
        _ => complaint.hint("check that you may write there and that the disk has room"),
    }
}

#[cfg(test)]
mod tests;
