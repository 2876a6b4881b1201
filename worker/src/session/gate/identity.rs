//! The certificate by which clients know a session, and the token by which it knows them. Both are of this session alone.

use std::sync::Arc;

use gpufleet_schema::session::TOKEN_BYTES;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{self, ServerConfig, crypto::ring, pki_types::PrivatePkcs8KeyDer, version::TLS13},
};

/// The name in the certificate. Clients check the digest instead.
const NAME: &str = "gpufleet-session";

pub(super) struct Identity {
    /// The BLAKE3 digest of the certificate in DER, in hexadecimal.
    pub(super) certificate: String,
    pub(super) token: Arc<[u8; TOKEN_BYTES]>,
    pub(super) tls: TlsAcceptor,
}

/// Why there is no identity.
#[derive(Debug, thiserror::Error)]
pub(super) enum IdentityError {
    #[error("failed to make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("failed to set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("the system gives no random bytes for a token")]
    Random,
}

impl Identity {
    pub(super) fn new() -> Result<Self, IdentityError> {
        let provider = ring::default_provider();
        let mut token = [0; TOKEN_BYTES];
        provider.secure_random.fill(&mut token).map_err(|_| IdentityError::Random)?;
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed([NAME.to_owned()])?;
        let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&TLS13])?
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key.into())?;
        // A ticket would let a client resume a session, which has only one handshake per connection.
        config.send_tls13_tickets = 0;
        Ok(Self {
            certificate: blake3::hash(cert.der()).to_hex().to_string(),
            token: Arc::new(token),
            tls: TlsAcceptor::from(Arc::new(config)),
        })
    }
}
