//! The manifests and the code call things by the same names.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use brupop_api::names;
use serde::Deserialize as _;
use serde_json::{Value, json};
use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../manifests"))
}

/// The object of this kind and name in a file of several.
fn object(file: &str, kind: &str, name: &str) -> Value {
    let text = std::fs::read_to_string(folder().join(file)).unwrap();
    serde_yaml_ng::Deserializer::from_str(&text)
        .map(|document| Value::deserialize(document).unwrap())
        .find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
        .unwrap()
}

fn definition(kind: &str) -> Value {
    let definitions = brupop_api::definitions::all();
    let definition = definitions.iter().find(|crd| crd.spec.names.kind == kind);
    serde_json::json!(definition.unwrap())
}

fn webhook_configuration() -> Value {
    let kind = "ValidatingWebhookConfiguration";
    object("webhook.yaml", kind, "brupop-webhook")
}

fn reconciler_policy() -> Value {
    let kind = "ValidatingAdmissionPolicy";
    object("policies.yaml", kind, "brupop-reconciler")
}

/// That policies and roles name what the code names is shown by the rows on an API server.
#[test]
fn nobody_may_opt_in_unless_it_is_asked_for() {
    let variables = &reconciler_policy()["spec"]["variables"];
    let may_not = json!({"name": "mayOptIn", "expression": "false"});
    assert_eq!(variables[0], may_not);
}

#[test]
fn the_configuration_selects_our_namespaces_accounts_only() {
    // One expression decides whether the webhook or the policy judges a write.
    let policy = &reconciler_policy()["spec"];
    let conditions = policy["matchConditions"].as_array().unwrap();
    let [confined] = &conditions[..] else {
        panic!("{conditions:?}")
    };
    let confined = confined["expression"].as_str().unwrap();
    let rules = policy["matchConstraints"]["resourceRules"].as_array();
    let statuses = json!(["bottlerocketshadows/status"]);
    assert!(
        rules
            .unwrap()
            .iter()
            .any(|rule| rule["resources"] == statuses)
    );

    let ours =
        "request.userInfo.username.startsWith('system:serviceaccount:' + request.namespace + ':')";
    let judged = format!(
        "request.?subResource.orValue('') != 'status' || request.?dryRun.orValue(false) || !{confined}"
    );
    let configuration = webhook_configuration();
    let read = |webhook: &Value| {
        let conditions = webhook["matchConditions"].as_array().into_iter().flatten();
        let selectors = ["objectSelector", "namespaceSelector"].map(|name| webhook.get(name));
        let mut rules = webhook["rules"].clone();
        for rule in rules.as_array_mut().unwrap() {
            // The versions have a test of their own.
            rule["apiVersions"].take();
        }
        let conditions: Vec<_> = conditions.map(|it| &it["expression"]).collect();
        json!([
            webhook["failurePolicy"],
            webhook["timeoutSeconds"],
            rules,
            conditions,
            selectors
        ])
    };
    let rule = |operations: &[&str], resources: &[&str]| {
        json!([{"apiGroups": [names::GROUP], "apiVersions": null, "operations": operations, "resources": resources,
            "scope": "Namespaced"}])
    };
    let of_shadows = rule(&["*"], &["bottlerocketshadows", "bottlerocketshadows/*"]);
    let of_pools = rule(&["CREATE", "UPDATE"], &["bottlerocketpools"]);
    // Nobody's pool waits for us.
    let expected = [
        json!(["Fail", 3, of_shadows, [ours, judged], [null, null]]),
        json!(["Ignore", 1, of_pools, [], [null, null]]),
    ];
    let webhooks = configuration["webhooks"].as_array().unwrap();
    assert!(webhooks.iter().map(read).eq(expected), "{webhooks:#?}");
}

/// Writes in a version that the configuration does not list would go past the webhook.
#[test]
fn the_configuration_lists_each_version_that_is_served() {
    let configuration = webhook_configuration();
    for (webhook, resource) in [(0, "bottlerocketshadows"), (1, "bottlerocketpools")] {
        let rule = &configuration["webhooks"][webhook]["rules"][0];
        let listed = rule["apiVersions"].as_array().unwrap();
        let crds = brupop_api::definitions::all();
        let mut crds = crds.iter();
        let crd = crds.find(|crd| crd.spec.names.plural == resource).unwrap();
        let served = crd.spec.versions.iter().filter(|version| version.served);
        assert!(served.clone().next().is_some(), "{resource}");
        for version in served {
            let is_listed = |listed: &Value| listed == "*" || *listed == version.name;
            let (listed, name) = (listed.iter().any(is_listed), &version.name);
            assert!(listed, "{resource} {name} is served, and not listed");
        }
    }
}

/// Every YAML document below this folder, also those that documents quote.
fn documents(folder: PathBuf) -> Vec<Value> {
    let mut documents = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            documents.extend(self::documents(path));
            continue;
        }
        let text = |path| std::fs::read_to_string(path).unwrap();
        let quoted = match path.extension().and_then(|extension| extension.to_str()) {
            Some("yaml") => text(path),
            Some("md") => {
                let fenced = text(path);
                let quoted = fenced
                    .split("```yaml\n")
                    .skip(1)
                    .map(|rest| rest.split("```").next().unwrap());
                quoted.collect::<Vec<_>>().join("\n---\n")
            }
            _ => continue,
        };
        documents.extend(
            quoted
                .split("\n---\n")
                .filter_map(|text| serde_yaml_ng::from_str(text).ok()),
        );
    }
    documents
}

