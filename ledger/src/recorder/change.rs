//! The changes that events make to one job, attempt, worker or device, in the types of the tables' columns.
//!
//! Each event is checked against the columns' ranges before it is merged with others. So a number out of range fails its own event, and not
//! a batch of thousands.

use std::{cmp::Ordering, collections::BTreeMap, time::Duration};

use chrono::{DateTime, Utc};
use gpufleet_schema::{
    Action, AttemptFinished, AttemptState, DeviceProgram, DeviceSeen, Dtype, Excerpt, Failure, HostProgramInfo,
    JobInfo, JobState, KeptData, KeptOutput, KeptOutputs, PoolPrograms, PoolUse, PrintfOutput, ProgramsSeen, RanOn,
    SessionProgress, SessionUse, SessionsSeen, Started, Timings, UtilizationBy, WorkerName, WorkerSeen,
    bounds::{BUFFERS_MAX, DIMENSIONS_MAX, KEPT_INLINE_BYTES_MAX},
    text::{recordable, recordable_labels},
};

/// An event with a value that no column can hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}, which is out of range")]
pub struct Unrecordable {
    field: &'static str,
    value: String,
}

/// A change of a job.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct JobChange {
    pub(super) owner: Owner,
    pub(super) created_at: DateTime<Utc>,
    pub(super) info: Option<Info>,
    pub(super) confirmed_at: Option<DateTime<Utc>>,
    /// The highest known attempt, 0 before any, and whether it has ended.
    pub(super) progress: Progress,
    pub(super) started_at: Option<DateTime<Utc>>,
    /// The first final outcome.
    pub(super) outcome: Option<Outcome>,
}

/// The user of a job, as the broker validated it for the sender of an event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Owner {
    /// None if the job's message had no validated user.
    pub(super) user: Option<String>,
    /// A worker has run or refused the job for this user. Any client can report a submission under any id.
    pub(super) by_worker: bool,
}

/// How a change relates to what is known of a job, by their users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    SameOwner,
    /// Only another client's submission is known. The change replaces it.
    TakesOver,
    /// The job belongs to another user.
    Foreign,
}

/// The progress of a job. A later attempt is greater, and an end is greater than a start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Progress {
    pub(super) attempt: i32,
    pub(super) ended: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) state: JobState,
    pub(super) attempt: i32,
    pub(super) finished_at: DateTime<Utc>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Info {
    pub(super) pool: String,
    pub(super) priority: &'static str,
    pub(super) name: Option<String>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) program: String,
    pub(super) kernel: String,
    pub(super) input_bytes: i64,
    pub(super) lease_bytes: Option<i64>,
    pub(super) host_program: Option<HostProgramInfo>,
    pub(super) client: Option<String>,
    pub(super) submitted_at: Option<DateTime<Utc>>,
    /// The digests of its inputs in the blob store.
    pub(super) blobs: Vec<String>,
}

/// A change of an attempt.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct AttemptChange {
    /// The earliest start.
    pub(super) started_at: Option<DateTime<Utc>>,
    /// The place of the earliest start. `None` after the end, which has a place of its own.
    pub(super) runs_on: Option<Place>,
    /// What its session has done so far, by the latest report. `None` after the end, which has the final numbers.
    pub(super) open: Option<OpenSession>,
    pub(super) end: Option<End>,
    /// The loss that the end has replaced. It is counted like a loss in a batch of its own.
    pub(super) replaced: Option<End>,
    /// Attempts with the same number that belong to other submissions of the job.
    pub(super) other_runs: Vec<AttemptChange>,
}

/// A report of an open session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OpenSession {
    pub(super) sequence: i32,
    pub(super) at: DateTime<Utc>,
    pub(super) charged_us: i64,
    pub(super) used: SessionUse,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct End {
    pub(super) at: DateTime<Utc>,
    pub(super) state: AttemptState,
    pub(super) place: Place,
    pub(super) failure: Option<Failure>,
    pub(super) failure_line: Option<i32>,
    pub(super) retry_at: Option<DateTime<Utc>>,
    pub(super) output_bytes: i64,
    pub(super) printed: Option<Printed>,
    pub(super) timings: Spans,
    pub(super) charged_us: Option<i64>,
    pub(super) session: Option<SessionUse>,
    /// The outputs that its job keeps, in order.
    pub(super) kept: Vec<KeptRow>,
    /// When its job was submitted. If a job is submitted again under its id, the attempt numbers repeat.
    pub(super) submitted_at: Option<DateTime<Utc>>,
}

