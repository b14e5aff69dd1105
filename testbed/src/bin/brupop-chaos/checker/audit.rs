//! Who wrote what, by the API server's audit log.

use std::collections::{BTreeMap, BTreeSet};

use brupop_testbed::audit::Event;
use jiff::Timestamp;
use serde_json::Value as Json;

use super::Violation;
use super::json::{MARKER, is_set, shadow_of, text};
use super::objects::Objects;
use super::writes::Writes;

const AGENT: &str = "system:serviceaccount:brupop-bottlerocket-aws:brupop-agent";
const RECONCILER: &str = "system:serviceaccount:brupop-bottlerocket-aws:brupop-reconciler";
const NODE_OF_TOKEN: &str = "authentication.kubernetes.io/node-name";

/// The rule of a policy that keeps the reconciler from Nodes which people have not opted in.
const OPTED_OUT: &str = "reconciler-node-opted-in: ";
/// This many of its denials in a row are no accident.
const DENIALS_IN_A_ROW: u32 = 3;

/// What is decided on, of the ledger.
const DECIDED: [&str; 4] = ["/status/term", "/status/slots", "/status/versions", "/status/poolVersions"];

/// What was read so far.
#[derive(Debug, Default)]
pub(crate) struct Audited {
    pub(crate) writes: Writes,
    /// Revisions that the reconciler wrote.
    by_reconciler: BTreeSet<u64>,
    /// Revisions that agents wrote, and who.
    by_agents: BTreeMap<u64, String>,
    /// How often each Node was refused to the reconciler because it is not opted in, since a write of it was stored.
    denied: BTreeMap<String, u32>,
    /// The latest revision that any answer had named by then.
    named: BTreeMap<Timestamp, u64>,
}

impl Audited {
    /// Takes a line; returns what it violates by itself.
    pub(crate) fn take(&mut self, event: &Event) -> Vec<Violation> {
        let user = event.impersonated_user.as_ref().map_or(&event.user, |user| user).username.as_str();
        let program = match user {
            AGENT => "agent",
            RECONCILER => "reconciler",
            _ if user.ends_with(":brupop-webhook") => "webhook",
            _ => return vec![],
        };
        let by = if program == "agent" { format!("agent of {}", node_of(event)) } else { program.to_owned() };
        let mut found: Vec<Violation> = self.writes.count(&by, event).into_iter().collect();
        if event.request_uri.contains("dryRun") {
            return found;
        }
        let is_stored = event.code() / 100 == 2;
        // What it asks for matters, also if a policy stands behind it. Of a request that had no share of the API server, the
        // log has no body, because nobody has read it.
        if program == "reconciler" && (is_stored || event.request_object.is_some()) {
            found.extend(reconcilers_write(event));
            found.extend(self.refused(event));
        }
        if !is_stored {
            return found;
        }
        let answer = event.response_object.as_ref();
        let revision = answer.and_then(|object| text(object, "/metadata/resourceVersion").parse().ok());
        let named_before = self.named_by(event.request_received_timestamp);
        if let Some(revision) = revision {
            let latest = self.named_by(event.stage_timestamp).max(revision);
            self.named.insert(event.stage_timestamp, latest);
        }
        match program {
            "agent" => {
                found.extend(agents_write(event));
                // A write that changes nothing is answered with the revision of somebody else's: one that came before.
                let theirs = revision.filter(|revision| *revision > named_before);
                self.by_agents.extend(theirs.map(|revision| (revision, node_of(event).to_owned())));
            }
            "reconciler" => self.by_reconciler.extend(revision),
            _ => {}
        }
        found
    }

    /// What the log and etcd's revisions say together.
    pub(crate) fn compare(&self, objects: &Objects) -> Vec<Violation> {
        let odd = objects.odd_cordons.iter().filter(|(revision, _)| self.by_reconciler.contains(revision));
        let odd = odd.map(|(revision, how)| {
            Violation::new("cordon", format!("{how} (revision {revision}, by the reconciler)"))
        });
        // One that changes nothing may still be among them, if no other answer came between it and the reconciler's write.
        let theirs = self.by_agents.iter().filter(|(revision, _)| !self.by_reconciler.contains(revision));
        let beyond = theirs.filter(|(revision, _)| objects.beyond_status.contains(revision));
        let beyond = beyond.map(|(revision, node)| {
            Violation::new(
                "agent",
                format!("the agent of {node} changed more than a status (revision {revision})"),
            )
        });
        odd.chain(beyond).collect()
    }

