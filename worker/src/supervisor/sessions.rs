//! Runs sessions: prepares them, offers them to their clients and ends them.
//!
//! The gate, a process of its own, has the connections of a session and its device ([`crate::session`]). The supervisor only hears of them,
//! because it holds the broker's password and must read nothing from strangers.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use gpufleet_schema::{
    Encoding, Failure, FailureCode, MessageId, Program, Requires, SessionOffer, SessionUse, Timings, Verdict,
    session::token_text,
    topology::{REPLIES, TYPE_OFFER},
};
use gpufleet_transport::{Message, Properties};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    Supervisor,
    attempt_result::AttemptResult,
    clock::{micros, unix_ms},
    content::JobContent,
    devices::{SessionPresence, WorkerDevice},
    handle::Input,
    outbox::unix_seconds,
    prepared::{CompiledPrograms, Ready, Resolved},
    preparing::{resolved, user},
};
use crate::{
    config::{Allowance, SessionAllowance, TimeAllowances},
    dispatcher::{JobNo, Unfit},
    disposition::Ending,
    executor::ComputeMode,
    scheduler::{Allowed, Demand, DeviceId, SessionTerms},
    session::{Gate, GateEvent, Progress, SessionOptions},
};

/// Time limit of a session that sets none.
const TIME_LIMIT_DEFAULT: Duration = Duration::from_secs(3600);
/// How long an offer waits for its client.
const CONNECT_WITHIN: Duration = Duration::from_secs(30);
/// How long before a time limit the client is warned.
const WARNED_BEFORE: Duration = Duration::from_secs(60);
/// Number of workers at which a session waits for memory before one reserves it.
const WAITS_BEFORE_INSISTING: u32 = 2;
/// The interval of a gate's reports in microseconds, by which two of them may be off.
const REPORT_US: u64 = 1_000_000;
/// How long a session waits for the broker to take its offer.
const OFFER_WITHIN: Duration = Duration::from_secs(10);

/// An open session, as its supervisor sees it.
struct OpenSession<'a> {
    job: JobNo,
    ready: &'a Ready,
    device: &'a WorkerDevice,
    presence: SessionPresence,
    gate: Gate,
    limits: SessionLimits,
    used: SessionUse,
    /// When the gate last reported.
    accounted: Instant,
    /// Device time that the pool was charged, in microseconds.
    charged_us: u64,
    fault: Option<String>,
    /// When the client connected.
    started: Option<(Instant, i64)>,
    active: Instant,
}

#[derive(Debug, Clone, Copy)]
struct SessionLimits {
    time: Duration,
    idle: Duration,
}

/// Why a session ends. The client gets the reason as text, unless it has ended the session itself.
enum End {
    Command { exit_code: Option<i32>, signal: Option<i32> },
    Cancelled,
    Limit(FailureCode, String),
    Client(String),
    Fleet(String),
}

impl Supervisor {
    /// Prepares a session: which devices it may use, with how much memory and for how long.
    pub(super) fn prepare_session(&self, job: JobContent) -> Result<Ready, Ending> {
        let resolved = Resolved::try_new(job, resolved)?;
        let job = resolved.borrow_owner();
        let (task, envelope) = (resolved.task(), job.envelope());
        let sessions = self.pool_spec(envelope).sessions;
        if job.message.is_list() {
            let one = "a session is a message of its own; publish each by itself".to_owned();
            return Err(user(FailureCode::InvalidTask, one));
        }
        if envelope.recipient(task.reply.as_ref(), envelope.reply_to().ok().flatten().as_ref()).is_none() {
            return Err(user(
                FailureCode::InvalidTask,
                "reply: missing; a session is offered to its client".to_owned(),
            ));
        }
        let time_limit = session_times(sessions, self.pool_spec(envelope).times).run_limit(&task.limits);
        let time_limit = time_limit.map_err(|too_long| user(FailureCode::Policy, too_long.to_string()))?;
        let idle = idle_limit(&task.program, sessions).map_err(|why| user(FailureCode::Policy, why))?;
        debug!(job_id = %task.job_id, ?time_limit, ?idle, "session prepared");
        let allowed = self.allowed_sessions(&task.needs());
        if allowed.is_empty() {
            return Err(self.session_elsewhere(Unfit::NoDevice, task, envelope));
        }
        let lease = task.limits.memory_bytes_max.expect("the check wants it");
        let terms = SessionTerms {
            memory_permille: sessions.memory_permille,
            insists: envelope.forwarding.forwards >= WAITS_BEFORE_INSISTING,
        };
        let may_use = self.devices.iter().filter(|device| allowed.has(device.id));
        let bytes = lease.saturating_add(may_use.map(WorkerDevice::session_overhead).max().unwrap_or(0));
        let demand = Demand {
            pool: envelope.pool_id,
            priority: envelope.priority,
            bytes,
            alone: false,
            prints: false,
            allowed,
            input: None,
            returnable: true,
            brief_us: None,
            session: Some(terms),
        };
        let programs = CompiledPrograms::default();
        Ok(Ready { resolved, needs_store: false, reply_bytes: 0, time_limit, demand, program: None, programs })
    }