/// A kept output: the digest of its blob, or its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeptRow {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<i64>,
    pub(super) digest: Option<String>,
    pub(super) data: Option<Vec<u8>>,
    pub(super) expires_at: DateTime<Utc>,
}

/// The output of an attempt's kernels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Printed {
    pub(super) text: String,
    pub(super) dropped_bytes: i64,
}

/// Where an attempt runs or ran. All of its fields come from the same event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) worker: String,
    pub(super) device: Option<i32>,
    /// The device at that time. Old workers don't report it.
    pub(super) device_name: Option<String>,
    pub(super) emulated: Option<bool>,
}

/// [`Timings`] in the database's integer type.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Spans {
    pub(super) queue_us: i64,
    pub(super) wait_us: i64,
    pub(super) fetch_us: i64,
    pub(super) compile_us: i64,
    pub(super) load_us: i64,
    pub(super) copy_in_us: i64,
    pub(super) launches_us: Vec<i64>,
    pub(super) copy_out_us: i64,
    pub(super) total_us: i64,
    pub(super) device_bytes_peak: i64,
    pub(super) module_cached: bool,
}

/// A change of a worker: its first and its latest heartbeat.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WorkerChange {
    pub(super) first_seen_at: DateTime<Utc>,
    pub(super) last_seen_at: DateTime<Utc>,
    pub(super) seen: WorkerSeen,
}

/// The minimum step of a worker's clock. A heartbeat that is older than the known one by more than this counts as newer, because the
/// worker's clock was set back; otherwise the worker's state would not change until the clock caught up. Heartbeats do not overtake each
/// other by that much, because a recorder does not hold messages for longer. If an operator replays an old heartbeat, the next one corrects
/// the state.
pub(super) const CLOCK_STEP_MIN: Duration = Duration::from_secs(15 * 60);

#[derive(Debug, Clone, PartialEq)]
pub(super) struct DeviceChange {
    pub(super) last_seen_at: DateTime<Utc>,
    pub(super) uuid: String,
    pub(super) name: String,
    pub(super) emulated: bool,
    pub(super) compute_capability: [i32; 2],
    pub(super) memory_bytes: i64,
    pub(super) driver_version: i32,
    pub(super) out_of_service: Option<String>,
    pub(super) jobs_running: Option<i64>,
    pub(super) pools: serde_json::Value,
    pub(super) memory_used_bytes: Option<i64>,
    pub(super) utilization: Option<(i32, UtilizationBy)>,
    pub(super) temperature_celsius: Option<i32>,
    pub(super) power_milliwatts: Option<i64>,
}

/// What a person did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ActionChange {
    pub(super) at: DateTime<Utc>,
    pub(super) who: String,
    pub(super) action: String,
    pub(super) target: String,
    pub(super) origin: Option<String>,
    pub(super) reported_by: Option<String>,
}

impl ActionChange {
    /// Converts an action. Texts are cut to their maximum lengths, so that the action is always recorded.
    pub(super) fn of(action: &Action) -> Result<Self, Unrecordable> {
        Ok(Self {
            at: time("at_ms", action.at_ms)?,
            who: recordable(&action.who),
            action: recordable(&action.action),
            target: recordable(&action.target),
            origin: action.from.as_deref().map(recordable),
            reported_by: action.reported_by.as_deref().map(recordable),
        })
    }
}

impl Owner {
    pub(super) fn claim(&self, later: &Self) -> Claim {
        match (self.by_worker, later.by_worker) {
            _ if self.user == later.user => Claim::SameOwner,
            (false, true) => Claim::TakesOver,
            _ => Claim::Foreign,
        }
    }
}

impl JobChange {
    /// Returns the state of a job of which only this change is known.
    pub(super) fn state(&self) -> &JobState {
        match &self.outcome {
            Some(outcome) => &outcome.state,
            None if self.progress.attempt > 0 && !self.progress.ended => &JobState::Running,
            None => &JobState::Queued,
        }
    }
}

