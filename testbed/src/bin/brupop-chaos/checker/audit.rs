//! Reads the writers of objects from the API server's audit log.

use std::collections::{BTreeMap, BTreeSet};

use brupop_testbed::audit::Event;
use jiff::Timestamp;

use super::Violation;
use super::json::{shadow_of, text};
use super::objects::Objects;
use super::writes::Writes;

const AGENT: &str = "system:serviceaccount:brupop-bottlerocket-aws:brupop-agent";
const RECONCILER: &str = "system:serviceaccount:brupop-bottlerocket-aws:brupop-reconciler";
const NODE_OF_TOKEN: &str = "authentication.kubernetes.io/node-name";

/// The part of the audit log read so far.
#[derive(Debug, Default)]
pub(crate) struct Audited {
    pub(crate) writes: Writes,
    /// Revisions that the reconciler wrote.
    by_reconciler: BTreeSet<u64>,
    /// Revisions that agents wrote, and who.
    by_agents: BTreeMap<u64, String>,
    /// The latest revision that any answer had named by then.
    named: BTreeMap<Timestamp, u64>,
}

impl Audited {
    /// Takes a line; returns what it violates by itself.
    pub(crate) fn take(&mut self, event: &Event) -> Vec<Violation> {
        let user = event
            .impersonated_user
            .as_ref()
            .map_or(&event.user, |user| user)
            .username
            .as_str();
        let program = match user {
            AGENT => "agent",
            RECONCILER => "reconciler",
            _ if user.ends_with(":brupop-webhook") => "webhook",
            _ => return vec![],
        };
        let by = if program == "agent" {
            format!("agent of {}", node_of(event))
        } else {
            program.to_owned()
        };
        let mut found: Vec<Violation> = self.writes.count(&by, event).into_iter().collect();
        if event.is_dry_run() || event.code() / 100 != 2 {
            return found;
        }
        let answer = event.response_object.as_ref();
        let revision =
            answer.and_then(|object| text(object, "/metadata/resourceVersion").parse().ok());
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
                self.by_agents
                    .extend(theirs.map(|revision| (revision, node_of(event).to_owned())));
            }
            "reconciler" => self.by_reconciler.extend(revision),
            _ => {}
        }
        found
    }

    /// Returns what the log and etcd's revisions say together.
    pub(crate) fn compare(&self, objects: &Objects) -> Vec<Violation> {
        let odd = objects
            .odd_cordons
            .iter()
            .filter(|(revision, _)| self.by_reconciler.contains(revision));
        let odd = odd.map(|(revision, how)| {
            Violation::new(
                "cordon",
                format!("{how} (revision {revision}, by the reconciler)"),
            )
        });
        // One that changes nothing may still be among them, if no other answer came between it and the reconciler's write.
        let theirs = self
            .by_agents
            .iter()
            .filter(|(revision, _)| !self.by_reconciler.contains(revision));
        let beyond = theirs.filter(|(revision, _)| objects.beyond_status.contains(revision));
        let beyond = beyond.map(|(revision, node)| {
            Violation::new(
                "agent",
                format!("the agent of {node} changed more than a status (revision {revision})"),
            )
        });
        odd.chain(beyond).collect()
    }

    /// Nothing was read of programs that have certainly written: then no rule can have found anything.
    pub(crate) fn is_blind(&self) -> bool {
        self.by_reconciler.is_empty() || self.by_agents.is_empty()
    }

    /// The latest revision that was named until then; 0 if none was.
    fn named_by(&self, time: Timestamp) -> u64 {
        self.named
            .range(..=time)
            .next_back()
            .map_or(0, |(_, latest)| *latest)
    }
}

/// The node that the token was issued for.
fn node_of(event: &Event) -> &str {
    event
        .user
        .extra
        .get(NODE_OF_TOKEN)
        .and_then(|nodes| nodes.first())
        .map_or("", String::as_str)
}

/// An agent has written: only the status of its own shadow, and with its tests.
fn agents_write(event: &Event) -> Option<Violation> {
    let object = &event.object;
    let own = object.resource == "bottlerocketshadows"
        && object.subresource == "status"
        && object.name == shadow_of(node_of(event))
        && event.verb == "patch";
    let review = object.resource.ends_with("reviews");
    (!own && !review).then(|| {
        Violation::new(
            "agent",
            format!(
                "the agent of {}: {} {}",
                node_of(event),
                event.verb,
                event.request_uri
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::json::tests as log;
    use serde_json::{Value as Json, json};

    fn event(user: &str, resource: &str, subresource: &str, name: &str, body: &Json) -> Event {
        let user = json!({"username": user, "extra": {NODE_OF_TOKEN: ["n"]}});
        log::event(
            resource,
            subresource,
            name,
            &json!({"user": user, "requestObject": body}),
        )
    }

    fn rules(event: &Event) -> Vec<&'static str> {
        Audited::default()
            .take(event)
            .iter()
            .map(|violation| violation.rule)
            .collect()
    }

    #[test]
    fn agents_write_their_own_status_only() {
        let write = |sub: &str, name: &str| {
            rules(&event(AGENT, "bottlerocketshadows", sub, name, &json!([])))
        };
        assert_eq!(write("status", "brs-n"), [""; 0]);
        assert_eq!(write("status", "brs-m"), ["agent"]);
        assert_eq!(write("", "brs-n"), ["agent"]);
    }

    #[test]
    fn a_cordon_without_the_markers_word_is_held_against_the_reconciler_alone() {
        let objects = Objects {
            odd_cordons: [(8, "n".to_owned())].into(),
            ..Objects::default()
        };
        for (user, revision, expected) in [
            (RECONCILER, "8", vec!["cordon"]),
            (RECONCILER, "9", vec![]),
            (AGENT, "8", vec![]),
        ] {
            let mut audited = Audited::default();
            audited.take(&answered(user, 1, revision));
            let found = audited.compare(&objects);
            assert_eq!(
                found
                    .iter()
                    .map(|violation| violation.rule)
                    .collect::<Vec<_>>(),
                expected,
                "{user}"
            );
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
        let objects = Objects {
            beyond_status: [7, 9].into(),
            ..Objects::default()
        };
        let mut audited = Audited::default();
        // Somebody's write, 7, was stored, and its answer lost.
        audited.take(&answered(RECONCILER, 1, "8"));
        audited.take(&answered(AGENT, 3, "7"));
        assert_eq!(audited.compare(&objects), []);
        audited.take(&answered(AGENT, 5, "9"));
        assert_eq!(audited.compare(&objects).len(), 1);
    }
}
