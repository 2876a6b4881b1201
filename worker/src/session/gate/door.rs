//! Lets in the connections that show the session's token.

use std::{collections::VecDeque, io, sync::Arc, time::Duration};

use gpufleet_schema::session::{PREFACE_BYTES, Preface, Purpose, TOKEN_BYTES};
use gpufleet_session::serve::is_same;
use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::{
    io::{AsyncReadExt as _, BufReader},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::{identity::Identity, keeper::Happening};

/// Time within which a connection must have shown the token.
const PREFACE_DEADLINE: Duration = Duration::from_secs(5);
/// Maximum connections that have not shown it yet.
const STRANGERS_MAX: usize = 8;
/// A peer that does not acknowledge bytes for this long is gone, in milliseconds.
const USER_TIMEOUT_MS: u32 = 10_000;
/// Bytes that are received at a time. TLS alone would ask for few.
const RECEIVED_BYTES: usize = 64 << 10;
/// Pause after an accept that failed, for example because there were too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A connection with TLS.
pub(super) type Tls = TlsStream<BufReader<TcpStream>>;

pub(super) struct Door {
    listener: TcpListener,
    tls: TlsAcceptor,
    token: Arc<[u8; TOKEN_BYTES]>,
}

impl Door {
    pub(super) fn new(listener: TcpListener, identity: &Identity) -> Self {
        Self { listener, tls: identity.tls.clone(), token: Arc::clone(&identity.token) }
    }

    /// Lets in connections for as long as the gate lives. Others are closed. If there are too many, the oldest stranger goes: a client shows the
    /// token at once, so others can't keep it out by waiting.
    pub(super) async fn watch(self, happenings: mpsc::Sender<Happening>) {
        let mut strangers: VecDeque<JoinHandle<()>> = VecDeque::new();
        loop {
            let Ok((stream, _)) = self.listener.accept().await else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            strangers.retain(|stranger| !stranger.is_finished());
            if strangers.len() >= STRANGERS_MAX
                && let Some(oldest) = strangers.pop_front()
            {
                oldest.abort();
            }
            let (tls, token, happenings) = (self.tls.clone(), Arc::clone(&self.token), happenings.clone());
            strangers.push_back(tokio::spawn(async move {
                let admitted = timeout(PREFACE_DEADLINE, admit(stream, tls, &token)).await;
                if let Ok(Ok(Some((purpose, connection)))) = admitted {
                    drop(happenings.send(Happening::Admitted(purpose, Box::new(connection))).await);
                }
            }));
        }
    }
}

/// Reads the preface of a connection. None if it is a stranger's.
async fn admit(stream: TcpStream, tls: TlsAcceptor, token: &[u8; TOKEN_BYTES]) -> io::Result<Option<(Purpose, Tls)>> {
    stream.set_nodelay(true)?;
    set_tcp_user_timeout(&stream, USER_TIMEOUT_MS)?;
    let mut connection = tls.accept(BufReader::with_capacity(RECEIVED_BYTES, stream)).await?;
    let mut bytes = [0; PREFACE_BYTES];
    connection.read_exact(&mut bytes).await?;
    let preface = Preface::parse(&bytes).ok().filter(|preface| is_same(&preface.token, token));
    Ok(preface.map(|preface| (preface.purpose, connection)))
}
