//! Connects to the worker of an offer.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use blake3::Hash;
use gpufleet_schema::{
    SessionOffer,
    session::{Preface, Purpose, TOKEN_BYTES},
};
use rustix::net::sockopt::set_tcp_user_timeout;
use rustls::pki_types::ServerName;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpStream, lookup_host},
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::sync::CancellationToken;

use super::pinned;

/// The time in which an address must answer, with the TLS handshake.
const ADDRESS_WITHIN: Duration = Duration::from_secs(2);
/// After this time without an acknowledgement for sent bytes, the kernel ends a connection, in milliseconds.
const USER_TIMEOUT_MS: u32 = 10_000;
/// TLS needs a name for the server. Nothing reads it, because the certificate decides.
const NAME: &str = "session.gpufleet.invalid";

/// A connection to a worker.
pub(super) type WorkerStream = TlsStream<TcpStream>;

/// Why the worker of an offer could not be reached.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    #[error("the offer of worker {worker} is unreadable; install the same version of the worker and this program")]
    Unreadable { worker: String },
    #[error("cannot reach {addresses} ({reason}); open the port or ask for a worker in this network")]
    Unreachable { addresses: String, reason: String },
    /// Another program answers at this address, or something between client and worker reads along.
    #[error(
        "{address} is not the worker of this session: its certificate is another one; check which program answers there"
    )]
    WrongCertificate { address: String },
    #[error("failed to prepare TLS")]
    Tls(#[from] rustls::Error),
}

/// The way of programs to the worker of a lease. It is a dead end once the lease has ended.
#[derive(Debug, Clone)]
pub struct ProgramRoute {
    pub(super) route: Arc<Route>,
    pub(super) over: CancellationToken,
}

/// The way to a worker.
pub(super) struct Route {
    /// The address at which the worker has answered.
    address: SocketAddr,
    connector: TlsConnector,
    token: [u8; TOKEN_BYTES],
}

/// The first connection to a worker, for control.
pub(super) struct Reached {
    pub(super) route: Route,
    pub(super) control: WorkerStream,
    pub(super) round_trip: Duration,
}

/// Without the token.
impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Route").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Opens the control connection to the first address of an offer that answers.
pub(super) async fn reach(offer: &SessionOffer) -> Result<Reached, ReachError> {
    let unreadable = || ReachError::Unreadable { worker: offer.ran_on.worker.to_string() };
    let token = offer.token().map_err(|_| unreadable())?;
    let digest = Hash::from_hex(&offer.certificate).map_err(|_| unreadable())?;
    let connector = TlsConnector::from(Arc::new(pinned::config(digest)?));
    let mut reason = "the worker has no address".to_owned();
    let mut stranger = None;
    for address in &offer.addresses {
        match timeout(ADDRESS_WITHIN, first_answer(address, &connector, token)).await {
            Ok(Ok(reached)) => return Ok(reached),
            Ok(Err(error)) if is_wrong_certificate(&error) => stranger = Some(address.clone()),
            Ok(Err(error)) => reason = error.to_string(),
            Err(_) => reason = format!("no answer within {} s", ADDRESS_WITHIN.as_secs()),
        }
    }
    Err(match stranger {
        Some(address) => ReachError::WrongCertificate { address },
        None => ReachError::Unreachable { addresses: offer.addresses.join(" and "), reason },
    })
}

fn is_wrong_certificate(error: &io::Error) -> bool {
    let tls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    matches!(tls, Some(rustls::Error::InvalidCertificate(_)))
}

/// Connects to one of the addresses that a name has.
async fn first_answer(address: &str, connector: &TlsConnector, token: [u8; TOKEN_BYTES]) -> Result<Reached, io::Error> {
    let mut problem = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in lookup_host(address).await? {
        let route = Route { address, connector: connector.clone(), token };
        match route.connect(Purpose::Control).await {
            Ok((control, round_trip)) => return Ok(Reached { route, control, round_trip }),
            // Another address would be that of the same impostor, or hide it.
            Err(error) if is_wrong_certificate(&error) => return Err(error),
            Err(error) => problem = error,
        }
    }
    Err(problem)
}

impl Route {
    /// Opens a connection. The time is that of the TCP handshake, which takes one round trip.
    async fn connect(&self, purpose: Purpose) -> io::Result<(WorkerStream, Duration)> {
        let begun = Instant::now();
        let stream = TcpStream::connect(self.address).await?;
        let round_trip = begun.elapsed();
        stream.set_nodelay(true)?;
        set_tcp_user_timeout(&stream, USER_TIMEOUT_MS)?;
        let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
        let mut stream = self.connector.connect(name, stream).await?;
        stream.write_all(&Preface { token: self.token, purpose }.to_bytes()).await?;
        stream.flush().await?;
        Ok((stream, round_trip))
    }

    /// Opens a connection for the driver calls of a process.
    pub(super) async fn connect_program(&self) -> io::Result<WorkerStream> {
        let connected = timeout(ADDRESS_WITHIN, self.connect(Purpose::Program)).await;
        connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?.map(|(stream, _)| stream)
    }
}
