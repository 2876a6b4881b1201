//! The recorder's Prometheus metrics: their names, meanings and units.
//!
//! Labels are pools, kinds, tables, dispositions and queues, never jobs. A recorder without a metrics endpoint counts nothing.

use std::{
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    time::{Duration, SystemTime},
};

use gpufleet_schema::{Event, topology};
use gpufleet_telemetry::{JobStages, Names, Traces};
use gpufleet_transport::{Broker, State};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
};
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

use super::merge::Changes;
use crate::{LedgerError, disposition::Disposition, error::chain};

/// All metrics of a recorder.
#[derive(Debug)]
pub struct Metrics {
    names: Names,
    /// When the newest recorded event happened, in milliseconds since 1970 by its sender's clock. It begins with the start of the recorder,
    /// so that the lag of a recorder that can't record grows.
    newest_ms: AtomicI64,
    ready: Gauge,
    broker_connected: Gauge,
    database_reachable: Gauge,
    lag: Gauge<f64, AtomicU64>,
    queues: Family<QueueLabels, Gauge>,
    batch_events: Histogram,
    batch_time: Histogram,
    events: Family<KindLabels, Counter>,
    rows: Family<TableLabels, Counter>,
    dead_lettered: Counter,
    errors: Family<ErrorLabels, Counter>,
    disk_errors: Counter,
    spans: [Counter; 2],
    stages: JobStages,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VersionLabels {
    version: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabels {
    queue: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TableLabels {
    table: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    disposition: &'static str,
}

/// The labels and names of the queues whose depth is shown.
const QUEUES: [(&str, &str); 2] = [("events", topology::LEDGER_QUEUE), ("dead", topology::DEAD_QUEUE)];
/// The time between two reads of the queues' depth; no longer than the usual time between scrapes.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// The kinds of events of this release, and the label of all others.
const KINDS: [&str; 7] = {
    let [submitted, started, attempt_finished, worker_seen, action, session_progress] = Event::KINDS;
    [submitted, started, attempt_finished, worker_seen, action, session_progress, "later"]
};
const TABLES: [&str; 7] = ["jobs", "attempts", "workers", "devices", "device_samples", "actions", "later_events"];
const DISPOSITIONS: [&str; 4] = ["retry", "schema", "bad_data", "defect"];
/// The buckets for the number of events in a batch. A batch has at most 4,000 events, apart from those of the message that fills it.
const EVENTS_BUCKETS: [f64; 8] = [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 4000.0];
/// The buckets for the duration of a batch, in seconds. A commit takes milliseconds; a statement is given up after some seconds.
const TIME_BUCKETS: [f64; 10] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];

impl Default for Metrics {
    fn default() -> Self {
        let mut names = Names::default();
        let info: Family<VersionLabels, Gauge> = names.plain("recorder_info", "Version of this recorder; always 1");
        info.get_or_create(&VersionLabels { version: env!("CARGO_PKG_VERSION") }).set(1);
        let help = "Duration of each stage of the recorded attempts, and of whole jobs from their submission";
        let stages = JobStages::named(&mut names, "recorder_job_stage", help, []);
        let batch_events = Histogram::new(EVENTS_BUCKETS);
        let batch_time = Histogram::new(TIME_BUCKETS);
        let metrics = Self {
            newest_ms: AtomicI64::new(now_ms()),
            ready: names.plain("recorder_ready", "1 while the recorder consumes events"),
            broker_connected: names
                .plain("recorder_broker_connected", "1 while the recorder is connected to the broker"),
            database_reachable: names
                .plain("recorder_database_reachable", "1 if the last use of the database succeeded"),
            lag: names.seconds("recorder_lag", "Age of the newest recorded event", Gauge::default()),
            queues: names
                .plain("recorder_queue_messages", "Messages ready in the queues of events and of dead letters"),
            batch_events: names.named("recorder_batch_events", "Events recorded together", batch_events),
            batch_time: names.seconds("recorder_batch", "Time to record a batch, with its retries", batch_time),
            events: names.plain("recorder_events", "Recorded events, by kind; a redelivered event counts again"),
            rows: names.plain("recorder_rows", "Rows inserted or updated, by table"),
            dead_lettered: names.plain("recorder_dead_lettered", "Events and messages that no table can hold"),
            errors: names.plain("recorder_errors", "Failed uses of the database, by what follows from them"),
            disk_errors: names
                .plain("recorder_disk_errors", "Of these, the errors of the database's disk: full, or broken"),
            spans: [
                names.plain("recorder_spans_exported", "Spans of traces that the collector took"),
                names.plain(
                    "recorder_spans_dropped",
                    "Spans that were dropped: too many waited, or the collector did not take them",
                ),
            ],
            stages,
            names,
        };
        metrics.begin_at_zero();
        metrics
    }
}

impl Metrics {
    /// Returns all metrics in OpenMetrics' text format.
    pub fn text(&self) -> String {
        let lag_ms = now_ms().saturating_sub(self.newest_ms.load(Ordering::Relaxed)).max(0);
        self.lag.set(Duration::from_millis(lag_ms.unsigned_abs()).as_secs_f64());
        self.names.text()
    }

    /// Sets how many spans were exported and dropped so far.
    pub fn set_spans(&self, traces: &Traces) {
        for (counter, total) in self.spans.iter().zip([traces.exported(), traces.dropped()]) {
            counter.inner().store(total, Ordering::Relaxed);
        }
    }

    pub fn set_ready(&self, ready: bool) {
        self.ready.set(ready.into());
    }

    /// Observes the broker connection and the queues until cancelled.
    pub async fn watch(&self, broker: Broker) {
        let (mut state, mut look) = (broker.state(), interval(LOOK_EVERY));
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_connected = matches!(*state.borrow_and_update(), State::Connected | State::Blocked(_));
            self.broker_connected.set(is_connected.into());
            tokio::select! {
                changed = state.changed() => if changed.is_err() { return },
                _ = look.tick(), if is_connected => {
                    for (label, queue) in QUEUES {
                        self.look_at(&broker, label, queue).await;
                    }
                }
            }
        }
    }

    async fn look_at(&self, broker: &Broker, label: &'static str, queue: &str) {
        match broker.queue_depth(queue).await {
            Ok(depth) => {
                let messages = depth.map_or(0, |depth| depth.messages);
                self.queues.get_or_create(&QueueLabels { queue: label }).set(messages.into());
            }
            Err(problem) => warn!(queue, problem = chain(&problem), "failed to read the depth of a queue"),
        }
    }

    /// Counts a recorded batch.
    pub(super) fn recorded(&self, events: &[Event], took: Duration) {
        self.batch_events.observe(events.len() as f64);
        self.batch_time.observe(took.as_secs_f64());
        for event in events {
            let (kind, at_ms) = match event {
                Event::Submitted(event) => (0, event.at_ms),
                Event::Started(event) => (1, event.at_ms),
                Event::AttemptFinished(event) => {
                    self.stages.observe(event);
                    (2, event.at_ms)
                }
                Event::WorkerSeen(event) => (3, event.at_ms),
                Event::Action(event) => (4, event.at_ms),
                Event::SessionProgress(event) => (5, event.at_ms),
                // This release can't read the time of such an event.
                Event::Later(_) => (6, i64::MIN),
            };
            self.events.get_or_create(&KindLabels { kind: KINDS[kind] }).inc();
            self.newest_ms.fetch_max(at_ms.min(now_ms()), Ordering::Relaxed);
        }
    }

    /// Counts the rows of a committed transaction.
    pub(super) fn wrote(&self, changes: &Changes) {
        let Changes { jobs, attempts, workers, devices, samples, actions, later } = changes;
        let rows =
            [jobs.len(), attempts.len(), workers.len(), devices.len(), samples.len(), actions.len(), later.len()];
        for (table, rows) in TABLES.into_iter().zip(rows) {
            self.rows.get_or_create(&TableLabels { table }).inc_by(rows as u64);
        }
    }

    pub(super) fn dead_lettered(&self) {
        self.dead_lettered.inc();
    }

    /// Counts a use of the database that succeeded or failed.
    pub(super) fn used_database(&self, error: Option<&LedgerError>) {
        let Some(error) = error else {
            self.database_reachable.set(1);
            return;
        };
        let disposition = error.disposition();
        self.database_reachable.set((disposition != Disposition::Retry).into());
        let label = match disposition {
            Disposition::Retry => 0,
            Disposition::Schema => 1,
            Disposition::BadData => 2,
            Disposition::Defect => 3,
        };
        self.errors.get_or_create(&ErrorLabels { disposition: DISPOSITIONS[label] }).inc();
        if matches!(error, LedgerError::Database { source, .. } if Disposition::is_about_disk(source)) {
            self.disk_errors.inc();
        }
    }

    /// Creates every series at zero, so that the first error is visible as an increase.
    fn begin_at_zero(&self) {
        for (queue, _) in QUEUES {
            drop(self.queues.get_or_create(&QueueLabels { queue }));
        }
        for kind in KINDS {
            drop(self.events.get_or_create(&KindLabels { kind }));
        }
        for table in TABLES {
            drop(self.rows.get_or_create(&TableLabels { table }));
        }
        for disposition in DISPOSITIONS {
            drop(self.errors.get_or_create(&ErrorLabels { disposition }));
        }
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use gpufleet_schema::WorkerSeen;

    use super::*;

    fn value(metrics: &Metrics, series: &str) -> f64 {
        let text = metrics.text();
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {series} in {text}")).parse().unwrap()
    }

    fn seen(at_ms: i64) -> Event {
        Event::WorkerSeen(WorkerSeen {
            worker: "w".parse().unwrap(),
            at_ms,
            host: String::new(),
            pid: 0,
            revision: String::new(),
            pools: Vec::new(),
            devices: Vec::new(),
            jobs_running: 0,
            sessions: None,
            programs: None,
            leaving: false,
        })
    }

    #[test]
    fn the_lag_is_that_of_the_newest_event_and_an_event_of_the_future_hides_none() {
        let metrics = Metrics::default();
        metrics.newest_ms.store(0, Ordering::Relaxed);
        metrics.recorded(&[seen(now_ms() - 60_000), seen(now_ms() - 90_000)], Duration::ZERO);
        let lag = value(&metrics, "gpufleet_recorder_lag_seconds");
        assert!((60.0..90.0).contains(&lag), "{lag}");
        metrics.recorded(&[seen(now_ms() + 3_600_000)], Duration::ZERO);
        assert!(metrics.newest_ms.load(Ordering::Relaxed) <= now_ms());
        assert_eq!(value(&metrics, "gpufleet_recorder_events_total{kind=\"worker_seen\"}"), 3.0);
    }

    #[test]
    fn an_error_counts_by_its_disposition_and_a_full_disk_also_as_one() {
        let metrics = Metrics::default();
        metrics.used_database(None);
        assert_eq!(value(&metrics, "gpufleet_recorder_database_reachable"), 1.0);
        metrics.used_database(Some(&LedgerError::timed_out()));
        assert_eq!(value(&metrics, "gpufleet_recorder_errors_total{disposition=\"retry\"}"), 1.0);
        assert_eq!(value(&metrics, "gpufleet_recorder_database_reachable"), 0.0);
        assert_eq!(value(&metrics, "gpufleet_recorder_disk_errors_total"), 0.0);
        let source = sqlx::Error::Encode("no such value".into());
        metrics.used_database(Some(&LedgerError::Database { operation: "recording events", source }));
        assert_eq!(value(&metrics, "gpufleet_recorder_errors_total{disposition=\"bad_data\"}"), 1.0);
        assert_eq!(value(&metrics, "gpufleet_recorder_database_reachable"), 1.0, "it answered");
    }
}
