//! The worker's Prometheus metrics: every name with its meaning and unit.
//!
//! All counters exist from the start, so that counting a job costs one atomic addition and every series starts at zero. Gauges are set at
//! each scrape from the supervisor's state. Labels are pools, devices and states, never jobs.

use std::{fmt::Debug, sync::atomic::Ordering};

use gpufleet_blobs::CacheUse;
use gpufleet_schema::{AttemptFinished, AttemptState, PoolName, SessionUse};
use gpufleet_telemetry::{JobStages, Names, Traces};
use gpufleet_transport::State;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};

use crate::{
    config::Config,
    executor::{DeviceInfo, InputUse, LostCause},
    scheduler::{DeviceId, PoolId},
};

/// All metrics of a worker.
#[derive(Debug)]
pub(crate) struct Metrics {
    names: Names,
    pools: Vec<PoolCounters>,
    pub(crate) stale_settlements: Counter,
    pub(crate) replies_kept: Counter,
    pub(crate) replies_lost: Counter,
    spans: [Counter; 2],
    progress_dropped: Counter,
    executor_losses: Family<LossLabels, Counter>,
    /// Blobs read through the blob cache: hits, misses and failures.
    blob_cache: [Counter; 3],
    /// Histograms of the stages of jobs. `None` if metrics are not served, because each job then costs some locks.
    stages: Option<JobStages>,
    ready: Gauge,
    pub(crate) gauges: Gauges,
}

#[derive(Debug)]
struct PoolCounters {
    attempts: Vec<(AttemptState, Counter)>,
    refused: Counter,
    forwarded: Counter,
    inputs_resident: Counter,
    inputs_brought: Counter,
    session_calls: Counter,
    session_waits: Counter,
    session_sent: Counter,
    session_received: Counter,
    programs_ended: Vec<(ProgramOutcome, Counter)>,
    program_output: Counter,
}

/// How a host program ended, as a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgramOutcome {
    /// It exited with 0.
    Succeeded,
    /// It exited with another code, was ended by a signal, or could not start.
    Failed,
    /// Someone cancelled it, or it reached its time limit.
    Stopped,
    /// The worker stopped, or lost the program or its device.
    Lost,
}

/// The families of counters with a label for the pool.
struct PoolFamilies {
    attempts: Family<AttemptLabels, Counter>,
    refused: Family<PoolLabels, Counter>,
    forwarded: Family<PoolLabels, Counter>,
    inputs: Family<InputLabels, Counter>,
    session_calls: Family<PoolLabels, Counter>,
    session_waits: Family<PoolLabels, Counter>,
    session_bytes: Family<DirectionLabels, Counter>,
    programs_ended: Family<OutcomeLabels, Counter>,
    program_output: Family<PoolLabels, Counter>,
}

/// The gauges, set at each scrape.
#[derive(Debug)]
pub(crate) struct Gauges {
    broker_connected: Gauge,
    publishing_blocked: Gauge,
    events_unconfirmed: Gauge,
    messages_held: Family<PoolLabels, Gauge>,
    jobs_waiting: Family<PoolLabels, Gauge>,
    jobs_running: Family<UseLabels, Gauge>,
    jobs_memory: Family<UseLabels, Gauge>,
    sessions_open: Family<UseLabels, Gauge>,
    programs_running: Family<UseLabels, Gauge>,
    programs_waiting: Family<PoolLabels, Gauge>,
    device_info: Family<DeviceInfoLabels, Gauge>,
    device_in_service: Family<DeviceLabels, Gauge>,
    device_memory: Family<DeviceLabels, Gauge>,
}

