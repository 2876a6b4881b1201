//! `gpufleet run --on-worker`: runs a command on a worker's machine, with a whole device.
//!
//! The files go up with the job, the output comes as messages of progress while the command runs, and the outcome has the rest. The exit code
//! is the command's, unless the fleet ended it.

use std::{
    io::IsTerminal as _,
    time::{Duration, Instant},
};

use futures::FutureExt as _;
use gpufleet::{
    Fleet, FleetBuilder, Job, JobError, JobHandle, JobResult, ProgressUpdates, SubmitError, UnreadOutput,
    schema::{
        AttemptState, JobId, PoolName, PrintfOutput, Progress, RanOn, Selection,
        host_program::{FILES, LOG},
    },
};
use gpufleet_transport::PublishError;
use tokio::time::{sleep_until, timeout};

use super::{
    Options,
    lines::{self, Lines},
    program::ProgramEnd,
    report::Report,
    signals::Signals,
};
use crate::{
    complaint::{Complaint, chain},
    connection,
    exit::Exit,
    files as paths, output, quantity,
    recent::{self, Seen},
    submit,
};

mod ending;
pub(crate) mod files;
mod log;
mod options;
mod transcript;

use files::Saved;
use log::WholeOutput;
pub use options::{HostOptions, VariableSpec};
use transcript::{Added, Transcript};

/// A shorter wait for a worker is not worth a line.
const PATIENCE: Duration = Duration::from_secs(1);
/// The reply has arrived, so this bounds the reading of it.
const REPLY_WITHIN: Duration = Duration::from_secs(5);
/// A worker ends a job at its queue limit. After this time beyond the limit, no worker serves the pool.
const LIMIT_PASSED: Duration = Duration::from_secs(10);
/// A confirmed cancellation is on disk, so this bounds an outage of the broker.
const CANCELLED_WITHIN: Duration = Duration::from_secs(10);

/// A host program that was submitted.
struct Running<'a> {
    options: &'a Options,
    fleet: &'a Fleet,
    pool: PoolName,
    job_id: JobId,
    lines: Lines,
    updates: Option<ProgressUpdates>,
    transcript: Transcript,
    attempt: Option<u32>,
    has_started: bool,
}

/// What the reply says.
struct Outcome {
    end: Result<ProgramEnd, Complaint>,
    was_cancelled: bool,
    printed: Option<PrintfOutput>,
    outputs: Vec<(String, UnreadOutput)>,
    ran_on: Option<RanOn>,
    run_us: u64,
}

/// Returns the exit code.
pub async fn run(options: &Options, lines: Lines, signals: &mut Signals, report: &mut Report) -> Result<u8, Complaint> {
    submit::given_once(options.job.label.iter().map(|label| ("label", &label.key)))?;
    submit::given_once(options.host.variable.iter().map(|variable| ("variable", &variable.name)))?;
    if let Some(path) = &options.report {
        paths::check_folder(path)?;
    }
    let blobs = connection::blobs(&options.blobs, &options.producer.broker)?;
    let has_store = blobs.is_some();
    let job = options.host_program(has_store)?;
    job.clone().build().map_err(|problem| submit::invalid(&problem, job.program()))?;
    let job = with_files(options, job, lines, signals).await?;
    let builder = match blobs {
        Some(location) => Fleet::builder().blobs(location),
        None => Fleet::builder(),
    };
    let fleet = connected(options, builder, signals).await?;
    let ended = Box::pin(submitted(&fleet, options, job, has_store, lines, signals, report)).await;
    let _closed_in_time = timeout(connection::CLOSE_DEADLINE, fleet.close()).await;
    ended
}

async fn connected(options: &Options, builder: FleetBuilder, signals: &mut Signals) -> Result<Fleet, Complaint> {
    tokio::select! {
        fleet = connection::producer(&options.producer, builder) => fleet,
        _ = signals.next() => Err(Complaint::new(Exit::Interrupted, "interrupted before the command was submitted")),
    }
}

/// Packs the files of `--upload`.
async fn with_files(options: &Options, job: Job, lines: Lines, signals: &mut Signals) -> Result<Job, Complaint> {
    if options.host.upload.is_empty() {
        return Ok(job);
    }
    let paths = options.host.upload.clone();
    let packing = tokio::task::spawn_blocking(move || files::upload(job, &paths));
    let packed = tokio::select! {
        packed = packing => packed,
        _ = signals.next() => return Err(Complaint::new(Exit::Interrupted, "interrupted before the command was submitted")),
    };
    let packed =
        packed.map_err(|error| Complaint::new(Exit::Internal, format!("failed to pack the files: {error}")))?;
    let (job, count, bytes) = packed?;
    lines.info(&format!("uploads {} ({})", count_of(count, "file"), quantity::bytes(bytes)));
    Ok(job)
}

