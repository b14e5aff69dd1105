//! The custom resource definitions, generated from the types.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt as _;

use crate::{BottlerocketFleet, BottlerocketPool, BottlerocketShadow};

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
        let versions = crd.spec.versions.iter_mut();
        let schemas = versions.filter_map(|version| version.schema.as_mut());
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
    let properties = schema.properties.iter_mut();
    let properties = properties.flat_map(BTreeMap::values_mut);
    properties.for_each(leave_out_defaults);
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
