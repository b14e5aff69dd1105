//! The form of generations in the Secret, and of their authorities in the configuration.

use super::CertificateGeneration;
use super::objects::{Bundles, StoredSecret};
use brupop_api::Item;
use brupop_api::item::Unreadable;
use brupop_runtime::tls;
use k8s_openapi::ByteString;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Key in the Secret's data that holds the generations.
const DATA_KEY: &str = "generations.json";

/// The Secret with these generations. Whatever else is in it stays.
pub(super) fn write(
    secret: StoredSecret,
    generations: &[CertificateGeneration],
) -> serde_json::Result<Value> {
    Ok(secret.with_data(DATA_KEY, serde_json::to_vec(generations)?))
}

/// The JSON patch that gives `bundle` to every entry of the configuration; `None` if all have it. It fits only the
/// configuration that was read, of this resource version.
pub(super) fn publication(version: Option<&str>, read: &Bundles, bundle: &str) -> Option<Value> {
    let wanted = ByteString(bundle.as_bytes().to_vec());
    let stale = read
        .0
        .iter()
        .enumerate()
        .filter(|(_, found)| found.as_ref() != Some(&wanted));
    let mut patch: Vec<Value> = stale
        .map(|(index, _)| {
            json!({"op": "add", "path": format!("/webhooks/{index}/clientConfig/caBundle"), "value": wanted})
        })
        .collect();
    if patch.is_empty() {
        return None;
    }
    patch.insert(
        0,
        json!({"op": "test", "path": "/metadata/resourceVersion", "value": version}),
    );
    Some(patch.into())
}

/// The `caBundle` that all entries share; empty if they differ.
pub(super) fn trusted(read: &Bundles) -> String {
    match read.0.as_slice() {
        [Some(first), rest @ ..] if rest.iter().all(|found| found.as_ref() == Some(first)) => {
            String::from_utf8_lossy(&first.0).into_owned()
        }
        _ => String::new(),
    }
}

/// The generations in the Secret that can be used. Others are left out, so that new ones take their places.
pub(super) fn read(secret: &Item<StoredSecret>) -> Vec<CertificateGeneration> {
    let Some(data) = secret.ok().and_then(|secret| secret.data(DATA_KEY)) else {
        return Vec::new();
    };
    let entries: Vec<Value> = serde_json::from_slice(&data).unwrap_or_else(|error| {
        let why = Unreadable::from(error).to_string();
        tracing::warn!(
            secret = secret.name(),
            why,
            "the certificates in the Secret cannot be read; a new one is made"
        );
        Vec::new()
    });
    let usable = |entry| serde_json::from_value(entry).ok().filter(is_sound);
    let total = entries.len();
    let usable: Vec<_> = entries.into_iter().filter_map(usable).collect();
    if usable.len() < total {
        let damaged = total - usable.len();
        tracing::warn!(
            secret = secret.name(),
            damaged,
            "certificates in the Secret cannot be used; the webhook ignores them"
        );
    }
    usable
}

