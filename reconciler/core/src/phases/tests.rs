//! One update, step by step, and the ways in which it may end.

use super::*;
use crate::decide;
use crate::known::{Known, KnownDrain};
use crate::policy::{Durations, Policy};
use crate::rules::{Limit, Rules, StepDurations};
use crate::tests::world::{at, cluster, marked, observe_knowing, put_agent, put_ledger, ready, with};
use serde_json::{Value, json};

const OLD: &str = "1.19.4";
const NEW: &str = "1.20.0";

/// This many minutes after the update is known.
fn minute(number: u8) -> String {
    format!("2026-11-21T04:{number:02}:00Z")
}

/// A node as it is in mid-update, to be varied by each test.
struct World {
    boot: u8,
    version: &'static str,
    cordoned: bool,
    marker: Option<Value>,
    spec: Value,
    status: Value,
    slot: Option<Value>,
    exclusion: SignedDuration,
}

impl World {
    /// With this wanted state, since then, which its agent has reached.
    fn reached(state: State, since: u8) -> Self {
        Self {
            boot: 1,
            version: OLD,
            cordoned: false,
            marker: None,
            spec: json!({"state": state, "state_transition_timestamp": minute(since), "version": NEW, "attempt": 2,
                "leader_term": 4, "baseline_boot_id": "boot-1"}),
            status: json!({"current_version": OLD, "target_version": NEW, "current_state": state, "attempt": 2,
                "boot_id": "boot-1", "conditions": [{"type": "UpdateAvailable", "status": "True", "reason": "TargetDiffers",
                    "message": "m", "lastTransitionTime": minute(0)}]}),
            slot: Some(json!({"uid": "uid-brs-n", "attempt": 2, "since": minute(10), "version": NEW})),
            exclusion: SignedDuration::ZERO,
        }
    }

    /// In the boot after, with the new version.
    fn rebooted(self) -> Self {
        let mut world = Self { boot: 2, version: NEW, ..self };
        (world.status["boot_id"], world.status["current_version"]) = (json!("boot-2"), json!(NEW));
        (world.spec["reboot_from_boot_id"], world.status["reboot_requested"]) =
            (json!("boot-1"), json!("boot-1"));
        world
    }

    /// Cordoned and marked by us, with these times.
    fn marked(self, times: &Value) -> Self {
        let marker = json!({"shadow_uid": "uid-brs-n", "attempt": 2, "term": 4, "tainted": true});
        let cordoned = times.get("cordoned_at").is_some();
        Self { cordoned, marker: Some(with(marker, times)), ..self }
    }

    fn cluster(&self) -> Cluster {
        let node = json!({"spec": {"unschedulable": self.cordoned}, "status": {"nodeInfo": {
            "bootID": format!("boot-{}", self.boot), "osImage": format!("Bottlerocket OS {} (aws-k8s-1.36)", self.version)}}});
        let marker = self.marker.clone().map_or_else(|| json!({}), marked);
        let node = with(with(node, &ready("True", Some(&minute(0)))), &marker);
        let mut cluster = cluster([("n", node)], [("brs-n", self.spec.clone(), self.status.clone())]);
        put_agent(&mut cluster, "n", true, Some(&minute(0)));
        let slots = self.slot.as_ref().map_or_else(|| json!({}), |slot| json!({"brs-n": slot}));
        put_ledger(&mut cluster, json!({}), json!({"slots": slots}));
        cluster
    }

    /// What is decided, and what is known to have ended once it is done.
    fn ended_at(&self, now: u8) -> (String, Option<Ended>, Vec<Ended>) {
        let (cluster, text) = (self.cluster(), minute(now));
        let durations = Durations { min_node_age: SignedDuration::ZERO, ..Durations::default() };
        let steps = StepDurations { exclusion: self.exclusion, ..StepDurations::default() };
        let default_pool = Rules::of_settings(Limit::default(), vec![], steps, false);
        let policy = Policy { default_pool, durations, ..Policy::default() };
        let known = Known {
            drains: [("brs-n".to_owned(), KnownDrain::default())].into(),
            ..Known::of(&cluster, at(&text), &policy)
        };
        let observed = observe_knowing(&cluster, &known, &policy, &text);
        let decided = decide::fleet(&observed);
        let (view, decision) = (&observed.views[0], &decided.nodes[0]);
        let phase = ended_by(&cluster, &observed.fleet, view, decision);
        let updates = updates_of(&observed.fleet, &observed.views, &decided.slots);
        (decision.reason.as_str().to_owned(), phase, updates)
    }

    #[track_caller]
    fn ends(&self, now: u8, reason: &str, phase: Option<(Phase, i64)>) {
        let (decided, ended, updates) = self.ended_at(now);
        let expected = phase.map(|(phase, minutes)| Ended::Phase(phase, SignedDuration::from_mins(minutes)));
        assert_eq!((decided.as_str(), ended), (reason, expected));
        assert_eq!(updates, []);
    }
}

/// Idle at this attempt since then.
fn idle(attempt: u64, since: u8) -> World {
    let mut world = World::reached(State::Idle, since);
    (world.spec["attempt"], world.status["attempt"]) = (json!(attempt), json!(attempt));
    world.spec["baseline_boot_id"] = Value::Null;
    world
}

