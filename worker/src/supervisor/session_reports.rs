//! Tells the ledger what open sessions have done so far, so that a worker that dies takes few numbers with it.

use std::time::Duration;

use gpufleet_schema::{Event, SessionProgress, SessionUse};
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use super::{Supervisor, clock::unix_ms, sessions::OpenSession};

/// The time between two reports. A worker that dies loses at most this much.
const PERIOD: Duration = Duration::from_secs(10);

/// The reports of a session.
#[derive(Debug)]
pub(super) struct SessionReports {
    due: Instant,
    /// The number of reports so far.
    sent: u32,
    /// What the last one said.
    last: SessionUse,
}

impl SessionReports {
    /// Begins with a session that has done nothing but take its memory.
    pub(super) fn new(memory_bytes: u64) -> Self {
        let last = SessionUse { memory_bytes, ..SessionUse::default() };
        Self { due: Instant::now() + PERIOD, sent: 0, last }
    }

    /// Starts the time until the first report.
    pub(super) fn begin(&mut self) {
        self.due = Instant::now() + PERIOD;
    }

    /// Waits until a report is due. Cancelling loses nothing.
    pub(super) async fn due(&self) {
        sleep_until(self.due).await;
    }
}

impl OpenSession<'_> {
    /// Reports what the session has done since the last report, if it has done something. A report without room among the unconfirmed
    /// events is left out: the next one has its numbers.
    pub(super) fn report(&mut self, supervisor: &Supervisor) {
        self.reports.due = Instant::now() + PERIOD;
        let Some((_, started_ms)) = self.started.filter(|_| self.used != self.reports.last) else { return };
        let (task, envelope) = (self.ready.task(), self.ready.envelope());
        let ran_on = self.device.ran_on(supervisor.config.name.clone());
        let progress = SessionProgress {
            started: supervisor.started(task, envelope, &ran_on, started_ms),
            sequence: self.reports.sent + 1,
            at_ms: unix_ms(),
            charged_us: self.charged_us,
            session: self.used.clone(),
        };
        match supervisor.events.offer(Event::SessionProgress(Box::new(progress))) {
            Ok(None) => {
                self.reports.sent += 1;
                self.reports.last = self.used.clone();
            }
            Ok(Some(_no_room)) => {}
            Err(error) => warn!(job_id = %task.job_id, %error, "progress of a session not recorded"),
        }
    }
}
