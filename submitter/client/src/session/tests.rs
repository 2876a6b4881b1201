//! Client and relay against a worker of the test, over TLS on the loopback interface.

use std::{path::PathBuf, time::Duration};

use gpufleet_schema::{
    JobId, RanOn, SessionOffer, SessionUse, VERSION,
    session::{
        FromClient, FromWorker, PREFACE_BYTES, Preface, Purpose, TOKEN_BYTES, decode, encode, length, token_text,
    },
};
use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer},
    version::TLS13,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixStream},
    sync::mpsc,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::*;

const TOKEN: [u8; TOKEN_BYTES] = [0x5a; TOKEN_BYTES];
/// Far above what a loopback connection takes.
const SOON: Duration = Duration::from_secs(20);

type ClientStream = TlsStream<TcpStream>;

/// A worker that hands its connections to the test, each after its preface.
struct Worker {
    address: String,
    certificate: String,
    connections: mpsc::UnboundedReceiver<(Preface, ClientStream)>,
}

impl Worker {
    async fn start() -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["worker".to_owned()]).unwrap().self_signed(&key).unwrap();
        let der: CertificateDer<'static> = certificate.der().clone();
        let digest = blake3::hash(&der).to_hex().to_string();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(ring::default_provider().into())
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![der], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(std::sync::Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (sender, connections) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client that does not trust the certificate ends the handshake.
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut preface = [0; PREFACE_BYTES];
                stream.read_exact(&mut preface).await.unwrap();
                let _test_ended = sender.send((Preface::parse(&preface).unwrap(), stream));
            }
        });
        Self { address, certificate: digest, connections }
    }

    fn offer(&self) -> SessionOffer {
        SessionOffer {
            version: VERSION,
            job_id: JobId::new(),
            attempt: 1,
            addresses: vec![self.address.clone()],
            certificate: self.certificate.clone(),
            token: token_text(&TOKEN),
            ran_on: RanOn { worker: "w".parse().unwrap(), device: 0, device_name: "d".to_owned(), emulated: true },
            memory_bytes: 1 << 30,
            time_limit_ms: 60_000,
            connect_within_ms: 30_000,
        }
    }

    async fn next(&mut self, purpose: Purpose) -> ClientStream {
        let (preface, stream) = timeout(SOON, self.connections.recv()).await.unwrap().unwrap();
        assert_eq!(preface, Preface { token: TOKEN, purpose });
        stream
    }
}

/// A lease on a worker, with the worker's end of its control connection.
async fn leased() -> (Worker, Lease, ClientStream) {
    let mut worker = Worker::start().await;
    let lease = Lease::open(&worker.offer()).await.unwrap();
    let control = worker.next(Purpose::Control).await;
    (worker, lease, control)
}

/// The next message of the client.
async fn next(control: &mut ClientStream) -> FromClient {
    let mut bytes = [0; 4];
    control.read_exact(&mut bytes).await.unwrap();
    let mut body = vec![0; length(bytes).unwrap()];
    control.read_exact(&mut body).await.unwrap();
    decode(&body).unwrap()
}

/// The next message of the client that is not a ping.
async fn heard(control: &mut ClientStream) -> FromClient {
    loop {
        match next(control).await {
            FromClient::Ping => {}
            message => return message,
        }
    }
}

async fn tell(control: &mut ClientStream, message: FromWorker) {
    control.write_all(&encode(&message)).await.unwrap();
    control.flush().await.unwrap();
}

struct Programs {
    _folder: tempfile::TempDir,
    socket: PathBuf,
    _relay: Relay,
    rejected: mpsc::UnboundedReceiver<Rejected>,
}

impl Programs {
    fn of(leases: &[&Lease]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let (relay, rejected) = Relay::start(&socket, leases.iter().map(|lease| lease.route()).collect()).unwrap();
        Self { _folder: folder, socket, _relay: relay, rejected }
    }

    async fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.socket).await.unwrap()
    }
}

async fn expect(stream: &mut (impl AsyncReadExt + Unpin), bytes: &[u8]) {
    let mut read = vec![0; bytes.len()];
    timeout(SOON, stream.read_exact(&mut read)).await.unwrap().unwrap();
    assert_eq!(read, bytes);
}

