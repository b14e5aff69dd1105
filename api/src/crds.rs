//! The custom resource definitions, generated from the types, and the schemas that several fields share.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt as _;
use schemars::{Schema, SchemaGenerator, json_schema};

use crate::printable::PATTERN;
use crate::{BottlerocketFleet, BottlerocketPool, BottlerocketShadow};

/// Longest name of a Kubernetes object, in characters.
pub const NAME_MAX: usize = 253;
/// Longest word that says why or what, in CamelCase: of a condition, a failure.
pub const WORD_MAX: usize = 64;
/// Longest UID that is accepted; a UUID has 36 characters.
pub const UID_MAX: usize = 64;
/// Longest name of what a drain failed on, in characters: an owner of pods has three names of others' choice.
pub const OBSTACLE_MAX: usize = 1024;
/// Most conditions of an object.
pub const CONDITIONS_MAX: usize = 8;
/// Most slots in the ledger, and so most nodes that are updated at once, whatever is configured. The ledger is one object,
/// which is written anew whenever a slot is taken or given back: with 500 slots it is stored as some 170 kB, at most as 1.25 MB,
/// and etcd takes no object of more than 1.5 MB.
pub const SLOTS_MAX: u64 = 500;
/// Most versions that the ledger has a record of.
pub const VERSION_RECORDS_MAX: usize = 32;
/// Most records of versions in single pools.
pub const POOL_RECORDS_MAX: usize = 16;
/// Most failures that a pool can let pass: the ledger names no more nodes.
pub const POOL_FAILURES_MAX: usize = FAILED_NODES_MAX;
/// Most halts that the status of a pool shows.
pub const POOL_HALTS_MAX: usize = 8;
/// Most nodes that the ledger names as failed, for each version.
pub const FAILED_NODES_MAX: usize = 8;
/// Most versions of which the ledger notes since when they are known.
pub const SEEN_MAX: usize = 64;
/// Longest sentence that says why a version is halted, in characters.
pub const HALT_REASON_MAX: usize = 256;
/// Most versions whose halts a person can lift at a time.
pub const ACKNOWLEDGED_HALTS_MAX: usize = 16;
/// Longest version string that is accepted.
pub const VERSION_MAX: usize = 64;
/// Longest variant, such as `aws-k8s-1.36`.
pub const VARIANT_MAX: usize = 48;
/// Most variants that a version's record or its halt names.
pub const VARIANTS_MAX: usize = 8;
/// Longest boot id that is accepted; a UUID has 36 characters.
pub const BOOT_ID_MAX: usize = 64;
/// Longest message for people that is accepted, in characters. We cut ours to as many bytes, so to no more characters.
pub const MESSAGE_MAX: usize = 1024;
/// Longest time that is accepted; RFC 3339 with nanoseconds has 35 characters.
pub const TIME_MAX: usize = 64;
/// Longest name of a pool. Each slot in the ledger names one.
pub const POOL_NAME_MAX: usize = 63;
/// Most pools that a pool comes after.
pub const AFTER_MAX: usize = 8;
/// Most pools of which the ledger notes, for each version, whether they are done with it.
pub const DONE_POOLS_MAX: usize = 16;
/// Most gates of a pool.
pub const GATES_MAX: usize = 4;
/// Longest expression that a gate asks for, in characters.
pub const QUERY_MAX: usize = 1024;
/// Most versions that the status of a pool counts nodes of.
pub const POOL_VERSIONS_MAX: usize = 8;
/// Highest count that is accepted: every JSON parser reads it exactly.
pub const COUNTER_MAX: u64 = 9_007_199_254_740_991;

/// Is this a label of DNS, as sources and gates are called: at most 63 letters in lower case, digits and `-`, neither first
/// nor last a `-`?
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= LABEL_MAX && is_label_of_any_length(text)
}

/// Is this text made of the letters of a DNS label, however long it is?
pub(crate) fn is_label_of_any_length(text: &str) -> bool {
    let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = [text.as_bytes().first(), text.as_bytes().last()];
    ends.iter().all(|end| end.is_some_and(inner)) && text.bytes().all(|byte| inner(&byte) || byte == b'-')
}

