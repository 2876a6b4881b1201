//! Lifecycle events for the ledger. They travel in batches and arrive in any order, possibly twice.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    ActionId, AttemptState, BlobDigest, DeviceProgram, DeviceSessions, Failure, HostProgramInfo, JobId, KeptOutputs,
    PoolName, PrintfOutput, Priority, Program, ProgramsSeen, RanOn, SessionUse, SessionsSeen, Task, Timings,
    TraceContext, WorkerName,
    bounds::{BUFFERS_MAX, LABELS_MAX},
    encoding::{self, bounded},
    text::{recordable, recordable_labels},
    word::words,
};

/// Something that happened. Times are milliseconds since 1970 by the sender's clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Submitted(Submitted),
    Started(Started),
    AttemptFinished(AttemptFinished),
    WorkerSeen(WorkerSeen),
    /// Travels alone in its message, because a recorder of 0.1.0 or before dead-letters a message with an event that it does not know.
    Action(Action),
    /// Travels alone in its message, as an action does.
    SessionProgress(Box<SessionProgress>),
    /// An event of a later release. It is only ever read.
    #[serde(skip)]
    Later(LaterEvent),
}

/// An event of a kind that this release does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaterEvent {
    pub kind: String,
    /// The event as its message has it, in MessagePack.
    pub encoded: Vec<u8>,
}

/// The ledger's description of a task. It travels with every event of a job, so that jobs from producers that send no
/// events are recorded just as fully.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct JobInfo {
    pub job_id: JobId,
    pub pool: PoolName,
    pub priority: Priority,
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default, deserialize_with = "bounded::map::<_, _, LABELS_MAX>")]
    pub labels: BTreeMap<String, String>,
    /// `catalog`, `source`, `ptx`, `cubin`, `session` or `host`.
    pub program: String,
    /// The catalog name, the entry of the first launch, or the label of a session.
    pub kernel: String,
    pub input_bytes: u64,
    /// The device memory that a session asks for; absent for other jobs. Old clients and workers leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_bytes: Option<u64>,
    /// The host program; absent for other jobs. Old clients and workers leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_program: Option<Box<HostProgramInfo>>,
    #[serde(default)]
    pub client: Option<String>,
    #[serde(default)]
    pub submitted_ms: Option<i64>,
    /// The broker's user who published the task, if the broker validated it. Only workers send it.
    #[serde(default)]
    pub user_id: Option<String>,
    /// The blobs that the job takes as inputs, each once. Old clients and workers leave it out.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "bounded::list::<_, _, BUFFERS_MAX>")]
    #[cfg_attr(feature = "json-schema", schemars(length(max = BUFFERS_MAX)))]
    pub blobs: Vec<BlobDigest>,
    /// The parent of the job's spans, if its producer is traced. Old clients and workers leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "TraceContext::lenient")]
    pub traceparent: Option<TraceContext>,
}

/// The broker has confirmed the task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Submitted {
    pub job: JobInfo,
    pub at_ms: i64,
}

/// An executor took the job, and still has it. A job that ends within 100 ms has no such event: see
/// [`AttemptFinished::started_ms`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Started {
    pub job: JobInfo,
    pub attempt: u32,
    pub worker: WorkerName,
    pub device: u32,
    /// The device at this time, because another machine may get the worker's name later. Old workers leave it out.
    #[serde(default)]
    pub ran_on: Option<RanOn>,
    pub at_ms: i64,
}

/// An attempt ended. `Lost` means that another follows; every other state is a final outcome for the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct AttemptFinished {
    pub job_id: JobId,
    pub attempt: u32,
    pub worker: WorkerName,
    #[serde(default)]
    pub device: Option<u32>,
    /// As in [`Started`]; none for an attempt that reached no device.
    #[serde(default)]
    pub ran_on: Option<RanOn>,
    /// When an executor took the job; none if it reached no device. Old workers leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<i64>,
    pub at_ms: i64,
    pub state: AttemptState,
    #[serde(default)]
    pub failure: Option<Failure>,
    /// When the job is retried after a loss; absent if at once. Old workers leave it out.
    #[serde(default)]
    pub retry_at_ms: Option<i64>,
    pub output_bytes: u64,
    pub timings: Timings,
    /// The device time that the pool is charged for this attempt: the executor's time, and the wait in a slot for memory and for the blob
    /// store. Absent if the attempt used none, or if the time is unknown. Old workers leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged_us: Option<u64>,
    /// Describes the job, which may have no other event. Old workers leave it out if the job reached a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Box<JobInfo>>,
    /// The broker's user who published the task, if the broker validated it and `job` does not have it, because the task is unreadable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// Output of the kernels' `printf`; absent if there is none. Old workers leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub printf_output: Option<PrintfOutput>,
    /// The outputs that the task asks to keep; only of an attempt that succeeded, or of a host program that failed. Old workers leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Box<KeptOutputs>>,
    /// What a session did; only of a session that was open. Old workers leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Box<SessionUse>>,
}

