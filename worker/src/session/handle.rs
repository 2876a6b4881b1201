//! The supervisor's side of a gate.

use std::{io, path::Path, process::Command, time::Duration};

use gpufleet_schema::{
    SessionUse,
    session::{TOKEN_BYTES, encode},
};
use serde::Serialize;
use tokio::{
    io::AsyncWriteExt as _,
    net::unix::OwnedWriteHalf,
    sync::mpsc,
    time::{Instant, timeout, timeout_at},
};

use super::{
    SessionOptions,
    message::{self, FromGate, GateEvent, GateReady, ToGate},
};
use crate::{
    executor::{ChildProcess, Incoming, KillOnDrop},
    own_executable,
};

/// Time limit for starting a gate, which makes a key and binds a port.
const READY_DEADLINE: Duration = Duration::from_secs(30);
/// Time limit for ending a session. A gate that takes longer is killed.
const CLOSE_DEADLINE: Duration = Duration::from_secs(12);
/// Time limit for a message to a gate.
const SAY_DEADLINE: Duration = Duration::from_secs(2);
/// Time within which a gate that has closed its socket must exit.
const EXIT_DEADLINE: Duration = Duration::from_secs(5);
/// Maximum events that wait for the supervisor.
const EVENTS_MAX: usize = 64;

/// A gate that is ready for its client. Dropping it kills the gate and its engine.
#[derive(Debug)]
pub struct Gate {
    ready: GateReady,
    process: ChildProcess,
    outgoing: OwnedWriteHalf,
    events: mpsc::Receiver<FromGate>,
    /// The last use that the gate reported.
    used: SessionUse,
}

/// Why a gate did not start.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    #[error("failed to start the session's process: {0}")]
    Spawn(#[from] io::Error),
    #[error("{0}")]
    Refused(String),
    #[error("the session's process died: {0}")]
    Died(String),
    #[error("the session's process was not ready within {} s", READY_DEADLINE.as_secs())]
    Timeout,
}

impl Gate {
    /// Starts a gate and waits until clients can connect. Cancelling kills it.
    pub async fn start(options: &SessionOptions) -> Result<Self, GateError> {
        Self::start_program(None, options).await
    }

    /// Starts a gate of this program; by default the running one.
    pub async fn start_program(executable: Option<&Path>, options: &SessionOptions) -> Result<Self, GateError> {
        let (child, mut incoming, outgoing) = KillOnDrop::spawn(command(executable, options), None).await?;
        let ready = match timeout(READY_DEADLINE, message::read(&mut incoming)).await {
            Ok(Ok(Some(FromGate::Ready(ready)))) => ready,
            Ok(Ok(Some(FromGate::Failed(reason)))) => return Err(GateError::Refused(reason)),
            Ok(_) => return Err(GateError::Died(child.end().await.describe())),
            Err(_) => return Err(GateError::Timeout),
        };
        let process = child.release();
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        tokio::spawn(listen(incoming, process.clone(), sender));
        let used = SessionUse { memory_bytes: options.memory_bytes, ..SessionUse::default() };
        Ok(Self { ready, process, outgoing, events, used })
    }

    pub fn port(&self) -> u16 {
        self.ready.port
    }

    /// Returns the BLAKE3 digest of the certificate, in hexadecimal.
    pub fn certificate(&self) -> &str {
        &self.ready.certificate
    }

    pub fn token(&self) -> &[u8; TOKEN_BYTES] {
        &self.ready.token
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Waits for the next event. Cancelling loses nothing. After [`GateEvent::Died`] there is none.
    pub async fn next(&mut self) -> GateEvent {
        loop {
            match self.events.recv().await {
                Some(FromGate::Event(event)) => {
                    self.note(&event);
                    return event;
                }
                // It is not the time for other messages.
                Some(_) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// Warns the client that the session will end.
    pub async fn warn(&mut self, reason: &str, in_ms: u64) {
        self.say(&ToGate::Warn { reason: reason.to_owned(), in_ms }).await;
    }

    /// Ends the session: the engine ends, the client gets the reason and the use, and the gate exits. Kills it if it takes longer than 12 s,
    /// which an engine takes at most after a kill. Returns the final use, once the gate has exited.
    pub async fn close(&mut self, reason: Option<String>) -> SessionUse {
        let deadline = Instant::now() + CLOSE_DEADLINE;
        self.say(&ToGate::Close { reason }).await;
        while let Ok(Some(message)) = timeout_at(deadline, self.events.recv()).await {
            match message {
                FromGate::Closed(used) => self.used = used,
                FromGate::Event(event) => self.note(&event),
                FromGate::Ready(_) | FromGate::Failed(_) => {}
            }
        }
        self.process.kill();
        self.process.exit().await;
        std::mem::take(&mut self.used)
    }

    fn note(&mut self, event: &GateEvent) {
        if let GateEvent::Progress(progress) = event {
            self.used = progress.used.clone();
        }
    }

    async fn say(&mut self, message: &impl Serialize) {
        // A gate that has died says so by its end.
        drop(timeout(SAY_DEADLINE, self.outgoing.write_all(&encode(message))).await);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.process.kill();
    }
}

fn command(executable: Option<&Path>, options: &SessionOptions) -> Command {
    let SessionOptions { cuda, uuid, memory_bytes, listen, user } = options;
    let mut command = own_executable::command(executable, "session");
    command.arg("--cuda").arg(cuda.to_string()).arg("--uuid").arg(uuid);
    command.arg("--memory-bytes").arg(memory_bytes.to_string()).arg("--listen").arg(listen.to_string());
    if let Some(user) = user {
        command.arg("--user").arg(user);
    }
    command
}

/// Passes on the gate's messages, and at last how it ended.
async fn listen(mut incoming: Incoming, process: ChildProcess, events: mpsc::Sender<FromGate>) {
    while let Ok(Some(message)) = message::read(&mut incoming).await {
        // Without a receiver, the gate is being killed.
        if events.send(message).await.is_err() {
            return;
        }
    }
    let exit = match timeout(EXIT_DEADLINE, process.exit()).await {
        Ok(exit) => exit,
        Err(_) => {
            process.kill();
            process.exit().await
        }
    };
    drop(events.send(FromGate::Event(GateEvent::Died(exit.describe()))).await);
}