/// Is this a boot id that the schemas take: at most [`BOOT_ID_MAX`] letters, digits, `.`, `_` and `-`? The kernel's is a
/// UUID.
pub fn is_boot_id(text: &str) -> bool {
    (1..=BOOT_ID_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// See [`is_variant`].
const VARIANT: &str = "^[0-9A-Za-z._-]+$";
/// <https://semver.org/#is-there-a-suggested-regular-expression-regex-to-check-a-semver-string>
const SEMVER: &str = concat!(
    r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)",
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?",
    r"(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?$"
);

const BOOT_ID: &str = r"^[0-9A-Za-z._-]+$";
/// RFC 3339, as far as characters go. The API server's own check of the format `date-time` lets other text follow.
const TIME: &str = r"^[0-9TZtz:.+-]*$";
const UID: &str = r"^[0-9A-Za-z._-]*$";
/// Names of Nodes: <https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names>
const NAME: &str = r"^[0-9a-z.-]*$";
/// In CamelCase.
const WORD: &str = r"^[A-Z][A-Za-z]*$";

/// Longest name or value of a label.
const LABEL_MAX: usize = 63;
const LABEL_VALUE: &str = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
const LABEL_KEY: &str = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$";
const DNS_LABEL: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// What cron expressions consist of, as far as characters go.
const CRON: &str = r"^[0-9A-Za-z*/,#? -]+$";
/// Hours, minutes, seconds.
const DURATION: &str = r"^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,6}s)?$";
const TIME_ZONE: &str = r"^[A-Za-z][A-Za-z0-9_+/-]*$";
/// The rule for limits.
pub(crate) const MAX_UNAVAILABLE_RULE: &str =
    "type(self) == int ? self >= 1 && self <= 100000 : self.matches('^(100|[1-9][0-9]?)%$')";
/// What to write instead.
pub(crate) const MAX_UNAVAILABLE_HINT: &str =
    "write a number from 1, such as 2, or a percentage from 1% to 100%, such as \"10%\"";

/// Argo CD, Helm and Flux do not delete a definition that has these: with it would go all shadows, and the ledger.
const KEPT: [(&str, &str); 3] = [
    ("argocd.argoproj.io/sync-options", "Prune=false,Delete=false"),
    ("helm.sh/resource-policy", "keep"),
    ("kustomize.toolkit.fluxcd.io/prune", "disabled"),
];

/// All definitions, in the order in which they are installed.
pub fn all() -> Vec<CustomResourceDefinition> {
    let kept = |mut crd: CustomResourceDefinition| {
        let annotations = crd.metadata.annotations.get_or_insert_default();
        annotations.extend(KEPT.map(|(key, value)| (key.to_owned(), value.to_owned())));
        let schemas = crd.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut());
        for schema in schemas.filter_map(|schema| schema.open_api_v3_schema.as_mut()) {
            leave_out_defaults(schema);
            begin_unobserved(schema);
        }
        crd
    };
    [BottlerocketShadow::crd(), BottlerocketFleet::crd(), BottlerocketPool::crd()].map(kept).into()
}

/// API servers do not keep `nullable: false`. With it `kubectl apply` would change the definition each time.
fn leave_out_defaults(schema: &mut JSONSchemaProps) {
    schema.nullable = schema.nullable.filter(|nullable| *nullable);
    schema.properties.iter_mut().flat_map(BTreeMap::values_mut).for_each(leave_out_defaults);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        leave_out_defaults(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        leave_out_defaults(values);
    }
}

/// Until the reconciler has seen an object, its status says so. kstatus, and with it Flux and Helm, would take an object
/// without a status for one that is ready.
fn begin_unobserved(schema: &mut JSONSchemaProps) {
    let status = schema.properties.as_mut().and_then(|properties| properties.get_mut("status"));
    let has = |status: &&mut JSONSchemaProps| {
        status.properties.as_ref().is_some_and(|fields| fields.contains_key("observedGeneration"))
    };
    if let Some(status) = status.filter(has) {
        status.default = Some(JSON(serde_json::json!({"observedGeneration": 0})));
    }
}

pub(crate) fn version(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "maxLength": VERSION_MAX, "pattern": SEMVER})
}

/// Which letters a variant may have.
pub fn is_variant(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (1..=VARIANT_MAX).contains(&text.len()) && text.bytes().all(plain)
}

pub(crate) fn variant_or_null(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "nullable": true, "maxLength": VARIANT_MAX, "pattern": VARIANT})
}

pub(crate) fn variants(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "maxItems": VARIANTS_MAX, "x-kubernetes-list-type": "set",
        "items": {"type": "string", "maxLength": VARIANT_MAX, "pattern": VARIANT},
    })
}

pub(crate) fn version_or_null(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "nullable": true, "maxLength": VERSION_MAX, "pattern": SEMVER})
}

pub(crate) fn name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "maxLength": NAME_MAX, "pattern": NAME})
}

pub(crate) fn pool_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": POOL_NAME_MAX, "pattern": NAME})
}

pub(crate) fn pool_name_or_null(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "nullable": true, "maxLength": POOL_NAME_MAX, "pattern": NAME})
}

pub(crate) fn priority(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "format": "int32", "minimum": 0, "maximum": 1000})
}

pub(crate) fn failures(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "format": "int32", "minimum": 1, "maximum": POOL_FAILURES_MAX})
}

pub(crate) fn max_unavailable(_: &mut SchemaGenerator) -> Schema {
    // Not nullable: API servers drop a `null` then, and fill in the default. `kube` would make it nullable.
    json_schema!({"x-kubernetes-int-or-string": true, "nullable": false})
}

