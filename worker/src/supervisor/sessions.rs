//! Runs sessions: offers them to their clients, follows them and ends them.
//!
//! The gate, a process of its own, has the connections of a session and its device ([`crate::session`]). The supervisor only hears of them,
//! because it holds the broker's password and must read nothing from strangers.

use std::{sync::Arc, time::Duration};

use gpufleet_schema::{Failure, FailureCode, SessionUse, Timings, Verdict};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::{
    Supervisor,
    attempt_result::AttemptResult,
    clock::{micros, unix_ms},
    devices::{SessionPresence, WorkerDevice},
    handle::Input,
    prepared::Ready,
    preparing_session::idle_limit,
    session_reports::SessionReports,
};
use crate::{
    dispatcher::JobNo,
    disposition::Ending,
    scheduler::DeviceId,
    session::{Gate, GateEvent, Progress, SessionOptions},
};

/// How long before a time limit the client is warned.
const WARNED_BEFORE: Duration = Duration::from_secs(60);
/// The interval of a gate's reports in microseconds, by which two of them may be off.
const REPORT_US: u64 = 1_000_000;

/// An open session, as its supervisor sees it.
pub(super) struct OpenSession<'a> {
    job: JobNo,
    pub(super) ready: &'a Ready,
    pub(super) device: &'a WorkerDevice,
    presence: SessionPresence,
    pub(super) gate: Gate,
    pub(super) limits: SessionLimits,
    pub(super) used: SessionUse,
    /// When the gate last reported.
    accounted: Instant,
    /// Device time that the pool was charged, in microseconds.
    pub(super) charged_us: u64,
    pub(super) reports: SessionReports,
    fault: Option<String>,
    /// When the client connected, also in Unix milliseconds.
    pub(super) started: Option<(Instant, i64)>,
    active: Instant,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct SessionLimits {
    pub(super) time: Duration,
    idle: Duration,
}

/// Why a session ends. The client gets the reason as text, unless it has ended the session itself.
pub(super) enum End {
    Command {
        exit_code: Option<i32>,
        signal: Option<i32>,
    },
    Cancelled,
    Limit(FailureCode, String),
    Client(String),
    Fleet(String),
    /// The client says that the program had its session on another worker, which has lost it.
    Lost,
    /// The client says that the program has its session on another worker, or had it there, and that worker reports how it ended.
    Elsewhere,
}

impl Supervisor {
    /// Runs a session from the moment at which it has its memory.
    pub(super) async fn run_session(
        self: &Arc<Self>,
        job: JobNo,
        ready: Ready,
        device: DeviceId,
        cancel: &CancellationToken,
    ) -> Input {
        let device = self.device(device);
        let wait_us = micros(ready.envelope().received.elapsed());
        let unopened = |end: End| AttemptResult::default().ended(job, end.of_unopened(&ready));
        if self.client_has_left(&ready).await {
            return unopened(End::Client(
                "the client that requested the session has closed its reply queue".to_owned(),
            ));
        }
        let memory_bytes = ready.task().limits.memory_bytes_max.unwrap_or(0);
        let options = SessionOptions {
            cuda: self.config.cuda.clone(),
            uuid: device.info.uuid.clone(),
            memory_bytes,
            listen: self.config.session_listen.clone(),
            user: self.config.executor_user.clone(),
        };
        let gate = tokio::select! {
            gate = Gate::start(&options) => gate,
            () = cancel.cancelled() => return unopened(End::Cancelled),
            end = self.ended_by_worker(device) => return unopened(end),
        };
        let gate = match gate {
            Ok(gate) => gate,
            Err(error) => return unopened(End::Fleet(format!("the worker could not open the session: {error}"))),
        };
        let sessions = self.pool_spec(ready.envelope()).sessions;
        let idle = idle_limit(&ready.task().program, sessions).unwrap_or(sessions.idle_max);
        let session = OpenSession {
            job,
            ready: &ready,
            device,
            presence: device.open_session(ready.demand.pool, ready.demand.bytes),
            gate,
            limits: SessionLimits { time: ready.time_limit, idle },
            used: SessionUse::default(),
            accounted: Instant::now(),
            charged_us: 0,
            reports: SessionReports::new(memory_bytes),
            fault: None,
            started: None,
            active: Instant::now(),
        };
        let (ending, mut attempt) = self.attend_session(session, cancel).await;
        attempt.timings.wait_us = wait_us;
        attempt.left(job, ending, Some(0))
    }

    async fn attend_session(
        &self,
        mut session: OpenSession<'_>,
        cancel: &CancellationToken,
    ) -> (Ending, AttemptResult) {
        let device = session.device;
        let end = tokio::select! {
            end = self.follow_session(&mut session) => end,
            () = cancel.cancelled() => End::Cancelled,
            end = self.ended_by_worker(device) => end,
        };
        session.ended(end, self).await
    }

