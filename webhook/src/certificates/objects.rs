//! What is read of Secrets and of the webhook's configuration.

use brupop_api::item::{Readable, Unreadable};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use serde::Deserialize;
use serde_json::{Value, json};

/// A Secret as JSON. It is written back as it was read, but for what we change in it.
#[derive(Clone)]
pub(super) struct StoredSecret(Value);

impl std::fmt::Debug for StoredSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StoredSecret")
    }
}

impl Readable for StoredSecret {
    type Kind = Secret;

    fn read(json: &str) -> Result<Self, Unreadable> {
        let mut secret: Value = serde_json::from_str(json)?;
        // The API server keeps these by itself, and may serve times in them that it does not take back.
        if let Some(metadata) = secret.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
            metadata.remove("creationTimestamp");
        }
        Ok(Self(secret))
    }
}

impl StoredSecret {
    /// The value of this key, if it is there.
    pub(super) fn data(&self, key: &str) -> Option<Vec<u8>> {
        ByteString::deserialize(self.0.get("data")?.get(key)?)
            .ok()
            .map(|bytes| bytes.0)
    }

    /// The object with this value under that key, to be written.
    pub(super) fn with_data(self, key: &str, value: Vec<u8>) -> Value {
        let Self(mut secret) = self;
        if !secret["data"].is_object() {
            secret["data"] = json!({});
        }
        secret["data"][key] = json!(ByteString(value));
        secret
    }
}

/// Annotations by which cert-manager is told to write `caBundle`.
const INJECTORS: [&str; 3] = [
    "cert-manager.io/inject-ca-from",
    "cert-manager.io/inject-ca-from-secret",
    "cert-manager.io/inject-apiserver-ca",
];

/// What is read of the webhook's configuration.
#[derive(Clone, Debug, Default)]
pub(super) struct Bundles {
    /// The `caBundle` of each entry, in their order.
    pub(super) of_entries: Vec<Option<ByteString>>,
    /// The annotation that tells another program to write them.
    pub(super) injector: Option<&'static str>,
}

impl Readable for Bundles {
    type Kind = ValidatingWebhookConfiguration;

    fn read(json: &str) -> Result<Self, Unreadable> {
        #[derive(Deserialize)]
        struct Shape {
            #[serde(default)]
            metadata: Value,
            #[serde(default)]
            webhooks: Option<Vec<Webhook>>,
        }

        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Webhook {
            client_config: ClientConfig,
        }

        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ClientConfig {
            #[serde(default)]
            ca_bundle: Option<ByteString>,
        }

        let Shape { metadata, webhooks } = serde_json::from_str(json)?;
        let bundles = webhooks
            .unwrap_or_default()
            .into_iter()
            .map(|entry| entry.client_config.ca_bundle);
        let injector = INJECTORS
            .into_iter()
            .find(|key| metadata["annotations"].get(key).is_some());
        Ok(Self {
            of_entries: bundles.collect(),
            injector,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_of_cert_manager_are_told_from_others() {
        let read = |annotations: &Value| {
            let configuration = json!({"metadata": {"name": "w", "annotations": annotations}});
            Bundles::read(&configuration.to_string()).unwrap().injector
        };
        for key in INJECTORS {
            assert_eq!(read(&json!({"a": "b", key: "ns/name"})), Some(key));
        }
        for others in [
            json!({"cert-manager.io/issuer": "i"}),
            json!("garbage"),
            Value::Null,
        ] {
            assert_eq!(read(&others), None);
        }
    }
}