/// Whether the other side has closed the connection and sent nothing.
async fn is_closed(stream: &mut (impl AsyncReadExt + Unpin)) -> bool {
    let mut byte = [0];
    matches!(timeout(SOON, stream.read(&mut byte)).await.unwrap(), Ok(0) | Err(_))
}

#[tokio::test]
async fn a_worker_with_another_certificate_gets_no_token() {
    let mut worker = Worker::start().await;
    let other = Worker::start().await;
    let offer = SessionOffer { certificate: other.certificate.clone(), ..worker.offer() };
    let error = Lease::open(&offer).await.unwrap_err();
    assert!(matches!(&error, ReachError::WrongCertificate { address } if *address == worker.address), "{error}");
    assert!(worker.connections.try_recv().is_err());
}

#[tokio::test]
async fn the_first_address_that_answers_is_used_and_none_is_an_error() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let mut worker = Worker::start().await;
    let addresses = vec![closed.clone(), worker.address.clone()];
    let lease = Lease::open(&SessionOffer { addresses, ..worker.offer() }).await.unwrap();
    worker.next(Purpose::Control).await;
    assert!(lease.round_trip() < SOON);
    let unreachable = SessionOffer { addresses: vec![closed.clone()], ..worker.offer() };
    let error = Lease::open(&unreachable).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot reach {closed} (")) && error.contains("open the port"), "{error}");
    let unreadable = SessionOffer { token: "zz".to_owned(), ..worker.offer() };
    assert!(matches!(Lease::open(&unreadable).await, Err(ReachError::Unreadable { .. })));
}

#[tokio::test]
async fn bytes_pass_both_ways_with_the_token_in_front() {
    let (mut worker, lease, _control) = leased().await;
    let programs = Programs::of(&[&lease]);
    let mut program = programs.connect().await;
    program.write_all(b"call").await.unwrap();
    let mut engine = worker.next(Purpose::Program).await;
    expect(&mut engine, b"call").await;
    engine.write_all(b"answer").await.unwrap();
    engine.flush().await.unwrap();
    expect(&mut program, b"answer").await;
    // More than the buffers on the way have room for.
    let bulk = vec![7; 3 << 20];
    let (sent, ()) = tokio::join!(program.write_all(&bulk), expect(&mut engine, &bulk));
    sent.unwrap();
    drop(program);
    assert!(is_closed(&mut engine).await);
}

#[tokio::test]
async fn a_process_more_than_there_are_sessions_is_refused_and_the_next_one_after_another_is_served() {
    let (mut worker, lease, _control) = leased().await;
    let mut programs = Programs::of(&[&lease]);
    let mut first = programs.connect().await;
    first.write_all(b"1").await.unwrap();
    let mut engine = worker.next(Purpose::Program).await;
    expect(&mut engine, b"1").await;
    let mut second = programs.connect().await;
    assert!(is_closed(&mut second).await);
    let Rejected::TooMany { process, sessions: 1 } = programs.rejected.recv().await.unwrap() else { panic!() };
    assert_eq!(process.id.unsigned_abs(), std::process::id());
    assert!(!process.name.is_empty());
    // The relay may not have seen yet that the first one has gone.
    first.write_all(&vec![2; 1 << 20]).await.unwrap();
    drop(first);
    let mut third = programs.connect().await;
    third.write_all(b"3").await.unwrap();
    expect(&mut engine, &vec![2; 1 << 20]).await;
    assert!(is_closed(&mut engine).await);
    expect(&mut worker.next(Purpose::Program).await, b"3").await;
    assert!(programs.rejected.try_recv().is_err());
}

#[tokio::test]
async fn each_of_two_leases_serves_a_process() {
    let (mut first, lease, _control) = leased().await;
    let (mut second, other, _other_control) = leased().await;
    let programs = Programs::of(&[&lease, &other]);
    let _one = programs.connect().await;
    let _engine = first.next(Purpose::Program).await;
    let _two = programs.connect().await;
    second.next(Purpose::Program).await;
}