impl Info {
    /// Converts a description. The producer chose the texts and the time of submission, and a worker's event only repeats them.
    /// Out-of-bounds values are cut or omitted, so that the job's outcome is still recorded.
    pub(super) fn of(job: &JobInfo) -> Result<Self, Unrecordable> {
        Ok(Self {
            pool: job.pool.to_string(),
            priority: job.priority.name(),
            name: job.name.as_deref().map(recordable),
            labels: recordable_labels(&job.labels),
            program: recordable(&job.program),
            kernel: recordable(&job.kernel),
            input_bytes: big("input_bytes", job.input_bytes)?,
            lease_bytes: job.lease_bytes.and_then(|bytes| i64::try_from(bytes).ok()),
            host_program: job.host_program.as_deref().map(HostProgramInfo::recordable),
            client: job.client.as_deref().map(recordable),
            submitted_at: job.submitted_ms.and_then(|ms| time("submitted_ms", ms).ok()),
            // All events of a job name the same blobs, and each blob once.
            blobs: job.blobs.iter().take(BUFFERS_MAX).map(ToString::to_string).collect(),
        })
    }
}

impl AttemptChange {
    /// Returns where the attempt runs or ran.
    pub(super) fn place(&self) -> Option<&Place> {
        self.end.as_ref().map(|end| &end.place).or(self.runs_on.as_ref())
    }
}

impl OpenSession {
    pub(super) fn of(event: &SessionProgress) -> Result<Self, Unrecordable> {
        Ok(Self {
            sequence: int("sequence", event.sequence)?,
            at: time("at_ms", event.at_ms)?,
            charged_us: big("charged_us", event.charged_us)?,
            used: session(&event.session)?,
        })
    }
}

impl End {
    pub(super) fn of(event: &AttemptFinished) -> Result<Self, Unrecordable> {
        if event.state == AttemptState::Running {
            return Err(Unrecordable { field: "state", value: "running after the attempt's end".to_owned() });
        }
        let failure = event.failure.clone().map(|failure| Failure {
            message: storable(failure.message),
            detail: failure.detail.map(storable),
            source: failure
                .source
                .map(Excerpt::bounded)
                .map(|Excerpt { first_line, text }| Excerpt { first_line, text: storable(text) }),
            ..failure
        });
        let line = failure.as_ref().and_then(|failure| failure.line);
        Ok(Self {
            at: time("at_ms", event.at_ms)?,
            state: event.state,
            place: Place::of(&event.worker, event.device, event.ran_on.as_ref())?,
            retry_at: event.retry_at_ms.map(|ms| time("retry_at_ms", ms)).transpose()?,
            failure_line: line.map(|line| int("failure.line", line)).transpose()?,
            failure,
            output_bytes: big("output_bytes", event.output_bytes)?,
            printed: event.printf_output.as_ref().and_then(Printed::of),
            timings: Spans::of(&event.timings)?,
            charged_us: event.charged_us.map(|us| big("charged_us", us)).transpose()?,
            session: event.session.as_deref().map(session).transpose()?,
            kept: event.kept.as_deref().map(KeptRow::all).transpose()?.unwrap_or_default(),
            submitted_at: event
                .job
                .as_deref()
                .and_then(|job| job.submitted_ms)
                .and_then(|ms| time("submitted_ms", ms).ok()),
        })
    }

    /// Returns whether both are the end of the same run of an attempt.
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        (self.at, &self.place.worker) == (other.at, &other.place.worker)
    }

    /// Compares the submission of this run with the submission at this time. If either has no time, they are equal.
    pub(super) fn run(&self, submitted_at: Option<DateTime<Utc>>) -> Ordering {
        self.submitted_at.zip(submitted_at).map_or(Ordering::Equal, |(own, known)| own.cmp(&known))
    }

    /// Returns whether this is an outcome and not a loss. An outcome replaces a loss, because a lost attempt may be redelivered under its
    /// old number.
    pub(super) fn is_final(&self) -> bool {
        self.state != AttemptState::Lost
    }
}

impl Printed {
    /// Converts the output, and cuts it to its bounds, because a client may have forged the event.
    fn of(output: &PrintfOutput) -> Option<Self> {
        let PrintfOutput { text, dropped_bytes, is_tail: _ } = output.recordable()?;
        Some(Self { text, dropped_bytes: i64::try_from(dropped_bytes).unwrap_or(i64::MAX) })
    }
}

