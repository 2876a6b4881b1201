//! The link to the broker: two connections that open and close together, and reconnect by themselves.
//!
//! One connection publishes and another consumes, because a broker under alarm stops reading from a publishing connection, and
//! acknowledgements must still get through. When one of them fails, the link closes both and opens them again until it is closed, to the
//! next node if the broker is a cluster, with backoff after each round of all nodes. Both connections of a session lead to one node. lapin's
//! own recovery is off: it leaves confirms pending forever if the broker is frozen.
//!
//! Users of the link watch [`Link::sessions`]: a session is one pair of connections. Channels of an ended session are closed.

use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures::{
    StreamExt,
    future::join,
    stream::{BoxStream, select},
};
use lapin::{Connection, ConnectionProperties, Event};
use tokio::{sync::watch, time::timeout_at};
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};
use tracing::{debug, info, warn};

use crate::{BrokerUrl, ConnectError, Options, backoff::Backoff};

mod classify;
mod greeting;
mod nodes;
mod open_channel;
mod probe;
mod socket;

pub(crate) use classify::{
    blames_a_message, is_access_refused, is_brokers_defect, is_channel_level, is_locked, is_not_found,
    is_of_a_closed_channel, missing_exchange, reason_of,
};
pub use greeting::Release;
pub(crate) use greeting::release;
use nodes::Nodes;
pub(crate) use open_channel::{Frame, OpenChannel, queued};
use socket::Arrived;

/// The state of the link, for health checks and metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Connected,
    /// Connected, but the broker takes no messages now, with the broker's reason.
    Blocked(String),
    Reconnecting {
        since: Instant,
        attempt: u32,
    },
    Closed,
}

/// lapin's events of both connections.
type Listener = BoxStream<'static, Event>;

/// The limit for the answer of one node of several: a round trip. Another node can serve instead, so a silent one must not hold up a
/// short command for longer.
const NODE_ANSWERS_WITHIN: Duration = Duration::from_secs(3);

/// One pair of connections to one node.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: u64,
    url: BrokerUrl,
    publish: Connection,
    /// Changes whenever the broker has sent something over the connection that publishes.
    arrived: Arrived,
    consume: Connection,
    /// The users of channels. A user holds a token from before its first channel opens until its last is dropped.
    users: TaskTracker,
    failed: CancellationToken,
    failure: OnceLock<String>,
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) options: Options,
    nodes: Nodes,
    sessions: watch::Sender<Option<Arc<Session>>>,
    state: watch::Sender<State>,
    last_failure: Mutex<Option<String>>,
    session_ids: AtomicU64,
    /// Requests that the connections be closed. [`State::Closed`] reports that they are.
    pub(crate) stop: CancellationToken,
}

/// Why no session is available.
#[derive(Debug)]
pub(crate) enum NoSession {
    Closed,
    Timeout(Option<String>),
}

impl Session {
    /// Marks the session as failed. The link replaces it.
    pub(crate) fn fail(&self, reason: impl Into<String>) {
        let _already_failed = self.failure.set(reason.into());
        self.failed.cancel();
    }

    pub(crate) fn failed(&self) -> &CancellationToken {
        &self.failed
    }

    pub(crate) fn reason(&self) -> String {
        self.failure.get().cloned().unwrap_or_else(|| "the connection ended".to_owned())
    }

    /// Registers a user of channels, from before the first is opened until the last is dropped.
    pub(crate) fn user(&self) -> TaskTrackerToken {
        self.users.token()
    }

    pub(crate) async fn publish_channel(&self) -> lapin::Result<OpenChannel> {
        self.channel(&self.publish).await
    }

    /// Changes whenever the broker has sent something over the connection that publishes.
    pub(crate) fn arrived(&self) -> Arrived {
        self.arrived.clone()
    }

    pub(crate) async fn consume_channel(&self) -> lapin::Result<OpenChannel> {
        self.channel(&self.consume).await
    }

    async fn channel(&self, connection: &Connection) -> lapin::Result<OpenChannel> {
        let channel = connection.create_channel().await?;
        Ok(OpenChannel::new(channel, self.users.clone(), self.failed.clone()))
    }

    pub(crate) fn alive(&self) -> bool {
        self.publish.status().connected() && self.consume.status().connected()
    }

    /// Waits until all channels have been closed, except those with deliveries that are still held.
    async fn await_users(&self) {
        const DEADLINE: Duration = Duration::from_secs(3);
        self.users.close();
        if tokio::time::timeout(DEADLINE, self.users.wait()).await.is_err() {
            debug!(session = self.id, "closing the connection while channels are in use");
        }
    }

