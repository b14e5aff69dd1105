//! Whatever an agent sends: what is allowed is its own, by an oracle that shares no code with the verdict.

use super::*;
use proptest::prelude::*;

const OWN: [&str; 10] = [
    "current_version",
    "target_version",
    "current_state",
    "crash_count",
    "state_transition_failure_timestamp",
    "attempt",
    "boot_id",
    "staged",
    "reboot_requested",
    "message",
];

fn small_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!("b1")),
        Just(json!("b2")),
        Just(json!("Idle")),
        Just(json!("RebootedIntoUpdate")),
        Just(json!("ErrorReset")),
        (0_u64..4).prop_map(Value::from),
        Just(json!([])),
        Just(
            json!([{"type": "Progressing", "status": "True", "reason": "A", "message": "", "lastTransitionTime": ""}])
        ),
        Just(json!({"version": "1.1.0", "at": "t"})),
    ]
}

fn object() -> impl Strategy<Value = Value> {
    let field = |names: &'static [&'static str]| {
        prop::collection::btree_map(prop::sample::select(names), small_value(), 0..5)
    };
    let spec = field(&["attempt", "reboot_from_boot_id", "version", "leader_term"]);
    let status = field(&[
        "current_version",
        "current_state",
        "attempt",
        "boot_id",
        "staged",
        "reboot_requested",
        "message",
        "conditions",
        "foreign",
    ]);
    let state = prop::sample::select(vec!["Idle", "StagedAndPerformedUpdate", "RebootedIntoUpdate"]);
    (spec, state, status, any::<bool>()).prop_map(|(spec, state, status, labelled)| {
        let spec = changed(&json!({"state": state}), &json!(spec));
        let mut object = shadow(&spec, &json!(status));
        if labelled {
            object["metadata"]["labels"] = json!({"a": "b"});
        }
        object
    })
}

/// Everything but the agent's own fields and what the API server keeps, with null and empty taken away.
fn foreign(mut object: Value) -> Value {
    if let Some(status) = object["status"].as_object_mut() {
        status.retain(|field, value| !OWN.contains(&field.as_str()) && !value.is_null());
    }
    if let Some(spec) = object["spec"].as_object_mut() {
        spec.retain(|_, value| !value.is_null());
    }
    object
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_an_agent_may_write_is_its_own(old in object(), new in object(), same in any::<bool>(), node in "[nm]") {
        let mut new = new;
        if same {
            // Most random pairs differ in what is foreign: make them agree there, so that the rest is tried, too.
            new["spec"] = old["spec"].clone();
            new["metadata"] = old["metadata"].clone();
            for field in ["conditions", "foreign"] {
                new["status"][field] = old["status"][field].clone();
            }
        }
        let mut request = update(AGENT, "status", &old, &new);
        request["userInfo"]["extra"]["authentication.kubernetes.io/node-name"] = json!([node]);
        if judge(request).outcome.is_ok() {
            prop_assert_eq!(node, "n");
            prop_assert_eq!(foreign(old.clone()), foreign(new.clone()));
            let attempt = |object: &Value, half: &str| object[half]["attempt"].as_u64().unwrap_or_default();
            prop_assert!(attempt(&old, "status") <= attempt(&new, "status"));
            let claim = &new["status"]["reboot_requested"];
            if !claim.is_null() && *claim != old["status"]["reboot_requested"] {
                prop_assert_eq!(claim, &old["spec"]["reboot_from_boot_id"]);
                prop_assert_eq!(claim, &new["status"]["boot_id"]);
                prop_assert_eq!(attempt(&new, "status"), attempt(&old, "spec"));
                prop_assert_eq!(&old["spec"]["state"], "RebootedIntoUpdate");
            }
        }
    }
}
