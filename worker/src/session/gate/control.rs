//! The client's control connection.

use std::time::Duration;

use gpufleet_schema::session::{FromClient, FromWorker, PING_MS, SILENCE_MS, encode};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, split},
    sync::mpsc,
    task::JoinHandle,
    time::{interval, timeout},
};

use super::{door::Tls, keeper::Happening};
use crate::session::message;

/// Maximum messages that wait to be sent.
const MESSAGES_MAX: usize = 16;
/// Time within which the last message must be sent.
const LAST_DEADLINE: Duration = Duration::from_millis(500);

/// A client that has connected.
pub(super) struct Control {
    messages: mpsc::Sender<FromWorker>,
    writing: JoinHandle<()>,
}

impl Control {
    /// Starts to talk to the client.
    pub(super) fn open(connection: Tls, happenings: mpsc::Sender<Happening>) -> Self {
        let (reader, writer) = split(connection);
        let (messages, waiting) = mpsc::channel(MESSAGES_MAX);
        tokio::spawn(read(reader, happenings));
        Self { messages, writing: tokio::spawn(write(writer, waiting)) }
    }

    /// Sends a message, unless the client has not read for so long that it counts as lost anyway.
    pub(super) fn say(&self, message: FromWorker) {
        drop(self.messages.try_send(message));
    }

    /// Sends the last message.
    pub(super) async fn close(self, last: FromWorker) {
        let Self { messages, writing } = self;
        drop(messages.try_send(last));
        // So the writer ends once it has sent them all.
        drop(messages);
        drop(timeout(LAST_DEADLINE, writing).await);
    }
}

/// Reads the client's messages until the connection ends, or the client is silent. Only the first ping has a meaning.
async fn read(mut connection: impl AsyncRead + Unpin, happenings: mpsc::Sender<Happening>) {
    let silence = Duration::from_millis(SILENCE_MS);
    let mut is_first = true;
    while let Ok(Ok(Some(said))) = timeout(silence, message::read(&mut connection)).await {
        let has_meaning = is_first || said != FromClient::Ping;
        is_first = false;
        if has_meaning && happenings.send(Happening::Said(said)).await.is_err() {
            return;
        }
    }
    drop(happenings.send(Happening::ClientGone).await);
}

/// Sends messages, and pings between them, until there are no more.
async fn write(mut connection: impl AsyncWrite + Unpin, mut messages: mpsc::Receiver<FromWorker>) {
    let mut pings = interval(Duration::from_millis(PING_MS));
    loop {
        let message = tokio::select! {
            biased;
            message = messages.recv() => message,
            _ = pings.tick() => Some(FromWorker::Ping),
        };
        let Some(message) = message else { break };
        let sent = connection.write_all(&encode(&message)).await;
        if sent.is_err() || connection.flush().await.is_err() {
            return;
        }
    }
    drop(connection.shutdown().await);
}

#[cfg(test)]
mod tests {
    use tokio::{io::duplex, time::Instant};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_is_gone_when_it_is_silent() {
        let (connection, mut client) = duplex(1 << 10);
        let (sender, mut happenings) = mpsc::channel(4);
        let start = Instant::now();
        tokio::spawn(read(connection, sender));
        client.write_all(&encode(&FromClient::Ping)).await.unwrap();
        assert!(matches!(happenings.recv().await, Some(Happening::Said(FromClient::Ping))));
        for _ in 0..3 {
            tokio::time::advance(Duration::from_millis(SILENCE_MS - 1)).await;
            client.write_all(&encode(&FromClient::Ping)).await.unwrap();
            tokio::task::yield_now().await;
            assert!(happenings.try_recv().is_err(), "only the first ping counts");
        }
        client.write_all(&encode(&FromClient::Lost)).await.unwrap();
        assert!(matches!(happenings.recv().await, Some(Happening::Said(FromClient::Lost))));
        assert!(matches!(happenings.recv().await, Some(Happening::ClientGone)));
        assert!(start.elapsed() >= Duration::from_millis(4 * SILENCE_MS - 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_gets_pings_between_messages_until_the_last_one() {
        let (connection, mut worker) = duplex(1 << 10);
        let (messages, waiting) = mpsc::channel(4);
        let writing = tokio::spawn(write(connection, waiting));
        let mut next = async || message::read::<FromWorker>(&mut worker).await.unwrap();
        assert_eq!(next().await, Some(FromWorker::Ping));
        let start = Instant::now();
        assert_eq!(next().await, Some(FromWorker::Ping));
        assert_eq!(start.elapsed(), Duration::from_millis(PING_MS));
        let warning = FromWorker::Warning { reason: "x".to_owned(), in_ms: 1 };
        messages.send(warning.clone()).await.unwrap();
        drop(messages);
        assert_eq!((next().await, next().await), (Some(warning), None));
        writing.await.unwrap();
    }
}
