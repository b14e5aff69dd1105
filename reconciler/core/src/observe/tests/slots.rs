//! When a slot is held for too long, whatever the reason.

use super::*;
use crate::cluster::Watched as _;
use crate::rules::GateState;

/// A pool of all nodes, whose gate is so.
pub(super) fn gated(cluster: &mut Cluster, state: GateState) -> LeaderState {
    let gate = json!({"name": "quiet", "prometheus": {"source": "main", "query": "up == 0"}});
    let spec = json!({"verify": {"readyFor": "1m", "workloadsTimeout": "15m"}, "gates": [gate]});
    pool("web", spec).put(cluster);
    let mut known = known(cluster);
    known.record_gates(cluster, |_| state);
    known
}

/// Whether the slot of a shadow with this spec, taken at `since`, is overdue.
fn overdue(spec: &Value, since: &str, now: &str) -> bool {
    observe_at(&held(spec, since), &POLICY, now).views[0]
        .time
        .slot_overdue
}

fn held(spec: &Value, since: &str) -> Cluster {
    let status = json!({"current_state": "Idle", "attempt": 1});
    let mut cluster = cluster([("n", json!({}))], [("brs-n", spec.clone(), status)]);
    let slot = json!({"brs-n": {"uid": "uid-brs-n", "attempt": 1, "since": since}});
    put_ledger(&mut cluster, json!({}), json!({"slots": slot}));
    cluster
}

#[test]
fn each_state_has_its_time() {
    // Half an hour for the exclusion, drains and reboot, ten minutes for what follows a deadline.
    let (idle, staged, rebooted) = (600 + 600, 3600 + 30 + 1800 + 600, 1800 + 30 + 900 + 600);
    let watched = 4 * (60 + 600 + 900) + 600;
    for (state, since, seconds) in [
        ("Idle", NOW, idle),
        ("StagedAndPerformedUpdate", NOW, staged),
        ("RebootedIntoUpdate", NOW, rebooted),
        ("MonitoringUpdate", NOW, watched),
        // A slot is as young as its update.
        ("Idle", "2026-11-01T00:00:00Z", idle),
        // Nobody knows how far it is, so it has the time of all states; Idle and ErrorReset have the same.
        ("Dreaming", NOW, 2 * idle + staged + rebooted + watched),
    ] {
        let spec = json!({"state": state, "state_transition_timestamp": since, "attempt": 1});
        for (after, expected) in [(seconds - 1, false), (seconds, true)] {
            assert_eq!(
                overdue(&spec, NOW, &later(after)),
                expected,
                "{state} after {after} s"
            );
        }
    }
}

/// A slow download lasts for hours. Were it no try, the next node could try the same bad image beside it.
#[test]
fn who_downloads_tries_the_version() {
    for (state, since, late) in [
        ("Idle", 599, false),
        ("Idle", 601, true),
        ("StagedAndPerformedUpdate", 3000, false),
    ] {
        let spec = json!({"state": state, "state_transition_timestamp": NOW, "attempt": 1});
        let (cluster, now) = (held(&spec, NOW), later(since));
        let observed = observe_at(&cluster, &POLICY, &now);
        assert_eq!(observed.views[0].time.trial_overdue, late, "{state}");
    }
}

/// A gate that asks for alerts would be held by the alert that it makes.
#[test]
fn what_a_gate_holds_is_not_overdue() {
    let spec =
        |state: &str| json!({"state": state, "state_transition_timestamp": NOW, "attempt": 1});
    for (state, gate, expected) in [
        ("MonitoringUpdate", GateState::Open, true),
        ("MonitoringUpdate", GateState::Closed, false),
        ("MonitoringUpdate", GateState::Unknown, false),
        ("RebootedIntoUpdate", GateState::Closed, true),
    ] {
        let mut cluster = held(&spec(state), NOW);
        let known = gated(&mut cluster, gate);
        let overdue = observe_knowing(&cluster, &known, &POLICY, "2026-11-23T04:00:00Z").views[0]
            .time
            .slot_overdue;
        assert_eq!(overdue, expected, "{state}, {gate:?}");
    }
}

/// An unreadable shadow says nothing of its host, so it halts no version and keeps its slot.
#[test]
fn what_cannot_be_read_counts_against_no_version() {
    let long = "x".repeat(20_000);
    let away = |more: Value| with(ready("False", None), &more);
    let annotated = |key: &str, value: &str| away(annotated(key, value));
    let rebooting = json!({"state": "RebootedIntoUpdate", "version": "1.20.0", "attempt": 1,
        "state_transition_timestamp": NOW, "reboot_granted_boot_id": "boot-1"});
    let failures = json!({"count": 1, "attempt": 1, "at": NOW, "reason": "NotReady"});
    let given_up = json!({"state": "Idle", "version": "1.20.0", "attempt": 1, "last_failure": failures,
        "state_transition_timestamp": NOW});
    let tainted = r#"{"shadow_uid":"uid-brs-n","attempt":1,"tainted":true}"#;
    for (what, node, spec, counts) in rows! {
        "a host that is away", away(json!({})), &rebooting => true;
        "a Node of 20 kB", annotated(names::PAUSE_ANNOTATION, &long), &rebooting => false;
        "a marker that is none", annotated(names::MARKER_ANNOTATION, "?"), &rebooting => false;
        "a Node that was given up", annotated(names::MARKER_ANNOTATION, tainted), &given_up => true;
        "a Node that was given up, of 20 kB", annotated(names::PAUSE_ANNOTATION, &long), &given_up => false;
        "a shadow", opted("none"), &json!({"state": "Dreaming"}) => false;
    } {
        let mut cluster = held(spec, NOW);
        super::node("n", node).put(&mut cluster);
        let status = json!({"current_state": "StagedAndPerformedUpdate", "attempt": 1, "reboot_claimed_boot_id": "boot-1"});
        shadow("brs-n", spec.clone(), status).put(&mut cluster);
        let mut observed = observe_at(&cluster, &POLICY, "2026-11-22T04:00:00Z");
        observed.fleet.ledger_term = Some(observed.fleet.term);
        let slots = observed.decide();
        assert_eq!(
            slots.halted.len(),
            usize::from(counts),
            "{what}: {:?}",
            slots.write
        );
        assert_eq!(slots.freed, [], "{what}");
    }
}
