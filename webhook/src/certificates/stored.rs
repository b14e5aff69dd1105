//! The form of generations in the Secret, and of their authorities in the configuration.

use super::Generation;
use brupop_runtime::tls;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use std::sync::Arc;
use std::time::Duration;

/// Key in the Secret's data that holds the generations.
const DATA_KEY: &str = "generations.json";

/// Puts the generations into the Secret. Whatever else is in it stays.
pub(super) fn write(secret: &mut Secret, generations: &[Generation]) -> serde_json::Result<()> {
    let data = ByteString(serde_json::to_vec(generations)?);
    secret.data.get_or_insert_default().insert(DATA_KEY.to_owned(), data);
    Ok(())
}

/// The JSON patch that gives `bundle` to every entry of the configuration; `None` if all have it. It fits only the
/// configuration that was read.
pub(super) fn publication(
    configuration: &ValidatingWebhookConfiguration,
    bundle: &str,
) -> Option<serde_json::Value> {
    let entries = configuration.webhooks.as_deref().unwrap_or_default();
    let wanted = ByteString(bundle.as_bytes().to_vec());
    let stale = entries
        .iter()
        .enumerate()
        .filter(|(_, entry)| entry.client_config.ca_bundle.as_ref() != Some(&wanted))
        .map(|(index, _)| {
            serde_json::json!({"op": "add", "path": format!("/webhooks/{index}/clientConfig/caBundle"), "value": wanted})
        });
    let mut patch: Vec<_> = stale.collect();
    if patch.is_empty() {
        return None;
    }
    let version = configuration.resource_version();
    patch.insert(0, serde_json::json!({"op": "test", "path": "/metadata/resourceVersion", "value": version}));
    Some(patch.into())
}

/// The `caBundle` that all entries share; empty if they differ.
pub(super) fn trusted(configuration: &ValidatingWebhookConfiguration) -> String {
    let mut bundles = configuration.webhooks.iter().flatten().map(|entry| {
        entry.client_config.ca_bundle.as_ref().map(|bundle| bundle.0.as_slice()).unwrap_or_default()
    });
    let first = bundles.next().unwrap_or_default();
    if bundles.all(|bundle| bundle == first) {
        String::from_utf8_lossy(first).into_owned()
    } else {
        String::new()
    }
}

/// The generations in the Secret that can be used. Others are left out, so that new ones take their places.
pub(super) fn read(secret: &Secret) -> Vec<Generation> {
    let Some(data) = secret.data.as_ref().and_then(|data| data.get(DATA_KEY)) else { return Vec::new() };
    let entries: Vec<serde_json::Value> = serde_json::from_slice(&data.0).unwrap_or_else(|error| {
        tracing::warn!(secret = %secret.name_any(), %error, "the generations in the Secret cannot be read");
        Vec::new()
    });
    let usable = |entry| serde_json::from_value(entry).ok().filter(holds);
    let total = entries.len();
    let usable: Vec<_> = entries.into_iter().filter_map(usable).collect();
    if usable.len() < total {
        let damaged = total - usable.len();
        tracing::warn!(secret = %secret.name_any(), damaged, "generations in the Secret cannot be used");
    }
    usable
}

