//! The client's end of a session: TLS connections to a gate, whose certificate must be the one of the offer.

use std::{sync::Arc, time::Duration};

use gpufleet_schema::session::{FromClient, FromWorker, Preface, Purpose, TOKEN_BYTES, decode, encode, length};
use gpufleet_worker::session::Gate;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
        client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        crypto::{WebPkiSupportedAlgorithms, ring, verify_tls13_signature},
        pki_types::{CertificateDer, ServerName, UnixTime},
        version::TLS13,
    },
};

use crate::harness::DEADLINE;

/// A connection with TLS.
pub(crate) type Connection = TlsStream<TcpStream>;

/// Accepts the certificate with this digest alone.
#[derive(Debug)]
struct Pinned {
    digest: String,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if blake3::hash(certificate).to_hex().as_str() == self.digest {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(Error::General("another certificate".to_owned()))
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("a gate speaks TLS 1.3".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// How to reach a gate.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    pub(crate) port: u16,
    pub(crate) certificate: String,
    pub(crate) token: [u8; TOKEN_BYTES],
}

impl Address {
    pub(crate) fn of(gate: &Gate) -> Self {
        Self { port: gate.port(), certificate: gate.certificate().to_owned(), token: *gate.token() }
    }

    pub(crate) async fn tcp(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).await.unwrap()
    }

    /// Connects without a preface.
    pub(crate) async fn tls(&self) -> Connection {
        let provider = ring::default_provider();
        let algorithms = provider.signature_verification_algorithms;
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Pinned { digest: self.certificate.clone(), algorithms }))
            .with_no_client_auth();
        let name = ServerName::try_from("gate").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, self.tcp().await).await.unwrap()
    }

    pub(crate) async fn connect(&self, purpose: Purpose) -> Connection {
        let mut connection = self.tls().await;
        connection.write_all(&Preface { token: self.token, purpose }.to_bytes()).await.unwrap();
        connection.flush().await.unwrap();
        connection
    }
}

/// A client with its control connection.
pub(crate) struct Client {
    pub(crate) connection: Connection,
}

impl Client {
    /// Connects and takes the session.
    pub(crate) async fn connect(gate: &Gate) -> Self {
        let mut client = Self::silent(gate).await;
        client.say(&FromClient::Ping).await;
        client
    }

    /// Connects without a word.
    pub(crate) async fn silent(gate: &Gate) -> Self {
        Self { connection: Address::of(gate).connect(Purpose::Control).await }
    }

    pub(crate) async fn say(&mut self, message: &FromClient) {
        self.connection.write_all(&encode(message)).await.unwrap();
        self.connection.flush().await.unwrap();
    }

    /// Returns the next message of any kind.
    pub(crate) async fn next(&mut self) -> FromWorker {
        let read = async {
            let mut start = [0; 4];
            self.connection.read_exact(&mut start).await.unwrap();
            let mut body = vec![0; length(start).unwrap()];
            self.connection.read_exact(&mut body).await.unwrap();
            decode(&body).unwrap()
        };
        timeout(DEADLINE, read).await.expect("a message comes")
    }

    /// Returns the next message that is no ping.
    pub(crate) async fn hear(&mut self) -> FromWorker {
        loop {
            match self.next().await {
                FromWorker::Ping => {}
                message => return message,
            }
        }
    }
}

/// Waits until the other side has closed a connection, and checks that it has sent nothing.
pub(crate) async fn is_closed(connection: &mut (impl tokio::io::AsyncRead + Unpin), within: Duration) {
    let mut rest = Vec::new();
    // A connection that is closed with unread bytes is reset.
    drop(timeout(within, connection.read_to_end(&mut rest)).await.expect("the connection is closed"));
    assert!(rest.is_empty(), "{rest:?}");
}
