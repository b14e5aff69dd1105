//! TLS with a certificate that can be replaced while the process runs.

use arc_swap::ArcSwapOption;
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, version};
use std::sync::Arc;
use thiserror::Error;

/// Reasons why a certificate cannot be served.
#[derive(Debug, Error)]
pub enum TlsError {
    #[error("the certificate or its key cannot be read")]
    Pem(#[from] pem::Error),
    /// There is none, certificate and key do not fit, or they are of a kind that is not supported.
    #[error("the certificate cannot be used with its key")]
    Key(#[from] rustls::Error),
    /// The system gives no random numbers.
    #[error("a certificate could not be made")]
    Make(#[from] rcgen::Error),
}

/// Hands the current certificate to each handshake.
#[derive(Debug, Default)]
pub struct Resolver(ArcSwapOption<CertifiedKey>);

impl Resolver {
    /// A resolver with a new certificate for this common name, signed by its own key, for callers that know no authority of
    /// ours. It lasts as long as the process, as those of Kubernetes' own components do.
    ///
    /// # Errors
    /// It cannot be made: the system gives no random numbers.
    pub fn self_signed(name: &str) -> Result<Arc<Self>, TlsError> {
        let (key, mut params) = (KeyPair::generate()?, CertificateParams::new([])?);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let resolver = Self::default();
        resolver.serve(&params.self_signed(&key)?.pem(), &key.serialize_pem())?;
        Ok(Arc::new(resolver))
    }

    /// Is there no certificate yet? Then each handshake fails.
    pub fn is_empty(&self) -> bool {
        self.0.load().is_none()
    }

    /// Serves this chain and key, both PEM, from the next handshake on. Returns whether that is a change.
    ///
    /// # Errors
    /// They cannot be read, or do not fit. The old certificate is then served on.
    pub fn serve(&self, certificate: &str, key: &str) -> Result<bool, TlsError> {
        let certified = certified(certificate, key)?;
        let current = self.0.load();
        let is_new = current.as_ref().is_none_or(|it| it.cert != certified.cert);
        if is_new {
            self.0.store(Some(Arc::new(certified)));
        }
        Ok(is_new)
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.load_full()
    }
}

/// A chain with the key that belongs to it, from PEM.
///
/// # Errors
/// They cannot be read, or do not fit.
pub fn certified(certificate: &str, key: &str) -> Result<CertifiedKey, TlsError> {
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
    Ok(CertifiedKey::from_der(chain, key, &default_provider())?)
}

/// A TLS 1.3 server for HTTP/1.1. There is no resumption: an old session must not outlive its certificate.
pub fn server_config(resolver: Arc<Resolver>) -> ServerConfig {
    let mut config = ServerConfig::builder_with_protocol_versions(&[&version::TLS13])
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config
}
