//! Checks that our programs write each object no more often than they have causes to. Causes are faults, and attempts that
//! begin. Once everything is at rest there are none.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use brupop_testbed::audit::Event;
use jiff::{SignedDuration, Timestamp};

use super::Violation;
use super::json::{node_of, number, shadow_of, text};

/// Writes of a minute are counted.
const COUNTED: SignedDuration = SignedDuration::from_mins(1);
/// Causes count for so long. What comes of them later is little.
const CONSEQUENCES: SignedDuration = SignedDuration::from_mins(2);
/// This many attempts of a node count: each that fails waits twice as long as the one before.
const ATTEMPTS: usize = 8;
/// Two candidates whose renewals are refused try again after a fifteenth of the Lease's duration of four seconds: 225 times each.
const RENEWALS: usize = 450;
/// Most writes of what is of no node, such as Secrets, and pods that are evicted; and most dry runs.
const OTHERS: usize = 90;

/// At rest, the most writes of one object; but for Leases, and dry runs.
const AT_REST: usize = 3;

/// Most requests about one object in a minute, whatever was answered: without any cause, and this many more for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bound {
    base: usize,
    attempt: usize,
    fault: usize,
    /// This many faults and attempts of other nodes, or of none, allow one more.
    elsewhere: usize,
}

/// Of a node's shadow, its Node, or Events about either.
const OF_NODE: Bound = Bound {
    base: 12,
    attempt: 10,
    fault: 3,
    elsewhere: 4,
};
/// Of the fleet and its pools: what becomes of each node is written there, so attempts of all nodes count.
const OF_FLEET: Bound = Bound {
    base: 10,
    attempt: 3,
    fault: 1,
    elsewhere: 1,
};

/// A program, and what it writes.
type Written = (String, String);

/// The writes, and their causes.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    /// When each of our programs last wrote each object.
    recent: BTreeMap<Written, VecDeque<Timestamp>>,
    /// The last attempt of each shadow, and when the last ones began.
    attempts: BTreeMap<String, (u64, VecDeque<Timestamp>)>,
    /// When faults were made or taken back, and the node that each is of, if it is of one.
    faults: VecDeque<(Timestamp, Option<String>)>,
    found: BTreeSet<Written>,
    /// The time since which everything is at rest, and the writes of each object since.
    at_rest: Option<(Timestamp, BTreeMap<Written, usize>)>,
}

impl Writes {
    /// A fault is made or taken back. What was written before the first one is not counted.
    pub(crate) fn fault(&mut self, at: Timestamp, node: Option<String>) {
        self.faults.push_back((at, node));
    }

    /// Everything is at rest since then; or it is not, or not any more.
    pub(crate) fn rests(&mut self, since: Option<Timestamp>) {
        self.at_rest = since.map(|since| (since, BTreeMap::new()));
    }

    /// One of our programs has asked for a write.
    pub(crate) fn count(&mut self, program: &str, event: &Event) -> Option<Violation> {
        let object = &event.object;
        let now = event.request_received_timestamp;
        self.attempt(&object.resource, event, now);
        // Each Event has a name of its own.
        let name = if object.resource == "events" {
            about(event)
        } else {
            object.name.clone()
        };
        let has_begun = self.faults.front().is_some_and(|(first, _)| *first <= now);
        // A token or a review has no name.
        if name.is_empty() || !has_begun {
            return None;
        }
        // Dry runs come in their own time, whatever happens, and so does the renewal of a Lease.
        let is_dry = event.is_dry_run();
        let needs_cause = !is_dry && object.resource != "leases";
        let bound = if is_dry {
            OTHERS
        } else {
            self.bound(&object.resource, &name, now)
        };
        let dry = if is_dry { "(dry run)" } else { "" };
        let written = format!(
            "{} {}/{name} {}{dry}",
            object.resource, object.namespace, object.subresource
        );
        let key = (program.to_owned(), written);
        let writes = self.in_a_minute(&key, now);
        let at_rest = if needs_cause {
            self.at_rest(&key, now)
        } else {
            0
        };
        if (writes <= bound && at_rest <= AT_REST) || !self.found.insert(key.clone()) {
            return None;
        }
        let (program, written) = key;
        let said = if writes > bound {
            format!("{writes} writes in a minute by the {program}, {bound} may be: {written}")
        } else {
            format!("{at_rest} writes by the {program}, though everything is at rest: {written}")
        };
        Some(Violation::new("writes", said))
    }

    /// Returns how many writes there were in the last minute, with this one.
    fn in_a_minute(&mut self, key: &Written, now: Timestamp) -> usize {
        let times = self.recent.entry(key.clone()).or_default();
        times.push_back(now);
        forget(times, now - COUNTED);
        times.len()
    }

    /// Returns how many writes there were since everything is at rest, with this one.
    fn at_rest(&mut self, key: &Written, now: Timestamp) -> usize {
        let Some((_, written)) = self.at_rest.as_mut().filter(|(since, _)| *since <= now) else {
            return 0;
        };
        let count = written.entry(key.clone()).or_default();
        *count += 1;
        *count
    }

    /// Records the attempt that begins with this write, if any.
    fn attempt(&mut self, resource: &str, event: &Event, now: Timestamp) {
        let Some(shadow) = event
            .response_object
            .as_ref()
            .filter(|_| resource == "bottlerocketshadows")
        else {
            return;
        };
        let Some(attempt) = number(shadow, "/spec/attempt") else {
            return;
        };
        let (last, began) = self
            .attempts
            .entry(text(shadow, "/metadata/name").to_owned())
            .or_default();
        if attempt != *last {
            *last = attempt;
            began.push_back(now);
        }
        forget(began, now - CONSEQUENCES);
    }

