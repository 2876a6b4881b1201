//! Results of ledger queries: plain rows, ready to be shown or written as JSON.

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use chrono::{DateTime, Utc};
use gpufleet_schema::{
    AttemptState, BlobDigest, Dtype, Excerpt, HostProgramInfo, JobId, JobState, PoolPrograms, PoolUse, PrintfOutput,
    ProgramsSeen, SessionUse, SessionsSeen, Timings, host_program, session,
};
use serde::{Deserialize, Serialize};

/// The jobs to list, newest first. An empty filter lists all jobs.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryFilter {
    /// Any of these; empty for every state.
    pub states: Vec<JobState>,
    pub kernel: Option<String>,
    pub pool: Option<String>,
    /// The broker's user who published the job.
    pub user_id: Option<String>,
    /// The worker that reported the outcome.
    pub worker: Option<String>,
    pub name: Option<String>,
    /// The environment or image of a host program. Other jobs have none.
    pub environment: Option<String>,
    /// Created at this time or later.
    pub since: Option<DateTime<Utc>>,
    /// Created before this time.
    pub until: Option<DateTime<Utc>>,
    /// All of these.
    pub labels: Vec<(String, String)>,
    /// At most [`HistoryFilter::LIMIT_MAX`]; further jobs are on the next pages.
    pub limit: u32,
    /// Continues after a page: its [`Page::next`].
    pub before: Option<PageKey>,
}

/// Some jobs, newest first, and where the next page begins if there is one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "serve", derive(utoipa::ToSchema))]
pub struct Page {
    pub jobs: Vec<JobRow>,
    #[cfg_attr(feature = "serve", schema(value_type = Option<String>))]
    pub next: Option<PageKey>,
    /// Jobs from before this time were not searched, because no label of the filter has an index and the filter names no earliest time. A
    /// filter for the next page needs it as its `since`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub searched_since: Option<DateTime<Utc>>,
}

/// A position in the history: right after this job. As text it is `MICROSECONDS.JOBID`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageKey {
    /// When the job was created, as the history is sorted: the time in its id, or that of its first event.
    pub id_at: DateTime<Utc>,
    pub job_id: JobId,
}

/// A text that is not a [`PageKey`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPageKey {
    #[error("{text:?} is not a page key; use the key that the last list ended with")]
    Malformed { text: String },
    /// Releases that sorted the history by `created_at` wrote `MICROSECONDS_JOBID`.
    #[error(
        "{text:?} is a page key of an earlier release, which sorted the history differently; list it from the beginning"
    )]
    Outdated { text: String },
}

/// The current state of a job. Unknown fields are `None`, because the end of an attempt can arrive before any other event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "serve", derive(utoipa::ToSchema))]
pub struct JobRow {
    #[cfg_attr(feature = "serve", schema(value_type = uuid::Uuid))]
    pub job_id: JobId,
    pub state: JobState,
    pub name: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub pool: Option<String>,
    pub priority: Option<String>,
    /// `catalog`, `source`, `ptx`, `cubin`, `session` or `host`.
    pub program: Option<String>,
    /// The catalog name, the entry of the first launch, or the command of a session or host program, such as `python train.py`.
    pub kernel: Option<String>,
    pub client: Option<String>,
    /// The broker's user who published the job, if the broker validated it.
    pub user_id: Option<String>,
    pub created_at: DateTime<Utc>,
    /// By the producer's clock.
    pub submitted_at: Option<DateTime<Utc>>,
    /// The first start of any attempt.
    pub started_at: Option<DateTime<Utc>>,
    pub finished_at: Option<DateTime<Utc>>,
    /// The number of recorded attempts. Attempt numbers may be higher: a job split off from a list continues after the numbers reserved for
    /// the list.
    pub attempts: u32,
    /// The attempt that decided the outcome, or the latest one. The fields below describe it.
    pub attempt: Option<u32>,
    pub worker: Option<String>,
    /// The ledger shows it as running, but its worker sends no heartbeats, so its real state is unknown.
    pub is_unheard: bool,
    pub device: Option<u32>,
    /// The device's name at the time of the attempt. Old workers did not report it.
    pub device_name: Option<String>,
    /// The device was the emulator, not a GPU.
    pub emulated: Option<bool>,
    pub failure: Option<FailureRow>,
    pub input_bytes: Option<u64>,
    /// The device memory that a session asks for; none for other jobs.
    pub lease_bytes: Option<u64>,
    /// The host program; none for other jobs, and for jobs of earlier releases.
    #[serde(default)]
    pub host_program: Option<HostProgramInfo>,
    pub output_bytes: Option<u64>,
    /// From submission to the worker's receipt.
    pub queue_us: Option<u64>,
    /// All launches together.
    pub kernel_us: Option<u64>,
    /// From the executor's start on the job to its end.
    pub total_us: Option<u64>,
}

/// A job with all its attempts, the first one first, and its kept outputs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "serve", derive(utoipa::ToSchema))]
pub struct JobDetail {
    pub job: JobRow,
    pub attempts: Vec<AttemptRow>,
    /// The outputs that it keeps or has kept.
    pub outputs: Vec<OutputRow>,
}

