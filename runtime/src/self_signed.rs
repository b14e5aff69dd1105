//! A self-signed certificate, only in memory: for an endpoint whose callers know no authority of ours.

use crate::errors::describe;
use crate::tls::{Resolver, TlsError};
use crate::{FailureLog, Shutdown};
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use thiserror::Error;

/// Lifetime of a certificate.
const LIFETIME: Duration = Duration::from_hours(24 * 30);
/// Renewed after this time.
const RENEWED_AFTER: Duration = Duration::from_hours(24 * 20);
/// Certificates are valid from so long ago, for clocks that are behind.
const BACKDATED: Duration = Duration::from_hours(24);
/// Time between two looks at the clock. It is short, because clocks may jump.
const LOOK_EVERY: Duration = Duration::from_mins(1);

/// Why there is no certificate.
#[derive(Debug, Error)]
pub enum SelfSignedError {
    /// It could not be made.
    #[error("a certificate could not be made")]
    Make(#[source] rcgen::Error),
    /// It cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Puts a certificate into a resolver, and a new one before it expires.
#[derive(Debug)]
pub struct SelfSigned {
    name: String,
    resolver: Arc<Resolver>,
    /// When the certificate that is served was made.
    made: SystemTime,
}

impl SelfSigned {
    /// Makes the first certificate, for this common name.
    ///
    /// # Errors
    /// The certificate cannot be made: the system gives no random numbers.
    pub fn new(name: &str, resolver: Arc<Resolver>) -> Result<Self, SelfSignedError> {
        let mut this = Self { name: name.to_owned(), resolver, made: SystemTime::now() };
        this.renew(this.made)?;
        Ok(this)
    }

    /// Renews it until the shutdown is requested.
    pub async fn run(mut self, shutdown: Shutdown) {
        let mut log = FailureLog::default();
        loop {
            tokio::select! {
                () = shutdown.requested() => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            let now = SystemTime::now();
            if !due(self.made, now) {
                continue;
            }
            match self.renew(now) {
                Ok(()) if log.resolved() => tracing::info!("the certificate is renewed now"),
                Err(error) if log.is_new(&describe(&error)) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the certificate was not renewed"
                    );
                }
                Ok(()) | Err(_) => {}
            }
        }
    }

    fn renew(&mut self, now: SystemTime) -> Result<(), SelfSignedError> {
        let make = || -> Result<_, rcgen::Error> {
            let key = KeyPair::generate()?;
            let mut params = CertificateParams::new(Vec::new())?;
            params.distinguished_name = DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, self.name.as_str());
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            params.not_before = (now - BACKDATED).into();
            params.not_after = (now + LIFETIME).into();
            Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
        };
        let (certificate, key) = make().map_err(SelfSignedError::Make)?;
        self.resolver.serve(&certificate, &key)?;
        self.made = now;
        Ok(())
    }
}

/// Is a new certificate needed, if the last one was made at that time? Also if the clock was ahead then.
fn due(made: SystemTime, now: SystemTime) -> bool {
    now + BACKDATED < made || made + RENEWED_AFTER <= now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewed_in_time_and_after_clock_jumps() {
        let (made, day) = (SystemTime::UNIX_EPOCH + LIFETIME * 100, Duration::from_hours(24));
        for (now, expected) in [
            (made, false),
            (made + day * 19, false),
            (made + day * 20, true),
            (made + day * 2000, true),
            (made - day / 2, false),
            (made - day * 2, true),
            (made - day * 700, true),
        ] {
            assert_eq!(due(made, now), expected, "{now:?}");
        }
    }

    #[test]
    fn a_renewal_changes_what_is_served() {
        crate::install_crypto_provider();
        let resolver = Arc::new(Resolver::default());
        let mut own = SelfSigned::new("brupop-reconciler-0", Arc::clone(&resolver)).unwrap();
        assert!(!resolver.is_empty());
        let later = own.made + LIFETIME;
        own.renew(later).unwrap();
        assert_eq!(own.made, later);
    }
}
