//! The custom resource definitions, generated from the types; the bounds of fields, and what words of the system are.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt as _;

use crate::{BottlerocketFleet, BottlerocketPool, BottlerocketShadow};

/// Longest name of a Kubernetes object, in characters.
pub const NAME_MAX: usize = 253;
/// Longest word that says why or what, in CamelCase: of a condition, a failure.
pub const WORD_MAX: usize = 64;
/// Longest UID that is accepted; a UUID has 36 characters.
pub const UID_MAX: usize = 64;
/// Most conditions of an object.
pub const CONDITIONS_MAX: usize = 8;
/// Most slots in the ledger, and so most nodes that are updated at once, whatever is configured. The ledger is one object,
/// which is written again whenever a slot is taken or given back: with 500 slots it is stored as at most 1.25 MB, and etcd takes
/// no object of more than 1.5 MB.
pub const SLOTS_MAX: u64 = 500;
/// Most records of the ledger, each of one version and one variant.
pub const VERSION_RECORDS_MAX: usize = 64;
/// Most nodes that the ledger names as failed, for each version.
pub const FAILED_NODES_MAX: usize = 8;
/// Longest version string that is accepted.
pub const VERSION_MAX: usize = 64;
/// Longest variant, such as `aws-k8s-1.36`.
pub const VARIANT_MAX: usize = 48;
/// Longest boot id that is accepted; a UUID has 36 characters.
pub const BOOT_ID_MAX: usize = 64;
/// Longest message for people that is accepted, in characters. We cut ours to as many bytes, so to no more characters.
pub const MESSAGE_MAX: usize = 1024;
/// Longest time that is accepted; RFC 3339 with nanoseconds has 35 characters.
pub const TIME_MAX: usize = 64;
/// Longest name of a pool. Each slot in the ledger names one.
pub const POOL_NAME_MAX: usize = 63;
/// Most pools that a pool comes after.
pub const DEPENDS_ON_MAX: usize = 8;
/// Most pools of which the ledger notes which versions they are done with.
pub const DONE_POOLS_MAX: usize = 16;
/// Most versions of which it notes that: those with the latest records.
pub const DONE_VERSIONS_MAX: usize = 16;
/// Most gates of a pool.
pub const GATES_MAX: usize = 4;
/// Longest expression that a gate asks for, in characters.
pub const QUERY_MAX: usize = 1024;
/// Most versions that the status of a pool counts nodes of.
pub const POOL_VERSIONS_MAX: usize = 8;
/// Longest name or value of a label.
pub(crate) const LABEL_MAX: usize = 63;
/// Highest count that is accepted: every JSON parser reads it exactly.
pub const COUNTER_MAX: u64 = 9_007_199_254_740_991;

/// Whether this text has the characters of a DNS label, whatever its length.
pub(crate) fn is_label_of_any_length(text: &str) -> bool {
    let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = [text.as_bytes().first(), text.as_bytes().last()];
    ends.iter().all(|end| end.is_some_and(inner))
        && text.bytes().all(|byte| inner(&byte) || byte == b'-')
}