async fn submitted(
    fleet: &Fleet,
    options: &Options,
    job: Job,
    has_store: bool,
    lines: Lines,
    signals: &mut Signals,
    report: &mut Report,
) -> Result<u8, Complaint> {
    let (job_id, pool) = (job.id(), options.pool());
    let updates = if options.host.detach { None } else { followed(fleet, &pool, job_id, lines).await };
    let handle = tokio::select! {
        handle = confirmed(fleet, job, &pool, has_store, lines) => handle?,
        _ = signals.next() => {
            return Err(Complaint::new(Exit::Interrupted, "interrupted before the broker confirmed the command")
                .hint(format!("it may still run; if it does, `gpufleet cancel {job_id}` ends it")));
        }
    };
    recent::note(job_id, Seen::Submitted);
    if options.host.detach {
        return detached(fleet, &pool, job_id, options.kept_for(has_store), lines).await;
    }
    let keeps_order = !std::io::stdout().is_terminal();
    let transcript = Transcript::new(keeps_order);
    let running =
        Running { options, fleet, pool, job_id, lines, updates, transcript, attempt: None, has_started: false };
    Box::pin(running.run(handle, signals, report)).await
}

/// Follows the output from before the submission on, so that nothing of it is missing. Without permission it comes with the outcome.
async fn followed(fleet: &Fleet, pool: &PoolName, job_id: JobId, lines: Lines) -> Option<ProgressUpdates> {
    match fleet.progress_of(pool, job_id).await {
        Ok(updates) => Some(updates),
        Err(error) => {
            lines.warn(&format!("{}; the output is shown when the command has ended", chain(&error)));
            None
        }
    }
}

/// Waits for the broker's confirm, and warns about what delays it.
async fn confirmed(
    fleet: &Fleet,
    job: Job,
    pool: &PoolName,
    has_store: bool,
    lines: Lines,
) -> Result<JobHandle, Complaint> {
    let program = job.program().clone();
    let mut submitting = std::pin::pin!(fleet.submit(job));
    let submitted = tokio::select! {
        submitted = &mut submitting => submitted,
        trouble = fleet.held_up() => {
            lines.warn(&format!("{trouble}; the command is sent as soon as the broker accepts it"));
            submitting.await
        }
    };
    submitted.map_err(|error| {
        let complaint = submit::refused(&error, &program, has_store);
        match error {
            SubmitError::Publish(PublishError::Forbidden { .. }) => complaint.hint(format!(
                "your broker user may not run host programs in pool {pool}; an administrator can allow it: \
                 gpufleet permissions --role producer --pool {pool} --programs"
            )),
            _ => complaint,
        }
    })
}

/// Prints the id of a detached job, and how to go on.
async fn detached(
    fleet: &Fleet,
    pool: &PoolName,
    job_id: JobId,
    kept: Duration,
    lines: Lines,
) -> Result<u8, Complaint> {
    output::emit(&format!("{job_id}\n"))?;
    let short = lines::short(job_id);
    lines.info(&format!(
        "submitted; gpufleet logs --follow {short} shows the output, and gpufleet fetch {short} --dir FOLDER writes the files and the output \
         for {} after the end",
        humantime::format_duration(kept)
    ));
    warn_if_unserved(fleet, pool, lines).await;
    Ok(Exit::Success.code())
}

/// Warns if no worker runs host programs of the pool. An error is ignored, because the wait itself will show it.
async fn warn_if_unserved(fleet: &Fleet, pool: &PoolName, lines: Lines) {
    if let Ok(Ok(depth)) = timeout(CANCELLED_WITHIN, fleet.program_depth(pool)).await
        && depth.consumers == 0
    {
        lines.warn(&format!(
            "no worker of pool {pool} runs host programs at the moment; to start one: gpufleet-worker run --pool {pool}:programs=1 \
             --environment NAME=FOLDER"
        ));
    }
}

