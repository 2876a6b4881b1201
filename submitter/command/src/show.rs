//! `gpufleet show`: one job with its attempts and timings.

use clap::Args;
use gpufleet::schema::{AttemptState, HostProgramInfo, SessionUse, Timings};
use gpufleet_ledger::{AttemptRow, FailureRow, JobDetail, OutputRow};

use super::{
    complaint::Complaint,
    exit::Exit,
    history::{UNHEARD, device},
    json, lookup,
    options::OutputOptions,
    output,
    permissions::quoted,
    printed, quantity, snippet,
    source::SourceOptions,
    time,
};

/// Show a job with its attempts, timings and failure
#[derive(Debug, Args)]
#[command(after_long_help = json::SHOW)]
pub struct Options {
    /// Id of the job. The beginning or the end is enough if it is unique; @last is the job that you submitted last
    id: String,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    source: SourceOptions,
}

/// The width of the longest bar.
const BAR_WIDTH: u64 = 40;
const UNHEARD_AT_LENGTH: &str = "unknown: its worker fell silent or left while the job was running";
/// The width of the text before a bar.
const BAR_INDENT: usize = 35;

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    let detail = lookup::job(&options.id, &options.source).await?;
    options.output.format.print(&*detail, |detail| describe(detail, output::stdout_width()))?;
    Ok(Exit::Success)
}

fn describe(detail: &JobDetail, width: Option<usize>) -> String {
    let job = &detail.job;
    let mut lines = Lines::default();
    lines.add("job", Some(job.job_id.to_string()));
    lines.add("state", Some(if job.is_unheard { UNHEARD_AT_LENGTH.to_owned() } else { job.state.to_string() }));
    lines.add("name", job.name.clone());
    let labels: Vec<String> = job.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    lines.add("labels", Some(labels.join(" ")));
    lines.add(
        "kernel",
        job.kernel.as_ref().map(|kernel| match &job.program {
            Some(_) if job.is_host_program() => format!("{kernel} (host program)"),
            Some(program) => format!("{kernel} ({program})"),
            None => kernel.clone(),
        }),
    );
    if let Some(program) = &job.host_program {
        describe_host_program(program, &mut lines);
    }
    let priority = job.priority.as_deref().unwrap_or("?");
    lines.add("pool", job.pool.as_ref().map(|pool| format!("{pool}, priority {priority}")));
    lines.add("client", job.client.clone());
    lines.add("user", job.user_id.clone());
    lines.add("submitted", Some(time::exact(job.submitted_at.unwrap_or(job.created_at))));
    lines.add("started", job.started_at.map(time::exact));
    lines.add("finished", job.finished_at.map(time::exact));
    lines.add("lease", job.lease_bytes.map(quantity::bytes));
    lines.add("input", job.input_bytes.map(quantity::bytes));
    lines.add("output", job.output_bytes.map(quantity::bytes));
    for output in &detail.outputs {
        lines.add("kept", Some(kept(output)));
    }
    let mut text = lines.0;
    for (index, attempt) in detail.attempts.iter().enumerate() {
        text.push('\n');
        let is_last = index + 1 == detail.attempts.len();
        text.push_str(&describe_attempt(attempt, job.is_host_program(), is_last && !job.state.is_final(), width));
        let logs = || format!("gpufleet logs {} --attempt {}", job.job_id, attempt.attempt);
        text.extend(attempt.printf_output.iter().map(|printed| printed::beginning(printed, &logs())));
    }
    text
}

fn describe_host_program(program: &HostProgramInfo, lines: &mut Lines) {
    let words: Vec<String> = program.command.iter().map(|word| shell_word(word)).collect();
    let more = if program.is_cut { " … (longer than the ledger keeps)" } else { "" };
    lines.add("command", Some(words.join(" ") + more));
    lines.add("env", program.environment.clone());
    lines.add("image", program.image.clone());
    lines.add("network", program.network.then(|| "yes".to_owned()));
    lines.add("variables", Some(program.variables.join(" ")));
}