    fn bound(&self, resource: &str, name: &str, now: Timestamp) -> usize {
        let is_recent = |at: Timestamp| at <= now && now.duration_since(at) <= CONSEQUENCES;
        let attempts_of = |(_, began): &(u64, VecDeque<Timestamp>)| {
            began
                .iter()
                .filter(|at| is_recent(**at))
                .count()
                .min(ATTEMPTS)
        };
        let of_all: usize = self.attempts.values().map(attempts_of).sum();
        let node = node_of(name);
        let known = self.attempts.get(&shadow_of(node)).map(attempts_of);
        let (bound, attempts) = match (resource, known) {
            ("leases", _) => return RENEWALS,
            ("bottlerocketfleets" | "bottlerocketpools", _) | ("events", None) => {
                (OF_FLEET, of_all)
            }
            ("bottlerocketshadows" | "nodes" | "events", known) => (OF_NODE, known.unwrap_or(0)),
            _ => return OTHERS,
        };
        let faults = self.faults.iter().filter(|(at, _)| is_recent(*at));
        let (here, others): (Vec<_>, Vec<_>) =
            faults.partition(|(_, of)| of.as_deref() == Some(node));
        let elsewhere = others.len() + (of_all - attempts);
        bound.base
            + bound.attempt * attempts
            + bound.fault * here.len()
            + elsewhere / bound.elsewhere
    }
}

/// Returns what an Event tells of.
fn about(event: &Event) -> String {
    let of = |object: &serde_json::Value| {
        let names =
            ["/regarding/name", "/involvedObject/name"].map(|field| text(object, field).to_owned());
        names.into_iter().find(|name| !name.is_empty())
    };
    [&event.request_object, &event.response_object]
        .into_iter()
        .flatten()
        .find_map(of)
        .unwrap_or_default()
}

fn forget(times: &mut VecDeque<Timestamp>, before: Timestamp) {
    while times.front().is_some_and(|first| *first < before) {
        times.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::json::tests as log;
    use serde_json::{Value as Json, json};

    const START: Timestamp = Timestamp::UNIX_EPOCH;

    fn write(second: usize, resource: &str, name: &str, answer: &Json) -> Event {
        let at = START + SignedDuration::from_secs(i64::try_from(second).unwrap());
        let times =
            json!({"responseObject": answer, "requestReceivedTimestamp": at, "stageTimestamp": at});
        log::event(resource, "", name, &times)
    }

    /// One fault was made, of no node.
    fn begun() -> Writes {
        let mut writes = Writes::default();
        writes.fault(START, None);
        writes
    }

    /// After how many writes of a node's shadow, one a second, a loop is found.
    fn first_found(mut writes: Writes, attempt: u64) -> Option<usize> {
        let shadow = json!({"metadata": {"name": "brs-n"}, "spec": {"attempt": attempt}});
        (0..60).find(|second| {
            writes
                .count(
                    "reconciler",
                    &write(*second, "bottlerocketshadows", "brs-n", &shadow),
                )
                .is_some()
        })
    }

    #[test]
    fn what_happens_gives_cause_for_so_many_writes() {
        let Bound {
            base,
            attempt,
            fault,
            elsewhere,
        } = OF_NODE;
        assert_eq!(
            first_found(Writes::default(), 0),
            None,
            "nothing has begun yet"
        );
        assert_eq!(
            first_found(begun(), 0),
            Some(base),
            "a write a second is a loop"
        );
        assert_eq!(first_found(begun(), 1), Some(base + attempt));
        let mut writes = begun();
        writes.fault(START, Some("n".to_owned()));
        (1..elsewhere).for_each(|_| writes.fault(START, None));
        assert_eq!(first_found(writes, 0), Some(base + fault + 1));
    }

    #[test]
    fn at_rest_hardly_anything_is_written() {
        let mut writes = begun();
        writes.rests(Some(START));
        assert_eq!(first_found(writes, 0), Some(AT_REST));
        let mut writes = begun();
        writes.rests(Some(START));
        let dry = |second| {
            let mut write = write(second, "nodes", "n", &json!({}));
            write.request_uri = "/x?dryRun=All".to_owned();
            write
        };
        assert_eq!(
            (0..60).find_map(|second| writes.count("reconciler", &dry(second))),
            None
        );
        writes.rests(None);
        assert_eq!(
            first_found(writes, 0),
            Some(OF_NODE.base),
            "something happens again"
        );
    }

    #[test]
    fn a_loop_is_told_once_and_events_are_counted_by_what_they_tell_of() {
        let mut writes = begun();
        let event = json!({"regarding": {"name": "brs-n"}});
        let found: Vec<_> = (0..60)
            .filter_map(|second| {
                writes.count(
                    "reconciler",
                    &write(second, "events", &second.to_string(), &event),
                )
            })
            .collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            writes.count("agent of n", &write(9, "tokenreviews", "", &json!({}))),
            None
        );
    }

    #[test]
    fn the_fleet_is_written_for_every_node() {
        let mut writes = begun();
        for node in 0..8 {
            let shadow =
                json!({"metadata": {"name": format!("brs-{node}")}, "spec": {"attempt": 1}});
            writes.count(
                "reconciler",
                &write(0, "bottlerocketshadows", &format!("brs-{node}"), &shadow),
            );
        }
        let mut ledger = |second| {
            writes.count(
                "reconciler",
                &write(second, "bottlerocketfleets", "fleet", &json!({})),
            )
        };
        assert_eq!((0..30).find_map(&mut ledger), None);
        assert!(
            (120..180).find_map(&mut ledger).is_some(),
            "that is long ago"
        );
    }
}
