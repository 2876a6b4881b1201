//! The state of a session: its client, its engine, and what it has used.

use std::{sync::Arc, time::Duration};

use gpufleet_schema::{
    SessionUse,
    session::{FromClient, FromWorker, Purpose, encode},
};
use gpufleet_session::counters::fault_name;
use tokio::{
    io::{AsyncWriteExt as _, BufReader},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval, sleep_until, timeout},
};

use super::{
    control::Control,
    door::{Door, Tls},
    program::{Engine, EngineOptions},
};
use crate::session::message::{self, FromGate, GateEvent, Progress, ToGate};

/// How often the gate reports what the session has done.
const REPORT_PERIOD: Duration = Duration::from_secs(1);
/// How long a process of the program waits for the end of the engine before it, which is killed after a second. The kernel may take long to
/// free the memory of a large device.
const TURN_DEADLINE: Duration = Duration::from_secs(12);
/// Time within which the engine must have ended when the session ends.
const ENGINE_DEADLINE: Duration = Duration::from_secs(11);
/// Maximum happenings that wait.
const HAPPENINGS_MAX: usize = 16;

/// What the keeper must know.
pub(super) enum Happening {
    /// A connection has shown the token.
    Admitted(Purpose, Box<Tls>),
    Said(FromClient),
    ClientGone,
    EngineEnded,
    Told(ToGate),
    SupervisorGone,
}

enum Client {
    Awaited,
    /// It has connected, and has not said whether it wants the session.
    Connected(Control),
    Here(Control),
    /// It has said that its command ended, or that this session has none.
    Done(Control),
    Gone,
}

/// A process of the program that waits for its turn.
struct Waiting {
    connection: Box<Tls>,
    until: Instant,
}

pub(super) struct Keeper {
    options: Arc<EngineOptions>,
    supervisor: OwnedWriteHalf,
    happenings: (mpsc::Sender<Happening>, mpsc::Receiver<Happening>),
    client: Client,
    engine: Option<Engine>,
    waiting: Option<Waiting>,
    /// The use by engines that have ended, and how the command ended.
    used: SessionUse,
    /// The use that was last reported.
    reported: SessionUse,
    fault: Option<String>,
    /// What the client said at the end of its command. It is passed on when the engine has ended, with its last counters.
    end: Option<GateEvent>,
}

impl Keeper {
    pub(super) fn new(options: EngineOptions, supervisor: UnixStream) -> Self {
        let (orders, supervisor) = supervisor.into_split();
        let happenings = mpsc::channel(HAPPENINGS_MAX);
        let used = SessionUse { memory_bytes: options.memory_bytes, ..SessionUse::default() };
        tokio::spawn(listen(orders, happenings.0.clone()));
        Self {
            options: Arc::new(options),
            supervisor,
            happenings,
            client: Client::Awaited,
            engine: None,
            waiting: None,
            reported: used.clone(),
            used,
            fault: None,
            end: None,
        }
    }

