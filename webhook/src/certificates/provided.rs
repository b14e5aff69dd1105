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

/// Why a Secret's certificate is not served.
#[derive(Debug, Error)]
pub(crate) enum ProvidedError {
    /// It is not there.
    #[error("Secret {secret} does not exist; the webhook waits for it")]
    Absent { secret: String },
    /// The API server does not show it.
    #[error("Secret {secret} cannot be watched")]
    Watch {
        secret: String,
        #[source]
        source: Box<watcher::Error>,
    },
    /// There is no such key, or it is no text.
    #[error("Secret {secret} has no {key}")]
    Missing { secret: String, key: &'static str },
    /// What it holds cannot be served.
    #[error("Secret {secret}")]
    Tls {
        secret: String,
        #[source]
        source: TlsError,
    },
    /// It is no certificate.
    #[error("Secret {secret}: {CERTIFICATE} is not a certificate")]
    NoCertificate { secret: String },
    /// API servers would not take it for ours.
    #[error("Secret {secret}: {CERTIFICATE} is not valid for {name}")]
    Name {
        secret: String,
        /// The name that API servers call us by.
        name: String,
    },
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
            let secret = || self.secret.clone();
            let served = match event {
                Some(Ok(Some(secret))) => self.serve(&secret),
                Some(Ok(None)) => Err(ProvidedError::Absent { secret: secret() }),
                Some(Err(error)) => {
                    // What is served stays. The watch goes on without a sign, so each failure has a line of its own.
                    self.metrics.certificate_failures.inc();
                    let error = ProvidedError::Watch {
                        secret: secret(),
                        source: Box::new(error),
                    };
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the watch of the Secret failed; the webhook watches it again"
                    );
                    continue;
                }
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
                        error = &error as &dyn std::error::Error,
                        "the webhook cannot serve the certificate of the Secret"
                    );
                }
            }
        }
    }

    /// Serves the Secret's certificate. Returns whether it is another than before.
    fn serve(&self, secret: &Item<StoredSecret>) -> Result<bool, ProvidedError> {
        let name = || self.secret.clone();
        let certificate = text(secret, CERTIFICATE).ok_or_else(|| missing(name(), CERTIFICATE))?;
        let key = text(secret, KEY).ok_or_else(|| missing(name(), KEY))?;
        let expiry = checked(&certificate, &self.names).map_err(|wrong| match wrong {
            Some(wrong) => ProvidedError::Name {
                secret: name(),
                name: wrong,
            },
            None => ProvidedError::NoCertificate { secret: name() },
        })?;
        let served = self.resolver.serve(&certificate, &key);
        let changed = served.map_err(|source| ProvidedError::Tls {
            secret: name(),
            source,
        })?;
        self.metrics.certificate_expiry.set(expiry);
        Ok(changed)
    }
}

fn missing(secret: String, key: &'static str) -> ProvidedError {
    ProvidedError::Missing { secret, key }
}

fn text(secret: &Item<StoredSecret>, key: &str) -> Option<String> {
    String::from_utf8(secret.ok()?.data(key)?)
        .ok()
        .filter(|text| !text.trim().is_empty())
}

/// When the certificate expires, in seconds since 1970.
///
/// # Errors
/// The name that it is not valid for; `None` if it is no certificate.
fn checked(certificate: &str, names: &[String]) -> Result<i64, Option<String>> {
    let leaf = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|_| None)?;
    let parsed = ParsedCertificate::try_from(&leaf).map_err(|_| None)?;
    for name in names {
        let good = ServerName::try_from(name.as_str())
            .is_ok_and(|name| verify_server_name(&parsed, &name).is_ok());
        if !good {
            return Err(Some(name.clone()));
        }
    }
    let (_, parsed) = x509_parser::parse_x509_certificate(&leaf).map_err(|_| None)?;
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
        assert_eq!(
            checked(&made.certificate, &names),
            Ok(made.not_after.as_second())
        );
        assert_eq!(
            checked(&made.certificate, &["t.ns.svc".to_owned()]),
            Err(Some("t.ns.svc".to_owned()))
        );
        for garbage in [
            "",
            "x",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            assert_eq!(checked(garbage, &names), Err(None), "{garbage}");
        }
    }
}