    /// A policy of ours refuses what our own reconciler asks for. A Node may lose its label just before it is written; that
    /// does not happen to it again and again.
    fn refused(&mut self, event: &Event) -> Option<Violation> {
        let message = event.response_status.as_ref().map_or("", |status| &status.message);
        let by_policy = message.contains("ValidatingAdmissionPolicy 'brupop-");
        let object = event.object_ref.clone().unwrap_or_default();
        if message.contains(OPTED_OUT) {
            let denied = self.denied.entry(object.name).or_default();
            *denied += 1;
            if *denied < DENIALS_IN_A_ROW {
                return None;
            }
        } else if event.code() / 100 == 2 && object.resource == "nodes" {
            self.denied.remove(&object.name);
        }
        by_policy
            .then(|| Violation::new("refused", format!("{} {}: {message}", event.verb, event.request_uri)))
    }

    /// Nothing was read of programs that have certainly written: then no rule can have found anything.
    pub(crate) fn is_blind(&self) -> bool {
        self.by_reconciler.is_empty() || self.by_agents.is_empty()
    }

    /// The latest revision that was named until then; 0 if none was.
    fn named_by(&self, time: Timestamp) -> u64 {
        self.named.range(..=time).next_back().map_or(0, |(_, latest)| *latest)
    }
}

/// The node that the token was issued for.
fn node_of(event: &Event) -> &str {
    event.user.extra.get(NODE_OF_TOKEN).and_then(|nodes| nodes.first()).map_or("", String::as_str)
}

/// An agent has written: only the status of its own shadow, and with its tests.
fn agents_write(event: &Event) -> Option<Violation> {
    let object = event.object_ref.clone().unwrap_or_default();
    let own = object.resource == "bottlerocketshadows"
        && object.subresource == "status"
        && object.name == shadow_of(node_of(event))
        && event.verb == "patch";
    let review = object.resource.ends_with("reviews");
    (!own && !review).then(|| {
        Violation::new(
            "agent",
            format!("the agent of {}: {} {}", node_of(event), event.verb, event.request_uri),
        )
    })
}

