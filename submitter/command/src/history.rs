//! `gpufleet history`: lists the jobs in the ledger.

use chrono::{DateTime, Utc};
use clap::{Args, ValueEnum};
use gpufleet::schema::JobState;
use gpufleet_ledger::{HistoryFilter, JobRow, Page, PageKey, age};

use super::{
    catch_up,
    complaint::Complaint,
    exit::Exit,
    json, output, quantity,
    source::{Source, SourceOptions},
    spec::{self, LabelSpec},
    table::{self, Column},
    time,
    waiting::Spinner,
};

/// List jobs, newest first
///
/// A narrow terminal gets the ends of the ids, which every command accepts, and fewer columns; -o json and -o csv always have all of them. The STATE of a job is unknown if its worker fell
/// silent or left while the job was running; `--state running` includes such jobs.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}", json::HISTORY))]
pub struct Options {
    #[command(flatten)]
    filters: Filters,
    /// Maximum number of jobs to list, 1 to 100000
    #[arg(long, default_value_t = HistoryFilter::LIMIT_DEFAULT, value_name = "COUNT", value_parser = spec::whole(1..=100_000))]
    limit: u32,
    /// Continue an earlier list after the key that it ended with
    #[arg(long, value_name = "KEY")]
    before: Option<PageKey>,
    /// Print the newest jobs again whenever they change, until Ctrl-C. On a terminal, the new list replaces the old one
    #[arg(long, conflicts_with_all = ["before", "output"])]
    watch: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    output: Format,
    #[command(flatten)]
    source: SourceOptions,
}

/// Which jobs.
#[derive(Debug, Args)]
pub struct Filters {
    /// Only jobs in this state: queued, running, succeeded, failed, cancelled, expired or dead. Repeatable
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    state: Vec<JobState>,
    /// Only jobs that ran this catalog kernel, or this entry of a program, and sessions and host programs with this command
    #[arg(long)]
    kernel: Option<String>,
    /// Only jobs of this pool
    #[arg(long)]
    pool: Option<String>,
    /// Only jobs published by this user of the broker, if a worker has reported the user
    #[arg(long)]
    user: Option<String>,
    /// Only jobs whose outcome came from this worker
    #[arg(long)]
    worker: Option<String>,
    /// Only jobs with exactly this name
    #[arg(long)]
    name: Option<String>,
    /// Only host programs (`gpufleet run --on-worker`) in this environment or image
    #[arg(long, value_name = "NAME")]
    env: Option<String>,
    /// Only jobs submitted since then: how long ago (2h, 3days), or a time (2026-11-20, 2026-11-20T08:30, 2026-11-20 08:30:00 UTC), which is
    /// local without a zone
    #[arg(long, value_name = "TIME", value_parser = time::since)]
    since: Option<DateTime<Utc>>,
    /// Only jobs submitted before then
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    until: Option<DateTime<Utc>>,
    /// Only jobs with this label. Repeatable; a job must have all of the labels. Without --since, and if no key has an index
    /// (`gpufleet-ledger labels`), only the last 7 days are searched
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<LabelSpec>,
}

/// Follows a list that a label without an index has limited.
pub const WEEK_SEARCHED: &str = "searched the last 7 days only, because none of the labels has an index; \
    give --since for more, or add an index: gpufleet-ledger labels add KEY";

const EXAMPLES: &str = "\
Examples:
  gpufleet history --state failed --since 2h
  gpufleet history --label team=vision --kernel saxpy --since 30days
  gpufleet history --env torch --state failed
  gpufleet history --since 2026-11-20 --limit 100000 -o csv > jobs.csv";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Text for people
    Table,
    /// JSON for programs: a list of objects
    Json,
    /// CSV for spreadsheets: a header and one record per job
    Csv,
}

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    if options.watch {
        return watch::run(options).await;
    }
    let work = Source::ask(&options.source, async |source| caught_up(source, options).await);
    let Page { jobs, next, searched_since } = Spinner::new("reading the history").around(work).await?;
    match options.output {
        Format::Table => {
            output::emit(&table(&jobs, Utc::now(), output::stdout_width()))?;
            if jobs.is_empty() {
                output::note(&options.nothing());
            }
        }
        Format::Json => output::emit_json(&jobs)?,
        Format::Csv => output::emit(&csv(&jobs))?,
    }
    // With more jobs to list, the end of the window has not been reached.
    if searched_since.is_some() && next.is_none() {
        output::note(WEEK_SEARCHED);
    }
    if let Some(next) = next {
        output::note(&format!("more jobs match; to list them, repeat the command with --before {next}"));
    }
    Ok(Exit::Success)
}

impl Options {
    /// Explains an empty table.
    fn nothing(&self) -> String {
        let text = if self.before.is_some() || self.filters.filter() != HistoryFilter::default() {
            "no job matches"
        } else {
            "no jobs yet; `gpufleet submit --help` shows how to submit one"
        };
        text.to_owned()
    }
}

impl Filters {
    /// The first page.
    pub fn filter(&self) -> HistoryFilter {
        HistoryFilter {
            states: self.state.clone(),
            kernel: self.kernel.clone(),
            pool: self.pool.clone(),
            user_id: self.user.clone(),
            worker: self.worker.clone(),
            name: self.name.clone(),
            environment: self.env.clone(),
            since: self.since,
            until: self.until,
            labels: self.label.iter().map(|label| (label.key.clone(), label.value.clone())).collect(),
            ..HistoryFilter::default()
        }
    }
}

async fn caught_up(source: &Source, options: &Options) -> Result<Page, Complaint> {
    catch_up::all(source).await?;
    read(source, options).await
}

