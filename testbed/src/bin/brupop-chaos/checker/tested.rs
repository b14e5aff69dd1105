//! The reconciler's writes test what they were decided on.

use brupop_testbed::audit::Event;
use serde_json::Value as Json;

use super::Violation;
use super::json::{MARKER, is_set, text};

/// What is decided on, of the ledger.
const DECIDED: [&str; 3] = ["/status/term", "/status/slots", "/status/versions"];

/// The reconciler writes: with the tests of what it was decided on.
pub(crate) fn untested(event: &Event) -> Vec<Violation> {
    let object = &event.object;
    let body = event.request_object.clone().unwrap_or_default();
    // That there is nothing is tested by what it would be in.
    let has = |path: &str| {
        let mut operations = body
            .as_array()
            .into_iter()
            .flatten()
            .filter(|operation| operation["op"] == "test");
        operations.any(|operation| {
            let rest = path.strip_prefix(text(operation, "/path"));
            rest.is_some_and(|rest| {
                rest.is_empty() || rest.starts_with('/') && operation["value"].is_null()
            })
        })
    };
    let changes = |path: &str| {
        let mut operations = body.as_array().into_iter().flatten();
        operations.any(|operation| {
            operation["op"] != "test" && text(operation, "/path").starts_with(path)
        })
    };
    let lacks = |tests: &[&str]| -> Vec<Violation> {
        let lost = tests.iter().filter(|test| !has(test));
        lost.map(|test| {
            Violation::new(
                "tests",
                format!(
                    "{} {} without a test of {test}",
                    event.verb, event.request_uri
                ),
            )
        })
        .collect()
    };
    let place = (object.resource.as_str(), object.subresource.as_str());
    // Only a JSON patch can test.
    let must_test = match place {
        ("nodes" | "bottlerocketshadows", "") => true,
        ("bottlerocketfleets", "status") => DECIDED.iter().any(|decided| is_set(&body, decided)),
        _ => false,
    };
    if must_test && matches!(event.verb.as_str(), "patch" | "update") && !body.is_array() {
        return vec![Violation::new(
            "tests",
            format!("{} {} is no JSON patch", event.verb, event.request_uri),
        )];
    }
    match place {
        ("pods", "eviction") if !has_uid(&body) => {
            vec![Violation::new(
                "tests",
                format!("{} without the pod's UID", event.request_uri),
            )]
        }
        ("nodes", "") if changes("/spec") || changes(MARKER) => lacks(&["/metadata/uid", MARKER]),
        ("bottlerocketshadows", "") if body.is_array() => {
            lacks(&["/metadata/uid", "/metadata/generation"])
        }
        ("bottlerocketfleets", "status")
            if changes("/status/slots") || changes("/status/versions") =>
        {
            let mut found = lacks(&["/status/term", "/status/slots"]);
            // A term that begins takes over the slots of updates that run.
            if !changes("/status/term") && takes_slot(&body) {
                found.extend(lacks(&["/metadata/uid", "/metadata/generation"]));
            }
            found
        }
        _ => vec![],
    }
}

/// Whether the patch sets a slot that it does not test.
fn takes_slot(patch: &Json) -> bool {
    let operations = || patch.as_array().into_iter().flatten();
    let tested = operations()
        .find(|operation| operation["op"] == "test" && text(operation, "/path") == "/status/slots")
        .map_or(&Json::Null, |operation| &operation["value"]);
    operations().any(|operation| {
        let slot = text(operation, "/path").strip_prefix("/status/slots/");
        operation["op"] == "add" && slot.is_some_and(|slot| tested.get(slot).is_none())
    })
}

