//! One update, step by step, and the ways in which it may end.

use super::super::*;
use crate::leader::LeaderState;
use crate::rules::{Policy, Rules, StepDurations};
use crate::tests::world::{
    NEW, OLD, cluster, know_pods, marked, observe_knowing, put_agent, put_ledger, ready, rows, with,
};
use brupop_api::pool::Limit;
use serde_json::{Value, json};

/// This many minutes after the update is known.
fn minute(number: u8) -> String {
    format!("2026-11-21T04:{number:02}:00Z")
}

/// A node in mid-update, with its shadow and its slot: this state is wanted since then, and its agent has reached it.
fn reached(state: State, since: u8) -> Value {
    json!({
        "node": with(running("boot-1", OLD), &ready("True", Some(&minute(0)))),
        "spec": {"state": state, "state_transition_timestamp": minute(since), "version": NEW, "attempt": 2,
            "leader_term": 4, "baseline_boot_id": "boot-1"},
        "status": {"current_version": OLD, "target_version": NEW, "current_state": state, "attempt": 2,
            "boot_id": "boot-1", "conditions": [{"type": "UpdateAvailable", "status": "True", "reason": "TargetDiffers",
                "message": "m", "lastTransitionTime": minute(0)}]},
        "slots": {"brs-n": {"uid": "uid-brs-n", "attempt": 2, "since": minute(10), "version": NEW}},
    })
}

fn running(boot: &str, version: &str) -> Value {
    let os_image = format!("Bottlerocket OS {version} (aws-k8s-1.36)");
    json!({"status": {"nodeInfo": {"bootID": boot, "osImage": os_image}}})
}

/// A shadow that was staged at that time.
fn staged(since: u8) -> Value {
    reached(State::StagedAndPerformedUpdate, since)
}

/// In the boot after, with the new version.
fn rebooted(state: State, since: u8) -> Value {
    let change = json!({"node": running("boot-2", NEW), "spec": {"reboot_granted_boot_id": "boot-1"},
        "status": {"boot_id": "boot-2", "current_version": NEW, "reboot_claimed_boot_id": "boot-1"}});
    with(reached(state, since), &change)
}

/// Idle at this attempt since then.
fn idle(attempt: u64, since: u8) -> Value {
    let spec = json!({"attempt": attempt, "baseline_boot_id": null});
    with(
        reached(State::Idle, since),
        &json!({"spec": spec, "status": {"attempt": attempt}}),
    )
}

/// Marked by us with these times, and cordoned if one of them says so.
fn with_marker(world: Value, times: &Value) -> Value {
    let cordoned = json!({"spec": {"unschedulable": times.get("cordoned_at").is_some()}});
    let marker = json!({"shadow_uid": "uid-brs-n", "attempt": 2, "term": 4, "tainted": true});
    with(
        world,
        &json!({"node": with(cordoned, &marked(with(marker, times)))}),
    )
}

/// Returns what is decided, and what is known to have ended once it is done.
fn ended_at(
    world: &Value,
    now: u8,
    exclusion: SignedDuration,
) -> (String, Option<Ended>, Vec<Ended>) {
    let of = |part: &str| world[part].clone();
    let mut cluster = cluster([("n", of("node"))], [("brs-n", of("spec"), of("status"))]);
    put_agent(&mut cluster, "n", true, Some(&minute(0)));
    put_ledger(&mut cluster, json!({}), json!({"slots": of("slots")}));
    let (text, steps) = (
        minute(now),
        StepDurations {
            exclusion,
            ..StepDurations::default()
        },
    );
    let default_pool = Rules::of_settings(Limit::default(), vec![], steps);
    let policy = Policy {
        default_pool,
        min_node_age: SignedDuration::ZERO,
        ..Policy::default()
    };
    know_pods(&mut cluster, &["brs-n"]);
    let observed = observe_knowing(&cluster, &LeaderState::default(), &policy, &text);
    let decided = observed.decide();
    let (view, decision) = (&observed.views[0], &decided.nodes[0]);
    let phase = decision.step.and_then(|step| {
        ended_by(&cluster, &observed.fleet, view, step)
            .into_iter()
            .next()
    });
    let updates = updates_of(&observed.fleet, &observed.views, &decided);
    (decision.reason.as_str().to_owned(), phase, updates)
}

#[track_caller]
fn ends_after(exclusion: u8, world: &Value, now: u8, reason: &str, phase: Option<(Phase, i64)>) {
    let (decided, ended, updates) =
        ended_at(world, now, SignedDuration::from_mins(exclusion.into()));
    let expected =
        phase.map(|(phase, minutes)| Ended::Phase(phase, SignedDuration::from_mins(minutes)));
    assert_eq!((decided.as_str(), ended), (reason, expected));
    assert_eq!(updates, []);
}

