//! Who gives agents another field of the status is told of each list in which it is missing.

use super::judge;
use crate::verdict::{Change, Rule, ShadowRequest};
use brupop_admission_cases::edit::OF_AN_OBJECT;
use brupop_admission_cases::{review, table};
use brupop_api::facts::ShadowFacts;
use brupop_api::{BottlerocketShadow, Field, Object, Write, definitions};
use brupop_apply::{Fields, apply};
use kube::Resource as _;
use serde_json::{Map, Value, json};

const POLICY: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../manifests/agent-policy.yaml"
);

/// The fields of a status by the schema, but for those that are the reconciler's.
fn fields() -> Map<String, Value> {
    let shadow = json!(definitions::all()[0]);
    let properties = &shadow["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    let mut fields = properties["status"]["properties"]
        .as_object()
        .unwrap()
        .clone();
    assert!(
        ["pool", "conditions"]
            .iter()
            .all(|theirs| fields.remove(*theirs).is_some())
    );
    fields
}

/// A value that the schema takes.
fn sample(schema: &Value) -> Value {
    match (schema["enum"].get(0), schema["type"].as_str().unwrap()) {
        (Some(word), _) => word.clone(),
        (None, "integer") => json!(1),
        (None, "boolean") => json!(true),
        (None, "object") => schema["properties"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, member)| (name.clone(), sample(member)))
            .collect(),
        (None, _) if schema["format"] == "date-time" => json!("2026-01-01T00:00:00Z"),
        (None, _) => json!("1.0.0"),
    }
}

/// The rule by which an agent's report of this value is decided.
fn rule(field: &str, value: &Value) -> Rule {
    let row = table()
        .into_iter()
        .find(|row| row.says == "an agent's news")
        .unwrap();
    let mut review = review(&row).unwrap();
    review["request"]["object"]["status"][field] = value.clone();
    judge(&review).rule()
}

/// Does some row have an agent change this field, and allow it?
fn has_row(field: &str) -> bool {
    table().iter().filter_map(review).any(|review| {
        let Ok(request) = serde_json::from_value::<ShadowRequest>(review["request"].clone()) else {
            return false;
        };
        let changes = Change::of(&request)
            .fields
            .contains(&format!("status.{field}"));
        changes && judge(&review).outcome == Ok(Rule::AgentReport)
    })
}

fn shadow(status: &Value) -> BottlerocketShadow {
    let metadata = json!({"name": "brs-n", "uid": "u", "generation": 1});
    let shadow = json!({"apiVersion": BottlerocketShadow::api_version(&()), "kind": "BottlerocketShadow",
        "metadata": metadata, "spec": {"state": "Idle"}, "status": status});
    serde_json::from_value(shadow).unwrap()
}

/// Can a write set this field, and do decisions see it?
fn is_known_to_writes_and_facts(name: &str, field: Field<'_>, sample: &Value) -> (bool, bool) {
    let with = shadow(&json!({ name: sample }));
    let without = shadow(&json!({}));
    let write = Write {
        object: Object::ShadowStatus("brs-n"),
        tests: vec![],
        sets: vec![(field, with.get(field).unwrap())],
    };
    let mut written = without.clone();
    apply(&write, &mut written).unwrap();
    (
        json!(written)["status"][name] == *sample,
        ShadowFacts::of(&with) != ShadowFacts::of(&without),
    )
}

#[test]
fn every_list_names_each_status_field() {
    let policy: Value = serde_yaml_ng::from_str(&std::fs::read_to_string(POLICY).unwrap()).unwrap();
    let variables = policy["spec"]["variables"].as_array().unwrap();
    let own = variables
        .iter()
        .find(|variable| variable["name"] == "own")
        .unwrap()["expression"]
        .as_str()
        .unwrap();
    let mut missing = Vec::new();
    for (name, schema) in fields() {
        let mut check = |stands: bool, place: &str| {
            if !stands {
                missing.push(format!("{name}: {place}"));
            }
        };
        let (pointer, sample) = (format!("/status/{name}"), sample(&schema));
        let field = Field::OF_AGENTS
            .into_iter()
            .find(|field| field.pointer() == pointer);
        check(
            field.is_some(),
            "Field::OF_AGENTS, which the webhook's own fields are made of",
        );
        let (written, seen) = field
            .map(|field| is_known_to_writes_and_facts(&name, field, &sample))
            .unwrap_or_default();
        check(written, "its kind in Field (api/src/write/field.rs)");
        check(seen, "StatusFacts (api/src/facts.rs)");
        check(
            own.contains(&format!("'{name}'")),
            "the variable own of manifests/agent-policy.yaml",
        );
        check(
            has_row(&name),
            "a row that allows it (webhook/cases/src/rows/fields.rs)",
        );
        check(
            OF_AN_OBJECT.contains(&pointer.as_str()),
            "OF_AN_OBJECT (webhook/cases/src/edit.rs)",
        );
        let refused = [Rule::AgentOwnFields, Rule::Unreadable];
        check(
            !refused.contains(&rule(&name, &sample)),
            "what the webhook takes",
        );
    }
    assert!(
        missing.is_empty(),
        "missing in these places:\n{}",
        missing.join("\n")
    );
    assert_eq!(
        fields().len(),
        Field::OF_AGENTS.len(),
        "fields that are not in the schema"
    );
}
