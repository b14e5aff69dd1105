//! Makes a generation: an authority, and the one certificate it signs.

use super::{CertificateGeneration, Lifetimes};
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use std::time::Duration;
use thiserror::Error;

/// The reason why a certificate could not be made.
#[derive(Debug, Error)]
#[error("a certificate for {names} could not be made")]
pub struct IssueError {
    names: String,
    #[source]
    source: rcgen::Error,
}

/// Makes a generation for these names (DNS names or addresses). It is valid from 1970 on, so that a clock that is behind
/// does no harm. It expires `lifetimes.lifetime` after `now`.
///
/// # Errors
/// A name is neither a DNS name nor an address, or there is no randomness to be had.
pub fn issue(
    names: &[String],
    lifetimes: Lifetimes,
    now: Timestamp,
    serve_from: Timestamp,
) -> Result<CertificateGeneration, IssueError> {
    let not_after = super::later(now, lifetimes.lifetime);
    let make = || -> Result<CertificateGeneration, rcgen::Error> {
        let authority_key = KeyPair::generate()?;
        let mut authority = dated(CertificateParams::default(), not_after);
        // The name differs from generation to generation: several of them stand in one `caBundle`.
        authority.distinguished_name.push(
            DnType::CommonName,
            format!("brupop-webhook authority {}", now.as_millisecond()),
        );
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority_pem = authority.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(authority, authority_key);

        let key = KeyPair::generate()?;
        let mut serving = dated(CertificateParams::new(names)?, not_after);
        serving
            .distinguished_name
            .push(DnType::CommonName, "brupop-webhook");
        serving.use_authority_key_identifier_extension = true;
        serving.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        Ok(CertificateGeneration {
            authority: authority_pem,
            certificate: serving.signed_by(&key, &issuer)?.pem(),
            key: key.serialize_pem(),
            names: names.to_vec(),
            serve_from,
            not_after,
        })
    };
    make().map_err(|source| IssueError {
        names: names.join(", "),
        source,
    })
}

fn dated(mut params: CertificateParams, not_after: Timestamp) -> CertificateParams {
    let date = |time: Timestamp| {
        let seconds = Duration::from_secs(time.as_second().try_into().unwrap_or_default());
        rcgen::date_time_ymd(1970, 1, 1) + seconds
    };
    params.not_before = date(Timestamp::UNIX_EPOCH);
    params.not_after = date(not_after);
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
}