    /// Returns once the worker stops, or the device is out of service.
    pub(super) async fn ended_by_worker(&self, device: &WorkerDevice) -> End {
        tokio::select! {
            () = self.out_of_grace.cancelled() => End::Fleet("the worker was stopped".to_owned()),
            reason = device.out_of_service() => End::Fleet(reason),
        }
    }

    /// Offers the session and follows it to its end.
    async fn follow_session(&self, session: &mut OpenSession<'_>) -> End {
        if let Err(end) = self.await_client(session).await {
            return end;
        }
        let (now, now_ms) = (Instant::now(), unix_ms());
        (session.started, session.active) = (Some((now, now_ms)), now);
        session.reports.begin();
        let (task, envelope) = (session.ready.task(), session.ready.envelope());
        info!(job_id = %task.job_id, pool = %envelope.pool, device = session.device.id.0, "session opened");
        self.tell_started(task, envelope, &session.device.ran_on(self.config.name.clone()), now_ms);
        self.follow_open_session(session, now + session.limits.time).await
    }

    async fn follow_open_session(&self, session: &mut OpenSession<'_>, time_up: Instant) -> End {
        let SessionLimits { time, idle } = session.limits;
        let (mut warned_of_time, mut warned_of_drain) = (time <= WARNED_BEFORE, false);
        // The idle period of which the client was warned, by its beginning.
        let mut warned_of_idle = None;
        loop {
            let idle_up = session.active + idle;
            let is_long = idle > WARNED_BEFORE && warned_of_idle != Some(session.active);
            tokio::select! {
                event = session.gate.next() => {
                    if let Some(end) = session.take(event, self) {
                        return end;
                    }
                }
                () = session.reports.due() => session.report(self),
                () = sleep_until(time_up) => {
                    let limit = humantime::format_duration(time);
                    return End::Limit(FailureCode::TimeLimit, format!("the session reached its time limit of {limit}"));
                }
                () = sleep_until(idle_up) => {
                    let limit = humantime::format_duration(idle);
                    return End::Limit(FailureCode::IdleLimit, format!("the session was idle for {limit}, its limit"));
                }
                () = sleep_until(time_up - WARNED_BEFORE.min(time)), if !warned_of_time => {
                    warned_of_time = true;
                    session.warn("time limit", WARNED_BEFORE).await;
                }
                () = sleep_until(idle_up - WARNED_BEFORE.min(idle)), if is_long => {
                    warned_of_idle = Some(session.active);
                    session.warn("idle limit", WARNED_BEFORE).await;
                }
                () = self.leaving.cancelled(), if !warned_of_drain => {
                    warned_of_drain = true;
                    session.warn("the worker is being stopped", self.config.grace).await;
                }
            }
        }
    }
}

impl OpenSession<'_> {
    /// Takes an event of the gate. Returns why the session ends, if it does.
    pub(super) fn take(&mut self, event: GateEvent, supervisor: &Supervisor) -> Option<End> {
        match event {
            GateEvent::Connected => None,
            GateEvent::Progress(progress) => {
                self.progressed(progress, supervisor);
                None
            }
            GateEvent::Ended { exit_code, signal } => Some(End::Command { exit_code, signal }),
            GateEvent::LostBefore => Some(End::Lost),
            GateEvent::Elsewhere => Some(End::Elsewhere),
            GateEvent::ClientLost => Some(End::Client("the command that opened the session has gone".to_owned())),
            GateEvent::Died(reason) => Some(End::died(&reason)),
        }
    }

    async fn warn(&mut self, reason: &str, within: Duration) {
        self.gate.warn(reason, u64::try_from(within.as_millis()).unwrap_or(u64::MAX)).await;
    }

    fn progressed(&mut self, progress: Progress, supervisor: &Supervisor) {
        let Progress { used, memory_bytes, has_engine, is_idle, fault } = progress;
        self.account(used, supervisor);
        if !is_idle {
            self.active = Instant::now();
        }
        let context = if has_engine { self.device.session_overhead() } else { 0 };
        self.device.session_holds(self.gate.pid(), Some(memory_bytes.saturating_add(context)));
        self.fault = self.fault.take().or(fault);
    }

    /// Charges the pool for what the session did since the last report. The device was busy for at most that time: the engine, which runs
    /// the program's code, may report anything.
    fn account(&mut self, used: SessionUse, supervisor: &Supervisor) {
        let used = used.bounded();
        supervisor.metrics.session_used(self.ready.demand.pool, &self.used, &used);
        let since = std::mem::replace(&mut self.accounted, Instant::now()).elapsed();
        let busy_us = used.busy_us.saturating_sub(self.used.busy_us).min(micros(since) + REPORT_US);
        if busy_us > 0 {
            self.presence.was_busy(Duration::from_micros(busy_us));
            supervisor.dispatcher.tell(Input::Used { job: self.job, used_us: busy_us });
        }
        self.charged_us += busy_us;
        self.used = used;
    }

    /// Ends the session for its client, and returns how its attempt ended.
    async fn ended(mut self, end: End, supervisor: &Supervisor) -> (Ending, AttemptResult) {
        let pid = self.gate.pid();
        let used = self.gate.close(end.told()).await;
        self.device.session_holds(pid, None);
        let Some((since, started_ms)) = self.started else {
            return (end.of_unopened(self.ready), AttemptResult::default());
        };
        self.account(used, supervisor);
        let Self { ready, device, fault, mut used, charged_us, .. } = self;
        if let End::Command { exit_code, signal } = &end {
            (used.exit_code, used.signal) = (*exit_code, *signal);
        }
        let open_us = micros(since.elapsed());
        let job_id = ready.task().job_id;
        info!(%job_id, open_us, calls = used.calls, busy_us = used.busy_us, "session ended");
        let attempt = AttemptResult {
            timings: Timings { total_us: open_us, device_bytes_peak: used.memory_bytes_peak, ..Timings::default() },
            ran_on: Some(device.ran_on(supervisor.config.name.clone())),
            started_ms: Some(started_ms),
            charged_us: Some(charged_us),
            session: Some(used),
            ..AttemptResult::default()
        };
        (end.ending(fault), attempt)
    }
}

