//! `gpufleet report`: how well one job used its device, as Slurm's `seff`.

use clap::Args;
use gpufleet::schema::{AttemptState, Timings};
use gpufleet_ledger::{AttemptRow, JobDetail, WorkerFilter};
use serde::Serialize;

use super::{
    complaint::Complaint,
    connection,
    exit::Exit,
    json, lookup,
    options::{Format, LedgerOptions},
    output, quantity,
    waiting::Spinner,
};

/// Show how well a job used its device, with advice
///
/// The shares are of the time from submission to the end of the attempt that decided the outcome.
#[derive(Debug, Args)]
#[command(after_long_help = json::REPORT)]
pub struct Options {
    /// Id of the job; the beginning is enough if it is unique
    id: String,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    output: Format,
    #[command(flatten)]
    ledger: LedgerOptions,
}

/// The efficiency of an attempt.
#[derive(Debug, Serialize)]
struct Report {
    job_id: String,
    state: &'static str,
    attempt: u32,
    attempts: u32,
    /// From submission to the end.
    elapsed_us: u64,
    stages: Vec<Share>,
    device_bytes_peak: u64,
    /// The memory of the device, if its worker still has it.
    device_bytes: Option<u64>,
    advice: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Share {
    stage: &'static str,
    us: u64,
    percent: f64,
}

/// A job that waits for longer than it runs depends on the load more than on its program.
const QUEUE_PERCENT: f64 = 50.0;
/// From this share of the time after the queue on, compiling is worth avoiding.
const COMPILE_PERCENT: f64 = 20.0;
/// From these shares of the time on the device on, copies and overhead are worth avoiding.
const COPY_PERCENT: f64 = 50.0;
const KERNEL_PERCENT: f64 = 25.0;
/// Such a job fails on a device with a little less memory.
const MEMORY_PERCENT: f64 = 90.0;

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    let work = async {
        let ledger = connection::ledger(&options.ledger).await?;
        let detail = lookup::in_ledger(&ledger, &options.id).await?;
        let name = detail.job.worker.clone();
        let named = WorkerFilter { name, ..WorkerFilter::default() };
        let workers = ledger.workers(&named).await.map_err(|error| connection::ledger_complaint(&error))?;
        ledger.close().await;
        let devices = workers.first().filter(|_| detail.job.worker.is_some()).map(|worker| &worker.devices);
        let device = devices.and_then(|devices| {
            devices.iter().find(|device| {
                Some(device.device) == detail.job.device && Some(&device.name) == detail.job.device_name.as_ref()
            })
        });
        Ok::<_, Complaint>((detail, device.map(|device| device.memory_bytes)))
    };
    let (detail, device_bytes) = Spinner::new("reading the job").around(work).await?;
    let report = Report::of(&detail, device_bytes).ok_or_else(|| not_ended(&detail))?;
    match options.output {
        Format::Table => output::emit(&report.describe())?,
        Format::Json => output::emit_json(&report)?,
    }
    Ok(Exit::Success)
}

fn not_ended(detail: &JobDetail) -> Complaint {
    let job = &detail.job;
    Complaint::new(Exit::NotFound, format!("job {} is {} and has no times yet", job.job_id, job.state))
        .hint(format!("to see why it waits: gpufleet why {}", job.job_id))
}

impl Report {
    fn of(detail: &JobDetail, device_bytes: Option<u64>) -> Option<Self> {
        let job = &detail.job;
        let attempt = detail.attempts.iter().find(|attempt| Some(attempt.attempt) == job.attempt)?;
        let timings = attempt.timings.as_ref()?;
        let kernel_us = timings.kernel_us();
        let copy_us = timings.copy_in_us.saturating_add(timings.copy_out_us);
        let other_us =
            timings.total_us.saturating_sub(timings.load_us.saturating_add(copy_us).saturating_add(kernel_us));
        let stages = [
            ("queue", timings.queue_us),
            ("compile", timings.compile_us),
            ("wait", timings.wait_us),
            ("fetch", timings.fetch_us),
            ("load", timings.load_us),
            ("copy", copy_us),
            ("kernel", kernel_us),
            ("other", other_us),
        ];
        let elapsed_us = stages.iter().fold(0_u64, |sum, (_, us)| sum.saturating_add(*us));
        let stages = stages.map(|(stage, us)| Share { stage, us, percent: percent(us, elapsed_us) });
        Some(Self {
            job_id: job.job_id.to_string(),
            state: job.state.name(),
            attempt: attempt.attempt,
            attempts: job.attempts,
            elapsed_us,
            stages: stages.into(),
            device_bytes_peak: timings.device_bytes_peak,
            device_bytes,
            advice: advice(detail, attempt, timings, device_bytes),
        })
    }

