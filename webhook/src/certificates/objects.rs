//! The parsed parts of Secrets and of the webhook's configuration.

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

/// The `caBundle` of each entry of the webhook's configuration, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Bundles(pub(super) Vec<Option<ByteString>>);

impl Readable for Bundles {
    type Kind = ValidatingWebhookConfiguration;

    fn read(json: &str) -> Result<Self, Unreadable> {
        #[derive(Deserialize)]
        struct Shape {
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

        let Shape { webhooks } = serde_json::from_str(json)?;
        let entries = webhooks.unwrap_or_default().into_iter();
        Ok(Self(
            entries.map(|entry| entry.client_config.ca_bundle).collect(),
        ))
    }
}