    /// Closes the connections with an AMQP handshake, but waits only a bounded time for a silent broker.
    async fn close(&self) {
        const DEADLINE: Duration = Duration::from_secs(3);
        let both = async {
            let closing = join(self.publish.close(200, "OK".into()), self.consume.close(200, "OK".into()));
            let (publish, consume) = closing.await;
            if let Err(error) = publish.and(consume) {
                debug!(session = self.id, %error, "connection ended before the close handshake");
            }
        };
        if tokio::time::timeout(DEADLINE, both).await.is_err() {
            debug!(session = self.id, "broker did not answer the close handshake");
        }
    }
}

impl Link {
    /// Opens the first session and starts the task that keeps one open.
    pub(crate) async fn open(options: Options) -> Result<Arc<Self>, ConnectError> {
        let (sessions, _) = watch::channel(None);
        let (state, _) = watch::channel(State::Connected);
        let link = Arc::new(Self {
            nodes: Nodes::shuffled(&options.urls),
            options,
            sessions,
            state,
            last_failure: Mutex::new(None),
            session_ids: AtomicU64::new(1),
            stop: CancellationToken::new(),
        });
        // A single node is not probed, because a probe costs a round trip and RabbitMQ logs it as an error.
        let (session, events) = link.connect_to_any(link.nodes.are_several()).await?;
        link.sessions.send_replace(Some(session.clone()));
        tokio::spawn(supervise(link.clone(), session, events));
        Ok(link)
    }

    pub(crate) fn state(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    pub(crate) fn sessions(&self) -> watch::Receiver<Option<Arc<Session>>> {
        self.sessions.subscribe()
    }

    /// Why the broker takes no messages, or why the link is down.
    pub(crate) fn trouble(&self) -> Option<String> {
        match &*self.state.borrow() {
            State::Connected => None,
            State::Blocked(reason) => Some(format!("the broker blocks publishing: {reason}")),
            State::Reconnecting { attempt, .. } => {
                Some(format!("reconnecting, attempt {attempt}: {}", self.last_failure().unwrap_or_default()))
            }
            State::Closed => Some("closed".to_owned()),
        }
    }

    /// A live session. If there is none, this waits for one.
    pub(crate) async fn session(&self, deadline: tokio::time::Instant) -> Result<Arc<Session>, NoSession> {
        let mut sessions = self.sessions();
        let found = async {
            match sessions.wait_for(|s| s.as_ref().is_some_and(|s| !s.failed.is_cancelled())).await {
                Ok(session) => Ok(session.clone().expect("waited for one that is there")),
                Err(_) => Err(NoSession::Closed),
            }
        };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(NoSession::Closed),
            outcome = timeout_at(deadline, found) => outcome.unwrap_or_else(|_| Err(NoSession::Timeout(self.trouble()))),
        }
    }

    fn last_failure(&self) -> Option<String> {
        self.last_failure.lock().expect("nothing panics under this lock").clone()
    }

    fn remember(&self, failure: String) {
        *self.last_failure.lock().expect("nothing panics under this lock") = Some(failure);
    }

    /// Tries each node once, each with its own deadline. An error that concerns all nodes ends the round.
    async fn connect_to_any(&self, is_probed: bool) -> Result<(Arc<Session>, Listener), ConnectError> {
        let mut errors = Vec::new();
        for url in self.nodes.round() {
            match self.connect(url, is_probed).await {
                Ok(connected) => return Ok(connected),
                Err(error) if error.concerns_all_nodes() => return Err(error),
                Err(error) => {
                    debug!(%error, "failed to connect to a node");
                    errors.push(error);
                }
            }
        }
        Err(ConnectError::of_round(errors))
    }

    async fn connect(&self, url: &BrokerUrl, is_probed: bool) -> Result<(Arc<Session>, Listener), ConnectError> {
        if is_probed {
            probe::answers(url, self.answer_deadline()).await?;
        }
        let waited = self.options.connect_deadline;
        let id = self.session_ids.fetch_add(1, Ordering::Relaxed);
        // Waits for both attempts even if one fails, because lapin's thread panics if the runtime is dropped while it connects.
        let both = async {
            let (publish, consume) = join(self.connection(url, "publish"), self.connection(url, "consume")).await;
            Ok((publish?, consume?.0))
        };
        let ((publish, arrived), consume) = tokio::time::timeout(waited, both)
            .await
            .map_err(|_| ConnectError::Timeout { url: url.clone(), waited })?
            .map_err(|error: lapin::Error| classify::connect_error(url, &error))?;
        let session = Session {
            id,
            url: url.clone(),
            publish,
            arrived,
            consume,
            users: TaskTracker::new(),
            failed: CancellationToken::new(),
            failure: OnceLock::new(),
        };
        let events = select(session.publish.events_listener(), session.consume.events_listener());
        Ok((Arc::new(session), events.boxed()))
    }