#[tokio::test]
async fn the_worker_learns_how_the_command_ended_and_tells_what_it_used() {
    let (_worker, mut lease, mut control) = leased().await;
    let used = SessionUse { calls: 7, ..SessionUse::default() };
    let closed = FromWorker::Closed { reason: None, used: used.clone() };
    let worker = async {
        assert_eq!(heard(&mut control).await, FromClient::Ended { exit_code: None, signal: Some(9) });
        tell(&mut control, FromWorker::Ping).await;
        tell(&mut control, FromWorker::Warning { reason: "late".to_owned(), in_ms: 1 }).await;
        tell(&mut control, closed).await;
    };
    let (end, ()) = tokio::join!(lease.finish(None, Some(9)), worker);
    assert_eq!(end, Some(LeaseEnd::Closed { reason: None, used }));
    assert_eq!(lease.next().await, None);
}

#[tokio::test]
async fn warnings_and_the_end_by_the_worker_are_events_and_the_program_loses_its_device() {
    let (mut worker, mut lease, mut control) = leased().await;
    let mut programs = Programs::of(&[&lease]);
    let mut program = programs.connect().await;
    let _engine = worker.next(Purpose::Program).await;
    tell(&mut control, FromWorker::Warning { reason: "time limit".to_owned(), in_ms: 60_000 }).await;
    let warning = LeaseEvent::Warning { reason: "time limit".to_owned(), within: Duration::from_secs(60) };
    assert_eq!(lease.next().await, Some(warning));
    let (reason, used) = (Some("time limit".to_owned()), SessionUse::default());
    tell(&mut control, FromWorker::Closed { reason: reason.clone(), used: used.clone() }).await;
    assert_eq!(lease.next().await, Some(LeaseEvent::Ended(LeaseEnd::Closed { reason, used })));
    assert!(is_closed(&mut program).await);
    assert!(is_closed(&mut programs.connect().await).await);
    assert!(programs.rejected.try_recv().is_err(), "the end of the session was an event already");
    assert_eq!(lease.finish(Some(0), None).await, None);
}

#[tokio::test]
async fn a_control_connection_that_closes_or_has_garbage_is_a_lost_session() {
    let (_worker, mut lease, control) = leased().await;
    drop(control);
    let Some(LeaseEvent::Ended(LeaseEnd::Lost { reason })) = lease.next().await else { panic!("it is lost") };
    assert!(reason.contains("closed the connection"), "{reason}");
    let (_worker, mut lease, mut control) = leased().await;
    control.write_all(&u32::MAX.to_le_bytes()).await.unwrap();
    control.flush().await.unwrap();
    assert!(matches!(lease.next().await, Some(LeaseEvent::Ended(LeaseEnd::Lost { .. }))));
}

#[tokio::test]
async fn a_silent_worker_is_a_lost_session() {
    let (_worker, mut lease, _control) = leased().await;
    tokio::time::pause();
    let Some(LeaseEvent::Ended(LeaseEnd::Lost { reason })) = lease.next().await else { panic!("it is lost") };
    assert_eq!(reason, "the worker was silent for 30 s");
}

#[tokio::test]
async fn a_later_attempt_hears_what_has_become_of_the_session() {
    let closed =
        |reason: Option<&str>| LeaseEnd::Closed { reason: reason.map(str::to_owned), used: SessionUse::default() };
    let lost = LeaseEnd::Lost { reason: "x".to_owned() };
    for (end, expected) in [
        (None, FromClient::Elsewhere),
        (Some(closed(Some("time limit"))), FromClient::Elsewhere),
        (Some(closed(None)), FromClient::Ended { exit_code: Some(3), signal: None }),
        (Some(lost), FromClient::Lost),
    ] {
        let mut worker = Worker::start().await;
        let (offer, standing) = (worker.offer(), Standing::of(end.as_ref(), Some(3), None));
        let reporting = tokio::spawn(async move { standing.report(&offer).await });
        let mut control = worker.next(Purpose::Control).await;
        assert_eq!(next(&mut control).await, expected, "a ping before it would take the session");
        tell(&mut control, FromWorker::Closed { reason: None, used: SessionUse::default() }).await;
        reporting.await.unwrap().unwrap();
    }
}