pub(crate) fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object", "maxProperties": 16,
        "additionalProperties": {"type": "string", "maxLength": LABEL_MAX, "pattern": LABEL_VALUE},
    })
}

pub(crate) fn label_key(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "maxLength": NAME_MAX + 1 + LABEL_MAX, "pattern": LABEL_KEY})
}

pub(crate) fn label_values(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "maxItems": 32, "x-kubernetes-list-type": "set",
        "items": {"type": "string", "maxLength": LABEL_MAX, "pattern": LABEL_VALUE},
    })
}

pub(crate) fn label_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": LABEL_MAX, "pattern": LABEL_VALUE})
}

pub(crate) fn dns_label(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": LABEL_MAX, "pattern": DNS_LABEL})
}

pub(crate) fn query(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": QUERY_MAX})
}

pub(crate) fn query_or_null(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "nullable": true, "minLength": 1, "maxLength": QUERY_MAX})
}

pub(crate) fn cron(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": 128, "pattern": CRON})
}

pub(crate) fn duration(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 2, "maxLength": 32, "pattern": DURATION})
}

pub(crate) fn time_zone(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": 64, "pattern": TIME_ZONE})
}

pub(crate) fn word(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": WORD_MAX, "pattern": WORD})
}

pub(crate) fn obstacle(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "maxLength": OBSTACLE_MAX, "pattern": PATTERN})
}

pub(crate) fn message(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "maxLength": MESSAGE_MAX, "pattern": PATTERN})
}

pub(crate) fn message_or_null(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "nullable": true, "maxLength": MESSAGE_MAX, "pattern": PATTERN})
}

pub(crate) fn halt_reason(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "maxLength": HALT_REASON_MAX, "pattern": PATTERN})
}

pub(crate) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time", "maxLength": TIME_MAX, "pattern": TIME})
}

pub(crate) fn time_or_null(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string", "format": "date-time", "nullable": true, "maxLength": TIME_MAX, "pattern": TIME
    })
}

/// Times by version.
pub(crate) fn times(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "maxProperties": SEEN_MAX, "additionalProperties": time(generator)})
}

/// A time that is copied from the host, and needs no more than to be recognized.
pub(crate) fn time_of_host(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": TIME_MAX, "pattern": TIME})
}

pub(crate) fn boot_id(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": BOOT_ID_MAX, "pattern": BOOT_ID})
}

pub(crate) fn uid(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "maxLength": UID_MAX, "pattern": UID})
}

pub(crate) fn counter(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "format": "int64", "minimum": 0, "maximum": COUNTER_MAX})
}

/// Without a default: an absent flag is not stored.
pub(crate) fn flag(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "boolean"})
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// The lists in this part of a schema that do not say how they are merged, by their paths.
    fn unsaid(path: &str, schema: &Value, found: &mut Vec<String>) {
        if schema["type"] == "array" {
            let keys = schema["x-kubernetes-list-map-keys"].as_array().map_or(0, Vec::len);
            let says = match schema["x-kubernetes-list-type"].as_str() {
                Some("map") => keys > 0,
                Some("set" | "atomic") => keys == 0,
                _ => false,
            };
            if !says {
                found.push(path.to_owned());
            }
        }
        let parts = schema.as_object().into_iter().flatten().map(|(key, part)| (key.clone(), part));
        let members = schema
            .as_array()
            .into_iter()
            .flatten()
            .enumerate()
            .map(|(index, part)| (index.to_string(), part));
        parts.chain(members).for_each(|(key, part)| unsaid(&format!("{path}/{key}"), part, found));
    }

    #[test]
    fn words_are_told_from_others() {
        let long = "a".repeat(64);
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
            (&long[..63], true),
            (&long, false),
        ] {
            assert_eq!(is_dns_label(text), is_label, "{text:?}");
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
        for (text, expected) in
            [("aws-k8s-1.30", true), ("", false), ("a b", false), (&"a".repeat(300), false)]
        {
            assert_eq!(is_variant(text), expected, "{text:?}");
        }
    }

    /// What users apply is what the types say.
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
            assert_eq!(read, json!(crd), "{file}: run `make manifests`");
        }
    }

    #[test]
    fn what_kstatus_waits_for_begins_unobserved() {
        let default = |crd: CustomResourceDefinition| {
            let schema = crd.spec.versions[0].schema.clone()?.open_api_v3_schema?;
            Some((crd.spec.names.kind, json!(schema.properties?["status"].default)))
        };
        let unobserved = json!({"observedGeneration": 0});
        let found: Vec<_> = all().into_iter().filter_map(default).collect();
        let expected = [
            ("BottlerocketShadow", Value::Null),
            ("BottlerocketFleet", unobserved.clone()),
            ("BottlerocketPool", unobserved),
        ];
        assert_eq!(found, expected.map(|(kind, default)| (kind.to_owned(), default)));
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
