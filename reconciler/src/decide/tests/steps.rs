//! One update, situation by situation.

use brupop_api::State::{
    self, ErrorReset, Idle, MonitoringUpdate, RebootedIntoUpdate, StagedAndPerformedUpdate,
};
use brupop_api::fleet::{BottlerocketFleetStatus, Halt, VersionRecord};
use brupop_api::{Field, Marker, Value};

use super::super::{Abort, Effect, Reason, node as decide, slots, takeover};
use super::world::{
    FIRST_BOOT, NEW, NO_SLOTS, OLD, SECOND_BOOT, SHADOW, UID, fleet, idle, marked, marker, node, rebooted,
    shadow, slot, updating,
};
use super::{next_state, sets, write};
use crate::facts::{FleetFacts, Gate, Situation};

fn without_slots() -> FleetFacts<'static> {
    FleetFacts { slots: &NO_SLOTS, ..fleet() }
}

fn aborts(situation: &Situation<'_>) -> Option<Abort> {
    match decide(&fleet(), situation).reason {
        Reason::Aborting(why) => Some(why),
        _ => None,
    }
}

#[test]
fn nothing_is_written_unless_the_ledger_shows_our_term() {
    for ledger_term in [None, Some(3), Some(5)] {
        let fleet = FleetFacts { ledger_term, ..fleet() };
        assert_eq!(decide(&fleet, &idle()).effect, None);
        assert_eq!(slots(&fleet, &[idle()]).write, None);
    }
}

#[test]
fn a_labelled_node_gets_a_shadow_and_an_unlabelled_one_loses_it() {
    let mut situation = idle();
    situation.shadow = None;
    assert_eq!(decide(&fleet(), &situation).effect, Some(Effect::CreateShadow { attempt: None }));
    // Made again in mid-update: at the next attempt, so that the old marker is over.
    let marker = marker(3, true);
    marked(&mut situation, &marker);
    assert_eq!(decide(&fleet(), &situation).effect, Some(Effect::CreateShadow { attempt: Some(4) }));

    let mut situation = idle();
    node(&mut situation, |node| node.labelled = false);
    assert_eq!(decide(&fleet(), &situation).effect, Some(Effect::DeleteShadow { uid: UID }));
    situation.shadow = None;
    assert_eq!(decide(&fleet(), &situation).effect, None);
}

#[test]
fn a_shadow_of_another_node_of_the_same_name_goes() {
    let mut situation = idle();
    situation.owner_uid = Some("an earlier node");
    assert_eq!(decide(&fleet(), &situation).effect, Some(Effect::DeleteShadow { uid: UID }));
    let mut situation = idle();
    situation.node = None;
    assert_eq!(decide(&fleet(), &situation).effect, Some(Effect::DeleteShadow { uid: UID }));
}

#[test]
fn a_slot_comes_before_the_spec_moves() {
    let taken = slots(&without_slots(), &[idle()]).write.unwrap();
    assert!(
        matches!(sets(&taken, Field::Slot(SHADOW)), Some(Value::Slot(slot)) if slot.uid == UID && slot.attempt == 1)
    );
    assert_eq!(decide(&without_slots(), &idle()).effect, None);

    let decision = decide(&fleet(), &idle());
    assert_eq!(next_state(&decision), Some(StagedAndPerformedUpdate));
    assert_eq!(sets(write(&decision), Field::SpecVersion), Some(Value::text(NEW)));
    assert_eq!(sets(write(&decision), Field::SpecAttempt), Some(Value::Number(1)));
    assert_eq!(sets(write(&decision), Field::SpecLeaderTerm), Some(Value::Number(4)));
    assert_eq!(sets(write(&decision), Field::SpecBaselineBootId), Some(Value::text(FIRST_BOOT)));
}