    /// Keeps the session until the supervisor ends it, or has gone.
    pub(super) async fn keep(mut self, door: Door) {
        tokio::spawn(door.watch(self.happenings.0.clone()));
        let mut reports = interval(REPORT_PERIOD);
        reports.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let turn_ends = self.waiting.as_ref().map(|waiting| waiting.until);
            tokio::select! {
                happening = self.happenings.1.recv() => match happening {
                    Some(Happening::Told(ToGate::Close { reason })) => return self.close(reason).await,
                    Some(Happening::SupervisorGone) | None => return,
                    Some(happening) => self.take(happening).await,
                },
                _ = reports.tick(), if matches!(self.client, Client::Here(_)) => self.report().await,
                () = sleep_until(turn_ends.unwrap_or_else(Instant::now)), if turn_ends.is_some() => self.waiting = None,
            }
        }
    }

    async fn take(&mut self, happening: Happening) {
        match happening {
            Happening::Admitted(Purpose::Control, connection) => self.client_connected(connection),
            Happening::Admitted(Purpose::Program, connection) => self.program_connected(connection),
            Happening::Said(said) => self.client_said(said).await,
            Happening::ClientGone => self.client_gone().await,
            Happening::EngineEnded => self.engine_ended().await,
            Happening::Told(ToGate::Warn { reason, in_ms }) => {
                if let Client::Here(control) = &self.client {
                    control.say(FromWorker::Warning { reason, in_ms });
                }
            }
            Happening::Told(ToGate::Close { .. }) | Happening::SupervisorGone => {}
        }
    }

    /// The first control connection is the client's. Later ones are closed.
    fn client_connected(&mut self, connection: Box<Tls>) {
        if matches!(self.client, Client::Awaited) {
            self.client = Client::Connected(Control::open(*connection, self.happenings.0.clone()));
        }
    }

    /// Serves a process of the program, or lets one wait for its turn.
    fn program_connected(&mut self, connection: Box<Tls>) {
        match (&self.client, &self.engine, &self.waiting) {
            (Client::Connected(_) | Client::Here(_), None, _) => self.start_engine(connection),
            (Client::Connected(_) | Client::Here(_), Some(_), None) => {
                self.waiting = Some(Waiting { connection, until: Instant::now() + TURN_DEADLINE });
            }
            _ => {}
        }
    }

    fn start_engine(&mut self, connection: Box<Tls>) {
        self.engine = Some(Engine::start(Arc::clone(&self.options), *connection, self.happenings.0.clone()));
    }

    async fn client_said(&mut self, said: FromClient) {
        let control = match std::mem::replace(&mut self.client, Client::Gone) {
            Client::Connected(control) | Client::Here(control) => control,
            other => return self.client = other,
        };
        let end = match said {
            FromClient::Ping => {
                self.client = Client::Here(control);
                return self.tell(GateEvent::Connected).await;
            }
            FromClient::Ended { exit_code, signal } => {
                (self.used.exit_code, self.used.signal) = (exit_code, signal);
                GateEvent::Ended { exit_code, signal }
            }
            FromClient::Lost => GateEvent::LostBefore,
            FromClient::Elsewhere => GateEvent::Elsewhere,
        };
        self.client = Client::Done(control);
        self.waiting = None;
        match &self.engine {
            Some(engine) => {
                engine.stop();
                self.end = Some(end);
            }
            None => self.tell(end).await,
        }
    }

    async fn client_gone(&mut self) {
        if let Client::Connected(_) | Client::Here(_) = std::mem::replace(&mut self.client, Client::Gone) {
            self.waiting = None;
            self.tell(GateEvent::ClientLost).await;
        }
    }

    async fn engine_ended(&mut self) {
        let Some(engine) = self.engine.take() else { return };
        self.used = added(&self.used, &engine.used());
        if let Some(name) = fault_name(engine.report().fault) {
            self.fault = Some(name.to_owned());
        }
        self.report().await;
        if let Some(end) = self.end.take() {
            self.tell(end).await;
        }
        if let (Some(Waiting { connection, .. }), Client::Here(_)) = (self.waiting.take(), &self.client) {
            self.start_engine(connection);
        }
    }

    /// Ends the session, and tells everyone.
    async fn close(mut self, reason: Option<String>) {
        self.waiting = None;
        if let Some(engine) = &self.engine {
            engine.stop();
            drop(timeout(ENGINE_DEADLINE, engine_end(&mut self.happenings.1)).await);
        }
        let used = self.used_so_far();
        if let Client::Connected(control) | Client::Here(control) | Client::Done(control) = self.client {
            control.close(FromWorker::Closed { reason, used: used.clone() }).await;
        }
        drop(self.supervisor.write_all(&encode(&FromGate::Closed(used))).await);
    }

    fn used_so_far(&self) -> SessionUse {
        match &self.engine {
            Some(engine) => added(&self.used, &engine.used()),
            None => self.used.clone(),
        }
    }

    /// Reports what the session has done.
    async fn report(&mut self) {
        let used = self.used_so_far();
        let has_engine = self.engine.is_some();
        let engine = self.engine.as_ref().map(Engine::report).unwrap_or_default();
        let progress = Progress {
            has_engine,
            memory_bytes: engine.memory_bytes.min(self.options.memory_bytes),
            is_idle: !engine.is_active && used == self.reported,
            fault: fault_name(engine.fault).map(str::to_owned).or_else(|| self.fault.clone()),
            used: used.clone(),
        };
        self.reported = used;
        self.tell(GateEvent::Progress(progress)).await;
    }

    async fn tell(&mut self, event: GateEvent) {
        // The reader of the supervisor's socket notices its end.
        drop(self.supervisor.write_all(&encode(&FromGate::Event(event))).await);
    }
}

/// Waits until an engine has ended. Nothing else matters any more.
async fn engine_end(happenings: &mut mpsc::Receiver<Happening>) {
    while let Some(happening) = happenings.recv().await {
        if matches!(happening, Happening::EngineEnded) {
            return;
        }
    }
}

/// Reads the supervisor's messages until its end.
async fn listen(orders: OwnedReadHalf, happenings: mpsc::Sender<Happening>) {
    let mut orders = BufReader::new(orders);
    while let Ok(Some(order)) = message::read(&mut orders).await {
        if happenings.send(Happening::Told(order)).await.is_err() {
            return;
        }
    }
    drop(happenings.send(Happening::SupervisorGone).await);
}

/// Adds the use of one engine to that of those before it.
fn added(before: &SessionUse, engine: &SessionUse) -> SessionUse {
    SessionUse {
        processes: before.processes.saturating_add(engine.processes),
        calls: before.calls.saturating_add(engine.calls),
        waits: before.waits.saturating_add(engine.waits),
        sent_bytes: before.sent_bytes.saturating_add(engine.sent_bytes),
        received_bytes: before.received_bytes.saturating_add(engine.received_bytes),
        busy_us: before.busy_us.saturating_add(engine.busy_us),
        memory_bytes: before.memory_bytes,
        memory_bytes_peak: before.memory_bytes_peak.max(engine.memory_bytes_peak),
        exit_code: before.exit_code,
        signal: before.signal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_use_of_engines_adds_up_to_the_highest_peak() {
        let first =
            SessionUse { processes: 1, calls: 3, memory_bytes_peak: 900, exit_code: Some(1), ..Default::default() };
        let second = SessionUse { processes: 1, calls: u64::MAX, memory_bytes_peak: 800, ..Default::default() };
        let both = SessionUse { processes: 2, calls: u64::MAX, ..first.clone() };
        assert_eq!(added(&first, &second), both);
    }
}