impl Running<'_> {
    async fn run(mut self, mut handle: JobHandle, signals: &mut Signals, report: &mut Report) -> Result<u8, Complaint> {
        let begun = Instant::now();
        let was_interrupted = self.until_ended(&mut handle, signals).await?;
        recent::note(self.job_id, Seen::Ended);
        self.show_last()?;
        let result = handle.wait_unread(REPLY_WITHIN).await;
        let outcome = Outcome::of(result).map_err(|error| ending::unknown(&error))?;
        self.print_rest(&outcome).await?;
        let saved = self.save(&outcome).await;
        self.summarize(&outcome, saved.as_ref().ok().and_then(Option::as_ref), begun);
        report.add_program(
            self.job_id,
            &outcome.end,
            outcome.ran_on.as_ref(),
            saved.as_ref().ok().and_then(Option::as_ref),
        );
        match outcome.end {
            Ok(end) if end.code() == 0 => saved.map(|_| end.code()),
            Ok(end) => {
                saved.err().iter().for_each(|complaint| self.lines.complain(complaint));
                Ok(end.code())
            }
            Err(complaint) => {
                saved.err().iter().for_each(|complaint| self.lines.complain(complaint));
                // The signal says why, as shells have it.
                let exit = if was_interrupted && outcome.was_cancelled { Exit::Interrupted } else { complaint.exit };
                Err(Complaint { exit, ..complaint })
            }
        }
    }

    /// Shows the output until the job has ended. The first signal cancels the job, the second ends this command. Returns whether a signal
    /// came.
    async fn until_ended(&mut self, handle: &mut JobHandle, signals: &mut Signals) -> Result<bool, Complaint> {
        let submitted = tokio::time::Instant::now();
        let (mut is_cancelled, mut says_waiting) = (false, true);
        let unserved_at = self.options.queue_limit.map(|limit| submitted + limit.saturating_add(LIMIT_PASSED));
        loop {
            tokio::select! {
                biased;
                _ = signals.next() => {
                    if std::mem::replace(&mut is_cancelled, true) {
                        return Err(self.left());
                    }
                    self.cancel(signals).await?;
                }
                progress = next(&mut self.updates) => match progress {
                    Some(progress) => self.show(&progress)?,
                    None => self.updates = None,
                },
                arrived = handle.arrived() => return arrived.map(|()| is_cancelled).map_err(|error| ending::unknown(&error)),
                () = sleep_until(submitted + PATIENCE), if says_waiting => {
                    says_waiting = false;
                    self.say_that_it_waits().await;
                }
                () = sleep_until(unserved_at.unwrap_or(submitted)), if unserved_at.is_some() && !self.has_started => {
                    self.cancel(signals).await?;
                    return Err(self.unserved());
                }
            }
        }
    }

    async fn say_that_it_waits(&self) {
        if self.has_started {
            return;
        }
        let (short, pool) = (lines::short(self.job_id), &self.pool);
        self.lines.info(&format!("waiting in pool {pool}; \"gpufleet why {short}\" shows why"));
        warn_if_unserved(self.fleet, pool, self.lines).await;
    }

    fn show(&mut self, progress: &Progress) -> Result<(), Complaint> {
        match self.attempt.replace(progress.attempt) {
            Some(before) if before > progress.attempt => {
                self.attempt = Some(before);
                return Ok(());
            }
            Some(before) if before < progress.attempt => {
                self.lines.warn(&format!("attempt {} began; the command starts over", progress.attempt));
                self.transcript = Transcript::new(!std::io::stdout().is_terminal());
                self.has_started = false;
            }
            _ => {}
        }
        if let Some(ran_on) = progress.ran_on.as_deref().filter(|_| !self.has_started) {
            self.lines.info(&format!("started on {} (job {})", lines::place(ran_on), lines::short(self.job_id)));
        }
        self.has_started = true;
        let Some(piece) = &progress.printed else { return Ok(()) };
        match self.transcript.add(piece) {
            Added::Print => log::emit(&piece.text),
            Added::PrintAfterGap(missing) => {
                self.lines.warn(&format!("… {} not received …", quantity::bytes(missing)));
                log::emit(&piece.text)
            }
            Added::Keep => Ok(()),
        }
    }

    /// Shows the messages that came before the reply. The outcome has what is still on its way.
    fn show_last(&mut self) -> Result<(), Complaint> {
        while let Some(Some(progress)) = next(&mut self.updates).now_or_never() {
            self.show(&progress)?;
        }
        Ok(())
    }

    /// Prints what was not shown while the command ran.
    async fn print_rest(&self, outcome: &Outcome) -> Result<(), Complaint> {
        let rest = self.transcript.rest(outcome.printed.as_ref());
        let whole = async || match outcome.output(LOG) {
            Some(output) => WholeOutput::read(self.fleet, output).await.map(Some),
            None => Ok(None),
        };
        let missing = log::complete(&self.transcript, rest, whole, self.lines, log::emit).await?;
        if missing > 0 {
            self.lines.warn(&format!("{missing} bytes of the output are missing"));
        }
        Ok(())
    }

    async fn save(&self, outcome: &Outcome) -> Result<Option<Saved>, Complaint> {
        let Some(output) = outcome.output(FILES) else { return Ok(None) };
        let read = log::in_file(self.fleet, output).await;
        let mut archive = read.map_err(|problem| {
            Complaint::new(Exit::FleetFailed, format!("failed to read the files of the command: {problem}"))
                .hint("check that the workers and this command use the same blob store (--blobs)")
        })?;
        let folder = self.options.host.dir.clone().unwrap_or_else(|| ".".into());
        let saved = files::save(&mut archive, &folder, self.options.host.force, self.job_id)?;
        if let Some(path) = &saved.in_the_way {
            self.lines.warn(&format!(
                "{} exists already, so the files are in {}; --force replaces what exists",
                folder.join(path).display(),
                saved.folder.display()
            ));
        }
        Ok(Some(saved))
    }

    /// The last line, unless a complaint says more.
    fn summarize(&self, outcome: &Outcome, saved: Option<&Saved>, begun: Instant) {
        let Ok(end) = &outcome.end else { return };
        let run_us = match outcome.run_us {
            0 => u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX),
            measured => measured,
        };
        let place = outcome.ran_on.as_ref().map(|ran_on| format!(" on {}", lines::place(ran_on))).unwrap_or_default();
        let files = saved.map(|Saved { folder, unpacked, .. }| {
            let count = count_of(unpacked.written.len(), "file");
            format!("; {count} ({}) written to {}", quantity::bytes(unpacked.bytes), folder.display())
        });
        self.lines.info(&format!(
            "the command {end} after {}{place}{}",
            quantity::micros(run_us),
            files.unwrap_or_default()
        ));
    }

    /// Cancels the job. A signal meanwhile ends this command.
    async fn cancel(&self, signals: &mut Signals) -> Result<(), Complaint> {
        let id = self.job_id;
        self.lines.warn("cancelling the command; another Ctrl-C leaves at once");
        let selection = Selection { jobs: vec![id], ..Selection::default() };
        let cancelling = timeout(CANCELLED_WITHIN, self.fleet.cancel(selection, connection::caller()));
        let problem = tokio::select! {
            cancelled = cancelling => match cancelled {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) => chain(&error),
                Err(_) => "the broker did not answer".to_owned(),
            },
            _ = signals.next() => return Err(self.left()),
        };
        self.lines.warn(&format!("failed to cancel the job: {problem}; try it again: gpufleet cancel {id}"));
        Ok(())
    }

    fn left(&self) -> Complaint {
        let id = self.job_id;
        Complaint::new(Exit::Interrupted, "interrupted before the command had ended")
            .hint(format!("`gpufleet show {id}` shows whether it was cancelled; if not: gpufleet cancel {id}"))
    }

    fn unserved(&self) -> Complaint {
        let limit = humantime::format_duration(self.options.queue_limit.unwrap_or_default());
        let pool = &self.pool;
        Complaint::new(Exit::JobStopped, format!("no worker of pool {pool} answered within the queue limit of {limit}"))
            .hint(format!(
                "check with `gpufleet workers` that a worker serves the pool with host programs: --pool {pool}:programs=1"
            ))
    }
}