#[track_caller]
fn ends(world: &Value, now: u8, reason: &str, phase: Option<(Phase, i64)>) {
    ends_after(0, world, now, reason, phase);
}

fn drained(minutes: [u8; 2]) -> Value {
    let [from, to] = minutes.map(minute);
    json!({"cordoned_at": from, "drain_started_at": from, "drained_at": to})
}

#[test]
fn each_phase_is_counted_when_it_ends() {
    // Known before an attempt ended; and the first one.
    ends(&idle(1, 4), 11, "Staging", Some((Phase::Waiting, 6)));
    let first = json!({"spec": {"state_transition_timestamp": "2026-11-01T00:00:00Z"}});
    ends(
        &with(idle(1, 0), &first),
        11,
        "Staging",
        Some((Phase::Waiting, 10)),
    );
    ends(&staged(11), 20, "Draining", Some((Phase::Staging, 10)));
    ends(
        &with_marker(staged(11), &drained([20, 24])),
        25,
        "Draining",
        Some((Phase::Draining, 5)),
    );
    ends(
        &rebooted(State::RebootedIntoUpdate, 25),
        28,
        "Monitoring",
        Some((Phase::Rebooting, 3)),
    );
    ends(
        &rebooted(State::MonitoringUpdate, 28),
        30,
        "Finishing",
        Some((Phase::Soaking, 2)),
    );
    // By clocks that differ; no time is negative.
    ends(&staged(10), 9, "Draining", Some((Phase::Staging, 0)));
}

#[test]
fn what_was_not_seen_to_begin_is_not_counted() {
    // The condition was not written yet.
    ends(
        &with(idle(1, 0), &json!({"status": {"conditions": []}})),
        11,
        "Staging",
        None,
    );
    // Earlier releases noted no time in the slot.
    ends(
        &with(staged(11), &json!({"slots": {"brs-n": {"since": null}}})),
        20,
        "Draining",
        None,
    );
    // The host rebooted without a grant.
    let by_itself = json!({"spec": {"reboot_granted_boot_id": null}});
    ends(
        &with(rebooted(State::RebootedIntoUpdate, 25), &by_itself),
        28,
        "Monitoring",
        None,
    );
    // Its grant was taken back, for somebody had uncordoned it.
    let taken_back = json!({"status": {"current_state": "StagedAndPerformedUpdate"}});
    let again = with(reached(State::RebootedIntoUpdate, 25), &taken_back);
    ends(
        &with_marker(again, &drained([26, 27])),
        28,
        "Draining",
        None,
    );
    let uncordoned = with_marker(staged(11), &json!({"drain_started_at": minute(20)}));
    ends(&uncordoned, 21, "Draining", None);
}

#[test]
fn each_end_of_an_update_has_its_word() {
    let failed = |attempt: u64, reason: &str| {
        json!({"spec": {"last_failure":
        {"count": 1, "attempt": attempt, "at": minute(20), "reason": reason}}})
    };
    let slot = |change: Value| json!({"slots": {"brs-n": change}});
    let (none, not_begun) = (json!({}), json!({"spec": {"version": null}}));
    let updated = with(idle(2, 29), &json!({"node": running("boot-2", NEW)}));
    for (world, change, result, minutes) in rows! {
        &updated, none.clone(), "Updated" => Some(20);
        &updated, failed(1, "FellBack"), "Updated" => Some(20);
        &updated, slot(json!({"since": null})), "Updated" => None;
        &updated, slot(json!({"uid": "earlier-uid"})), "NodeGone" => None;
        &updated, slot(json!({"uid": "earlier-uid", "lost": true})), "NotReturned" => None;
        &idle(2, 29), none, "GivenUp" => None;
        &idle(2, 29), not_begun, "NotBegun" => None;
        &idle(2, 29), failed(2, "FellBack"), "FellBack" => None;
        &idle(2, 29), failed(2, "DrainTimedOut"), "DrainTimedOut" => None;
        &idle(2, 29), failed(2, "Bored"), "Other" => None;
    } {
        let (_, phase, told) = ended_at(&with(world.clone(), &change), 30, SignedDuration::ZERO);
        let took = minutes.map(SignedDuration::from_mins);
        assert_eq!(
            (phase, told),
            (None, vec![Ended::Update { result, took }]),
            "{change}"
        );
    }
}
