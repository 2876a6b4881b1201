//! `gpufleet report`: how well one job used its device, as Slurm's `seff`.

use clap::Args;
use gpufleet_ledger::{
    JobDetail, Report, WorkerFilter, WorkerRow,
    report::{Share, percent},
};

use super::{
    complaint::Complaint,
    exit::Exit,
    json, lookup,
    options::OutputOptions,
    quantity,
    source::{Source, SourceOptions},
    waiting::Spinner,
};

/// Show how well a job used its device, with advice
///
/// The shares are of the time from submission to the end of the attempt that decided the outcome.
#[derive(Debug, Args)]
#[command(after_long_help = json::REPORT)]
pub struct Options {
    /// Id of the job. The beginning or the end is enough if it is unique; @last is the job that you submitted last
    id: String,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    source: SourceOptions,
}

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    let work = Source::ask(&options.source, async |source| {
        let detail = lookup::in_source(source, &options.id).await?;
        let workers = workers_of(source, &detail).await?;
        Ok((detail, workers))
    });
    let (detail, workers) = Spinner::new("reading the job").around(work).await?;
    let report = Report::of(&detail, &workers).ok_or_else(|| not_ended(&detail))?;
    options.output.format.print(&report, describe)?;
    Ok(Exit::Success)
}

/// The worker that ran the job, if it did run.
async fn workers_of(source: &Source, detail: &JobDetail) -> Result<Vec<WorkerRow>, Complaint> {
    match &detail.job.worker {
        None => Ok(Vec::new()),
        name => source.workers(&WorkerFilter { name: name.clone(), ..WorkerFilter::default() }).await,
    }
}

fn not_ended(detail: &JobDetail) -> Complaint {
    let job = &detail.job;
    Complaint::new(Exit::NotFound, format!("job {} is {} and has no times yet", job.job_id, job.state))
        .hint(format!("to see why it waits: gpufleet why {}", job.job_id))
}

fn describe(report: &Report) -> String {
    let mut text = format!("job      {}\nstate    {}\n", report.job_id, report.state);
    text.push_str(&format!("attempt  {}, {} recorded\n", report.attempt, report.attempts));
    text.push_str(&format!("elapsed  {}\n\n", quantity::micros(report.elapsed_us)));
    for Share { stage, us, percent } in report.stages.iter().filter(|share| share.us > 0) {
        text.push_str(&format!("{stage:<8} {:>12}  {percent:>5.1} %\n", quantity::micros(*us)));
    }
    let peak = quantity::bytes(report.device_bytes_peak);
    text.push_str(&match report.device_bytes {
        Some(all) => {
            let share = percent(report.device_bytes_peak, all);
            format!("\nmemory   {peak} at its peak, {share:.1} % of the device's {}\n", quantity::bytes(all))
        }
        None => format!("\nmemory   {peak} at its peak\n"),
    });
    for advice in &report.advice {
        text.push_str(&format!("\n- {advice}"));
    }
    if report.advice.is_empty() { text } else { text + "\n" }
}

#[cfg(test)]
mod tests {
    use gpufleet::schema::{AttemptState, SessionUse, Timings};
    use gpufleet_ledger::{AttemptRow, DeviceRow};

    use super::*;
    use crate::{history::tests::job, show::tests::attempt, workers};

    /// The worker of the job, on a device with this memory.
    fn workers(memory_bytes: u64) -> Vec<WorkerRow> {
        let mut worker = workers::tests::worker("w1", 1, false);
        worker.devices = vec![DeviceRow { memory_bytes, name: "CPU".to_owned(), ..worker.devices[0].clone() }];
        vec![worker]
    }

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
        insta::assert_snapshot!(describe(&Report::of(&detail(timings()), &workers(64 << 30)).unwrap()));
    }

    #[test]
    fn a_job_that_computes_gets_no_advice_about_its_times() {
        let timings = Timings { launches_us: vec![9_000], total_us: 9_500, device_bytes_peak: 1, ..Timings::default() };
        let mut detail = detail(timings);
        detail.attempts.remove(0);
        detail.attempts[0].emulated = Some(false);
        let report = Report::of(&detail, &workers(1 << 30)).unwrap();
        assert_eq!(report.advice, [""; 0]);
        let shares: f64 = report.stages.iter().map(|share| share.percent).sum();
        assert!((shares - 100.0).abs() < 1e-9, "{shares}");
    }

    #[test]
    fn a_job_that_crashed_gets_no_advice_about_its_use_of_the_device() {
        let mut detail = detail(Timings { launches_us: vec![1], compile_us: 900_000, ..timings() });
        detail.attempts[1].state = AttemptState::Failed;
        let report = Report::of(&detail, &workers(64 << 30)).unwrap();
        let misleading = ["compiling took", "copies took", "kernels ran", "almost all"];
        for advice in &report.advice {
            assert!(!misleading.iter().any(|words| advice.contains(words)), "{advice}");
        }
        assert!(report.advice.iter().any(|advice| advice.starts_with("attempts lost before")));
    }

    #[test]
    fn a_session_is_reported_by_the_time_in_which_its_device_worked() {
        let used = SessionUse { busy_us: 4_000_000, memory_bytes_peak: 3 << 30, ..SessionUse::default() };
        let mut detail = detail(Timings { queue_us: 1_000_000, total_us: 40_000_000, ..Timings::default() });
        detail.attempts.remove(0);
        detail.attempts[0].emulated = Some(false);
        detail.attempts[0].session = Some(used);
        let report = Report::of(&detail, &workers(64 << 30)).unwrap();
        let us = |stage: &str| report.stages.iter().find(|share| share.stage == stage).map(|share| share.us);
        assert_eq!((us("kernel"), us("other"), report.elapsed_us), (Some(4_000_000), Some(36_000_000), 41_000_000));
        assert_eq!(report.device_bytes_peak, 3 << 30);
        let [advice] = report.advice.as_slice() else { panic!("{:?}", report.advice) };
        assert!(advice.starts_with("the device worked for only 10 % of the session"), "{advice}");
    }

    #[test]
    fn the_help_names_every_field_of_the_json() {
        json::check(json::REPORT, &Report::of(&detail(timings()), &[]).unwrap());
    }

    #[test]
    fn a_job_without_times_is_explained_by_another_command() {
        let mut detail = detail(timings());
        detail.attempts[1].timings = None;
        assert!(Report::of(&detail, &[]).is_none());
        assert!(not_ended(&detail).hint.unwrap().contains("gpufleet why 0199"));
    }
}