    /// Returns the devices that a session may use. A device in exclusive mode belongs to its executor.
    fn allowed_sessions(&self, requires: &Requires) -> Allowed {
        let allowed = self.allowed(requires);
        let shared = self.devices.iter().filter(|device| device.info.compute_mode == ComputeMode::Shared);
        shared.map(|device| device.id).filter(|device| allowed.has(*device)).collect()
    }

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
        let options = SessionOptions {
            cuda: self.config.cuda.clone(),
            uuid: device.info.uuid.clone(),
            memory_bytes: ready.task().limits.memory_bytes_max.unwrap_or(0),
            listen: self.config.session_listen.clone(),
            user: self.config.executor_user.clone(),
        };
        let gate = tokio::select! {
            gate = Gate::start(&options) => gate,
            () = cancel.cancelled() => return AttemptResult::default().ended(job, End::Cancelled.ending(None)),
            end = self.ended_by_worker(device) => return AttemptResult::default().ended(job, end.ending(None)),
        };
        let gate = match gate {
            Ok(gate) => gate,
            Err(error) => {
                let end = End::Fleet(format!("the worker could not open the session: {error}"));
                return AttemptResult::default().ended(job, end.ending(None));
            }
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
    async fn ended_by_worker(&self, device: &WorkerDevice) -> End {
        tokio::select! {
            () = self.out_of_grace.cancelled() => End::Fleet("the worker was stopped".to_owned()),
            reason = device.out_of_service() => End::Fleet(reason),
        }
    }

    /// Offers the session and follows it to its end.
    async fn follow_session(&self, session: &mut OpenSession<'_>) -> End {
        let offered = tokio::time::timeout(OFFER_WITHIN, self.publish_offer(session));
        if !offered.await.unwrap_or(false) {
            return End::Fleet("the broker did not take the session's offer".to_owned());
        }
        let connected = tokio::time::timeout(CONNECT_WITHIN, session.gate.next()).await;
        match connected {
            Ok(GateEvent::Connected) => {}
            Ok(GateEvent::Died(reason)) => return End::Fleet(format!("the session's process ended: {reason}")),
            Ok(_) | Err(_) => {
                let seconds = CONNECT_WITHIN.as_secs();
                return End::Client(format!("no client connected to the session within {seconds} s"));
            }
        }
        let now = Instant::now();
        (session.started, session.active) = (Some((now, unix_ms())), now);
        let (task, envelope) = (session.ready.task(), session.ready.envelope());
        let ran_on = session.device.ran_on(self.config.name.clone());
        info!(job_id = %task.job_id, pool = %envelope.pool, device = session.device.id.0, "session opened");
        self.tell_started(task, envelope, &ran_on, unix_ms());
        let (mut is_warned, mut has_heard_of_drain) = (false, false);
        let time_up = now + session.limits.time;
        loop {
            let idle_up = session.active + session.limits.idle;
            tokio::select! {
                event = session.gate.next() => match session.take(event, self) {
                    Some(end) => return end,
                    None => continue,
                },
                () = sleep_until(time_up) => {
                    let limit = humantime::format_duration(session.limits.time);
                    return End::Limit(FailureCode::TimeLimit, format!("the session reached its time limit of {limit}"));
                }
                () = sleep_until(idle_up) => {
                    let limit = humantime::format_duration(session.limits.idle);
                    return End::Limit(FailureCode::IdleLimit, format!("the session was idle for {limit}, its limit"));
                }
                () = sleep_until(time_up - WARNED_BEFORE.min(session.limits.time)), if !is_warned && session.limits.time > WARNED_BEFORE => {
                    is_warned = true;
                    session.gate.warn("time limit", WARNED_BEFORE.as_millis() as u64).await;
                }
                () = self.leaving.cancelled(), if !has_heard_of_drain => {
                    has_heard_of_drain = true;
                    session.gate.warn("the worker is being stopped", self.config.grace.as_millis() as u64).await;
                }
            }
        }
    }

    /// Publishes the session's offer to its client. Returns whether the broker has it.
    async fn publish_offer(&self, session: &OpenSession<'_>) -> bool {
        let (task, envelope, gate) = (session.ready.task(), session.ready.envelope(), &session.gate);
        let reply_to = envelope.reply_to().ok().flatten();
        let Some(client) = envelope.recipient(task.reply.as_ref(), reply_to.as_ref()) else { return false };
        let offer = SessionOffer {
            version: gpufleet_schema::VERSION,
            job_id: task.job_id,
            attempt: envelope.attempt,
            addresses: self.session_addresses(gate.port()),
            certificate: gate.certificate().to_owned(),
            token: token_text(gate.token()),
            ran_on: session.device.ran_on(self.config.name.clone()),
            memory_bytes: task.limits.memory_bytes_max.unwrap_or(0),
            time_limit_ms: session.limits.time.as_millis() as u64,
            connect_within_ms: CONNECT_WITHIN.as_millis() as u64,
        };
        let message = Message {
            exchange: REPLIES,
            routing_key: client.to_string(),
            body: offer.encode(),
            properties: Properties {
                message_id: Some(MessageId::new().to_string()),
                correlation_id: Some(task.job_id.to_string()),
                content_type: Some(Encoding::MessagePack.content_type().to_owned()),
                kind: Some(TYPE_OFFER.to_owned()),
                timestamp: Some(unix_seconds()),
                headers: envelope.copied_headers(),
                ..Properties::default()
            },
        };
        let published = self.broker.publish(message).await;
        published.inspect_err(|error| warn!(job_id = %task.job_id, %error, "session not offered")).is_ok()
    }

    /// Returns the addresses under which clients may reach a port of this worker, the most likely first.
    fn session_addresses(&self, port: u16) -> Vec<String> {
        if let Some(host) = &self.config.session_advertise {
            return vec![with_port(host, port)];
        }
        let listens_on = self.config.session_listen.ip();
        if !listens_on.is_unspecified() {
            return vec![SocketAddr::new(listens_on, port).to_string()];
        }
        let mut nodes = self.config.broker.nodes().iter();
        let towards_broker = nodes.find_map(|node| local_address_towards(node.host(), node.port()));
        let local = towards_broker.map(|ip| SocketAddr::new(ip, port).to_string());
        local.into_iter().chain([with_port(&self.config.host, port)]).collect()
    }
}

impl OpenSession<'_> {
    /// Takes an event of the gate. Returns why the session ends, if it does.
    fn take(&mut self, event: GateEvent, supervisor: &Supervisor) -> Option<End> {
        match event {
            GateEvent::Connected => None,
            GateEvent::Progress(progress) => {
                self.progressed(progress, supervisor);
                None
            }
            GateEvent::Ended { exit_code, signal } => Some(End::Command { exit_code, signal }),
            GateEvent::LostBefore => {
                Some(End::Fleet("the worker on which the program ran has lost its session".to_owned()))
            }
            GateEvent::ClientLost => Some(End::Client("the command that opened the session has gone".to_owned())),
            GateEvent::Died(reason) => Some(End::Fleet(format!("the session's process ended: {reason}"))),
        }
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
        self.account(used, supervisor);
        let Self { ready, device, started, fault, mut used, charged_us, .. } = self;
        if let End::Command { exit_code, signal } = &end {
            (used.exit_code, used.signal) = (*exit_code, *signal);
        }
        let open_us = started.map_or(0, |(since, _)| micros(since.elapsed()));
        let job_id = ready.task().job_id;
        info!(%job_id, open_us, calls = used.calls, busy_us = used.busy_us, "session ended");
        let attempt = AttemptResult {
            timings: Timings { total_us: open_us, device_bytes_peak: used.memory_bytes_peak, ..Timings::default() },
            ran_on: started.map(|_| device.ran_on(supervisor.config.name.clone())),
            started_ms: started.map(|(_, at_ms)| at_ms),
            charged_us: started.map(|_| charged_us),
            session: started.map(|_| used),
            ..AttemptResult::default()
        };
        (end.ending(fault), attempt)
    }
}