/// Pages until the limit is reached.
async fn read(source: &Source, options: &Options) -> Result<Page, Complaint> {
    let mut filter = HistoryFilter { before: options.before, ..options.filters.filter() };
    let (mut jobs, mut searched_since) = (Vec::new(), None);
    loop {
        let left = options.limit - u32::try_from(jobs.len()).expect("there are no more jobs than the limit");
        filter.limit = left.min(source.page_jobs_max());
        let page = source.history(&filter).await?;
        let is_empty = page.jobs.is_empty();
        jobs.extend(page.jobs);
        filter.before = page.next;
        filter.since = filter.since.or(page.searched_since);
        searched_since = searched_since.or(page.searched_since);
        if page.next.is_none() || is_empty || jobs.len() >= options.limit as usize {
            return Ok(Page { jobs, next: page.next, searched_since });
        }
    }
}

const COLUMNS: [Column; 10] = [
    Column::Left("ID"),
    Column::Left("STATE"),
    Column::Left("KERNEL"),
    Column::Left("NAME"),
    Column::Left("POOL"),
    Column::Right("AGE"),
    Column::Right("QUEUED"),
    Column::Right("KERNEL TIME"),
    Column::Right("RUN TIME"),
    Column::Left("DEVICE"),
];

/// The columns that are left out on a narrow terminal, in this order.
const DISPENSABLE: [&str; 8] = ["DEVICE", "NAME", "POOL", "QUEUED", "RUN TIME", "AGE", "KERNEL TIME", "KERNEL"];

fn table(jobs: &[JobRow], now: DateTime<Utc>, width: Option<usize>) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let time = |us: Option<u64>| us.map_or_else(|| "-".to_owned(), quantity::micros);
    let mut rows: Vec<Vec<String>> = jobs
        .iter()
        .map(|job| {
            vec![
                job.job_id.to_string(),
                if job.is_unheard { UNHEARD.to_owned() } else { job.state.to_string() },
                kernel(job),
                text(&job.name),
                text(&job.pool),
                age(now - job.created_at),
                time(job.queue_us),
                time(job.kernel_us),
                // An attempt that ended before it reached an executor has no run time.
                time(job.total_us.filter(|us| *us > 0)),
                device(job.device_name.as_deref(), job.emulated),
            ]
        })
        .collect();
    if let Some(width) = width
        && !table::fits(&table::render(&COLUMNS, rows.clone()), width)
    {
        rows.iter_mut().for_each(|row| row[0] = distinguishing_end(&row[0]).to_owned());
    }
    table::fit(&COLUMNS, &rows, width, &DISPENSABLE)
}

/// What a job runs, with the kind if it runs no kernel.
pub fn kernel(job: &JobRow) -> String {
    let kind = match job {
        job if job.is_host_program() => " (host program)",
        job if job.is_session() => " (session)",
        _ => "",
    };
    job.kernel.as_ref().map_or_else(|| "-".to_owned(), |kernel| format!("{kernel}{kind}"))
}

/// The last group of an id. Jobs that were submitted together begin alike, and every command finds a job by the end of its id.
pub fn distinguishing_end(id: &str) -> &str {
    id.rsplit_once('-').map_or(id, |(_, end)| end)
}

/// The state of a job that is recorded as running on a worker that is silent or has left.
pub const UNHEARD: &str = "unknown";

/// The name of a device, marked if the device is emulated.
pub fn device(name: Option<&str>, emulated: Option<bool>) -> String {
    match (name, emulated) {
        (None, _) => "-".to_owned(),
        (Some(name), Some(true)) if !name.to_ascii_lowercase().contains("emulat") => format!("{name} (emulated)"),
        (Some(name), _) => name.to_owned(),
    }
}

const CSV_HEADER: [&str; 22] = [
    "job_id",
    "state",
    "kernel",
    "program",
    "name",
    "pool",
    "priority",
    "client",
    "labels",
    "created_at",
    "started_at",
    "finished_at",
    "attempts",
    "worker",
    "device",
    "device_name",
    "emulated",
    "queue_us",
    "kernel_us",
    "total_us",
    "failure",
    "environment",
];

pub(super) fn csv_header() -> String {
    table::csv_record(CSV_HEADER.map(str::to_owned))
}

pub(super) fn csv_of(job: &JobRow) -> String {
    table::csv_record(csv_cells(job))
}

fn csv(jobs: &[JobRow]) -> String {
    csv_header() + &jobs.iter().map(csv_of).collect::<String>()
}

fn csv_cells(job: &JobRow) -> [String; CSV_HEADER.len()] {
    fn shown<T: ToString>(value: &Option<T>) -> String {
        value.as_ref().map(T::to_string).unwrap_or_default()
    }
    let time = |time: &Option<DateTime<Utc>>| time.map(|time| time.to_rfc3339()).unwrap_or_default();
    let labels: Vec<String> = job.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    [
        job.job_id.to_string(),
        job.state.to_string(),
        shown(&job.kernel),
        shown(&job.program),
        shown(&job.name),
        shown(&job.pool),
        shown(&job.priority),
        shown(&job.client),
        labels.join(" "),
        job.created_at.to_rfc3339(),
        time(&job.started_at),
        time(&job.finished_at),
        job.attempts.to_string(),
        shown(&job.worker),
        shown(&job.device),
        shown(&job.device_name),
        shown(&job.emulated),
        shown(&job.queue_us),
        shown(&job.kernel_us),
        shown(&job.total_us),
        job.failure.as_ref().map(|failure| failure.message.clone()).unwrap_or_default(),
        job.host_program.as_ref().and_then(|program| program.place()).unwrap_or_default().to_owned(),
    ]
}

mod watch;

#[cfg(test)]
pub mod tests;