/// Is the generation what it says? Certificate and key must fit, and its authority must vouch for the certificate, for all
/// names, until it expires.
fn is_sound(generation: &CertificateGeneration) -> bool {
    let verify = || {
        let certified = tls::certified(&generation.certificate, &generation.key).ok()?;
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(generation.authority.as_bytes()).ok()?)
            .ok()?;
        let verifier = WebPkiServerVerifier::builder(Arc::new(roots))
            .build()
            .ok()?;
        let (leaf, chain) = certified.cert.split_first()?;
        let last = u64::try_from(generation.not_after.as_second())
            .ok()?
            .checked_sub(1)?;
        let last = UnixTime::since_unix_epoch(Duration::from_secs(last));
        let valid = |name: &String| {
            let name = ServerName::try_from(name.as_str()).ok()?;
            verifier
                .verify_server_cert(leaf, chain, &name, &[], last)
                .ok()
        };
        generation
            .names
            .iter()
            .all(|name| valid(name).is_some())
            .then_some(())
    };
    !generation.names.is_empty() && verify().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::{Lifetimes, issue::issue};
    use brupop_api::item::Readable as _;
    use jiff::{SignedDuration, Timestamp};

    fn configuration(bundles: &[Option<&str>]) -> Bundles {
        let entries: Vec<_> = bundles
            .iter()
            .map(|bundle| {
                let bundle = bundle.map(|text| ByteString(text.as_bytes().to_vec()));
                json!({"name": "a.b.c", "clientConfig": {"caBundle": bundle}})
            })
            .collect();
        Bundles::read(&json!({"metadata": {"name": "w"}, "webhooks": entries}).to_string()).unwrap()
    }

    fn secret(data: &Value) -> Item<StoredSecret> {
        serde_json::from_value(json!({"metadata": {"name": "s"}, "data": data})).unwrap()
    }

    /// A Secret that holds these bytes as its generations.
    fn holding(data: Vec<u8>) -> Item<StoredSecret> {
        secret(&json!({DATA_KEY: ByteString(data)}))
    }

    #[test]
    fn only_differing_entries_as_read_are_patched() {
        assert_eq!(
            publication(Some("7"), &configuration(&[Some("ab")]), "ab"),
            None
        );
        assert_eq!(publication(Some("7"), &configuration(&[]), "ab"), None);
        let patch = publication(
            Some("7"),
            &configuration(&[Some("ab"), None, Some("old")]),
            "ab",
        )
        .unwrap();
        assert_eq!(
            patch,
            json!([
                {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
                {"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": "YWI="},
                {"op": "add", "path": "/webhooks/2/clientConfig/caBundle", "value": "YWI="},
            ])
        );
    }

    #[test]
    fn a_secret_as_shipped_or_damaged_holds_nothing() {
        assert_eq!(read(&secret(&Value::Null)), []);
        assert_eq!(read(&secret(&json!({DATA_KEY: "eA=="}))), []);
        assert_eq!(read(&secret(&json!({DATA_KEY: 3}))), []);
    }

    #[test]
    fn a_damaged_generation_is_ignored_others_stay() {
        brupop_runtime::install_crypto_provider();
        let lifetimes = Lifetimes::of_lifetime(SignedDuration::from_hours(1));
        let now = Timestamp::now();
        let make = || {
            issue(
                &["a.b.svc".to_owned(), "10.0.0.1".to_owned()],
                lifetimes,
                now,
                now,
            )
            .unwrap()
        };
        let (good, other) = (make(), make());
        let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned();
        let longer = good.not_after + SignedDuration::from_hours(1);
        let damage = |damages: &dyn Fn(&mut CertificateGeneration)| {
            let mut damaged = good.clone();
            damages(&mut damaged);
            damaged
        };
        for damaged in [
            damage(&|it| it.authority.clear()),
            damage(&|it| it.authority.clone_from(&garbage)),
            damage(&|it| it.authority.clone_from(&other.authority)),
            damage(&|it| it.certificate.clear()),
            damage(&|it| it.certificate.clone_from(&garbage)),
            damage(&|it| it.key.clone_from(&other.key)),
            damage(&|it| it.names = vec!["c.svc".to_owned()]),
            damage(&|it| it.names.clear()),
            damage(&|it| it.not_after = longer),
        ] {
            let secret = holding(serde_json::to_vec(&[damaged, other.clone()]).unwrap());
            assert_eq!(read(&secret), std::slice::from_ref(&other));
        }
        let data = json!([{"authority": 1}, good, "x"])
            .to_string()
            .into_bytes();
        assert_eq!(read(&holding(data)), [good]);
    }

    #[test]
    fn trusted_is_what_every_entry_trusts() {
        assert_eq!(trusted(&configuration(&[Some("ab"), Some("ab")])), "ab");
        for bundles in [
            &[][..],
            &[None],
            &[Some("ab"), None],
            &[Some("ab"), Some("b")],
        ] {
            assert_eq!(trusted(&configuration(bundles)), "", "{bundles:?}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        brupop_runtime::install_crypto_provider();
        let lifetimes = Lifetimes::of_lifetime(SignedDuration::from_hours(1));
        let now = Timestamp::now();
        let made = [issue(&["a.b.svc".to_owned()], lifetimes, now, now).unwrap()];
        let shipped = json!({"metadata": {"name": "s", "labels": {"a": "b"},
            "managedFields": [{"time": "10000-01-01T23:58:59Z"}]}, "type": "Opaque"});
        let shipped: Item<StoredSecret> = serde_json::from_value(shipped).unwrap();
        let written = write(shipped.body.unwrap(), &made).unwrap();
        assert_eq!(
            written["metadata"],
            json!({"name": "s", "labels": {"a": "b"}})
        );
        assert_eq!(read(&serde_json::from_value(written).unwrap()), made);
    }
}
