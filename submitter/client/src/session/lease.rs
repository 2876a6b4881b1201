//! A lease of device memory: the control connection to the worker that holds it.

use std::{io, sync::Arc, time::Duration};

use gpufleet_schema::{
    SessionOffer, SessionUse,
    session::{self, FromClient, FromWorker, PING_MS, SILENCE_MS},
};
use tokio::{
    io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf},
    sync::mpsc,
    task::JoinSet,
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_util::sync::CancellationToken;

use super::route::{ProgramRoute, ReachError, Reached, Route, WorkerStream, reach};

/// Events that wait for the owner of a lease. A worker sends a handful in all.
const EVENTS_MAX: usize = 64;
/// The time for a worker to confirm that a session has ended.
const CLOSED_WITHIN: Duration = Duration::from_secs(5);

/// An open lease. Dropping it closes the connection, and the worker ends the session.
#[derive(Debug)]
pub struct Lease {
    route: Arc<Route>,
    round_trip: Duration,
    events: mpsc::Receiver<LeaseEvent>,
    messages: mpsc::Sender<FromClient>,
    /// Cancelled when the lease has ended.
    over: CancellationToken,
    /// The reader and the writer of the connection. Dropping this aborts them.
    _connection: JoinSet<()>,
}

/// What the owner of a lease learns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseEvent {
    /// The worker will end the session.
    Warning { reason: String, within: Duration },
    /// The last event.
    Ended(LeaseEnd),
}

/// How a lease ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseEnd {
    /// The worker has closed the session. Without a reason, it did so because the client had said that its command has ended.
    Closed { reason: Option<String>, used: SessionUse },
    /// The connection is lost.
    Lost { reason: String },
}

impl Lease {
    /// Connects to the worker of an offer. From then on the lease's time limit runs.
    ///
    /// If the future is cancelled, the worker waits for a client until its offer expires.
    pub async fn open(offer: &SessionOffer) -> Result<Self, ReachError> {
        Self::connect(offer, FromClient::Ping).await
    }

    /// Connects to the worker of an offer. The first message says what the client wants of the session.
    async fn connect(offer: &SessionOffer, first: FromClient) -> Result<Self, ReachError> {
        let Reached { route, mut control, round_trip } = reach(offer).await?;
        // After a failure the reader reports that the connection is lost.
        let _lost = write(&mut control, &first).await;
        let (input, output) = tokio::io::split(control);
        let (event, events) = mpsc::channel(EVENTS_MAX);
        let (messages, outgoing) = mpsc::channel(1);
        let over = CancellationToken::new();
        let mut connection = JoinSet::new();
        connection.spawn(receive(input, event, over.clone()));
        connection.spawn(send(output, outgoing));
        Ok(Self { route: Arc::new(route), round_trip, events, messages, over, _connection: connection })
    }

    /// The time of a message to the worker and back.
    pub fn round_trip(&self) -> Duration {
        self.round_trip
    }

    /// The way of programs to the worker, for a [`Relay`](super::Relay).
    pub fn route(&self) -> ProgramRoute {
        ProgramRoute { route: self.route.clone(), over: self.over.clone() }
    }

    /// Waits for the next event. `None` after [`LeaseEvent::Ended`]. Cancelling the future loses nothing.
    pub async fn next(&mut self) -> Option<LeaseEvent> {
        self.events.recv().await
    }

    /// Tells the worker how the command ended, and waits until it has closed the session, for some seconds. `None` if the end was reported by
    /// [`Lease::next`] before.
    ///
    /// If the future is cancelled, the worker may or may not know.
    pub async fn finish(&mut self, exit_code: Option<i32>, signal: Option<i32>) -> Option<LeaseEnd> {
        // An error means that the connection is lost, which is the next event.
        let _lost = self.messages.send(FromClient::Ended { exit_code, signal }).await;
        self.closed().await
    }