/// The reconciler writes: with the tests of what it was decided on.
fn reconcilers_write(event: &Event) -> Vec<Violation> {
    let object = event.object_ref.clone().unwrap_or_default();
    let body = event.request_object.clone().unwrap_or_default();
    // That there is nothing is tested by what it would be in.
    let has = |path: &str| {
        let mut operations =
            body.as_array().into_iter().flatten().filter(|operation| operation["op"] == "test");
        operations.any(|operation| {
            let rest = path.strip_prefix(text(operation, "/path"));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') && operation["value"].is_null())
        })
    };
    let changes = |path: &str| {
        let mut operations = body.as_array().into_iter().flatten();
        operations.any(|operation| operation["op"] != "test" && text(operation, "/path").starts_with(path))
    };
    let lacks = |tests: &[&str]| -> Vec<Violation> {
        let lost = tests.iter().filter(|test| !has(test));
        lost.map(|test| {
            Violation::new("tests", format!("{} {} without a test of {test}", event.verb, event.request_uri))
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
            vec![Violation::new("tests", format!("{} without the pod's UID", event.request_uri))]
        }
        ("nodes", "") if changes("/spec") || changes(MARKER) => lacks(&["/metadata/uid", MARKER]),
        ("bottlerocketshadows", "") if body.is_array() => lacks(&["/metadata/uid", "/metadata/generation"]),
        ("bottlerocketfleets", "status") if changes("/status/slots") || changes("/status/versions") => {
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

/// Does the patch set a slot that is not among those that it tests?
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
    use serde_json::json;

    fn event(user: &str, resource: &str, subresource: &str, name: &str, body: &Json) -> Event {
        serde_json::from_value(json!({
            "stage": "ResponseComplete", "requestURI": "/x", "verb": "patch",
            "user": {"username": user, "extra": {NODE_OF_TOKEN: ["n"]}},
            "objectRef": {"resource": resource, "subresource": subresource, "name": name},
            "responseStatus": {"code": 200}, "requestObject": body,
            "requestReceivedTimestamp": "2026-01-01T00:00:00Z", "stageTimestamp": "2026-01-01T00:00:00Z",
        }))
        .unwrap()
    }

    fn rules(event: &Event) -> Vec<&'static str> {
        Audited::default().take(event).iter().map(|violation| violation.rule).collect()
    }

    #[test]
    fn agents_write_their_own_status_only() {
        let write =
            |sub: &str, name: &str| rules(&event(AGENT, "bottlerocketshadows", sub, name, &json!([])));
        assert_eq!(write("status", "brs-n"), [""; 0]);
        assert_eq!(write("status", "brs-m"), ["agent"]);
        assert_eq!(write("", "brs-n"), ["agent"]);
    }

    #[test]
    fn lost_tests_are_seen() {
        let slots = json!({"op": "add", "path": "/status/slots/brs-n", "value": {}});
        let term = json!({"op": "test", "path": "/status/term", "value": 1});
        let read = json!({"op": "test", "path": "/status/slots", "value": {}});
        let uid = json!({"op": "test", "path": "/metadata/uid", "value": "u"});
        let generation = json!({"op": "test", "path": "/metadata/generation", "value": 1});
        let write = |body: Json| rules(&event(RECONCILER, "bottlerocketfleets", "status", "fleet", &body));
        assert_eq!(write(json!([term, read, uid, generation, slots])), [""; 0]);
        assert_eq!(write(json!([read, uid, generation, slots])), ["tests"]);
        assert_eq!(write(json!([term, uid, generation, slots])), ["tests"]);
        assert_eq!(write(json!([term, read, uid, slots])), ["tests"], "a pause may have come");
        let had = json!({"op": "test", "path": "/status/slots", "value": {"brs-n": {}}});
        assert_eq!(write(json!([term, had, slots])), [""; 0], "it is no new one");
        let nothing = json!({"op": "test", "path": "/status", "value": null});
        let begins = json!({"op": "add", "path": "/status/term", "value": 2});
        assert_eq!(write(json!([nothing, begins, slots])), [""; 0]);
        let evict = |body: Json| rules(&event(RECONCILER, "pods", "eviction", "p", &body));
        assert_eq!(evict(json!({"deleteOptions": {"preconditions": {"uid": "u"}}})), [""; 0]);
        assert_eq!(evict(json!({})), ["tests"]);
        let merge = json!({"spec": {"unschedulable": null}});
        assert_eq!(rules(&event(RECONCILER, "nodes", "", "n", &merge)), ["tests"]);
        let uncordon = json!([{"op": "remove", "path": "/spec/unschedulable"}]);
        assert_eq!(rules(&event(RECONCILER, "nodes", "", "n", &uncordon)), ["tests", "tests"]);
    }

    #[test]
    fn each_write_of_the_reconciler_has_the_tests_of_its_object() {
        let test = |path: &str| json!({"op": "test", "path": path, "value": 1});
        let marker = json!({"op": "add", "path": MARKER, "value": "{}"});
        let goal = json!({"op": "replace", "path": "/spec/state", "value": "Idle"});
        let (uid, generation) = (test("/metadata/uid"), test("/metadata/generation"));
        let (slots, conditions) = (json!({"status": {"slots": {}}}), json!({"status": {"conditions": []}}));
        for (place, body, expected) in [
            (("nodes", "", "n"), json!([uid, test(MARKER), marker]), vec![]),
            (("nodes", "", "n"), json!([uid, marker]), vec!["tests"]),
            (("nodes", "", "n"), json!([test(MARKER), marker]), vec!["tests"]),
            (("bottlerocketshadows", "", "brs-n"), json!([uid, generation, goal]), vec![]),
            (("bottlerocketshadows", "", "brs-n"), json!([uid, goal]), vec!["tests"]),
            (("bottlerocketshadows", "", "brs-n"), json!([generation, goal]), vec!["tests"]),
            (("bottlerocketshadows", "", "brs-n"), json!({"spec": {"state": "Idle"}}), vec!["tests"]),
            (("bottlerocketfleets", "status", "fleet"), conditions, vec![]),
            (("bottlerocketfleets", "status", "fleet"), slots, vec!["tests"]),
        ] {
            let (resource, subresource, name) = place;
            assert_eq!(rules(&event(RECONCILER, resource, subresource, name, &body)), expected, "{body}");
        }
    }

    #[test]
    fn a_cordon_without_the_markers_word_is_held_against_the_reconciler_alone() {
        let objects = Objects { odd_cordons: [(8, "n".to_owned())].into(), ..Objects::default() };
        for (user, revision, expected) in
            [(RECONCILER, "8", vec!["cordon"]), (RECONCILER, "9", vec![]), (AGENT, "8", vec![])]
        {
            let mut audited = Audited::default();
            audited.take(&answered(user, 1, revision));
            let found = audited.compare(&objects);
            assert_eq!(found.iter().map(|violation| violation.rule).collect::<Vec<_>>(), expected, "{user}");
        }
    }

    #[test]
    fn a_checker_that_has_read_nothing_of_one_program_is_blind() {
        let mut audited = Audited::default();
        audited.take(&answered(RECONCILER, 1, "8"));
        assert!(audited.is_blind());
        audited.take(&answered(AGENT, 3, "9"));
        assert!(!audited.is_blind());
    }

    #[test]
    fn what_nobody_has_read_is_held_against_nobody() {
        let patch = |code: u16, object: Option<Json>| {
            let patch = event(RECONCILER, "nodes", "", "n", &Json::Null);
            let status = serde_json::from_value(json!({"code": code})).unwrap();
            rules(&Event { response_status: Some(status), request_object: object, ..patch })
        };
        assert_eq!(patch(429, None), [""; 0]);
        assert_eq!(patch(200, None), ["tests"]);
        assert_eq!(patch(429, Some(json!({"spec": {"unschedulable": null}}))), ["tests"]);
    }

    #[test]
    fn a_node_may_lose_its_label_before_it_is_written() {
        let mut audited = Audited::default();
        let mut write = |(code, message): (u16, &str)| {
            let status = serde_json::from_value(json!({"code": code, "message": message})).unwrap();
            let patch = event(RECONCILER, "nodes", "", "n", &json!([]));
            let found = audited.take(&Event { response_status: Some(status), ..patch });
            found.iter().map(|violation| violation.rule).collect::<Vec<_>>()
        };
        let policy = "ValidatingAdmissionPolicy 'brupop-reconciler' with binding 'brupop-reconciler'";
        let denied = format!("nodes \"n\" is forbidden: {policy} denied request: {OPTED_OUT}why");
        let denial = (422, &*denied);
        assert_eq!(
            [denial, denial, (200, ""), denial, (500, "no"), denial].map(&mut write).concat(),
            [""; 0]
        );
        assert_eq!(write(denial), ["refused"]);
        let other = denied.replace(OPTED_OUT, "reconciler-node: ");
        assert_eq!(write((422, &other)), ["refused"], "no other rule may refuse");
    }

    /// A write of the status of a shadow comes in at one second, and is answered with this revision in the next.
    fn answered(user: &str, second: i64, revision: &str) -> Event {
        Event {
            response_object: Some(json!({"metadata": {"resourceVersion": revision}})),
            request_received_timestamp: Timestamp::constant(second, 0),
            stage_timestamp: Timestamp::constant(second + 1, 0),
            ..event(user, "bottlerocketshadows", "status", "brs-n", &json!([]))
        }
    }

    #[test]
    fn a_write_that_changes_nothing_is_not_taken_for_the_one_before() {
        let objects = Objects { beyond_status: [7, 9].into(), ..Objects::default() };
        let mut audited = Audited::default();
        // Somebody's write, 7, was stored, and its answer lost.
        audited.take(&answered(RECONCILER, 1, "8"));
        audited.take(&answered(AGENT, 3, "7"));
        assert!(audited.compare(&objects).is_empty());
        audited.take(&answered(AGENT, 5, "9"));
        assert_eq!(audited.compare(&objects).len(), 1);
    }
}