/// Checks what a session did. The column is JSON and has no ranges, but queries sum its numbers as `bigint`.
fn session(used: &SessionUse) -> Result<SessionUse, Unrecordable> {
    let numbers = [
        ("session.calls", used.calls),
        ("session.waits", used.waits),
        ("session.sent_bytes", used.sent_bytes),
        ("session.received_bytes", used.received_bytes),
        ("session.busy_us", used.busy_us),
        ("session.memory_bytes", used.memory_bytes),
        ("session.memory_bytes_peak", used.memory_bytes_peak),
    ];
    numbers.into_iter().try_for_each(|(field, number)| big(field, number).map(|_| ()))?;
    Ok(used.clone())
}

/// Returns the size of a job's kept outputs that would go into the ledger, if it is more than a worker may send. Such an event is forged.
pub(super) fn kept_excess(kept: &KeptOutputs) -> Option<u64> {
    let inline = kept.outputs.iter().map(|output| match &output.data {
        KeptData::Inline(bytes) => bytes.len() as u64,
        KeptData::Blob(_) => 0,
    });
    Some(inline.sum()).filter(|bytes| *bytes > KEPT_INLINE_BYTES_MAX)
}

impl KeptRow {
    /// Converts the kept outputs of a job. It omits bytes beyond the bound, and outputs and dimensions that no task may have.
    fn all(kept: &KeptOutputs) -> Result<Vec<Self>, Unrecordable> {
        let expires_at = time("kept.expires_ms", kept.expires_ms)?;
        let has_bytes = kept_excess(kept).is_none();
        kept.outputs.iter().take(BUFFERS_MAX).map(|output| Self::of(output, has_bytes, expires_at)).collect()
    }

    fn of(output: &KeptOutput, has_bytes: bool, expires_at: DateTime<Utc>) -> Result<Self, Unrecordable> {
        let (digest, data) = match &output.data {
            KeptData::Blob(digest) => (Some(digest.to_string()), None),
            KeptData::Inline(bytes) => (None, has_bytes.then(|| bytes.clone())),
        };
        let shape = output.shape.iter().take(DIMENSIONS_MAX);
        let shape = shape.map(|extent| big("kept.shape", *extent)).collect::<Result<_, _>>()?;
        Ok(Self { name: recordable(&output.name), dtype: output.dtype, shape, digest, data, expires_at })
    }
}

impl Place {
    /// Converts the place of a start.
    pub(super) fn of_start(event: &Started) -> Result<Self, Unrecordable> {
        Self::of(&event.worker, Some(event.device), event.ran_on.as_ref())
    }

    fn of(worker: &WorkerName, device: Option<u32>, ran_on: Option<&RanOn>) -> Result<Self, Unrecordable> {
        let device = ran_on.map(|ran_on| ran_on.device).or(device);
        Ok(Self {
            worker: worker.to_string(),
            device: device.map(|device| int("device", device)).transpose()?,
            device_name: ran_on.map(|ran_on| storable(ran_on.device_name.clone())),
            emulated: ran_on.map(|ran_on| ran_on.emulated),
        })
    }
}

impl Spans {
    fn of(timings: &Timings) -> Result<Self, Unrecordable> {
        let launches_us: Vec<i64> =
            timings.launches_us.iter().map(|us| big("timings.launches_us", *us)).collect::<Result<_, _>>()?;
        // The history shows their sum, so it must fit too.
        launches_us.iter().try_fold(0_i64, |sum, us| sum.checked_add(*us)).ok_or_else(|| Unrecordable {
            field: "timings.launches_us",
            value: "more than 64 bits together".to_owned(),
        })?;
        Ok(Self {
            // A producer's wrong clock may make it arbitrarily long.
            queue_us: i64::try_from(timings.queue_us).unwrap_or(i64::MAX),
            wait_us: big("timings.wait_us", timings.wait_us)?,
            fetch_us: big("timings.fetch_us", timings.fetch_us)?,
            compile_us: big("timings.compile_us", timings.compile_us)?,
            load_us: big("timings.load_us", timings.load_us)?,
            copy_in_us: big("timings.copy_in_us", timings.copy_in_us)?,
            launches_us,
            copy_out_us: big("timings.copy_out_us", timings.copy_out_us)?,
            total_us: big("timings.total_us", timings.total_us)?,
            device_bytes_peak: big("timings.device_bytes_peak", timings.device_bytes_peak)?,
            module_cached: timings.module_cached,
        })
    }
}