/// From objects without this annotation, Flux removes a pause that kubectl has written.
#[test]
fn flux_is_told_to_leave_pauses_alone() {
    let objects: Vec<Value> = ["kustomize", "docs"]
        .into_iter()
        .flat_map(|name| documents(folder().join("..").join(name)))
        .filter(|object| {
            object["kind"] == "BottlerocketFleet" || object["kind"] == "BottlerocketPool"
        })
        .collect();
    assert!(objects.len() > 10, "some were not found: {objects:?}");
    for object in objects {
        let annotations = &object["metadata"]["annotations"];
        let found = &annotations["kustomize.toolkit.fluxcd.io/ssa"];
        assert_eq!(found, "Merge", "{object}");
    }
}

/// The containers of all workloads, those of components, too.
fn containers() -> Vec<Value> {
    let all = ["manifests", "kustomize"]
        .into_iter()
        .flat_map(|name| documents(folder().join("..").join(name)));
    let pods = all.filter_map(|object| object.pointer("/spec/template/spec").cloned());
    let lists = pods.filter_map(|pod| pod["containers"].as_array().cloned());
    let containers: Vec<Value> = lists.flatten().collect();
    assert!(containers.len() > 3, "some were not found: {containers:?}");
    containers
}

#[test]
fn each_container_says_what_it_needs() {
    for container in containers() {
        for (half, resource) in [
            ("requests", "cpu"),
            ("requests", "memory"),
            ("requests", "ephemeral-storage"),
            ("limits", "memory"),
            ("limits", "ephemeral-storage"),
        ] {
            let found = &container["resources"][half][resource];
            let name = &container["name"];
            assert!(found.is_string(), "{name} has no {half} of {resource}");
        }
    }
}

/// Paths in this part of a schema without a description, a bound, or a rule for characters.
fn unheld(path: &str, schema: &Value, found: &mut Vec<String>) {
    let has = |word: &str| schema.get(word).is_some();
    let has_rule = has("pattern") || has("x-kubernetes-validations");
    let held = match schema["type"].as_str() {
        Some("string") => has("enum") || has("maxLength") && has_rule,
        Some("integer") => has("minimum") && has("maximum"),
        Some("array") => has("maxItems"),
        Some("object") => has("properties") || has("maxProperties"),
        Some("boolean") => true,
        _ => has_rule,
    };
    if !held {
        found.push(path.to_owned());
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let description = field["description"].as_str().unwrap_or_default();
        if description.len() < 4 {
            found.push(format!("{path}.{name} without a description"));
        }
        unheld(&format!("{path}.{name}"), field, found);
    }
    if let Some(part) = member(schema) {
        unheld(path, part, found);
    }
}

/// The tests on an API server try each rule in one place, and no bound.
#[test]
fn each_field_is_described_and_has_its_bounds() {
    let mut found = vec![];
    for kind in ["Shadow", "Fleet", "Pool"] {
        let definition = definition(&format!("Bottlerocket{kind}"));
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        for half in ["spec", "status"] {
            assert!(schema[half]["properties"].is_object(), "{schema}");
            let path = format!("{}.{half}", kind.to_lowercase());
            unheld(&path, &schema[half], &mut found);
        }
    }
    // The webhook reads what is written in PromQL.
    let promql = ["query", "requires"].map(|it| format!("pool.spec.gates.prometheus.{it}"));
    assert_eq!(found, promql);
}

/// Returns what a path of a kube-state-metrics configuration leads to, in the schema of a custom resource.
fn at<'a>(schema: &'a Value, path: &Value) -> Option<&'a Value> {
    path.as_array()
        .into_iter()
        .flatten()
        .try_fold(schema, |schema, part| {
            schema["properties"].get(part.as_str()?)
        })
}

/// The schema of each member, if this is one of a list or of a map with keys that people choose.
fn member(schema: &Value) -> Option<&Value> {
    let mut kinds = ["items", "additionalProperties"].into_iter();
    kinds.find_map(|of| schema.get(of))
}

#[test]
fn kube_state_metrics_is_told_of_fields_that_there_are() {
    let text = std::fs::read_to_string(folder().join("../docs/kube-state-metrics.yaml")).unwrap();
    let configuration: Value = serde_yaml_ng::from_str(&text).unwrap();
    let mut kinds = vec![];
    for resource in configuration["spec"]["resources"].as_array().unwrap() {
        let of = &resource["groupVersionKind"];
        let kind = of["kind"].as_str().unwrap();
        kinds.push(kind);
        let definition = definition(kind);
        let version = &definition["spec"]["versions"][0];
        assert_eq!(of["group"], definition["spec"]["group"]);
        assert_eq!(of["version"], version["name"]);
        let schema = &version["schema"]["openAPIV3Schema"];
        for metric in resource["metrics"].as_array().unwrap() {
            let mut each = metric["each"].as_object().unwrap().iter();
            let (_, each) = each.find(|(key, _)| *key != "type").unwrap();
            let begin = &each["path"];
            let found = at(schema, begin).unwrap_or_else(|| panic!("{kind}: no {begin}"));
            let labels = each["labelsFromPath"].as_object().into_iter().flatten();
            let paths = labels.map(|(_, path)| path).chain([&each["valueFrom"]]);
            for path in paths {
                let is_there = at(member(found).unwrap_or(found), path).is_some();
                assert!(is_there, "{kind}: no {path} in {begin}");
            }
            assert_eq!(each["list"], found["enum"], "{kind}: {begin}");
        }
    }
    let all = ["Shadow", "Fleet", "Pool"].map(|kind| format!("Bottlerocket{kind}"));
    assert_eq!(kinds, all);
}