/// What an open session has done so far. A worker sends it every ten seconds if the numbers have changed, so that a worker that dies takes
/// few of them with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct SessionProgress {
    /// The start of the session. Its own event may be missing.
    pub started: Started,
    /// The number of this event among those of the attempt, from 1. A later event has a higher number.
    pub sequence: u32,
    pub at_ms: i64,
    /// The device time that the pool is charged so far, as in [`AttemptFinished`].
    pub charged_us: u64,
    pub session: SessionUse,
}

/// A worker's heartbeat, sent at start, at intervals and at stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct WorkerSeen {
    pub worker: WorkerName,
    pub at_ms: i64,
    pub host: String,
    pub pid: u32,
    pub revision: String,
    pub pools: Vec<PoolName>,
    pub devices: Vec<DeviceSeen>,
    pub jobs_running: u32,
    /// The sessions that the worker takes; absent if its pools take none. Old workers leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<SessionsSeen>,
    /// The host programs that the worker takes; absent if its pools take none. Old workers leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programs: Option<ProgramsSeen>,
    /// The worker has drained; this is its last heartbeat.
    pub leaving: bool,
}

/// An action of a person on jobs, through a program that acts for others, such as the console.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Action {
    pub action_id: ActionId,
    pub at_ms: i64,
    /// The person, as the program knows them.
    pub who: String,
    /// `cancel`, `replay`, `discard`, or another word of the program.
    pub action: String,
    /// The object of the action, such as the id of a job.
    pub target: String,
    /// The person's origin, such as a network address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The broker's user of the program. The recorder refuses it unless the broker validated it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_by: Option<String>,
}

/// One device of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct DeviceSeen {
    pub index: u32,
    pub uuid: String,
    pub name: String,
    pub emulated: bool,
    pub compute_capability: [u32; 2],
    pub memory_bytes: u64,
    pub driver_version: u32,
    /// Why the device is out of service. Old workers leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_of_service: Option<String>,
    /// Jobs on the device now. Old workers leave out this field and the following ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs_running: Option<u32>,
    /// Jobs and memory of each of the worker's pools on the device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolUse>,
    /// Device memory in use by all processes, as NVML reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_used_bytes: Option<u64>,
    /// The share of recent time in which the device was busy, as `utilization_by` measured it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization_percent: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization_by: Option<UtilizationBy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_celsius: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_milliwatts: Option<u32>,
}

/// Jobs and memory of one pool on a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PoolUse {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub pool: PoolName,
    pub jobs_running: u32,
    /// Device memory that the jobs declared, and that of sessions. A host program takes all of it.
    pub memory_bytes: u64,
    /// The pool's weight in sharing device time with the worker's other pools. Old workers leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// The part of the device's memory that is guaranteed to the pool; 0 if none is. Old workers leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guaranteed_bytes: Option<u64>,
    /// The pool's sessions on the device; absent if it takes none. `memory_bytes` includes their memory. Old workers leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<DeviceSessions>,
    /// The pool's host program that has the device. Old workers leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<DeviceProgram>,
}

words! {
    /// The source of a device's utilization.
    UtilizationBy {
        /// NVML: the share of the last second or less in which any process ran a kernel.
        Nvml = "nvml",
        /// The worker: the share of time since its last heartbeat in which one of its jobs was on the device.
        Worker = "worker",
    }
}

impl Event {
    /// The kinds of this release, as they are written.
    pub const KINDS: [&str; 6] =
        ["submitted", "started", "attempt_finished", "worker_seen", "action", "session_progress"];

    /// Returns whether the event needs a message of its own, because an earlier recorder dead-letters a message with an event that it does
    /// not know.
    pub fn travels_alone(&self) -> bool {
        matches!(self, Self::Action(_) | Self::SessionProgress(_))
    }
}

impl LaterEvent {
    /// The event as JSON for a person, cut to this many bytes.
    pub fn text(&self, bytes_max: usize) -> String {
        encoding::json_text(&self.encoded, bytes_max)
    }
}