/// One device's gauges.
#[derive(Debug)]
pub(crate) struct DeviceGauges<'a> {
    gauges: &'a Gauges,
    device: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkerLabels {
    worker: String,
    version: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    pool: String,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabels {
    pool: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InputLabels {
    pool: String,
    source: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabels {
    pool: String,
    direction: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    pool: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LossLabels {
    device: u32,
    cause: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DeviceLabels {
    device: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UseLabels {
    device: u32,
    pool: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DeviceInfoLabels {
    device: u32,
    uuid: String,
    name: String,
    emulated: String,
}

impl Metrics {
    pub(crate) fn new(config: &Config) -> Self {
        let mut names = Names::default();
        let worker: Family<WorkerLabels, Gauge> =
            names.plain("worker_info", "Name and version of this worker; always 1");
        let labels = WorkerLabels { worker: config.name.to_string(), version: env!("CARGO_PKG_VERSION") };
        worker.get_or_create(&labels).set(1);
        let ready = names.plain("ready", "1 while the worker accepts jobs");
        let families = PoolFamilies {
            attempts: names.plain("attempts", "Finished attempts at jobs, by state"),
            refused: names.plain("messages_refused", "Dead-lettered messages: malformed, or delivered too often"),
            forwarded: names.plain("jobs_forwarded", "Jobs forwarded to workers whose devices meet their requirements"),
            inputs: names.plain(
                "inputs",
                "Inputs of jobs that are blobs, by source: device (resident there from an earlier job) or store",
            ),
            session_calls: names.plain("session_calls", "Driver calls of sessions"),
            session_waits: names
                .plain("session_waits", "Driver calls for whose answer the program of a session waited"),
            session_bytes: names.bytes("session_traffic", "Size of the messages of sessions, by direction: in or out"),
            programs_ended: names.plain(
                "programs_ended",
                "Host programs that ended, by outcome: succeeded, failed, stopped (cancelled, or at a limit) or lost",
            ),
            program_output: names.bytes("program_output", "Size of what host programs have written"),
        };
        let stale =
            "Acks and requeues that failed because the connection was lost; the broker redelivers these messages";
        let stale_settlements = names.plain("stale_settlements", stale);
        let replies_kept = names.plain(
            "replies_kept",
            "Replies that the client's queue rejected; they are in the queue of unclaimed replies",
        );
        let replies_lost =
            names.plain("replies_lost", "Replies that the broker rejected for good; the ledger has their outcomes");
        let spans = [
            names.plain("spans_exported", "Spans of traces that the collector took"),
            names
                .plain("spans_dropped", "Spans that were dropped: too many waited, or the collector did not take them"),
        ];
        let progress_dropped = names.plain(
            "progress_dropped",
            "Messages about running jobs that were not published, because there were too many or the broker was slow",
        );
        let losses = "Executors lost, by cause: died, job (its fault, time limit or cancellation) or device";
        let executor_losses = names.plain("executor_losses", losses);
        let blob_cache = [
            names.plain("blob_cache_hits", "Inputs that the blob cache had"),
            names
                .plain("blob_cache_misses", "Inputs read from the blob store because the blob cache did not have them"),
            names.plain("blob_cache_failures", "Uses of the blob cache that failed: a full disk, or a damaged file"),
        ];
        let gauges = Gauges::named(&mut names);
        let served_pools = config.pools.iter().map(|pool| &pool.name);
        let stages = config.metrics.map(|_| {
            let help = "Duration of each stage of an attempt, and of whole jobs from their submission";
            JobStages::named(&mut names, "job_stage", help, served_pools)
        });
        let pools = config.pools.iter().map(|pool| PoolCounters::of(&pool.name, &families)).collect();
        Self {
            names,
            pools,
            stale_settlements,
            replies_kept,
            replies_lost,
            spans,
            progress_dropped,
            executor_losses,
            blob_cache,
            stages,
            ready,
            gauges,
        }
    }

    pub(crate) fn blob_cache_used(&self, used: CacheUse) {
        let [hits, misses, failures] = &self.blob_cache;
        let counter = match used {
            CacheUse::Hit => hits,
            CacheUse::Miss => misses,
            CacheUse::Failure => failures,
        };
        counter.inc();
    }

    pub(crate) fn attempt_ended(&self, pool: PoolId, state: AttemptState) {
        if let Some((_, counter)) = self.pools[pool.0 as usize].attempts.iter().find(|(end, _)| *end == state) {
            counter.inc();
        }
    }

    /// Adds a finished attempt to the histograms of stages.
    pub(crate) fn attempt_recorded(&self, finished: &AttemptFinished) {
        if let Some(stages) = &self.stages {
            stages.observe(finished);
        }
    }

    pub(crate) fn message_refused(&self, pool: PoolId) {
        self.pools[pool.0 as usize].refused.inc();
    }

    pub(crate) fn job_forwarded(&self, pool: PoolId) {
        self.pools[pool.0 as usize].forwarded.inc();
    }

    pub(crate) fn inputs_used(&self, pool: PoolId, used: InputUse) {
        let counters = &self.pools[pool.0 as usize];
        counters.inputs_resident.inc_by(used.resident);
        counters.inputs_brought.inc_by(used.brought);
    }

    /// Adds what a session did between two reports.
    pub(crate) fn session_used(&self, pool: PoolId, before: &SessionUse, now: &SessionUse) {
        let counters = &self.pools[pool.0 as usize];
        for (counter, before, now) in [
            (&counters.session_calls, before.calls, now.calls),
            (&counters.session_waits, before.waits, now.waits),
            (&counters.session_sent, before.sent_bytes, now.sent_bytes),
            (&counters.session_received, before.received_bytes, now.received_bytes),
        ] {
            counter.inc_by(now.saturating_sub(before));
        }
    }

    pub(crate) fn program_ended(&self, pool: PoolId, outcome: ProgramOutcome) {
        let counters = &self.pools[pool.0 as usize].programs_ended;
        if let Some((_, counter)) = counters.iter().find(|(known, _)| *known == outcome) {
            counter.inc();
        }
    }

    pub(crate) fn program_wrote(&self, pool: PoolId, bytes: usize) {
        self.pools[pool.0 as usize].program_output.inc_by(bytes as u64);
    }

    /// Adds a device, so that its series exist from the start.
    pub(crate) fn device_opened(&self, device: DeviceId) {
        for cause in CAUSES {
            self.losses(device, cause);
        }
    }

    /// Counts a lost executor. A stopped executor does not count.
    pub(crate) fn executor_lost(&self, device: DeviceId, cause: LostCause) {
        if let Some(cause) = cause_name(cause) {
            self.losses(device, cause).inc();
        }
    }

    pub(crate) fn set_ready(&self, ready: bool) {
        self.ready.set(ready.into());
    }

    /// Sets the number of spans exported and dropped so far.
    pub(crate) fn set_spans(&self, traces: &Traces) {
        for (counter, total) in self.spans.iter().zip([traces.exported(), traces.dropped()]) {
            counter.inner().store(total, Ordering::Relaxed);
        }
    }

    /// Sets the number of dropped messages of progress so far.
    pub(crate) fn set_progress_dropped(&self, total: u64) {
        self.progress_dropped.inner().store(total, Ordering::Relaxed);
    }

    /// Returns all metrics in OpenMetrics' text format.
    pub(crate) fn text(&self) -> String {
        self.names.text()
    }

    fn losses(&self, device: DeviceId, cause: &'static str) -> Counter {
        self.executor_losses.get_or_create_owned(&LossLabels { device: device.0, cause })
    }
}

impl PoolCounters {
    fn of(pool: &PoolName, families: &PoolFamilies) -> Self {
        let PoolFamilies {
            attempts,
            refused,
            forwarded,
            inputs,
            session_calls,
            session_waits,
            session_bytes,
            programs_ended,
            program_output,
        } = families;
        let counter = |state: &'static AttemptState| {
            let labels = AttemptLabels { pool: pool.to_string(), state: state.name() };
            (*state, attempts.get_or_create_owned(&labels))
        };
        let ends = AttemptState::ALL.iter().filter(|state| **state != AttemptState::Running);
        let of_pool = |counters: &Family<PoolLabels, Counter>| counters.get_or_create_owned(&PoolLabels::of(pool));
        let bytes =
            |direction| session_bytes.get_or_create_owned(&DirectionLabels { pool: pool.to_string(), direction });
        let ended = |outcome: ProgramOutcome| {
            let labels = OutcomeLabels { pool: pool.to_string(), outcome: outcome.name() };
            (outcome, programs_ended.get_or_create_owned(&labels))
        };
        let inputs_from = |source| inputs.get_or_create_owned(&InputLabels { pool: pool.to_string(), source });
        Self {
            attempts: ends.map(counter).collect(),
            refused: of_pool(refused),
            forwarded: of_pool(forwarded),
            inputs_resident: inputs_from("device"),
            inputs_brought: inputs_from("store"),
            session_calls: of_pool(session_calls),
            session_waits: of_pool(session_waits),
            session_sent: bytes("in"),
            session_received: bytes("out"),
            programs_ended: ProgramOutcome::ALL.map(ended).into(),
            program_output: of_pool(program_output),
        }
    }
}

impl Gauges {
    fn named(names: &mut Names) -> Self {
        Self {
            broker_connected: names.plain("broker_connected", "1 while the worker is connected to the broker"),
            publishing_blocked: names.plain(
                "publishing_blocked",
                "1 while the broker blocks publishing because of a resource alarm; the log has the reason",
            ),
            events_unconfirmed: names
                .bytes("events_unconfirmed", "Approximate size of the events that the broker has not confirmed yet"),
            messages_held: names.plain("messages_held", "Messages delivered to this worker and not settled yet"),
            jobs_waiting: names.plain("jobs_waiting", "Jobs in this worker that wait for a slot on a device"),
            jobs_running: names.plain("jobs_running", "Jobs that have a slot on a device"),
            jobs_memory: names
                .bytes("jobs_memory", "Device memory that running jobs have declared and open sessions lease"),
            sessions_open: names.plain("sessions_open", "Open sessions"),
            programs_running: names.plain("programs_running", "Host programs that have a device: 0 or 1"),
            programs_waiting: names.plain("programs_waiting", "Host programs in this worker that wait for a device"),
            device_info: names.plain("device_info", "UUID, name and kind of each device; always 1"),
            device_in_service: names.plain("device_in_service", "1 while the device is in service"),
            device_memory: names.bytes("device_memory", "Total memory of the device"),
        }
    }

    pub(crate) fn set_broker(&self, state: &State) {
        let (connected, blocked) = match state {
            State::Connected => (true, false),
            State::Blocked(_) => (true, true),
            State::Reconnecting { .. } | State::Closed => (false, false),
        };
        self.broker_connected.set(connected.into());
        self.publishing_blocked.set(blocked.into());
    }

    pub(crate) fn set_events_unconfirmed(&self, bytes: usize) {
        self.events_unconfirmed.set(number(bytes));
    }

    pub(crate) fn set_pool(&self, pool: &PoolName, jobs_waiting: usize, messages_held: u32) {
        let labels = PoolLabels::of(pool);
        self.jobs_waiting.get_or_create(&labels).set(number(jobs_waiting));
        self.messages_held.get_or_create(&labels).set(messages_held.into());
    }

    pub(crate) fn set_programs_waiting(&self, pool: &PoolName, waiting: usize) {
        self.programs_waiting.get_or_create(&PoolLabels::of(pool)).set(number(waiting));
    }

    pub(crate) fn device(&self, id: DeviceId, info: &DeviceInfo) -> DeviceGauges<'_> {
        let (device, uuid, name) = (id.0, info.uuid.clone(), info.name.clone());
        let labels = DeviceInfoLabels { device, uuid, name, emulated: info.emulated.to_string() };
        self.device_info.get_or_create(&labels).set(1);
        self.device_memory.get_or_create(&DeviceLabels { device }).set(number(info.memory_bytes));
        DeviceGauges { gauges: self, device }
    }
}

impl DeviceGauges<'_> {
    pub(crate) fn set_in_service(&self, in_service: bool) {
        self.gauges.device_in_service.get_or_create(&DeviceLabels { device: self.device }).set(in_service.into());
    }

    pub(crate) fn set_use(&self, pool: &PoolName, jobs: u32, sessions: u32, bytes: u64) {
        let labels = UseLabels { device: self.device, pool: pool.to_string() };
        self.gauges.jobs_running.get_or_create(&labels).set(jobs.into());
        self.gauges.jobs_memory.get_or_create(&labels).set(number(bytes));
        self.gauges.sessions_open.get_or_create(&labels).set(sessions.into());
    }

    pub(crate) fn set_programs(&self, pool: &PoolName, runs_program: bool) {
        let labels = UseLabels { device: self.device, pool: pool.to_string() };
        self.gauges.programs_running.get_or_create(&labels).set(runs_program.into());
    }
}

impl ProgramOutcome {
    const ALL: [Self; 4] = [Self::Succeeded, Self::Failed, Self::Stopped, Self::Lost];

    const fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
            Self::Lost => "lost",
        }
    }
}

impl PoolLabels {
    fn of(pool: &PoolName) -> Self {
        Self { pool: pool.to_string() }
    }
}

const CAUSES: [&str; 3] = ["died", "job", "device"];

/// Returns the label of a cause. A loss that a job caused has one label, because the distinction of cause, suspect and neighbour is for
/// jobs, not for the executor.
fn cause_name(cause: LostCause) -> Option<&'static str> {
    match cause {
        LostCause::Died => Some("died"),
        LostCause::Suspect | LostCause::Neighbour => Some("job"),
        LostCause::Device => Some("device"),
        LostCause::Stopped => None,
    }
}

fn number(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}