/// The next message of progress; waits for ever if there is nothing to follow.
async fn next(updates: &mut Option<ProgressUpdates>) -> Option<std::sync::Arc<Progress>> {
    match updates {
        Some(updates) => updates.next().await,
        None => std::future::pending().await,
    }
}

impl Outcome {
    fn of(result: Result<JobResult<UnreadOutput>, JobError>) -> Result<Self, JobError> {
        match result {
            Ok(JobResult { printf_output, outputs, ran_on, timings, .. }) => Ok(Self {
                end: Ok(ProgramEnd::Code(0)),
                was_cancelled: false,
                printed: printf_output,
                outputs,
                ran_on,
                run_us: timings.total_us,
            }),
            Err(JobError::Failed(failed)) => Ok(Self {
                end: ending::of_failed(&failed).ok_or_else(|| ending::complaint(&failed)),
                was_cancelled: failed.state == AttemptState::Cancelled,
                printed: failed.printf_output,
                outputs: failed.outputs,
                ran_on: failed.ran_on,
                run_us: failed.timings.total_us,
            }),
            Err(error) => Err(error),
        }
    }

    fn output(&self, name: &str) -> Option<&UnreadOutput> {
        self.outputs.iter().find(|(output, _)| output == name).map(|(_, output)| output)
    }
}

fn count_of(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
mod tests;