/// Is the generation what it says? Certificate and key must fit, and its authority must vouch for the certificate, for all
/// names, until it expires.
fn holds(generation: &Generation) -> bool {
    let verify = || {
        let certified = tls::certified(&generation.certificate, &generation.key).ok()?;
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(generation.authority.as_bytes()).ok()?).ok()?;
        let verifier = WebPkiServerVerifier::builder(Arc::new(roots)).build().ok()?;
        let (leaf, chain) = certified.cert.split_first()?;
        let last = u64::try_from(generation.not_after.as_second()).ok()?.checked_sub(1)?;
        let last = UnixTime::since_unix_epoch(Duration::from_secs(last));
        let valid = |name: &String| {
            let name = ServerName::try_from(name.as_str()).ok()?;
            verifier.verify_server_cert(leaf, chain, &name, &[], last).ok()
        };
        generation.names.iter().all(|name| valid(name).is_some()).then_some(())
    };
    !generation.names.is_empty() && verify().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::{Policy, issue::issue};
    use jiff::{SignedDuration, Timestamp};

    fn configuration(bundles: &[Option<&str>]) -> ValidatingWebhookConfiguration {
        let entries: Vec<_> = bundles
            .iter()
            .map(|bundle| {
                let bundle = bundle.map(|text| ByteString(text.as_bytes().to_vec()));
                serde_json::json!({
                    "name": "a.b.c", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                    "clientConfig": {"caBundle": bundle},
                })
            })
            .collect();
        serde_json::from_value(
            serde_json::json!({"metadata": {"name": "w", "resourceVersion": "7"}, "webhooks": entries}),
        )
        .unwrap()
    }

    #[test]
    fn only_entries_that_differ_are_patched_and_only_as_they_were_read() {
        assert_eq!(publication(&configuration(&[Some("ab")]), "ab"), None);
        assert_eq!(publication(&configuration(&[]), "ab"), None);
        let patch = publication(&configuration(&[Some("ab"), None, Some("old")]), "ab").unwrap();
        assert_eq!(
            patch,
            serde_json::json!([
                {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
                {"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": "YWI="},
                {"op": "add", "path": "/webhooks/2/clientConfig/caBundle", "value": "YWI="},
            ])
        );
    }

    #[test]
    fn a_secret_as_shipped_or_damaged_holds_nothing() {
        let secret = |data: serde_json::Value| -> Secret {
            serde_json::from_value(serde_json::json!({"metadata": {"name": "s"}, "data": data})).unwrap()
        };
        assert_eq!(read(&secret(serde_json::Value::Null)), []);
        assert_eq!(read(&secret(serde_json::json!({DATA_KEY: "eA=="}))), []);
    }

    #[test]
    fn a_generation_that_is_damaged_in_any_part_counts_as_nothing_and_the_others_stay() {
        brupop_runtime::install_crypto_provider();
        let policy = Policy::of_lifetime(SignedDuration::from_hours(1));
        let now = Timestamp::now();
        let make = || issue(&["a.b.svc".to_owned(), "10.0.0.1".to_owned()], policy, now, now).unwrap();
        let (good, other) = (make(), make());
        let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned();
        for (says, damaged) in [
            ("no authority", Generation { authority: String::new(), ..good.clone() }),
            ("garbage", Generation { authority: garbage.clone(), ..good.clone() }),
            ("another's authority", Generation { authority: other.authority.clone(), ..good.clone() }),
            ("no certificate", Generation { certificate: String::new(), ..good.clone() }),
            ("garbage", Generation { certificate: garbage, ..good.clone() }),
            ("another's key", Generation { key: other.key.clone(), ..good.clone() }),
            ("a name too many", Generation { names: vec!["c.svc".to_owned()], ..good.clone() }),
            ("no name", Generation { names: vec![], ..good.clone() }),
            ("a longer life", Generation { not_after: now + SignedDuration::from_hours(2), ..good.clone() }),
        ] {
            let mut secret = Secret::default();
            write(&mut secret, &[damaged, other.clone()]).unwrap();
            assert_eq!(read(&secret), std::slice::from_ref(&other), "{says}");
        }
        let mut secret = Secret::default();
        let data = serde_json::json!([{"authority": 1}, good, "x"]).to_string().into_bytes();
        secret.data.get_or_insert_default().insert(DATA_KEY.to_owned(), ByteString(data));
        assert_eq!(read(&secret), [good]);
    }

    #[test]
    fn trusted_is_what_every_entry_trusts() {
        assert_eq!(trusted(&configuration(&[Some("ab"), Some("ab")])), "ab");
        for bundles in [&[][..], &[None], &[Some("ab"), None], &[Some("ab"), Some("b")]] {
            assert_eq!(trusted(&configuration(bundles)), "", "{bundles:?}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        brupop_runtime::install_crypto_provider();
        let policy = Policy::of_lifetime(SignedDuration::from_hours(1));
        let now = Timestamp::now();
        let made = [issue(&["a.b.svc".to_owned()], policy, now, now).unwrap()];
        let mut secret = Secret::default();
        write(&mut secret, &made).unwrap();
        assert_eq!(read(&secret), made);
    }
}