/// The text as a word of a POSIX shell, quoted if it needs to be.
fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./:=,@%+".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) { text.to_owned() } else { quoted(text) }
}

fn kept(output: &OutputRow) -> String {
    let place = match &output.digest {
        Some(digest) => digest.to_string(),
        None => "in the ledger".to_owned(),
    };
    let at = time::seconds(output.expires_at);
    let until = if output.is_expired { format!("expired at {at}") } else { format!("{place}, until {at}") };
    format!("{}: {}{:?}, {until}", output.name, output.dtype, output.shape)
}

/// `is_open`: the attempt is the latest one of a job that has not ended.
fn describe_attempt(attempt: &AttemptRow, is_host: bool, is_open: bool, width: Option<usize>) -> String {
    let superseded = if attempt.superseded { ", superseded: another outcome was recorded first" } else { "" };
    let place = match attempt.device {
        Some(index) => {
            let name = device(attempt.device_name.as_deref(), attempt.emulated);
            format!(" on {}, device {index}: {name}", attempt.worker)
        }
        None => format!(" on {}", attempt.worker),
    };
    // Once a later attempt exists, or the job has ended, an attempt without an end gets none.
    let is_unheard = attempt.is_unheard || (attempt.state == AttemptState::Running && !is_open);
    let state = if is_unheard { UNHEARD } else { attempt.state.name() };
    let mut text = format!("attempt {} {state}{superseded}{place}\n", attempt.attempt);
    if let Some(failure) = &attempt.failure {
        text.push_str(&describe_failure(failure));
    }
    if let Some(at) = attempt.retry_at {
        let due = if is_open { "retry due at" } else { "retry was due at" };
        text.push_str(&format!("  {due} {}\n", time::seconds(at)));
    }
    match (&attempt.session, &attempt.timings) {
        (Some(used), timings) if is_host => {
            text.push_str(&format!("  program  {}\n", describe_program(used, attempt, timings.as_ref())))
        }
        (Some(used), _) => text.push_str(&format!("  session  {}\n", describe_session(used, attempt))),
        (None, Some(timings)) => text.push_str(&breakdown(timings, None, width)),
        (None, None) => {}
    }
    text
}

/// What a session did, in a line. Its attempt has no steps to draw. Before its end, the line has what its worker reported last.
fn describe_session(used: &SessionUse, attempt: &AttemptRow) -> String {
    let mut parts = match &attempt.timings {
        Some(timings) => {
            let lease_us = timings.queue_us.saturating_add(timings.wait_us);
            let open_us = open_us(attempt, timings);
            vec![format!("lease {}", quantity::micros(lease_us)), format!("open {}", quantity::micros(open_us))]
        }
        None => vec!["as last reported".to_owned()],
    };
    parts.extend([
        format!("GPU busy {}", quantity::micros(used.busy_us)),
        format!("{} calls, {} waits", used.calls, used.waits),
        format!("in {}, out {}", quantity::bytes(used.sent_bytes), quantity::bytes(used.received_bytes)),
        format!("peak {} of {}", quantity::bytes(used.memory_bytes_peak), quantity::bytes(used.memory_bytes)),
    ]);
    if used.processes != 1 {
        parts.push(format!("{} processes", used.processes));
    }
    parts.extend(describe_end(used));
    parts.join(" · ")
}

/// How a host program ran, in a line.
fn describe_program(used: &SessionUse, attempt: &AttemptRow, timings: Option<&Timings>) -> String {
    let mut parts: Vec<String> = Vec::new();
    if let Some(timings) = timings {
        parts.push(format!("waited {}", quantity::micros(timings.queue_us.saturating_add(timings.wait_us))));
        parts.push(format!("ran {}", quantity::micros(open_us(attempt, timings))));
    }
    parts.extend(describe_end(used));
    parts.join(" · ")
}

