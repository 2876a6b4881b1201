//! Knows a worker by the digest of its certificate.
//!
//! The worker makes a key and a certificate for each session, and the offer has the certificate's digest. So there is no authority that
//! signs certificates, and neither names nor dates of a certificate count.

use std::sync::Arc;

use blake3::Hash;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    version::TLS13,
};

/// Accepts one certificate.
#[derive(Debug)]
struct Pinned {
    digest: Hash,
    provider: Arc<CryptoProvider>,
}

/// The TLS options of a client that accepts the certificate with this digest alone.
pub(super) fn config(digest: Hash) -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Pinned { digest, provider: provider.clone() };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.enable_sni = false;
    // A resumed connection would not show the certificate.
    config.resumption = Resumption::disabled();
    Ok(config)
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The comparison of digests takes the same time for all of them.
        match blake3::hash(end_entity) == self.digest {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("a session needs TLS 1.3".to_owned()))
    }

    /// Checks that the server has the key of the certificate.
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
