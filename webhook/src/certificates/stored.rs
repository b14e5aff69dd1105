//! How generations stand in the Secret, and their authorities in the configuration.

use super::Generation;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;

/// Key of the Secret's data under which the generations are.
const DATA_KEY: &str = "generations.json";

/// Puts the generations into the Secret, beside whatever else is in it.
pub(super) fn write(secret: &mut Secret, generations: &[Generation]) -> serde_json::Result<()> {
    let data = ByteString(serde_json::to_vec(generations)?);
    secret.data.get_or_insert_default().insert(DATA_KEY.to_owned(), data);
    Ok(())
}

/// The JSON patch that makes every entry of the configuration trust `bundle`, if one does not.
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

/// Whatever cannot be read counts as nothing: a new generation takes its place.
pub(super) fn read(secret: &Secret) -> Vec<Generation> {
    let Some(data) = secret.data.as_ref().and_then(|data| data.get(DATA_KEY)) else { return Vec::new() };
    serde_json::from_slice(&data.0).unwrap_or_else(|error| {
        tracing::warn!(secret = %secret.name_any(), %error, "the generations in the Secret cannot be read");
        Vec::new()
    })
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
    fn what_is_written_is_read_again() {
        let policy = Policy::of_lifetime(SignedDuration::from_hours(1));
        let now = Timestamp::now();
        let made = [issue(&["a.b.svc".to_owned()], policy, now, now).unwrap()];
        let mut secret = Secret::default();
        write(&mut secret, &made).unwrap();
        assert_eq!(read(&secret), made);
    }
}
