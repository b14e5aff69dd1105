//! The manifests and the code call things by the same names.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use brupop_api::names;
use serde::Deserialize as _;
use serde_json::Value;
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
    object(
        "webhook.yaml",
        "ValidatingWebhookConfiguration",
        "brupop-webhook",
    )
}

fn reconciler_policy() -> Value {
    object(
        "policies.yaml",
        "ValidatingAdmissionPolicy",
        "brupop-reconciler",
    )
}

/// That policies and roles name what the code names is shown by the rows on an API server.
#[test]
fn nobody_may_opt_in_unless_it_is_asked_for() {
    let variables = &reconciler_policy()["spec"]["variables"];
    assert_eq!(
        variables[0],
        serde_json::json!({"name": "mayOptIn", "expression": "false"})
    );
}

#[test]
fn the_configuration_selects_our_namespaces_accounts_only() {
    let configuration = webhook_configuration();
    let [entry, of_pools] = configuration["webhooks"].as_array().unwrap().as_slice() else {
        panic!("two entries")
    };
    assert_eq!(
        entry["matchConditions"][0]["expression"],
        "request.userInfo.username.startsWith('system:serviceaccount:' + request.namespace + ':')"
    );
    // One expression decides whether the webhook or the policy judges a write.
    let policy = reconciler_policy();
    let confined = policy["spec"]["matchConditions"][0]["expression"]
        .as_str()
        .unwrap();
    assert_eq!(
        entry["matchConditions"][1]["expression"],
        format!(
            "request.?subResource.orValue('') != 'status' || request.?dryRun.orValue(false) || !{confined}"
        )
    );
    assert_eq!(
        policy["spec"]["matchConditions"].as_array().unwrap().len(),
        1
    );
    assert_eq!(entry["matchConditions"].as_array().unwrap().len(), 2);
    let rules = policy["spec"]["matchConstraints"]["resourceRules"]
        .as_array()
        .unwrap();
    assert!(
        rules
            .iter()
            .any(|rule| rule["resources"] == serde_json::json!(["bottlerocketshadows/status"]))
    );
    assert_eq!(
        (&entry["failurePolicy"], &entry["timeoutSeconds"]),
        (&"Fail".into(), &3.into())
    );
    assert_eq!(
        entry["rules"][0]["apiGroups"],
        serde_json::json!([names::GROUP])
    );
    for unset in ["objectSelector", "namespaceSelector"] {
        assert!(entry[unset].is_null(), "{unset}");
    }
    // Nobody's pool waits for us, and nothing but pools is asked of this entry.
    assert_eq!(
        (&of_pools["failurePolicy"], &of_pools["timeoutSeconds"]),
        (&"Ignore".into(), &1.into())
    );
    assert_eq!(of_pools["rules"].as_array().unwrap().len(), 1);
    assert_eq!(
        of_pools["rules"][0]["apiGroups"],
        serde_json::json!([names::GROUP])
    );
    assert_eq!(
        of_pools["rules"][0]["resources"],
        serde_json::json!(["bottlerocketpools"])
    );
}

/// Writes in a version that the configuration does not list would go past the webhook.
#[test]
fn the_configuration_lists_each_version_that_is_served() {
    let configuration = webhook_configuration();
    for (webhook, resource) in [(0, "bottlerocketshadows"), (1, "bottlerocketpools")] {
        let rule = &configuration["webhooks"][webhook]["rules"][0];
        let listed = rule["apiVersions"].as_array().unwrap();
        assert!(
            rule["resources"]
                .as_array()
                .unwrap()
                .contains(&resource.into()),
            "{rule}"
        );
        let crds = brupop_api::definitions::all();
        let crd = crds
            .iter()
            .find(|crd| crd.spec.names.plural == resource)
            .unwrap();
        let served: Vec<_> = crd
            .spec
            .versions
            .iter()
            .filter(|version| version.served)
            .collect();
        assert!(!served.is_empty(), "{resource}");
        for version in served {
            let is_listed = |listed: &Value| listed == "*" || *listed == version.name;
            assert!(
                listed.iter().any(is_listed),
                "{resource} {} is served, and not listed",
                version.name
            );
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
            ["BottlerocketFleet", "BottlerocketPool"]
                .map(Value::from)
                .contains(&object["kind"])
        })
        .collect();
    assert!(objects.len() > 10, "some were not found: {objects:?}");
    for object in objects {
        let annotations = &object["metadata"]["annotations"];
        assert_eq!(
            annotations["kustomize.toolkit.fluxcd.io/ssa"], "Merge",
            "{object}"
        );
    }
}

/// The containers of all workloads, those of components, too.
fn containers() -> Vec<Value> {
    let all = ["manifests", "kustomize"]
        .into_iter()
        .flat_map(|name| documents(folder().join("..").join(name)));
    let lists = all.filter_map(|object| {
        object["spec"]["template"]["spec"]["containers"]
            .as_array()
            .cloned()
    });
    let containers: Vec<Value> = lists.flatten().collect();
    assert!(containers.len() > 3, "some were not found: {containers:?}");
    containers
}

#[test]
fn each_container_says_what_it_needs() {
    let needed = [
        "/requests/cpu",
        "/requests/memory",
        "/requests/ephemeral-storage",
    ];
    let bounded = ["/limits/memory", "/limits/ephemeral-storage"];
    for container in containers() {
        for path in needed.iter().chain(&bounded) {
            let found = container["resources"].pointer(path);
            assert!(
                found.is_some_and(Value::is_string),
                "{}: no {path}",
                container["name"]
            );
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
        if field["description"]
            .as_str()
            .is_none_or(|text| text.len() < 4)
        {
            found.push(format!("{path}.{name} without a description"));
        }
        unheld(&format!("{path}.{name}"), field, found);
    }
    for part in ["items", "additionalProperties"]
        .iter()
        .filter_map(|part| schema.get(part))
    {
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
            unheld(
                &format!("{}.{half}", kind.to_lowercase()),
                &schema[half],
                &mut found,
            );
        }
    }
    // The webhook reads what is written in PromQL.
    let promql = "pool.spec.gates.prometheus";
    assert_eq!(
        found,
        [format!("{promql}.query"), format!("{promql}.requires")]
    );
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

/// Returns what a path from there on is about: each member, if it is a list or has keys that people choose.
fn member(schema: &Value) -> &Value {
    ["items", "additionalProperties"]
        .iter()
        .find_map(|of| schema.get(of))
        .unwrap_or(schema)
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
        assert_eq!(
            (&of["group"], &of["version"]),
            (
                &definition["spec"]["group"],
                &definition["spec"]["versions"][0]["name"]
            )
        );
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        for metric in resource["metrics"].as_array().unwrap() {
            let each = &metric["each"];
            let (_, each) = each
                .as_object()
                .unwrap()
                .iter()
                .find(|(key, _)| *key != "type")
                .unwrap();
            let found =
                at(schema, &each["path"]).unwrap_or_else(|| panic!("{kind}: no {}", each["path"]));
            let labels = each["labelsFromPath"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(_, path)| path);
            for path in labels.chain([&each["valueFrom"]]) {
                assert!(
                    at(member(found), path).is_some(),
                    "{kind}: no {path} in {}",
                    each["path"]
                );
            }
            assert_eq!(each["list"], found["enum"], "{kind}: {}", each["path"]);
        }
    }
    assert_eq!(
        kinds,
        [
            "BottlerocketShadow",
            "BottlerocketFleet",
            "BottlerocketPool"
        ]
    );
}
