//! Certificates that somebody else makes and publishes in `caBundle`, such as cert-manager. They are only read here.

use super::objects::StoredSecret;
use crate::metrics::Metrics;
use brupop_api::Item;
use brupop_runtime::errors::describe;
use brupop_runtime::tls::{Resolver, TlsError};
use brupop_runtime::{FailureLog, Health, Shutdown, watch_one};
use futures::StreamExt as _;
use kube::runtime::watcher;
use kube::{Api, Client};
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use std::sync::Arc;
use thiserror::Error;

/// Keys of a Secret of type `kubernetes.io/tls`.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// The reason why a Secret's certificate is not served. The log names the Secret.
#[derive(Debug, Error)]
pub(crate) enum ProvidedError {
    #[error("it does not exist; the webhook waits for it")]
    Absent,
    /// The API server does not show it.
    #[error("it cannot be watched; the webhook watches it again")]
    Watch(#[source] Box<watcher::Error>),
    /// There is no such key, or it is no text.
    #[error("it has no {0}")]
    Missing(&'static str),
    /// Its content cannot be served.
    #[error("it cannot be served")]
    Tls(#[from] TlsError),
    #[error("{CERTIFICATE} is not a certificate")]
    NoCertificate,
    /// API servers would not take it for ours: the name that they call us by.
    #[error("{CERTIFICATE} is not valid for {0}")]
    Name(String),
}

/// Serves the certificate of a Secret that somebody else keeps.
pub(crate) struct Provided {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    /// The name of the Secret.
    pub(crate) secret: String,
    /// The names that API servers call us by.
    pub(crate) names: Vec<String>,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) health: Health,
    pub(crate) metrics: Arc<Metrics>,
}

impl Provided {
    /// Follows the Secret until the shutdown is requested. The process is ready once it serves a certificate. If a new one
    /// cannot be served, that is logged, and the old one is served on.
    pub(crate) async fn run(self, shutdown: Shutdown) {
        let secrets = Api::<Item<StoredSecret>>::namespaced(self.client.clone(), &self.namespace);
        let mut events = std::pin::pin!(watch_one(secrets, &self.secret));
        let mut log = FailureLog::default();
        loop {
            let event = tokio::select! {
                () = shutdown.requested() => return,
                event = events.next() => event,
            };
            let served = match event {
                Some(Ok(Some(secret))) => self.serve(&secret),
                Some(Ok(None)) => Err(ProvidedError::Absent),
                // The served certificate stays.
                Some(Err(error)) => Err(ProvidedError::Watch(Box::new(error))),
                None => return,
            };
            self.on_outcome(served, &mut log);
        }
    }

    /// Logs what people should know: whether another certificate is served, or why none is.
    fn on_outcome(&self, served: Result<bool, ProvidedError>, log: &mut FailureLog) {
        match served {
            Ok(changed) => {
                self.health.ready();
                if log.resolved() || changed {
                    tracing::info!(
                        secret = self.secret,
                        "serving the certificate that was provided"
                    );
                }
            }
            Err(error) => {
                self.metrics.certificate_failures.inc();
                if log.is_new(&describe(&error)) {
                    tracing::warn!(
                        error = describe(&error),
                        secret = self.secret,
                        "the webhook cannot serve the certificate of the Secret"
                    );
                }
            }
        }
    }

    /// Serves the Secret's certificate. Returns whether it is another than before.
    fn serve(&self, secret: &Item<StoredSecret>) -> Result<bool, ProvidedError> {
        let certificate = text(secret, CERTIFICATE)?;
        let key = text(secret, KEY)?;
        let expiry = checked(&certificate, &self.names)?;
        let changed = self.resolver.serve(&certificate, &key)?;
        self.metrics.certificate_expiry.set(expiry);
        Ok(changed)
    }
}

fn text(secret: &Item<StoredSecret>, key: &'static str) -> Result<String, ProvidedError> {
    let text = secret.ok().and_then(|secret| secret.data(key));
    text.and_then(|text| String::from_utf8(text).ok())
        .filter(|text| !text.trim().is_empty())
        .ok_or(ProvidedError::Missing(key))
}

/// When the certificate expires, in seconds since 1970.
fn checked(certificate: &str, names: &[String]) -> Result<i64, ProvidedError> {
    let leaf = CertificateDer::from_pem_slice(certificate.as_bytes())
        .map_err(|_| ProvidedError::NoCertificate)?;
    let parsed = ParsedCertificate::try_from(&leaf).map_err(|_| ProvidedError::NoCertificate)?;
    for name in names {
        let good = ServerName::try_from(name.as_str())
            .is_ok_and(|name| verify_server_name(&parsed, &name).is_ok());
        if !good {
            return Err(ProvidedError::Name(name.clone()));
        }
    }
    let (_, parsed) =
        x509_parser::parse_x509_certificate(&leaf).map_err(|_| ProvidedError::NoCertificate)?;
    Ok(parsed.validity().not_after.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::{Lifetimes, issue::issue};
    use jiff::{SignedDuration, Timestamp};

    #[test]
    fn a_certificates_names_and_expiry_are_checked() {
        let (now, lifetimes) = (
            Timestamp::now(),
            Lifetimes::of_lifetime(SignedDuration::from_hours(2)),
        );
        let names = ["s.ns.svc".to_owned(), "10.0.0.1".to_owned()];
        let made = issue(&names, lifetimes, now, now).unwrap();
        let expiry = checked(&made.certificate, &names).unwrap();
        assert_eq!(expiry, made.not_after.as_second());
        let other = checked(&made.certificate, &["t.ns.svc".to_owned()]);
        assert!(matches!(other, Err(ProvidedError::Name(name)) if name == "t.ns.svc"));
        for garbage in [
            "",
            "x",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            let checked = checked(garbage, &names);
            assert!(
                matches!(checked, Err(ProvidedError::NoCertificate)),
                "{garbage}"
            );
        }
    }
}