impl WorkerChange {
    pub(super) fn of(seen: &WorkerSeen) -> Result<Self, Unrecordable> {
        let at = time("at_ms", seen.at_ms)?;
        let seen = WorkerSeen {
            host: storable(seen.host.clone()),
            revision: storable(seen.revision.clone()),
            devices: Vec::new(),
            sessions: seen.sessions.clone().map(storable_sessions),
            programs: seen.programs.clone().map(storable_programs),
            ..seen.clone()
        };
        Ok(Self { first_seen_at: at, last_seen_at: at, seen })
    }
}

impl DeviceChange {
    pub(super) fn of(device: &DeviceSeen, at: DateTime<Utc>) -> Result<Self, Unrecordable> {
        let [major, minor] = device.compute_capability;
        Ok(Self {
            last_seen_at: at,
            uuid: storable(device.uuid.clone()),
            name: storable(device.name.clone()),
            emulated: device.emulated,
            compute_capability: [int("compute_capability", major)?, int("compute_capability", minor)?],
            memory_bytes: big("memory_bytes", device.memory_bytes)?,
            driver_version: int("driver_version", device.driver_version)?,
            out_of_service: device.out_of_service.clone().map(storable),
            jobs_running: device.jobs_running.map(i64::from),
            pools: device.pools.iter().map(storable_use).collect(),
            memory_used_bytes: device.memory_used_bytes.map(|bytes| big("memory_used_bytes", bytes)).transpose()?,
            utilization: utilization(device)?,
            temperature_celsius: device
                .temperature_celsius
                .map(|degrees| int("temperature_celsius", degrees))
                .transpose()?,
            power_milliwatts: device.power_milliwatts.map(i64::from),
        })
    }
}

/// Returns the percentage and its source. A percentage without a source is omitted.
fn utilization(device: &DeviceSeen) -> Result<Option<(i32, UtilizationBy)>, Unrecordable> {
    let percent = device.utilization_percent.map(|percent| int("utilization_percent", percent)).transpose()?;
    Ok(percent.zip(device.utilization_by))
}

fn storable_sessions(sessions: SessionsSeen) -> SessionsSeen {
    SessionsSeen { hosts: sessions.hosts.into_iter().map(storable).collect(), ..sessions }
}

fn storable_programs(programs: ProgramsSeen) -> ProgramsSeen {
    let storable_all = |names: Vec<String>| names.into_iter().map(storable).collect();
    let pool = |pool: PoolPrograms| PoolPrograms {
        environments: storable_all(pool.environments),
        images: storable_all(pool.images),
        ..pool
    };
    ProgramsSeen { pools: programs.pools.into_iter().map(pool).collect() }
}

fn storable_use(pool: &PoolUse) -> serde_json::Value {
    let label = |program: &DeviceProgram| DeviceProgram { label: recordable(&program.label), ..program.clone() };
    serde_json::json!(PoolUse { program: pool.program.as_ref().map(label), ..pool.clone() })
}

/// Replaces NUL characters, which Postgres texts can't contain. A compile log that contains one must still be recorded.
fn storable(text: String) -> String {
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}

/// Converts a time. It must be in the years 1970 to 9999, which every date library can represent.
pub(super) fn time(field: &'static str, ms: i64) -> Result<DateTime<Utc>, Unrecordable> {
    const MS_MAX: i64 = 253_402_300_799_999;
    Some(ms)
        .filter(|ms| (0..=MS_MAX).contains(ms))
        .and_then(DateTime::from_timestamp_millis)
        .ok_or_else(|| Unrecordable { field, value: ms.to_string() })
}

pub(super) fn int(field: &'static str, number: u32) -> Result<i32, Unrecordable> {
    i32::try_from(number).map_err(|_| Unrecordable { field, value: number.to_string() })
}

fn big(field: &'static str, number: u64) -> Result<i64, Unrecordable> {
    i64::try_from(number).map_err(|_| Unrecordable { field, value: number.to_string() })
}