    fn answer_deadline(&self) -> Duration {
        let deadline = self.options.connect_deadline;
        if self.nodes.are_several() { deadline.min(NODE_ANSWERS_WITHIN) } else { deadline }
    }

    /// A connection outside any session, to the session's node, for an operation that may close its connection.
    pub(crate) async fn connection_apart(&self, session: &Session) -> Result<Connection, ConnectError> {
        let url = &session.url;
        probe::answers(url, self.answer_deadline()).await?;
        let opened = self.connection(url, "consume").await;
        opened.map(|(connection, _)| connection).map_err(|error| classify::connect_error(url, &error))
    }

    async fn connection(&self, url: &BrokerUrl, purpose: &str) -> lapin::Result<(Connection, Arrived)> {
        let mut uri = url.uri().clone();
        uri.query.heartbeat = Some(u16::try_from(self.options.heartbeat.as_secs()).unwrap_or(u16::MAX).max(1));
        uri.query.connection_timeout = u64::try_from(self.options.connect_deadline.as_millis()).ok();
        let name = format!("{} ({purpose})", self.options.name);
        let properties = ConnectionProperties::default().with_connection_name(name.into());
        socket::connect(uri, properties).await
    }
}

/// Keeps a session open until the link is stopped. Only this task writes the link's state.
async fn supervise(link: Arc<Link>, mut session: Arc<Session>, mut events: Listener) {
    loop {
        let stopped = watch_over(&link, &session, &mut events).await;
        link.sessions.send_replace(None);
        if stopped {
            session.fail("this client closed the connection");
            session.await_users().await;
            session.close().await;
            break;
        }
        let reason = session.reason();
        warn!(url = %session.url, session = session.id, reason, "broker connection lost");
        link.remember(reason);
        tokio::spawn(async move { session.close().await });
        match reconnect(&link).await {
            Some((next, next_events)) => (session, events) = (next, next_events),
            None => break,
        }
        info!(url = %session.url, session = session.id, "broker connection restored");
        link.state.send_replace(State::Connected);
        link.sessions.send_replace(Some(session.clone()));
    }
    link.state.send_replace(State::Closed);
}

/// Returns when the session has failed (false) or the link is to stop (true).
async fn watch_over(link: &Link, session: &Session, events: &mut Listener) -> bool {
    /// lapin reports every known kind of failure as an event; this check finds any other.
    const CHECK_INTERVAL: Duration = Duration::from_secs(1);
    let mut check = tokio::time::interval(CHECK_INTERVAL);
    loop {
        tokio::select! {
            biased;
            () = link.stop.cancelled() => return true,
            () = session.failed.cancelled() => return false,
            event = events.next() => match event {
                // The broker reports an alarm to the connection that publishes, and its end to both.
                Some(Event::ConnectionBlocked(reason)) => {
                    warn!(reason, "broker blocks publishing");
                    link.state.send_replace(State::Blocked(reason));
                }
                Some(Event::ConnectionUnblocked) => {
                    if link.state.send_replace(State::Connected) != State::Connected {
                        info!("broker unblocked publishing");
                    }
                }
                // Channel errors come here too; only a closed connection concerns the link.
                Some(Event::Error(error)) if !session.alive() => session.fail(reason_of(&error)),
                Some(_) => {}
                None => session.fail("the connection ended"),
            },
            _ = check.tick() => if !session.alive() {
                session.fail("the connection ended");
            },
        }
    }
}

async fn reconnect(link: &Arc<Link>) -> Option<(Arc<Session>, Listener)> {
    let since = Instant::now();
    let mut backoff = Backoff::default();
    loop {
        link.state.send_replace(State::Reconnecting { since, attempt: backoff.attempt() + 1 });
        tokio::select! {
            biased;
            () = link.stop.cancelled() => return None,
            () = backoff.wait() => {}
        }
        let outcome = tokio::select! {
            biased;
            () = link.stop.cancelled() => return None,
            outcome = link.connect_to_any(true) => outcome,
        };
        match outcome {
            Ok((session, events)) => return Some((session, events)),
            Err(error) => {
                debug!(attempt = backoff.attempt(), %error, "connection attempt failed");
                link.remember(error.to_string());
            }
        }
    }
}