impl End {
    /// Returns what the client is told. A client that has ended the session knows.
    fn told(&self) -> Option<String> {
        match self {
            Self::Command { .. } => None,
            Self::Cancelled => Some("cancelled".to_owned()),
            Self::Limit(_, reason) | Self::Client(reason) | Self::Fleet(reason) => Some(reason.clone()),
        }
    }

    /// Returns the ending of the attempt. `fault` is what the device reported, if it did.
    fn ending(self, fault: Option<String>) -> Ending {
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
        }
    }
}

/// Returns the time limits of a session in a pool: those of the session settings, and the queue limits of the pool.
fn session_times(sessions: SessionAllowance, pool: TimeAllowances) -> TimeAllowances {
    let run = Allowance { default: Some(TIME_LIMIT_DEFAULT), max: Some(sessions.time_max) };
    TimeAllowances { run, ..pool }
}

/// Returns the idle limit of a session, or why its pool does not allow it.
fn idle_limit(program: &Program<'_>, sessions: SessionAllowance) -> Result<Duration, String> {
    let Program::Session { idle_limit_ms: Some(asked_ms), .. } = program else { return Ok(sessions.idle_max) };
    let asked = Duration::from_millis(*asked_ms);
    if asked <= sessions.idle_max {
        return Ok(asked);
    }
    let (asked, most) = (humantime::format_duration(asked), humantime::format_duration(sessions.idle_max));
    Err(format!("the session asks for an idle limit of {asked}, but its pool allows at most {most}; lower the limit"))
}