fn describe_end(used: &SessionUse) -> Option<String> {
    match (used.exit_code, used.signal) {
        (Some(code), _) => Some(format!("ended: program exited with {code}")),
        (None, Some(signal)) => Some(format!("ended: program ended by signal {signal}")),
        (None, None) => None,
    }
}

/// How long the session was open, as its worker measured it, or else by the times of its start and end.
fn open_us(attempt: &AttemptRow, timings: &Timings) -> u64 {
    let by_clock = attempt.started_at.zip(attempt.finished_at).map(|(started, finished)| finished - started);
    let by_clock = by_clock.and_then(|open| u64::try_from(open.num_microseconds()?).ok());
    if timings.total_us > 0 { timings.total_us } else { by_clock.unwrap_or_default() }
}

fn describe_failure(failure: &FailureRow) -> String {
    let line = failure.line.map(|line| format!(", line {line}")).unwrap_or_default();
    let mut text = format!("  {} ({}, verdict {}{line})\n", failure.message, failure.code, failure.verdict);
    let log = failure.detail.as_deref().unwrap_or_default();
    let place = failure.line.zip(failure.source.as_ref());
    let quoted = place.map(|(line, source)| snippet::render(source, line, &format!("line {line}"), log));
    for line in quoted.iter().flat_map(|quoted| quoted.lines()).chain(log.lines()) {
        text.push_str(format!("    {line}").trim_end());
        text.push('\n');
    }
    text
}

/// The timings of an attempt, as bars of one scale, and what is left of the round trip: messages on their way, and earlier attempts. Steps
/// that took no time are left out. A narrow terminal gets shorter bars.
pub fn breakdown(timings: &Timings, round_trip_us: Option<u64>, width: Option<usize>) -> String {
    let cells = width.map_or(BAR_WIDTH, |width| BAR_WIDTH.min(width.saturating_sub(BAR_INDENT) as u64));
    let cached = if timings.module_cached { " (cached)" } else { "" };
    let mut steps = vec![
        ("queue".to_owned(), timings.queue_us),
        ("compile".to_owned(), timings.compile_us),
        ("wait for the executor".to_owned(), timings.wait_us),
        ("fetch".to_owned(), timings.fetch_us),
        (format!("load{cached}"), timings.load_us),
        ("copy in".to_owned(), timings.copy_in_us),
    ];
    match timings.launches_us.as_slice() {
        [only] => steps.push(("kernel".to_owned(), *only)),
        many => steps.extend(many.iter().enumerate().map(|(index, us)| (format!("launch {}", index + 1), *us))),
    }
    steps.push(("copy out".to_owned(), timings.copy_out_us));
    let known: u64 = steps.iter().fold(0, |sum, (_, us)| sum.saturating_add(*us));
    steps.extend(round_trip_us.map(|all| ("messages and the rest".to_owned(), all.saturating_sub(known))));
    let longest = steps.iter().map(|(_, us)| *us).max().unwrap_or_default().max(1);
    let mut text = String::new();
    for (name, us) in steps.iter().filter(|(_, us)| *us > 0) {
        let bar = "█".repeat(u64::div_ceil(us.saturating_mul(cells), longest) as usize);
        text.push_str(format!("  {name:<21} {:>8}  {bar}", quantity::micros(*us)).trim_end());
        text.push('\n');
    }
    if timings.total_us > 0 {
        text.push_str(&format!("  {:<21} {:>8}\n", "executor, total", quantity::micros(timings.total_us)));
    }
    if timings.device_bytes_peak > 0 {
        text.push_str(&format!("  {:<21} {:>8}\n", "device memory", quantity::bytes(timings.device_bytes_peak)));
    }
    text
}