/// One attempt at a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "serve", derive(utoipa::ToSchema))]
pub struct AttemptRow {
    pub attempt: u32,
    pub state: AttemptState,
    /// It ended with a final outcome after another attempt's final outcome had been recorded.
    pub superseded: bool,
    pub worker: String,
    /// The ledger shows it as running, but its worker sends no heartbeats.
    pub is_unheard: bool,
    pub device: Option<u32>,
    pub device_name: Option<String>,
    pub emulated: Option<bool>,
    pub started_at: Option<DateTime<Utc>>,
    pub finished_at: Option<DateTime<Utc>>,
    pub failure: Option<FailureRow>,
    /// When the job is tried again after this attempt was lost; none if at once.
    pub retry_at: Option<DateTime<Utc>>,
    pub output_bytes: Option<u64>,
    /// The device time that the job's pool was charged for the attempt; none if that was not measured. While a session is open, as its worker
    /// reported last.
    #[serde(default)]
    pub charged_us: Option<u64>,
    /// Known once the attempt has ended.
    pub timings: Option<Timings>,
    /// Output of the kernels' `printf`; none if they printed nothing. Known once the attempt has ended.
    pub printf_output: Option<PrintfOutput>,
    /// What a session did; none for other jobs, and for a session that was never open. While it is open, what its worker reported last.
    #[serde(default)]
    pub session: Option<SessionUse>,
}

/// A kept output of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "serve", derive(utoipa::ToSchema))]
pub struct OutputRow {
    pub name: String,
    pub dtype: Dtype,
    /// Extents, slowest dimension first.
    pub shape: Vec<u64>,
    /// The blob that has the bytes; none if the ledger has or had them.
    #[cfg_attr(feature = "serve", schema(value_type = Option<String>))]
    pub digest: Option<BlobDigest>,
    /// Until when the output can be fetched.
    pub expires_at: DateTime<Utc>,
    pub is_expired: bool,
}

/// Why an attempt did not succeed. Verdict and code are words of `schema::Verdict` and `schema::FailureCode`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "serve", derive(utoipa::ToSchema))]
pub struct FailureRow {
    pub verdict: String,
    pub code: String,
    pub message: String,
    /// A compile log or an access report; only with the attempts of a [`JobDetail`].
    pub detail: Option<String>,
    pub line: Option<u32>,
    /// That line of the program with its neighbours; only with the attempts of a [`JobDetail`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Excerpt>,
}

/// The workers to list, most recently heard from first. The default lists all workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerFilter {
    pub name: Option<String>,
    /// Only workers that have not left and sent a heartbeat within this time.
    pub heard_within: Option<Duration>,
    /// At most [`WorkerFilter::LIMIT_MAX`].
    pub limit: u32,
}

/// A worker according to its latest heartbeat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "serve", derive(utoipa::ToSchema))]
pub struct WorkerRow {
    pub worker: String,
    pub host: String,
    pub pid: u32,
    pub revision: String,
    pub pools: Vec<String>,
    pub jobs_running: u32,
    pub first_seen_at: DateTime<Utc>,
    pub last_seen_at: DateTime<Utc>,
    /// The time of its last heartbeat by the database's clock; if the heartbeat waited for the recorder, the time of sending by the
    /// worker's clock.
    pub heard_at: DateTime<Utc>,
    /// Several heartbeats are missing. Only the broker detects whether the worker still has a connection.
    pub is_silent: bool,
    /// It drained and left.
    pub has_left: bool,
    /// The sessions that it takes; none if its pools take none.
    pub sessions: Option<SessionsSeen>,
    /// The host programs that it takes; none if its pools take none.
    #[serde(default)]
    pub programs: Option<ProgramsSeen>,
    pub devices: Vec<DeviceRow>,
}

/// A worker as lists show it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "serve", derive(utoipa::ToSchema))]
pub struct ListedWorker {
    pub state: WorkerState,
    #[serde(flatten)]
    pub worker: WorkerRow,
}

/// The state of a worker by its heartbeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "serve", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum WorkerState {
    Up,
    /// Its heartbeats are missing. It may still work.
    Silent,
    Left,
}

/// One device of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "serve", derive(utoipa::ToSchema))]
pub struct DeviceRow {
    pub device: u32,
    pub uuid: String,
    pub name: String,
    pub emulated: bool,
    pub compute_capability: [u32; 2],
    pub memory_bytes: u64,
    pub driver_version: u32,
    /// Why the device is out of service.
    pub out_of_service: Option<String>,
    /// This and the following fields come from the latest heartbeat; none if the worker does not report them.
    pub jobs_running: Option<u32>,
    pub pools: Vec<PoolUse>,
    /// Memory in use by all processes. The pools have the memory that this worker's jobs declared.
    pub memory_used_bytes: Option<u64>,
    pub utilization_percent: Option<u32>,
    /// `nvml`: the share of the last second or less in which a kernel of any process ran; `worker`: the share since the last heartbeat in
    /// which a job of the worker was on the device.
    pub utilization_by: Option<String>,
    pub temperature_celsius: Option<u32>,
    pub power_milliwatts: Option<u32>,
}

