//! A TLS proxy in front of the broker, with a certificate that only configured clients trust.

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

/// The proxy. Dropping it ends new connections.
#[derive(Debug)]
pub struct TlsProxy {
    url: String,
    certificate: NamedTempFile,
    listening: AbortHandle,
}

impl Ground {
    /// The URL of this ground's vhost through TLS.
    pub async fn tls_proxy(&self) -> TlsProxy {
        let amqp_url = &self.endpoints().amqp_url;
        let (login, place) = amqp_url.strip_prefix("amqp://").unwrap().split_once('@').unwrap();
        let (broker, vhost) = place.split_once('/').unwrap();
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
        let url = format!("amqps://{login}@localhost:{}/{vhost}", listener.local_addr().unwrap().port());
        let listening = tokio::spawn(listen(listener, TlsAcceptor::from(Arc::new(config)), broker.to_owned()));
        TlsProxy { url, certificate, listening: listening.abort_handle() }
    }
}

impl TlsProxy {
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The certificate to trust.
    pub fn certificate(&self) -> &Path {
        self.certificate.path()
    }
}

impl Drop for TlsProxy {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn listen(listener: TcpListener, acceptor: TlsAcceptor, broker: String) {
    while let Ok((client, _)) = listener.accept().await {
        let (acceptor, broker) = (acceptor.clone(), broker.clone());
        tokio::spawn(async move {
            // A client that does not trust the certificate breaks the connection off.
            if let (Ok(mut client), Ok(mut broker)) = (acceptor.accept(client).await, TcpStream::connect(broker).await)
            {
                drop(copy_bidirectional(&mut client, &mut broker).await);
            }
        });
    }
}
