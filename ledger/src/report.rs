//! A report on how well one job used its device, like Slurm's `seff`. This is plain data.

use gpufleet_schema::{AttemptState, JobId, JobState, SessionUse, Timings};
use serde::{Deserialize, Serialize};

use crate::{AttemptRow, DeviceRow, JobDetail, WorkerRow};

/// The efficiency of the attempt that decided a job's outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "serve", derive(utoipa::ToSchema))]
pub struct Report {
    #[cfg_attr(feature = "serve", schema(value_type = uuid::Uuid))]
    pub job_id: JobId,
    pub state: JobState,
    pub attempt: u32,
    /// How many are recorded.
    pub attempts: u32,
    /// From submission to the end.
    pub elapsed_us: u64,
    /// In the order of time. `other` is the rest of the time on the device. For a session, `kernel` is the time in which the device worked for
    /// it, and `other` the rest of the time in which it was open.
    pub stages: Vec<Share>,
    pub device_bytes_peak: u64,
    /// The memory of the device, if its worker still has it.
    pub device_bytes: Option<u64>,
    pub advice: Vec<String>,
}

/// A part of a job's life.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "serve", derive(utoipa::ToSchema))]
pub struct Share {
    /// `queue`, `compile`, `wait`, `fetch`, `load`, `copy`, `kernel` or `other`.
    pub stage: String,
    pub us: u64,
    /// Of the time from submission to the end.
    pub percent: f64,
}

/// The share of waiting, in percent, from which the report names the queue. Such a job depends on the load more than on
/// its program.
const QUEUE_PERCENT: f64 = 50.0;
/// The share of compiling, in percent of the time after the queue, from which it is worth avoiding.
const COMPILE_PERCENT: f64 = 20.0;
/// The share of copies, in percent of the time on the device, from which they are worth avoiding.
const COPY_PERCENT: f64 = 50.0;
const KERNEL_PERCENT: f64 = 25.0;
/// The share of the device's memory, in percent, from which the report warns. Such a job fails on a device with a
/// little less memory.
const MEMORY_PERCENT: f64 = 90.0;

impl Report {
    /// Computes the report of a job; `None` until it has ended. `workers` are all workers, or at least those with a
    /// device of the job.
    pub fn of(detail: &JobDetail, workers: &[WorkerRow]) -> Option<Self> {
        let job = &detail.job;
        let device_bytes = device(detail, workers).map(|device| device.memory_bytes);
        let attempt = detail.attempts.iter().find(|attempt| Some(attempt.attempt) == job.attempt)?;
        let timings = attempt.timings.as_ref()?;
        let kernel_us = attempt.session.as_ref().map_or_else(|| timings.kernel_us(), |used| used.busy_us);
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
        let device_bytes_peak =
            attempt.session.as_ref().map_or(timings.device_bytes_peak, |used| used.memory_bytes_peak);
        let elapsed_us = stages.iter().fold(0_u64, |sum, (_, us)| sum.saturating_add(*us));
        let stages = stages.map(|(stage, us)| Share { stage: stage.to_owned(), us, percent: percent(us, elapsed_us) });
        Some(Self {
            job_id: job.job_id,
            state: job.state,
            attempt: attempt.attempt,
            attempts: job.attempts,
            elapsed_us,
            stages: stages.into(),
            device_bytes_peak,
            device_bytes,
            advice: advice(detail, attempt, timings, device_bytes),
        })
    }
}

/// Returns the device of the job. Another machine may have taken over the worker's name, so the model must match too.
fn device<'a>(detail: &JobDetail, workers: &'a [WorkerRow]) -> Option<&'a DeviceRow> {
    let job = &detail.job;
    let worker = workers.iter().find(|worker| Some(&worker.worker) == job.worker.as_ref())?;
    let is_its =
        |device: &&DeviceRow| Some(device.device) == job.device && Some(&device.name) == job.device_name.as_ref();
    worker.devices.iter().find(is_its)
}

fn advice(detail: &JobDetail, attempt: &AttemptRow, timings: &Timings, device_bytes: Option<u64>) -> Vec<String> {
    let mut advice = Vec::new();
    let waited = timings.queue_us.saturating_add(timings.wait_us);
    let worked = timings.compile_us.saturating_add(timings.fetch_us).saturating_add(timings.total_us);
    let queue = percent(waited, waited.saturating_add(worked));
    if queue >= QUEUE_PERCENT {
        advice.push(format!("it waited for {queue:.0} % of its life; `gpufleet pools` shows how busy its pool is"));
    }
    // The timings of an attempt that was cut short say nothing about the program.
    if attempt.state == AttemptState::Succeeded {
        advice.extend(match &attempt.session {
            Some(used) => Vec::from_iter(advice_on_session(timings, used)),
            None => advice_on_use(timings, worked, device_bytes),
        });
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

/// Advises on the use of the device by a job that ran to its end.
fn advice_on_use(timings: &Timings, worked: u64, device_bytes: Option<u64>) -> Vec<String> {
    let mut advice = Vec::new();
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
    advice
}

/// Advises on the use of the device by a session, which holds its memory while its program does other things.
fn advice_on_session(timings: &Timings, used: &SessionUse) -> Option<String> {
    let busy = percent(used.busy_us, timings.total_us);
    (timings.total_us > 0 && busy < KERNEL_PERCENT).then(|| {
        format!(
            "the device worked for only {busy:.0} % of the session, which held its memory all the time; open it only for the \
             part of the work that needs the device"
        )
    })
}

/// Returns a part of a whole in percent; 0 if the whole is 0.
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}