    fn describe(&self) -> String {
        let mut text = format!("job      {}\nstate    {}\n", self.job_id, self.state);
        text.push_str(&format!("attempt  {}, {} recorded\n", self.attempt, self.attempts));
        text.push_str(&format!("elapsed  {}\n\n", quantity::micros(self.elapsed_us)));
        for Share { stage, us, percent } in self.stages.iter().filter(|share| share.us > 0) {
            text.push_str(&format!("{stage:<8} {:>12}  {percent:>5.1} %\n", quantity::micros(*us)));
        }
        let peak = quantity::bytes(self.device_bytes_peak);
        text.push_str(&match self.device_bytes {
            Some(all) => {
                let share = percent(self.device_bytes_peak, all);
                format!("\nmemory   {peak} at its peak, {share:.1} % of the device's {}\n", quantity::bytes(all))
            }
            None => format!("\nmemory   {peak} at its peak\n"),
        });
        for advice in &self.advice {
            text.push_str(&format!("\n- {advice}"));
        }
        if self.advice.is_empty() { text } else { text + "\n" }
    }
}

fn advice(detail: &JobDetail, attempt: &AttemptRow, timings: &Timings, device_bytes: Option<u64>) -> Vec<String> {
    let mut advice = Vec::new();
    let waited = timings.queue_us.saturating_add(timings.wait_us);
    let worked = timings.compile_us.saturating_add(timings.fetch_us).saturating_add(timings.total_us);
    let queue = percent(waited, waited.saturating_add(worked));
    if queue >= QUEUE_PERCENT {
        advice.push(format!("it waited for {queue:.0} % of its life; `gpufleet pools` shows how busy its pool is"));
    }
    let compile = percent(timings.compile_us, worked);
    if compile >= COMPILE_PERCENT {
        advice.push(format!(
            "compiling took {compile:.0} % of its work; workers keep compiled programs, so send the same source and options again, or send PTX"
        ));
    }
    let copy = percent(timings.copy_in_us.saturating_add(timings.copy_out_us), timings.total_us);
    let kernel = percent(timings.kernel_us(), timings.total_us);
    if copy >= COPY_PERCENT {
        advice.push(format!(
            "copies took {copy:.0} % of its time on the device; run several launches in one job, or share inputs from the blob store"
        ));
    } else if timings.total_us > 0 && kernel < KERNEL_PERCENT {
        advice.push(format!(
            "kernels ran for only {kernel:.0} % of its time on the device; give each job more work, or submit many jobs at once"
        ));
    }
    if let Some(all) = device_bytes
        && percent(timings.device_bytes_peak, all) >= MEMORY_PERCENT
    {
        advice
            .push("it needs almost all of the device's memory; split its data to run it beside other jobs".to_owned());
    }
    let lost = detail.attempts.iter().filter(|other| other.state == AttemptState::Lost).count();
    if lost > 0 {
        advice.push(format!("attempts lost before: {lost}; `gpufleet show {}` has the reasons", detail.job.job_id));
    }
    if attempt.emulated == Some(true) {
        advice.push("it ran on the emulated device, whose times say nothing about a GPU".to_owned());
    }
    advice
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{history::tests::job, show::tests::attempt};

    fn detail(timings: Timings) -> JobDetail {
        let lost = AttemptRow { attempt: 1, state: AttemptState::Lost, timings: None, ..attempt() };
        let last = AttemptRow { attempt: 2, timings: Some(timings), ..attempt() };
        let mut job = job("01990f3e-0000-7000-8000-000000000001");
        (job.attempt, job.attempts) = (Some(2), 2);
        JobDetail { job, attempts: vec![lost, last], outputs: Vec::new() }
    }

    fn timings() -> Timings {
        Timings {
            queue_us: 900_000,
            wait_us: 1_000,
            fetch_us: 0,
            compile_us: 250_000,
            load_us: 1_000,
            copy_in_us: 300_000,
            launches_us: vec![100_000, 50_000],
            copy_out_us: 10_000,
            total_us: 480_000,
            device_bytes_peak: 60 << 30,
            module_cached: false,
        }
    }

    #[test]
    fn a_report_has_shares_memory_and_advice() {
        insta::assert_snapshot!(Report::of(&detail(timings()), Some(64 << 30)).unwrap().describe());
    }

    #[test]
    fn a_job_that_computes_gets_no_advice_about_its_times() {
        let timings = Timings { launches_us: vec![9_000], total_us: 9_500, device_bytes_peak: 1, ..Timings::default() };
        let mut detail = detail(timings);
        detail.attempts.remove(0);
        detail.attempts[0].emulated = Some(false);
        let report = Report::of(&detail, Some(1 << 30)).unwrap();
        assert_eq!(report.advice, [""; 0]);
        let shares: f64 = report.stages.iter().map(|share| share.percent).sum();
        assert!((shares - 100.0).abs() < 1e-9, "{shares}");
    }

    #[test]
    fn the_help_names_every_field_of_the_json() {
        json::check(json::REPORT, &Report::of(&detail(timings()), None).unwrap());
    }

    #[test]
    fn a_job_without_times_is_explained_by_another_command() {
        let mut detail = detail(timings());
        detail.attempts[1].timings = None;
        assert!(Report::of(&detail, None).is_none());
        assert!(not_ended(&detail).hint.unwrap().contains("gpufleet why 0199"));
    }
}