/// Names and values in two columns, without unknown and empty values.
#[derive(Debug, Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, name: &str, value: Option<String>) {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            self.0.push_str(&format!("{name:<10} {value}\n"));
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use gpufleet::schema::{Excerpt, JobState, PrintfOutput};
    use gpufleet_ledger::JobRow;

    use super::*;
    use crate::history::tests::job;

    pub(crate) fn attempt() -> AttemptRow {
        AttemptRow {
            attempt: 2,
            state: AttemptState::Succeeded,
            superseded: false,
            worker: "w1".to_owned(),
            is_unheard: false,
            device: Some(0),
            device_name: Some("CPU".to_owned()),
            emulated: Some(true),
            started_at: None,
            finished_at: None,
            failure: None,
            retry_at: None,
            output_bytes: None,
            charged_us: Some(310_000),
            printf_output: None,
            session: None,
            timings: Some(Timings {
                queue_us: 1_500,
                fetch_us: 12_000,
                compile_us: 250_000,
                load_us: 900,
                copy_in_us: 4_000,
                launches_us: vec![45_678, 12],
                copy_out_us: 2_000,
                total_us: 304_000,
                device_bytes_peak: 12 << 20,
                ..Timings::default()
            }),
        }
    }

    #[test]
    fn a_job_is_shown_with_its_attempts_and_their_timings() {
        let failure = FailureRow {
            verdict: "infrastructure".to_owned(),
            code: "executor_lost".to_owned(),
            message: "the executor died".to_owned(),
            detail: Some("signal 9".to_owned()),
            line: Some(5),
            source: Some(Excerpt { first_line: 4, text: "{\n    y[i] = x[i];\n}".to_owned() }),
        };
        let lost = AttemptRow {
            attempt: 1,
            state: AttemptState::Lost,
            failure: Some(failure),
            retry_at: chrono::DateTime::from_timestamp(1_700_000_005, 0),
            timings: None,
            device: None,
            ..attempt()
        };
        let job = job("01990f3e-0000-7000-8000-000000000001");
        let printf_output =
            Some(PrintfOutput { text: "x=1.5\nx=2\n".to_owned(), dropped_bytes: 70_000, is_tail: false });
        let detail =
            JobDetail { job, attempts: vec![lost, AttemptRow { printf_output, ..attempt() }], outputs: Vec::new() };
        insta::assert_snapshot!(describe(&detail, None));
        let narrow = describe(&detail, Some(50));
        assert!(narrow.lines().filter(|line| line.contains('█')).all(|line| line.chars().count() <= 50), "{narrow}");
        insta::assert_snapshot!("json_of_a_job", serde_json::to_string_pretty(&detail).unwrap());
    }

    #[test]
    fn a_session_is_shown_in_a_line() {
        let used = SessionUse {
            processes: 1,
            calls: 18_432,
            waits: 512,
            sent_bytes: 96 << 20,
            received_bytes: 4 << 20,
            busy_us: 12_300_000,
            memory_bytes: 8 << 30,
            memory_bytes_peak: 6 << 30,
            exit_code: Some(0),
            signal: None,
        };
        let timings = Timings { queue_us: 150_000, wait_us: 50_000, total_us: 41_000_000, ..Timings::default() };
        let attempt = AttemptRow { session: Some(used.clone()), timings: Some(timings), ..attempt() };
        let mut job = job("01990f3e-0000-7000-8000-000000000001");
        (job.program, job.kernel) = (Some("session".to_owned()), Some("python train.py".to_owned()));
        let detail = JobDetail { job, attempts: vec![attempt.clone()], outputs: Vec::new() };
        let text = describe(&detail, None);
        assert!(text.contains("\nkernel     python train.py (session)\n"), "{text}");
        let line = "  session  lease 200 ms · open 41.0 s · GPU busy 12.3 s · 18432 calls, 512 waits · in 96.0 MiB, out 4.00 MiB · \
                    peak 6.00 GiB of 8.00 GiB · ended: program exited with 0\n";
        assert!(text.ends_with(line), "{text}");
        let killed = SessionUse { processes: 2, exit_code: None, signal: Some(9), ..used };
        let at = chrono::DateTime::from_timestamp(1_700_000_000, 0);
        let (started_at, finished_at) = (at, at.map(|at| at + chrono::TimeDelta::milliseconds(1_500)));
        let timings = Some(Timings::default());
        let told = describe_session(&killed, &AttemptRow { started_at, finished_at, timings, ..attempt.clone() });
        assert!(told.contains("open 1.50 s"), "{told}");
        assert!(told.ends_with("2 processes · ended: program ended by signal 9"), "{told}");
        let open = SessionUse { signal: None, ..killed.clone() };
        let told = describe_session(&open, &AttemptRow { finished_at: None, timings: None, ..attempt });
        assert!(told.starts_with("as last reported · GPU busy 12.3 s · 18432 calls"), "{told}");
        json::check(json::SHOW, &detail.attempts[0].session);
        json::check(json::SHOW, &killed);
    }

    #[test]
    fn a_host_program_is_shown_with_its_exit_code_and_the_end_of_its_output() {
        let timings = Timings { queue_us: 150_000, wait_us: 50_000, total_us: 41_000_000, ..Timings::default() };
        let used = SessionUse { exit_code: Some(3), ..SessionUse::default() };
        let printf_output = Some(PrintfOutput { text: "epoch 90\n".to_owned(), dropped_bytes: 70_000, is_tail: true });
        let attempt = AttemptRow { session: Some(used), timings: Some(timings), printf_output, ..attempt() };
        let mut job = job("01990f3e-0000-7000-8000-000000000001");
        (job.program, job.kernel) = (Some("host".to_owned()), Some("python train.py".to_owned()));
        job.host_program = Some(HostProgramInfo {
            command: vec!["python".to_owned(), "-c".to_owned(), "print('it')".to_owned()],
            is_cut: true,
            environment: Some("torch".to_owned()),
            image: None,
            network: true,
            variables: vec!["MODE".to_owned(), "SEED".to_owned()],
        });
        json::check(json::SHOW, &job.host_program);
        let detail = JobDetail { job, attempts: vec![attempt], outputs: Vec::new() };
        let text = describe(&detail, None);
        assert!(text.contains("\nkernel     python train.py (host program)\n"), "{text}");
        let command = r"
command    python -c 'print('\''it'\'')' … (longer than the ledger keeps)
env        torch
network    yes
variables  MODE SEED
";
        assert!(text.contains(command), "{text}");
        assert!(text.contains("\n  program  waited 200 ms · ran 41.0 s · ended: program exited with 3\n"), "{text}");
        assert!(text.contains("written by the program:\n  | epoch 90\n"), "{text}");
    }

    #[test]
    fn a_retry_is_due_until_a_later_attempt_exists() {
        let retry_at = chrono::DateTime::from_timestamp(1_700_000_005, 0);
        let lost = AttemptRow { state: AttemptState::Lost, retry_at, timings: None, ..attempt() };
        let mut job = job("01990f3e-0000-7000-8000-000000000001");
        job.state = JobState::Queued;
        let open =
            JobDetail { job, attempts: vec![lost.clone(), AttemptRow { attempt: 3, ..lost }], outputs: Vec::new() };
        let told = describe(&open, None);
        let due: Vec<&str> = told.lines().filter(|line| line.contains("due at")).collect();
        assert_eq!(due, ["  retry was due at 2023-11-14 22:13:25 UTC", "  retry due at 2023-11-14 22:13:25 UTC"]);
    }

    #[test]
    fn a_running_attempt_is_unknown_once_a_later_one_exists_or_the_job_has_ended() {
        let running = AttemptRow { state: AttemptState::Running, timings: None, ..attempt() };
        let mut job = job("01990f3e-0000-7000-8000-000000000001");
        let told = |job: &JobRow| {
            let attempts = vec![AttemptRow { attempt: 1, ..running.clone() }, running.clone()];
            let text = describe(&JobDetail { job: job.clone(), attempts, outputs: Vec::new() }, None);
            let states = text.lines().filter_map(|line| line.strip_prefix("attempt ")?.split(' ').nth(1));
            states.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(told(&job), ["unknown", "unknown"], "the job has ended");
        job.state = JobState::Running;
        assert_eq!(told(&job), ["unknown", "running"]);
    }
}