/// Is this a boot id that the schemas take: at most [`BOOT_ID_MAX`] letters, digits, `.`, `_` and `-`? The kernel's is a
/// UUID.
pub fn is_boot_id(text: &str) -> bool {
    (1..=BOOT_ID_MAX).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// Whether this text has the characters and the length of a variant.
pub fn is_variant(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (1..=VARIANT_MAX).contains(&text.len()) && text.bytes().all(plain)
}

/// Whether this text has the characters and the length of a version.
pub fn is_version(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-+".contains(&byte);
    let begins = text.starts_with(|first: char| first.is_ascii_digit());
    begins && text.len() <= VERSION_MAX && text.bytes().all(plain)
}

/// Argo CD, Helm and Flux do not delete a definition that has these: with it would go all shadows, and the ledger.
const KEPT: [(&str, &str); 3] = [
    (
        "argocd.argoproj.io/sync-options",
        "Prune=false,Delete=false",
    ),
    ("helm.sh/resource-policy", "keep"),
    ("kustomize.toolkit.fluxcd.io/prune", "disabled"),
];

/// All definitions, in the order in which they are installed.
pub fn all() -> Vec<CustomResourceDefinition> {
    let kept = |mut crd: CustomResourceDefinition| {
        let annotations = crd.metadata.annotations.get_or_insert_default();
        annotations.extend(KEPT.map(|(key, value)| (key.to_owned(), value.to_owned())));
        let schemas = crd
            .spec
            .versions
            .iter_mut()
            .filter_map(|version| version.schema.as_mut());
        for schema in schemas.filter_map(|schema| schema.open_api_v3_schema.as_mut()) {
            leave_out_defaults(schema);
        }
        crd
    };
    [
        BottlerocketShadow::crd(),
        BottlerocketFleet::crd(),
        BottlerocketPool::crd(),
    ]
    .map(kept)
    .into()
}

/// API servers do not keep `nullable: false`. With it `kubectl apply` would change the definition each time.
fn leave_out_defaults(schema: &mut JSONSchemaProps) {
    schema.nullable = schema.nullable.filter(|nullable| *nullable);
    schema
        .properties
        .iter_mut()
        .flat_map(BTreeMap::values_mut)
        .for_each(leave_out_defaults);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        leave_out_defaults(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        leave_out_defaults(values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn words_are_told_from_others() {
        for (text, is_label) in [
            ("a", true),
            ("a-1", true),
            ("7a", true),
            ("", false),
            ("-a", false),
            ("a-", false),
            ("A", false),
            ("a.b", false),
            ("a_b", false),
        ] {
            assert_eq!(is_label_of_any_length(text), is_label, "{text:?}");
        }
        for (text, expected) in [
            ("0a1b-2c", true),
            ("a_b.c", true),
            ("", false),
            ("a b", false),
            ("a/b", false),
            (&"a".repeat(BOOT_ID_MAX + 1), false),
        ] {
            assert_eq!(is_boot_id(text), expected, "{text:?}");
        }
        for (text, expected) in [
            ("aws-k8s-1.30", true),
            ("", false),
            ("a b", false),
            (&"a".repeat(300), false),
        ] {
            assert_eq!(is_variant(text), expected, "{text:?}");
        }
    }
    /// The lists in this part of a schema that do not say how they are merged, by their paths.
    fn unsaid(path: &str, schema: &Value, found: &mut Vec<String>) {
        if schema["type"] == "array" {
            let keys = schema["x-kubernetes-list-map-keys"]
                .as_array()
                .map_or(0, Vec::len);
            let says = match schema["x-kubernetes-list-type"].as_str() {
                Some("map") => keys > 0,
                Some("set" | "atomic") => keys == 0,
                _ => false,
            };
            if !says {
                found.push(path.to_owned());
            }
        }
        let parts = schema
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, part)| (key.clone(), part));
        let members = schema
            .as_array()
            .into_iter()
            .flatten()
            .enumerate()
            .map(|(index, part)| (index.to_string(), part));
        parts
            .chain(members)
            .for_each(|(key, part)| unsaid(&format!("{path}/{key}"), part, found));
    }

    /// The applied definitions match the types.
    #[test]
    fn the_definitions_are_those_of_the_manifests() {
        for crd in all() {
            let file = format!(
                "{}/../manifests/{}-crd.yaml",
                env!("CARGO_MANIFEST_DIR"),
                crd.spec.names.singular.as_deref().unwrap()
            );
            let text = std::fs::read_to_string(&file).unwrap();
            let read: Value = serde_yaml_ng::from_str(&text).unwrap();
            assert!(read == json!(crd), "{file} differs: run `make manifests`");
        }
    }

    /// The fields that answer with a pattern or a format in place of a sentence, by their paths.
    fn unworded(path: &str, schema: &Value, found: &mut Vec<String>) {
        if ["pattern", "format"]
            .iter()
            .any(|word| schema[word].is_string() && schema["type"] == "string")
        {
            found.push(path.to_owned());
        }
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            unworded(&format!("{path}.{name}"), field, found);
        }
        for part in ["items", "additionalProperties"]
            .iter()
            .filter_map(|part| schema.get(part))
        {
            unworded(path, part, found);
        }
    }

    /// Mistakes are answered with what to write.
    #[test]
    fn what_people_write_is_held_to_rules_with_sentences() {
        let mut found = vec![];
        // The reconciler writes the specs of shadows.
        for crd in all()
            .iter()
            .filter(|crd| crd.spec.names.kind != "BottlerocketShadow")
        {
            let schema = &json!(crd.spec.versions[0].schema)["openAPIV3Schema"];
            assert!(
                schema["properties"]["spec"]["properties"].is_object(),
                "{schema}"
            );
            unworded(
                &crd.spec.names.kind,
                &schema["properties"]["spec"],
                &mut found,
            );
        }
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn what_kstatus_waits_for_begins_unobserved() {
        let default = |crd: CustomResourceDefinition| {
            let schema = crd.spec.versions[0].schema.clone()?.open_api_v3_schema?;
            Some((
                crd.spec.names.kind,
                json!(schema.properties?["status"].default),
            ))
        };
        let unobserved = json!({"observedGeneration": 0});
        let found: Vec<_> = all().into_iter().filter_map(default).collect();
        let expected = [
            ("BottlerocketShadow", Value::Null),
            ("BottlerocketFleet", unobserved.clone()),
            ("BottlerocketPool", unobserved),
        ];
        assert_eq!(
            found,
            expected.map(|(kind, default)| (kind.to_owned(), default))
        );
    }

    #[test]
    fn each_list_declares_its_list_type() {
        let mut found = vec![];
        let crds = all();
        assert_eq!(crds.len(), 3);
        unsaid("", &json!(crds), &mut found);
        // Not a field of ours: these belong to the definitions themselves.
        found.retain(|path| path.contains("openAPIV3Schema"));
        assert_eq!(found, [""; 0]);
    }
}