fn has_uid(eviction: &Json) -> bool {
    !text(eviction, "/deleteOptions/preconditions/uid").is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::json;
    use serde_json::json;

    fn rules(resource: &str, subresource: &str, name: &str, body: &Json) -> Vec<&'static str> {
        let found = untested(&json::event(
            resource,
            subresource,
            name,
            &json!({"requestObject": body}),
        ));
        found.iter().map(|violation| violation.rule).collect()
    }

    #[test]
    fn lost_tests_are_seen() {
        let slots = json!({"op": "add", "path": "/status/slots/brs-n", "value": {}});
        let term = json!({"op": "test", "path": "/status/term", "value": 1});
        let read = json!({"op": "test", "path": "/status/slots", "value": {}});
        let uid = json!({"op": "test", "path": "/metadata/uid", "value": "u"});
        let generation = json!({"op": "test", "path": "/metadata/generation", "value": 1});
        let write = |body: Json| rules("bottlerocketfleets", "status", "fleet", &body);
        assert_eq!(write(json!([term, read, uid, generation, slots])), [""; 0]);
        assert_eq!(write(json!([read, uid, generation, slots])), ["tests"]);
        assert_eq!(write(json!([term, uid, generation, slots])), ["tests"]);
        assert_eq!(
            write(json!([term, read, uid, slots])),
            ["tests"],
            "a pause may have come"
        );
        let had = json!({"op": "test", "path": "/status/slots", "value": {"brs-n": {}}});
        assert_eq!(
            write(json!([term, had, slots])),
            [""; 0],
            "it is no new one"
        );
        let nothing = json!({"op": "test", "path": "/status", "value": null});
        let begins = json!({"op": "add", "path": "/status/term", "value": 2});
        assert_eq!(write(json!([nothing, begins, slots])), [""; 0]);
        let evict = |body: Json| rules("pods", "eviction", "p", &body);
        assert_eq!(
            evict(json!({"deleteOptions": {"preconditions": {"uid": "u"}}})),
            [""; 0]
        );
        assert_eq!(evict(json!({})), ["tests"]);
        let merge = json!({"spec": {"unschedulable": null}});
        assert_eq!(rules("nodes", "", "n", &merge), ["tests"]);
        let uncordon = json!([{"op": "remove", "path": "/spec/unschedulable"}]);
        assert_eq!(rules("nodes", "", "n", &uncordon), ["tests", "tests"]);
    }

    #[test]
    fn each_write_of_the_reconciler_has_the_tests_of_its_object() {
        let test = |path: &str| json!({"op": "test", "path": path, "value": 1});
        let marker = json!({"op": "add", "path": MARKER, "value": "{}"});
        let goal = json!({"op": "replace", "path": "/spec/state", "value": "Idle"});
        let (uid, generation) = (test("/metadata/uid"), test("/metadata/generation"));
        let (slots, conditions) = (
            json!({"status": {"slots": {}}}),
            json!({"status": {"conditions": []}}),
        );
        for (place, body, expected) in [
            (
                ("nodes", "", "n"),
                json!([uid, test(MARKER), marker]),
                vec![],
            ),
            (("nodes", "", "n"), json!([uid, marker]), vec!["tests"]),
            (
                ("nodes", "", "n"),
                json!([test(MARKER), marker]),
                vec!["tests"],
            ),
            (
                ("bottlerocketshadows", "", "brs-n"),
                json!([uid, generation, goal]),
                vec![],
            ),
            (
                ("bottlerocketshadows", "", "brs-n"),
                json!([uid, goal]),
                vec!["tests"],
            ),
            (
                ("bottlerocketshadows", "", "brs-n"),
                json!([generation, goal]),
                vec!["tests"],
            ),
            (
                ("bottlerocketshadows", "", "brs-n"),
                json!({"spec": {"state": "Idle"}}),
                vec!["tests"],
            ),
            (
                ("bottlerocketfleets", "status", "fleet"),
                conditions,
                vec![],
            ),
            (
                ("bottlerocketfleets", "status", "fleet"),
                slots,
                vec!["tests"],
            ),
        ] {
            let (resource, subresource, name) = place;
            assert_eq!(
                rules(resource, subresource, name, &body),
                expected,
                "{body}"
            );
        }
    }
}