impl AttemptFinished {
    /// The end of an attempt of which nothing else is known.
    pub fn new(job_id: JobId, attempt: u32, worker: WorkerName, at_ms: i64, state: AttemptState) -> Self {
        Self {
            job_id,
            attempt,
            worker,
            device: None,
            ran_on: None,
            started_ms: None,
            at_ms,
            state,
            failure: None,
            retry_at_ms: None,
            output_bytes: 0,
            timings: Timings::default(),
            charged_us: None,
            job: None,
            user_id: None,
            printf_output: None,
            kept: None,
            session: None,
        }
    }
}

impl JobInfo {
    /// A job with a kernel of the catalog, in the default pool, of which nothing else is known.
    pub fn new(job_id: JobId, kernel: impl Into<String>) -> Self {
        let task = Task { job_id, ..Task::new(Program::Catalog(kernel.into())) };
        Self::of(&task, PoolName::default(), Priority::Normal, None)
    }

    /// The description of a task for the ledger. The task may be invalid.
    pub fn of(task: &Task<'_>, pool: PoolName, priority: Priority, client: Option<String>) -> Self {
        let host = match &task.program {
            Program::Host(program) => Some(Box::new(HostProgramInfo::of(program))),
            _ => None,
        };
        let kernel = match &task.program {
            Program::Catalog(name) | Program::Session { label: name, .. } => recordable(name),
            Program::Host(program) => recordable(&program.label()),
            _ => task.launches.first().map_or_else(String::new, |launch| recordable(&launch.entry)),
        };
        Self {
            job_id: task.job_id,
            pool,
            priority,
            name: task.name.as_deref().map(recordable),
            labels: recordable_labels(&task.labels),
            program: task.program.kind().to_owned(),
            kernel,
            input_bytes: task.inline_bytes().saturating_add(task.blob_bytes()),
            lease_bytes: task.limits.memory_bytes_max.filter(|_| matches!(task.program, Program::Session { .. })),
            host_program: host,
            client,
            submitted_ms: task.submitted_ms,
            user_id: None,
            blobs: task.blobs().into_iter().collect(),
            traceparent: task.traceparent,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{
        Grid, Launch,
        bounds::TEXT_BYTES_MAX,
        encoding::{decode_events, encode_events},
    };

    fn info(task: &Task<'_>) -> JobInfo {
        JobInfo::of(task, PoolName::default(), Priority::Normal, None)
    }

    #[test]
    fn the_description_of_a_refused_task_is_small() {
        let text = || "\u{1b}".repeat(5 << 20);
        let launch = Launch::new(text(), Grid::Cover(vec![1]));
        for program in [Program::Catalog(text()), Program::Ptx("x".into())] {
            let task = Task {
                name: Some(text()),
                labels: BTreeMap::from([("k".to_owned(), text()), (text(), "v".to_owned())]),
                launches: vec![launch.clone()],
                ..Task::new(program)
            };
            assert!(task.check().is_err());
            let job = info(&task);
            assert!(job.kernel.len() <= TEXT_BYTES_MAX && !job.kernel.contains(char::is_control));
            let encoded = encode_events(&[Event::Submitted(Submitted { job, at_ms: 0 })]).unwrap();
            assert!(encoded.len() < 2 << 10, "{} bytes", encoded.len());
        }
    }

    #[test]
    fn the_description_of_a_valid_task_has_its_values() {
        let task = Task {
            name: Some("x".repeat(TEXT_BYTES_MAX)),
            labels: (0..32).map(|i| (format!("{i}"), "ü".repeat(TEXT_BYTES_MAX / 2))).collect(),
            ..Task::new(Program::Catalog("saxpy".to_owned()))
        };
        task.check().unwrap();
        let job = info(&task);
        assert_eq!((job.name, job.labels, job.kernel.as_str()), (task.name, task.labels, "saxpy"));
    }

    #[test]
    fn of_many_labels_in_a_message_few_are_kept() {
        let task = Task::new(Program::Catalog("saxpy".to_owned()));
        let labels = (0..100_000).map(|label| (label.to_string(), String::new())).collect();
        let job = JobInfo { labels, ..info(&task) };
        let body = encode_events(&[Event::Submitted(Submitted { job, at_ms: 0 })]).unwrap();
        let events = decode_events(&body).unwrap();
        let [Event::Submitted(Submitted { job, .. })] = events.as_slice() else { panic!("one event was sent") };
        assert!(job.labels.len() <= LABELS_MAX + 1, "{} labels", job.labels.len());
    }
}