impl End {
    fn died(reason: &str) -> Self {
        Self::Fleet(format!("the session's process ended: {reason}"))
    }

    /// Returns what the client is told. A client that has ended the session knows.
    fn told(&self) -> Option<String> {
        match self {
            Self::Command { .. } | Self::Lost | Self::Elsewhere => None,
            Self::Cancelled => Some("cancelled".to_owned()),
            Self::Limit(_, reason) | Self::Client(reason) | Self::Fleet(reason) => Some(reason.clone()),
        }
    }

    /// Returns the ending of the attempt. `fault` is what the device reported, if it did.
    pub(super) fn ending(self, fault: Option<String>) -> Ending {
        let failed = |verdict, code, message: String| Ending::Failed(Failure::new(verdict, code, message));
        match self {
            Self::Command { exit_code: Some(0), signal: None } => Ending::Succeeded,
            Self::Command { exit_code, signal } => {
                let how = match (exit_code, signal) {
                    (Some(code), _) => format!("the program exited with {code}"),
                    (None, Some(signal)) => format!("the program was ended by signal {signal}"),
                    (None, None) => "the program could not be started".to_owned(),
                };
                match fault {
                    Some(fault) => failed(Verdict::User, FailureCode::KernelFault, format!("{fault}; {how}")),
                    None => failed(Verdict::User, FailureCode::ProgramFailed, how),
                }
            }
            Self::Cancelled => Ending::Cancelled { reason: String::new() },
            Self::Limit(code, reason) => failed(Verdict::Timeout, code, reason),
            Self::Client(reason) => failed(Verdict::User, FailureCode::ClientLost, reason),
            Self::Fleet(reason) => failed(Verdict::Infrastructure, FailureCode::ExecutorLost, reason),
            Self::Lost | Self::Elsewhere => {
                let reason = "the worker on which the program ran has lost its session".to_owned();
                failed(Verdict::Infrastructure, FailureCode::ExecutorLost, reason)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_session_is_the_end_of_its_job() {
        let code = |end: End, fault: Option<&str>| match end.ending(fault.map(str::to_owned)) {
            Ending::Failed(failure) => Some((failure.verdict, failure.code)),
            _ => None,
        };
        let command = |exit_code, signal| End::Command { exit_code, signal };
        assert_eq!(
            command(Some(0), None).ending(Some("fault".to_owned())),
            Ending::Succeeded,
            "the program handled it"
        );
        assert_eq!(code(command(Some(3), None), None), Some((Verdict::User, FailureCode::ProgramFailed)));
        assert_eq!(code(command(None, Some(9)), None), Some((Verdict::User, FailureCode::ProgramFailed)));
        assert_eq!(code(command(Some(1), None), Some("700")), Some((Verdict::User, FailureCode::KernelFault)));
        let limit = End::Limit(FailureCode::IdleLimit, "idle".to_owned());
        assert_eq!(limit.told().as_deref(), Some("idle"));
        assert_eq!(code(limit, None), Some((Verdict::Timeout, FailureCode::IdleLimit)));
        assert_eq!(code(End::Client(String::new()), None), Some((Verdict::User, FailureCode::ClientLost)));
        assert_eq!(code(End::Fleet(String::new()), None), Some((Verdict::Infrastructure, FailureCode::ExecutorLost)));
    }
}