#[test]
fn each_phase_is_counted_when_it_ends() {
    let staged = || World::reached(State::StagedAndPerformedUpdate, 11);
    let drained =
        || json!({"cordoned_at": minute(20), "drain_started_at": minute(20), "drained_at": minute(24)});

    let known_before_an_attempt_ended = idle(1, 4);
    known_before_an_attempt_ended.ends(11, "Starting", Some((Phase::Waiting, 6)));
    let mut first = idle(1, 0);
    first.spec["state_transition_timestamp"] = json!("2026-11-01T00:00:00Z");
    first.ends(11, "Starting", Some((Phase::Waiting, 10)));

    staged().ends(20, "Cordoning", Some((Phase::Staging, 10)));
    staged().marked(&drained()).ends(25, "Draining", Some((Phase::Draining, 5)));

    let rebooted = || World::reached(State::RebootedIntoUpdate, 25).rebooted();
    rebooted().ends(28, "Monitoring", Some((Phase::Rebooting, 3)));
    World::reached(State::MonitoringUpdate, 28).rebooted().ends(30, "Finishing", Some((Phase::Soaking, 2)));
}

#[test]
fn a_drain_begins_with_the_exclusion_from_load_balancers() {
    let staged = || {
        let exclusion = SignedDuration::from_mins(2);
        World { exclusion, ..World::reached(State::StagedAndPerformedUpdate, 11) }
    };
    staged().ends(18, "ExcludedFromLoadBalancers", Some((Phase::Staging, 8)));
    let excluded = json!({"excluded_at": minute(18)});
    staged().marked(&excluded).ends(20, "Cordoning", None);
    let drained = json!({"excluded_at": minute(18), "cordoned_at": minute(20), "drain_started_at": minute(20),
        "drained_at": minute(24)});
    staged().marked(&drained).ends(25, "Draining", Some((Phase::Draining, 7)));
}

#[test]
fn what_was_not_seen_to_begin_is_not_counted() {
    // The condition was not written yet.
    let mut unknown = idle(1, 0);
    unknown.status["conditions"] = json!([]);
    unknown.ends(11, "Starting", None);
    // Earlier releases noted no time in the slot.
    let mut staged = World::reached(State::StagedAndPerformedUpdate, 11);
    staged.slot.as_mut().unwrap()["since"] = Value::Null;
    staged.ends(20, "Cordoning", None);
    // The host rebooted without a grant.
    let mut by_itself = World::reached(State::RebootedIntoUpdate, 25).rebooted();
    by_itself.spec["reboot_from_boot_id"] = Value::Null;
    by_itself.ends(28, "Monitoring", None);
    // Its grant was taken back, for somebody had uncordoned it.
    let drained =
        json!({"cordoned_at": minute(26), "drain_started_at": minute(26), "drained_at": minute(27)});
    let mut again = World::reached(State::RebootedIntoUpdate, 25).marked(&drained);
    again.status["current_state"] = json!("StagedAndPerformedUpdate");
    again.ends(28, "Draining", None);
    World::reached(State::StagedAndPerformedUpdate, 11)
        .marked(&json!({"drain_started_at": minute(20)}))
        .ends(21, "Cordoning", None);
}

#[test]
fn clocks_that_differ_make_no_negative_time() {
    World::reached(State::StagedAndPerformedUpdate, 10).ends(9, "Cordoning", Some((Phase::Staging, 0)));
}

#[test]
fn each_end_of_an_update_has_its_word() {
    let failure = |attempt: u64, reason: &str| json!({"count": 1, "attempt": attempt, "at": minute(20), "reason": reason});
    let ended = |world: &World| {
        let (_, phase, updates) = world.ended_at(30);
        assert_eq!(phase, None);
        let [Ended::Update { result, took }] = updates.as_slice() else { panic!("{updates:?}") };
        (*result, took.map(|took| took.as_mins()))
    };
    let updated = || World { boot: 2, version: NEW, ..idle(2, 29) };
    assert_eq!(ended(&updated()), ("Updated", Some(20)));
    let mut of_an_earlier_attempt = updated();
    of_an_earlier_attempt.spec["failures"] = failure(1, "FellBack");
    assert_eq!(ended(&of_an_earlier_attempt), ("Updated", Some(20)));
    let mut without_time = updated();
    without_time.slot.as_mut().unwrap()["since"] = Value::Null;
    assert_eq!(ended(&without_time), ("Updated", None));

    assert_eq!(ended(&idle(2, 29)), ("GivenUp", None));
    let mut not_begun = idle(2, 29);
    not_begun.spec["version"] = Value::Null;
    assert_eq!(ended(&not_begun), ("NotBegun", None));
    for (reason, expected) in
        [("FellBack", "FellBack"), ("DrainTimedOut", "DrainTimedOut"), ("Bored", "Other")]
    {
        let mut failed = idle(2, 29);
        failed.spec["failures"] = failure(2, reason);
        assert_eq!(ended(&failed), (expected, None));
    }
    let mut another = updated();
    another.slot.as_mut().unwrap()["uid"] = json!("earlier-uid");
    assert_eq!(ended(&another), ("NodeGone", None));
    another.slot.as_mut().unwrap()["lost"] = json!(true);
    assert_eq!(ended(&another), ("NotReturned", None));
}

#[test]
fn a_slot_whose_node_and_shadow_are_gone_has_ended() {
    let slot = |lost| Slot { uid: "u".to_owned(), attempt: 1, lost, ..Slot::default() };
    assert_eq!(result(&slot(false), None), "NodeGone");
    assert_eq!(result(&slot(true), None), "NotReturned");
}

#[test]
fn the_words_are_known_and_each_is_there_once() {
    let words: Vec<_> = results().collect();
    let distinct: std::collections::BTreeSet<_> = words.iter().collect();
    assert_eq!(distinct.len(), words.len(), "{words:?}");
    for word in ["Updated", "GivenUp", "NotReturned", "FellBack", "StepFailed"] {
        assert!(words.contains(&word), "{word} is not in {words:?}");
    }
    // What is no failure of the node is given up, whatever for.
    assert!(!words.contains(&"NodePaused") && !words.contains(&"OtherTarget"), "{words:?}");
}