    /// Waits for some seconds until the worker has closed the session.
    async fn closed(&mut self) -> Option<LeaseEnd> {
        let ended = async {
            loop {
                match self.events.recv().await? {
                    LeaseEvent::Ended(end) => return Some(end),
                    LeaseEvent::Warning { .. } => {}
                }
            }
        };
        let late = || format!("the worker did not close the session within {} s", CLOSED_WITHIN.as_secs());
        timeout(CLOSED_WITHIN, ended).await.unwrap_or_else(|_| Some(LeaseEnd::Lost { reason: late() }))
    }
}

/// What has become of a session, for the worker of a later attempt.
///
/// The broker lets another worker offer a session again if it has lost the first one. That does not mean that the session is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is open, or its own worker reports how it ended.
    Kept,
    /// Its command ended in it.
    Ended { exit_code: Option<i32>, signal: Option<i32> },
    /// The program has lost it. It can't go on with other memory, and nothing runs it again.
    Lost,
}

impl Standing {
    /// The standing of a session, by its end if it has ended. `exit_code` and `signal` are those of its command.
    pub fn of(end: Option<&LeaseEnd>, exit_code: Option<i32>, signal: Option<i32>) -> Self {
        match end {
            None | Some(LeaseEnd::Closed { reason: Some(_), .. }) => Self::Kept,
            Some(LeaseEnd::Closed { reason: None, .. }) => Self::Ended { exit_code, signal },
            Some(LeaseEnd::Lost { .. }) => Self::Lost,
        }
    }

    /// Tells the worker of a later attempt, which then gives the job back or ends it.
    ///
    /// If the future is cancelled, that worker offers the session again later.
    pub async fn report(self, offer: &SessionOffer) -> Result<(), ReachError> {
        let message = match self {
            Self::Kept => FromClient::Elsewhere,
            Self::Ended { exit_code, signal } => FromClient::Ended { exit_code, signal },
            Self::Lost => FromClient::Lost,
        };
        Lease::connect(offer, message).await?.closed().await;
        Ok(())
    }
}

/// Reads the worker's messages until the last one.
async fn receive(mut input: ReadHalf<WorkerStream>, events: mpsc::Sender<LeaseEvent>, over: CancellationToken) {
    let end = loop {
        let event = match timeout(Duration::from_millis(SILENCE_MS), read(&mut input)).await {
            Ok(Ok(FromWorker::Ping)) => continue,
            Ok(Ok(FromWorker::Warning { reason, in_ms })) => {
                LeaseEvent::Warning { reason, within: Duration::from_millis(in_ms) }
            }
            Ok(Ok(FromWorker::Closed { reason, used })) => break LeaseEnd::Closed { reason, used },
            Ok(Err(error)) => break LeaseEnd::Lost { reason: lost(&error) },
            Err(_) => break LeaseEnd::Lost { reason: format!("the worker was silent for {} s", SILENCE_MS / 1000) },
        };
        // Without a reader, the lease is about to be dropped.
        let _dropped = events.send(event).await;
    };
    over.cancel();
    let _dropped = events.send(LeaseEvent::Ended(end)).await;
}

fn lost(error: &io::Error) -> String {
    match error.kind() {
        // A worker that closes before it has read everything resets the connection.
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => "the worker closed the connection".to_owned(),
        _ => format!("the connection to the worker broke: {error}"),
    }
}

async fn read(input: &mut ReadHalf<WorkerStream>) -> io::Result<FromWorker> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let mut length = [0; 4];
    input.read_exact(&mut length).await?;
    let mut body = vec![0; session::length(length).map_err(invalid)?];
    input.read_exact(&mut body).await?;
    session::decode(&body).map_err(invalid)
}

/// Writes pings, and the owner's messages. After a failure the reader reports that the connection is lost.
async fn send(mut output: WriteHalf<WorkerStream>, mut messages: mpsc::Receiver<FromClient>) {
    let mut pings = interval(Duration::from_millis(PING_MS));
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let message = tokio::select! {
            biased;
            message = messages.recv() => match message {
                Some(message) => message,
                None => return,
            },
            _ = pings.tick() => FromClient::Ping,
        };
        if write(&mut output, &message).await.is_err() {
            return;
        }
    }
}

async fn write(output: &mut (impl AsyncWrite + Unpin), message: &FromClient) -> io::Result<()> {
    output.write_all(&session::encode(message)).await?;
    output.flush().await
}