/// A change of an idle node that could otherwise begin.
type Change = fn(&mut Situation<'static>);

#[test]
fn an_idle_node_says_why_it_does_not_begin() {
    let paused_after_failure: Change = |s| {
        s.time.backing_off = true;
        node(s, |n| n.paused = true);
    };
    let rows: [(&str, Change, Reason<'_>); 8] = [
        ("not ready", |s| node(s, |n| n.ready = false), Reason::NodeNotReady),
        ("no report", |s| shadow(s, |w| w.status.current_version = None), Reason::NotReported),
        ("no report since its boot", |s| node(s, |n| n.boot_id = SECOND_BOOT), Reason::NotReported),
        ("no update", |s| shadow(s, |w| w.status.target_version = None), Reason::NoUpdate),
        ("already there", |s| shadow(s, |w| w.status.target_version = Some(OLD)), Reason::NoUpdate),
        ("failed not long ago", |s| s.time.backing_off = true, Reason::BackingOff),
        ("paused by a person", |s| node(s, |n| n.paused = true), Reason::NodePaused),
        ("paused by a person after a failure", paused_after_failure, Reason::NodePaused),
    ];
    for (name, change, reason) in rows {
        let mut situation = idle();
        change(&mut situation);
        assert_eq!(decide(&without_slots(), &situation).reason, reason, "{name}");
        assert_eq!(slots(&without_slots(), &[situation]).write, None, "{name}");
        // A slot that was taken all the same is given back by way of a spent attempt.
        let decision = decide(&fleet(), &situation);
        assert_eq!(sets(write(&decision), Field::SpecAttempt), Some(Value::Number(1)), "{name}");
        assert_eq!(sets(write(&decision), Field::SpecState), None, "{name}");
    }
}

#[test]
fn gates_hold_new_updates_back_and_nothing_else() {
    for (gate, reason) in [
        (Gate::Paused, Reason::FleetPaused),
        (Gate::OutsideWindow, Reason::OutsideWindow),
        (Gate::AdmissionNotEnforced, Reason::AdmissionNotEnforced),
    ] {
        let closed = FleetFacts { gate, ..without_slots() };
        assert_eq!(decide(&closed, &idle()).reason, reason);
        assert_eq!(slots(&closed, &[idle()]).write, None);
        // What has begun is finished.
        let situation = updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
        assert!(decide(&FleetFacts { gate, ..fleet() }, &situation).effect.is_some());
    }
    let mut asked_for = idle();
    node(&mut asked_for, |node| node.update_now = true);
    assert!(
        slots(&FleetFacts { gate: Gate::OutsideWindow, ..without_slots() }, &[asked_for]).write.is_some()
    );
    assert!(slots(&FleetFacts { gate: Gate::Paused, ..without_slots() }, &[asked_for]).write.is_none());
}

#[test]
fn a_halted_version_is_not_begun() {
    let record = VersionRecord { halted: Some(Halt::default()), ..VersionRecord::default() };
    let versions = [(NEW.to_owned(), record)].into();
    let fleet = FleetFacts { versions: &versions, ..without_slots() };
    assert_eq!(decide(&fleet, &idle()).reason, Reason::VersionHalted(NEW));
}

#[test]
fn a_staged_node_is_excluded_cordoned_drained_and_granted_in_this_order() {
    let fleet = FleetFacts { exclude: true, ..fleet() };
    let mut situation = updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
    situation.time.exclusion_over = false;
    let decision = decide(&fleet, &situation);
    assert_eq!(sets(write(&decision), Field::ExcludedFromLoadBalancers), Some(Value::Set));
    assert_eq!(sets(write(&decision), Field::Unschedulable), None);

    let excluded =
        Marker { shadow_uid: UID.into(), attempt: 1, excluded_at: Some("then".into()), ..Marker::default() };
    node(&mut situation, |node| {
        node.marker = Some(&excluded);
        node.excluded = true;
    });
    assert_eq!(decide(&fleet, &situation).reason, Reason::ExcludedFromLoadBalancers);
    situation.time.exclusion_over = true;
    let decision = decide(&fleet, &situation);
    assert_eq!(sets(write(&decision), Field::Unschedulable), Some(Value::Set));
    assert_eq!(sets(write(&decision), Field::UpdatingTaint), Some(Value::Set));

    let cordoned = marker(1, false);
    marked(&mut situation, &cordoned);
    assert_eq!(decide(&fleet, &situation).effect, Some(Effect::Evict));
    situation.pods.drained = true;
    assert!(matches!(decide(&fleet, &situation).effect, Some(Effect::ConfirmDrained(_))));

    let drained = marker(1, true);
    node(&mut situation, |node| node.marker = Some(&drained));
    let decision = decide(&fleet, &situation);
    assert_eq!(next_state(&decision), Some(RebootedIntoUpdate));
    assert_eq!(sets(write(&decision), Field::SpecRebootFromBootId), Some(Value::text(FIRST_BOOT)));
    assert!(write(&decision).tests.contains(&(Field::StatusRebootRequested, Value::Absent)));
}

#[test]
fn the_taint_is_set_as_soon_as_there_is_another_node() {
    let mut situation = updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
    situation.pods.elsewhere = false;
    let decision = decide(&fleet(), &situation);
    assert_eq!(sets(write(&decision), Field::UpdatingTaint), None, "a single node keeps our own pods");
    let untainted = Marker { tainted: false, ..marker(1, false) };
    marked(&mut situation, &untainted);
    node(&mut situation, |node| node.tainted = false);
    assert_eq!(decide(&fleet(), &situation).effect, Some(Effect::Evict));
    situation.pods.elsewhere = true;
    let decision = decide(&fleet(), &situation);
    assert_eq!(sets(write(&decision), Field::UpdatingTaint), Some(Value::Set));
    let Some(Value::Marker(marker)) = sets(write(&decision), Field::Marker) else { panic!("no marker") };
    assert!(marker.tainted && marker.drain_started_at.is_some());
}

#[test]
fn without_a_slot_no_node_is_emptied() {
    let situation = updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
    assert_eq!(decide(&without_slots(), &situation).effect, None);
    let other = slot(SHADOW, "an earlier shadow", 1);
    assert_eq!(decide(&FleetFacts { slots: &other, ..fleet() }, &situation).effect, None);
}

#[test]
fn a_cordon_that_was_there_before_stays() {
    let mut situation = updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
    node(&mut situation, |node| node.unschedulable = true);
    let decision = decide(&fleet(), &situation);
    let Some(Value::Marker(marker)) = sets(write(&decision), Field::Marker) else { panic!("no marker") };
    assert_eq!(marker.cordoned_at, None);
    assert_eq!(sets(write(&decision), Field::Unschedulable), None);

    let mut back = updating(RebootedIntoUpdate, RebootedIntoUpdate);
    let marker = marker.into_owned();
    marked(&mut back, &marker);
    rebooted(&mut back, NEW);
    let decision = decide(&fleet(), &back);
    assert_eq!(decision.reason, Reason::ReturningToService);
    assert_eq!(sets(write(&decision), Field::Unschedulable), None);
    assert_eq!(sets(write(&decision), Field::UpdatingTaint), Some(Value::Absent));
}

#[test]
fn an_uncordoned_node_is_cordoned_and_drained_again() {
    let drained = marker(1, true);
    let mut situation = updating(RebootedIntoUpdate, StagedAndPerformedUpdate);
    marked(&mut situation, &drained);
    shadow(&mut situation, |shadow| shadow.spec.reboot_from_boot_id = Some(FIRST_BOOT));
    assert_eq!(decide(&fleet(), &situation).reason, Reason::RebootGranted);
    node(&mut situation, |node| node.unschedulable = false);
    let decision = decide(&fleet(), &situation);
    assert_eq!(sets(write(&decision), Field::SpecRebootFromBootId), Some(Value::Absent));
    assert!(write(&decision).tests.contains(&(Field::StatusRebootRequested, Value::Absent)));

    shadow(&mut situation, |shadow| shadow.spec.reboot_from_boot_id = None);
    let decision = decide(&fleet(), &situation);
    let Some(Value::Marker(marker)) = sets(write(&decision), Field::Marker) else { panic!("no marker") };
    assert_eq!(marker.drained_at, None);
    assert_eq!(sets(write(&decision), Field::Unschedulable), Some(Value::Set));
}

#[test]
fn after_the_claim_only_the_node_counts() {
    let drained = marker(1, true);
    let mut situation = updating(RebootedIntoUpdate, StagedAndPerformedUpdate);
    marked(&mut situation, &drained);
    shadow(&mut situation, |shadow| {
        shadow.spec.reboot_from_boot_id = Some(FIRST_BOOT);
        shadow.status.reboot_requested = Some(FIRST_BOOT);
    });
    assert_eq!(decide(&fleet(), &situation).reason, Reason::Rebooting);
    // Neither a deadline nor a person takes back a reboot that was claimed.
    situation.time.step_overdue = true;
    node(&mut situation, |node| node.paused = true);
    let decision = decide(&fleet(), &situation);
    assert_eq!((decision.effect, decision.reason), (None, Reason::RebootOverdue));
    situation.time.step_overdue = false;

    rebooted(&mut situation, NEW);
    node(&mut situation, |node| node.ready = false);
    assert_eq!(decide(&fleet(), &situation).reason, Reason::Rebooting);
    // Ready in the new boot: back into service, whether the agent has said anything or not.
    node(&mut situation, |node| node.ready = true);
    let decision = decide(&fleet(), &situation);
    assert_eq!(sets(write(&decision), Field::Unschedulable), Some(Value::Absent));
    let Some(Value::Marker(rest)) = sets(write(&decision), Field::Marker) else { panic!("no marker") };
    assert!(!rest.holds_changes() && !rest.evicted_owners.is_empty());

    let owners = rest.into_owned();
    node(&mut situation, |node| {
        node.unschedulable = false;
        node.tainted = false;
        node.marker = Some(&owners);
    });
    assert_eq!(decide(&fleet(), &situation).reason, Reason::NotReported);
    shadow(&mut situation, |shadow| shadow.status.current_state = Some(RebootedIntoUpdate));
    assert_eq!(next_state(&decide(&fleet(), &situation)), Some(MonitoringUpdate));
}

#[test]
fn a_host_that_comes_back_with_the_old_version_has_fallen_back() {
    let mut situation = updating(RebootedIntoUpdate, StagedAndPerformedUpdate);
    shadow(&mut situation, |shadow| {
        shadow.spec.reboot_from_boot_id = Some(FIRST_BOOT);
        shadow.status.reboot_requested = Some(FIRST_BOOT);
    });
    rebooted(&mut situation, OLD);
    assert_eq!(aborts(&situation), Some(Abort::FellBack));
    let decision = decide(&fleet(), &situation);
    assert_eq!(next_state(&decision), Some(Idle));
    let Some(Value::Failures(failures)) = sets(write(&decision), Field::SpecFailures) else {
        panic!("no failure")
    };
    assert_eq!((failures.count, failures.attempt, failures.reason.as_str()), (1, 1, "FellBack"));
    // The spent claim is tested: a new one would win.
    assert!(write(&decision).tests.contains(&(Field::StatusRebootRequested, Value::text(FIRST_BOOT))));
}

#[test]
fn a_host_that_reboots_by_itself_is_not_rebooted_again() {
    let mut situation = updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
    rebooted(&mut situation, NEW);
    let decision = decide(&fleet(), &situation);
    assert_eq!(next_state(&decision), Some(RebootedIntoUpdate));
    assert_eq!(sets(write(&decision), Field::SpecRebootFromBootId), None);

    let mut situation = updating(StagedAndPerformedUpdate, Idle);
    rebooted(&mut situation, OLD);
    assert_eq!(aborts(&situation), Some(Abort::RebootedByItself));
}

#[test]
fn before_the_claim_an_update_can_be_given_up() {
    let rows: [(&str, State, Change, Abort); 6] = [
        ("failed", ErrorReset, |_| (), Abort::StepFailed),
        ("too long", Idle, |s| s.time.step_overdue = true, Abort::DeadlineExceeded),
        ("paused", Idle, |s| node(s, |n| n.paused = true), Abort::NodePaused),
        ("unlabelled", Idle, |s| node(s, |n| n.labelled = false), Abort::NotLabelled),
        (
            "other target",
            Idle,
            |s| shadow(s, |w| w.status.target_version = Some("1.21.0")),
            Abort::OtherTarget,
        ),
        ("no target", Idle, |s| shadow(s, |w| w.status.target_version = None), Abort::OtherTarget),
    ];
    for (name, reached, change, why) in rows {
        let mut situation = updating(StagedAndPerformedUpdate, reached);
        change(&mut situation);
        assert_eq!(aborts(&situation), Some(why), "{name}");
        let decision = decide(&fleet(), &situation);
        assert_eq!(next_state(&decision), Some(Idle), "{name}");
        assert_eq!(sets(write(&decision), Field::SpecFailures).is_some(), why.is_failure(), "{name}");
        assert!(write(&decision).tests.contains(&(Field::StatusRebootRequested, Value::Absent)), "{name}");
    }
}

#[test]
fn an_update_that_was_given_up_is_undone_and_its_slot_given_back() {
    let over = marker(1, true);
    let mut situation = updating(Idle, Idle);
    situation.node.as_mut().unwrap().marker = Some(&over);
    assert_eq!(slots(&fleet(), &[situation]).write, None, "still marked");
    let decision = decide(&fleet(), &situation);
    assert_eq!(sets(write(&decision), Field::Marker), Some(Value::Absent));

    node(&mut situation, |node| node.marker = None);
    situation.time.backing_off = true;
    let freed = slots(&fleet(), &[situation]).write.unwrap();
    assert_eq!(sets(&freed, Field::Slot(SHADOW)), Some(Value::Absent));
    assert_eq!(sets(&freed, Field::VersionRecord(NEW)), None, "neither a success nor a corroborated failure");
}

#[test]
fn a_finished_update_frees_its_slot_and_counts_once() {
    let mut situation = updating(MonitoringUpdate, MonitoringUpdate);
    rebooted(&mut situation, NEW);
    situation.time.soak_over = false;
    assert_eq!(decide(&fleet(), &situation).reason, Reason::Monitoring);
    situation.time.soak_over = true;
    assert_eq!(next_state(&decide(&fleet(), &situation)), Some(Idle));

    let mut done = updating(Idle, Idle);
    rebooted(&mut done, NEW);
    shadow(&mut done, |shadow| {
        shadow.status.current_version = Some(NEW);
        shadow.status.boot_id = Some(SECOND_BOOT);
    });
    let freed = slots(&fleet(), &[done]).write.unwrap();
    assert_eq!(sets(&freed, Field::Slot(SHADOW)), Some(Value::Absent));
    let Some(Value::VersionRecord(record)) = sets(&freed, Field::VersionRecord(NEW)) else {
        panic!("no record")
    };
    assert_eq!(record.succeeded, 1);
}

#[test]
fn a_marker_whose_attempt_is_over_is_undone_whatever_the_state() {
    let over = marker(1, true);
    for state in [StagedAndPerformedUpdate, RebootedIntoUpdate, MonitoringUpdate, Idle] {
        let mut situation = updating(state, state);
        shadow(&mut situation, |shadow| shadow.spec.attempt = Some(2));
        marked(&mut situation, &over);
        let decision = decide(&fleet(), &situation);
        assert_eq!(sets(write(&decision), Field::Marker), Some(Value::Absent), "{state}");
        node(&mut situation, |node| node.ready = false);
        assert_eq!(decide(&fleet(), &situation).effect, None, "{state}: not while it may be rebooting");
    }
}

#[test]
fn upstreams_shadows_in_mid_update_are_adopted() {
    let mut situation = updating(RebootedIntoUpdate, StagedAndPerformedUpdate);
    shadow(&mut situation, |shadow| {
        shadow.spec.attempt = None;
        shadow.spec.baseline_boot_id = None;
        shadow.status.attempt = None;
    });
    node(&mut situation, |node| node.unschedulable = true);
    let taken = slots(&without_slots(), &[situation]).write.unwrap();
    assert!(matches!(sets(&taken, Field::Slot(SHADOW)), Some(Value::Slot(slot)) if slot.attempt == 1));
    let decision = decide(&fleet(), &situation);
    let Some(Value::Marker(adopted)) = sets(write(&decision), Field::Marker) else { panic!("no marker") };
    assert!(adopted.cordoned_at.is_some() && adopted.drained_at.is_none());
    // Then it gets the slot's attempt, and is not uncordoned on the way.
    let adopted = adopted.into_owned();
    node(&mut situation, |node| node.marker = Some(&adopted));
    let decision = decide(&fleet(), &situation);
    assert_eq!(sets(write(&decision), Field::SpecAttempt), Some(Value::Number(1)));
    assert_eq!(sets(write(&decision), Field::Marker), None);
    // When it is drained then, the cordon is still ours to undo.
    shadow(&mut situation, |shadow| {
        shadow.spec.attempt = Some(1);
        shadow.spec.baseline_boot_id = Some(FIRST_BOOT);
    });
    let decision = decide(&fleet(), &situation);
    let Some(Value::Marker(draining)) = sets(write(&decision), Field::Marker) else { panic!("no marker") };
    assert!(draining.drain_started_at.is_some() && draining.cordoned_at == adopted.cordoned_at);
}

#[test]
fn a_host_that_runs_the_update_when_it_is_adopted_is_neither_drained_nor_rebooted() {
    let mut situation = updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
    node(&mut situation, |node| node.version = Some(NEW));
    let decision = decide(&fleet(), &situation);
    assert_eq!(next_state(&decision), Some(RebootedIntoUpdate));
    assert_eq!(sets(write(&decision), Field::SpecRebootFromBootId), None);

    let mut situation = updating(RebootedIntoUpdate, RebootedIntoUpdate);
    node(&mut situation, |node| node.version = Some(NEW));
    assert_eq!(next_state(&decide(&fleet(), &situation)), Some(MonitoringUpdate));
}

#[test]
fn a_silent_agent_does_not_keep_its_slot_for_ever() {
    for state in [RebootedIntoUpdate, MonitoringUpdate] {
        let mut situation = updating(state, StagedAndPerformedUpdate);
        rebooted(&mut situation, NEW);
        assert_eq!(decide(&fleet(), &situation).effect, None, "{state}");
        situation.time.step_overdue = true;
        assert_eq!(aborts(&situation), Some(Abort::DeadlineExceeded), "{state}");
        situation.time.step_overdue = false;
        node(&mut situation, |node| node.labelled = false);
        assert_eq!(aborts(&situation), Some(Abort::NotLabelled), "{state}");
    }
    let mut idle = updating(Idle, StagedAndPerformedUpdate);
    assert_eq!(slots(&fleet(), &[idle]).write, None);
    idle.time.step_overdue = true;
    assert!(slots(&fleet(), &[idle]).write.is_some());
    // The slot of a shadow that was made again: the same.
    let earlier = slot(SHADOW, "an earlier shadow", 1);
    assert!(slots(&FleetFacts { slots: &earlier, ..fleet() }, &[idle]).write.is_some());
    idle.time.step_overdue = false;
    assert_eq!(slots(&FleetFacts { slots: &earlier, ..fleet() }, &[idle]).write, None);
}

#[test]
fn a_node_in_another_boot_is_put_back_into_service_before_anything_is_written_of_it() {
    let marker = marker(1, true);
    for (state, version) in [
        (StagedAndPerformedUpdate, NEW),
        (StagedAndPerformedUpdate, OLD),
        (RebootedIntoUpdate, OLD),
        (MonitoringUpdate, NEW),
    ] {
        let mut situation = updating(state, StagedAndPerformedUpdate);
        marked(&mut situation, &marker);
        rebooted(&mut situation, version);
        let decision = decide(&fleet(), &situation);
        assert_eq!(decision.reason, Reason::ReturningToService, "{state} {version}");
        assert_eq!(sets(write(&decision), Field::Unschedulable), Some(Value::Absent));
    }
}

#[test]
fn a_node_that_is_away_counts_from_the_moment_its_slot_is_given_back() {
    let mut away = updating(Idle, Idle);
    node(&mut away, |node| node.ready = false);
    let mut other = idle();
    other.shadow_name = "brs-other";
    shadow(&mut other, |shadow| shadow.name = "brs-other");
    let write = slots(&fleet(), &[away, other]).write.unwrap();
    assert_eq!(sets(&write, Field::Slot(SHADOW)), Some(Value::Absent));
    assert_eq!(sets(&write, Field::Slot("brs-other")), None);
}

#[test]
fn a_person_who_asks_for_an_update_now_does_not_end_a_back_off() {
    let mut situation = idle();
    node(&mut situation, |node| node.update_now = true);
    situation.time.backing_off = true;
    assert_eq!(slots(&without_slots(), &[situation]).write, None);
}

#[test]
fn a_new_leader_has_a_higher_term_than_anybody_ever_had() {
    let mut situation = updating(StagedAndPerformedUpdate, Idle);
    shadow(&mut situation, |shadow| shadow.spec.leader_term = Some(9));
    let ledger = BottlerocketFleetStatus { term: Some(4), ..BottlerocketFleetStatus::default() };
    let (term, take) = takeover(Some(&ledger), &[situation]);
    assert_eq!(term, 10);
    assert_eq!(sets(&take, Field::Slot(SHADOW)), None, "the ledger knows its slots");
    // A lost ledger's slots are made again.
    let (term, take) = takeover(None, &[situation]);
    assert_eq!(term, 10);
    assert!(matches!(sets(&take, Field::Slot(SHADOW)), Some(Value::Slot(slot)) if slot.attempt == 1));
}
