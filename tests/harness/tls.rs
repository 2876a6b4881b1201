//! A TLS proxy in front of a server, with a certificate that only configured clients trust.

use std::{path::Path, sync::Arc};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use tempfile::NamedTempFile;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::AbortHandle,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer},
};

use crate::Ground;

/// A running proxy. Dropping it refuses new connections.
#[derive(Debug)]
pub struct TlsProxy {
    url: String,
    certificate: NamedTempFile,
    listening: AbortHandle,
}

impl Ground {
    /// Starts a TLS proxy in front of this ground's vhost.
    pub async fn tls_proxy(&self) -> TlsProxy {
        let amqp_url = self.node_url();
        let (login, place) = amqp_url.strip_prefix("amqp://").unwrap().split_once('@').unwrap();
        let (broker, vhost) = place.split_once('/').unwrap();
        TlsProxy::start(broker, |port| format!("amqps://{login}@localhost:{port}/{vhost}")).await
    }
}

impl TlsProxy {
    /// Starts a proxy in front of the server at this address. `url` makes the URL from the proxy's port.
    pub async fn start(server: &str, url: impl FnOnce(u16) -> String) -> Self {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let certificate = NamedTempFile::with_suffix(".pem").unwrap();
        std::fs::write(certificate.path(), cert.pem()).unwrap();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = url(listener.local_addr().unwrap().port());
        let listening = tokio::spawn(listen(listener, TlsAcceptor::from(Arc::new(config)), server.to_owned()));
        Self { url, certificate, listening: listening.abort_handle() }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the certificate that clients must trust.
    pub fn certificate(&self) -> &Path {
        self.certificate.path()
    }
}

impl Drop for TlsProxy {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn listen(listener: TcpListener, acceptor: TlsAcceptor, server: String) {
    while let Ok((client, _)) = listener.accept().await {
        let (acceptor, server) = (acceptor.clone(), server.clone());
        tokio::spawn(async move {
            // A client that does not trust the certificate breaks the connection.
            if let (Ok(mut client), Ok(mut server)) = (acceptor.accept(client).await, TcpStream::connect(server).await)
            {
                drop(copy_bidirectional(&mut client, &mut server).await);
            }
        });
    }
}