/// The result of a search for a job whose id begins or ends with a text.
#[derive(Debug, Clone, PartialEq)]
pub enum JobMatch {
    None,
    One(Box<JobDetail>),
    /// Several jobs match. Has up to [`JobMatch::SHOWN_MAX`] of their ids, newest first.
    Many(Vec<JobId>),
}

impl JobRow {
    /// Returns whether the job is a lease of device memory for a program elsewhere.
    pub fn is_session(&self) -> bool {
        self.program.as_deref() == Some(session::KIND)
    }

    /// Returns whether the job is a command that runs on a worker's machine.
    pub fn is_host_program(&self) -> bool {
        self.program.as_deref() == Some(host_program::KIND)
    }
}

impl HistoryFilter {
    /// The maximum number of jobs on a page, because a whole page is held in memory. Planning a page takes as long as reading some hundred
    /// jobs, so long lists are read in large pages.
    pub const LIMIT_MAX: u32 = 2000;
    /// The maximum number of jobs on a page of the read API. It is smaller, because the server holds the pages of many callers.
    pub const API_LIMIT_MAX: u32 = 1000;
    pub const LIMIT_DEFAULT: u32 = 50;
}

impl Default for HistoryFilter {
    fn default() -> Self {
        Self {
            states: Vec::new(),
            kernel: None,
            pool: None,
            user_id: None,
            worker: None,
            name: None,
            environment: None,
            since: None,
            until: None,
            labels: Vec::new(),
            limit: Self::LIMIT_DEFAULT,
            before: None,
        }
    }
}

impl WorkerFilter {
    /// The maximum number of workers in a list, because the whole list with its devices is held in memory.
    pub const LIMIT_MAX: u32 = 1000;
}

impl WorkerRow {
    pub fn state(&self) -> WorkerState {
        match (self.has_left, self.is_silent) {
            (true, _) => WorkerState::Left,
            (false, true) => WorkerState::Silent,
            (false, false) => WorkerState::Up,
        }
    }

    /// Returns the number of sessions that the pool may have open on this worker at a time; 0 if it takes none.
    pub fn sessions_max(&self, pool: &str) -> u32 {
        let pools = self.sessions.iter().flat_map(|sessions| &sessions.pools);
        pools.filter(|of| of.pool.as_str() == pool).map(|of| of.open_max).sum()
    }

    /// Returns what the worker says of the pool's host programs, if it takes some.
    pub fn programs_of(&self, pool: &str) -> Option<&PoolPrograms> {
        self.programs.as_ref()?.pools.iter().find(|of| of.pool.as_str() == pool)
    }
}

impl WorkerState {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Silent => "silent",
            Self::Left => "left",
        }
    }
}

impl From<WorkerRow> for ListedWorker {
    fn from(worker: WorkerRow) -> Self {
        Self { state: worker.state(), worker }
    }
}

impl Default for WorkerFilter {
    fn default() -> Self {
        Self { name: None, heard_within: None, limit: Self::LIMIT_MAX }
    }
}

impl JobMatch {
    /// The maximum number of ids in [`JobMatch::Many`]; enough to show how to make the text unique.
    pub const SHOWN_MAX: u32 = 5;
}

impl fmt::Display for PageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.id_at.timestamp_micros(), self.job_id)
    }
}

impl FromStr for PageKey {
    type Err = InvalidPageKey;

    fn from_str(text: &str) -> Result<Self, InvalidPageKey> {
        let read = |separator| {
            let (micros, job_id) = text.split_once(separator)?;
            let id_at = DateTime::from_timestamp_micros(micros.parse().ok()?)?;
            Some(Self { id_at, job_id: job_id.parse().ok()? })
        };
        let shown = || text.chars().take(64).collect();
        match (read('.'), read('_')) {
            (Some(key), _) => Ok(key),
            (None, Some(_)) => Err(InvalidPageKey::Outdated { text: shown() }),
            (None, None) => Err(InvalidPageKey::Malformed { text: shown() }),
        }
    }
}

impl Serialize for PageKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PageKey {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_key_parses_back() {
        let id_at = DateTime::from_timestamp_micros(1_763_622_000_123_456).expect("a time of 2025");
        let key = PageKey { id_at, job_id: JobId::new() };
        assert_eq!(key.to_string().parse::<PageKey>().unwrap(), key);
        for text in ["", ".", "1.2", "x.4f6d1b8e-9c0a-4c53-8a57-0d9a3bb1f2aa", "99999999999999999999."] {
            assert!(matches!(text.parse::<PageKey>(), Err(InvalidPageKey::Malformed { .. })), "{text:?}");
        }
        let outdated = key.to_string().replace('.', "_");
        assert!(matches!(outdated.parse::<PageKey>(), Err(InvalidPageKey::Outdated { .. })), "{outdated}");
    }
}