fn with_port(host: &str, port: u16) -> String {
    match host.parse::<IpAddr>() {
        Ok(ip) => SocketAddr::new(ip, port).to_string(),
        Err(_) => format!("{host}:{port}"),
    }
}

/// Returns the address of this machine from which it reaches another. No packet is sent.
fn local_address_towards(host: &str, port: u16) -> Option<IpAddr> {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    socket.connect((host, port)).ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWANCE: SessionAllowance = SessionAllowance {
        count: 1,
        memory_permille: 500,
        time_max: Duration::from_secs(7200),
        idle_max: Duration::from_secs(60),
    };

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

    #[test]
    fn a_session_has_the_idle_limit_that_it_asks_for_up_to_the_pools() {
        let asks = |idle_limit_ms| {
            let program = Program::Session { label: "x".to_owned(), idle_limit_ms };
            idle_limit(&program, ALLOWANCE)
        };
        assert_eq!(asks(None), Ok(Duration::from_secs(60)));
        assert_eq!(asks(Some(5000)), Ok(Duration::from_secs(5)));
        assert!(asks(Some(60_001)).unwrap_err().contains("at most 1m"));
    }

    #[test]
    fn an_address_has_a_port_whatever_the_host_is() {
        assert_eq!(with_port("gpu-7", 9480), "gpu-7:9480");
        assert_eq!(with_port("10.0.0.7", 9480), "10.0.0.7:9480");
        assert_eq!(with_port("::1", 9480), "[::1]:9480");
        assert_eq!(local_address_towards("127.0.0.1", 5672), Some("127.0.0.1".parse().unwrap()));
    }
}
