//! One update, view by view.

use brupop_api::State::{Idle, MonitoringUpdate, RebootedIntoUpdate, StagedAndPerformedUpdate};
use brupop_api::{Field, Marker, Value};

use super::super::{Abort, Effect, Milestone, Reason, node as decide, slots};
use super::world::{
    FIRST_BOOT, NEW, OLD, SECOND_BOOT, SHADOW, UID, fleet, idle, marked, marker, node, rebooted, shadow,
    slot, updating, without_slots,
};
use super::{next_state, sets, write};
use crate::facts::{FleetFacts, NodeView, PodFacts};
use crate::window::Starts;

#[test]
fn a_staged_node_is_taken_out_in_order() {
    let fleet = fleet();
    let mut view = updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
    (view.time.exclude, view.time.exclusion_over) = (true, false);
    let decision = decide(&fleet, &view);
    assert_eq!(sets(write(&decision), Field::ExcludedFromLoadBalancers), Some(Value::Set));
    assert_eq!(sets(write(&decision), Field::Unschedulable), None);

    let excluded =
        Marker { shadow_uid: UID.into(), attempt: 1, excluded_at: Some("then".into()), ..Marker::default() };
    node(&mut view, |node| {
        node.marker = Some(&excluded);
        node.excluded = true;
    });
    assert_eq!(decide(&fleet, &view).reason, Reason::ExcludedFromLoadBalancers);
    view.time.exclusion_over = true;
    let decision = decide(&fleet, &view);
    assert_eq!(sets(write(&decision), Field::Unschedulable), Some(Value::Set));
    assert_eq!(sets(write(&decision), Field::UpdatingTaint), Some(Value::Set));

    // By the leader before this one.
    let cordoned = Marker { term: 3, ..marker(1, false) };
    marked(&mut view, &cordoned);
    assert_eq!(decide(&fleet, &view).effect, Some(Effect::Evict));
    view.pods.drained = true;
    let granted = |view: &NodeView<'_>| {
        let decision = decide(&fleet, view);
        assert_eq!(next_state(&decision), Some(RebootedIntoUpdate));
        assert_eq!(sets(write(&decision), Field::SpecRebootFromBootId), Some(Value::text(FIRST_BOOT)));
        assert!(write(&decision).tests.contains(&(Field::StatusRebootRequested, Value::Absent)));
        let Some(Effect::Grant { confirm, .. }) = decision.effect else { panic!("it is a grant") };
        assert!(confirm.tests.contains(&(Field::Unschedulable, Value::Set)));
        let Some(Value::Marker(marker)) = sets(&confirm, Field::Marker) else { panic!("it marks the Node") };
        assert_eq!(marker.drained_at.as_deref(), Some(fleet.now), "it is drained now");
        assert_eq!(marker.term, fleet.term, "by this leader");
    };
    granted(&view);
    // The Node was written, and the grant was not.
    let drained = marker(1, true);
    node(&mut view, |node| node.marker = Some(&drained));
    granted(&view);
}

#[test]
fn each_step_reaches_its_milestone() {
    let milestone = |view: &NodeView<'_>| decide(&fleet(), view).milestone;
    assert_eq!(milestone(&idle()), Some(Milestone::Started));

    let mut view = updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
    assert_eq!(milestone(&view), Some(Milestone::Cordoned));
    let cordoned = marker(1, false);
    marked(&mut view, &cordoned);
    assert_eq!(milestone(&view), None, "pods are evicted");
    node(&mut view, |node| node.unschedulable = false);
    assert_eq!(milestone(&view), Some(Milestone::CordonedAgain));
    marked(&mut view, &cordoned);
    let owners = ["apps/v1/ReplicaSet/shop/cart".to_owned()];
    view.pods.returning = &owners;
    assert_eq!(milestone(&view), Some(Milestone::PodsLeft));

    let drained = marker(1, true);
    let mut back = updating(RebootedIntoUpdate, RebootedIntoUpdate);
    marked(&mut back, &drained);
    rebooted(&mut back, NEW);
    node(&mut back, |node| node.marker = None);
    assert_eq!(milestone(&back), None, "it is monitored");
    node(&mut back, |node| node.version = Some(OLD));
    assert_eq!(milestone(&back), Some(Milestone::Aborted(Abort::FellBack)));
    let mut monitored = updating(MonitoringUpdate, MonitoringUpdate);
    rebooted(&mut monitored, NEW);
    assert_eq!(milestone(&monitored), Some(Milestone::Updated));
}

#[test]
fn no_node_is_emptied_without_admission() {
    let alone = FleetFacts { enforced: false, ..fleet() };
    for (fleet, exclude) in [(alone, false), (FleetFacts { starts: Starts::Paused, ..alone }, true)] {
        let mut view = updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
        view.time.exclude = exclude;
        let decision = decide(&fleet, &view);
        assert_eq!((decision.effect, decision.reason), (None, Reason::AdmissionNotEnforced));
        let cordoned = marker(1, false);
        marked(&mut view, &cordoned);
        assert_eq!(decide(&fleet, &view).effect, Some(Effect::Evict), "what has begun goes on");
    }
}

#[test]
fn without_a_slot_no_node_is_emptied() {
    let view = updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
    assert_eq!(decide(&without_slots(), &view).effect, None);
    let other = slot(SHADOW, "an earlier shadow", 1);
    assert_eq!(decide(&FleetFacts { slots: &other, ..fleet() }, &view).effect, None);
}

#[test]
fn a_cordon_that_was_there_before_stays() {
    let mut view = updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
    node(&mut view, |node| node.unschedulable = true);
    let decision = decide(&fleet(), &view);
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
    let mut view = updating(RebootedIntoUpdate, StagedAndPerformedUpdate);
    marked(&mut view, &drained);
    shadow(&mut view, |shadow| shadow.spec.reboot_from_boot_id = Some(FIRST_BOOT));
    assert_eq!(decide(&fleet(), &view).reason, Reason::RebootGranted);
    node(&mut view, |node| node.unschedulable = false);
    let decision = decide(&fleet(), &view);
    assert_eq!(sets(write(&decision), Field::SpecRebootFromBootId), Some(Value::Absent));
    assert!(write(&decision).tests.contains(&(Field::StatusRebootRequested, Value::Absent)));

    shadow(&mut view, |shadow| shadow.spec.reboot_from_boot_id = None);
    let decision = decide(&fleet(), &view);
    let Some(Value::Marker(marker)) = sets(write(&decision), Field::Marker) else { panic!("no marker") };
    assert_eq!(marker.drained_at, None);
    assert_eq!(sets(write(&decision), Field::Unschedulable), Some(Value::Set));
}

#[test]
fn pods_after_the_drain_are_evicted_first() {
    let drained = marker(1, true);
    let mut view = updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
    marked(&mut view, &drained);
    // Somebody uncordoned the node and cordoned it again, and nobody saw.
    view.pods.drained = false;
    let decision = decide(&fleet(), &view);
    let Some(Value::Marker(marker)) = sets(write(&decision), Field::Marker) else { panic!("no marker") };
    assert_eq!(marker.drained_at, None);
    assert_eq!(marker.drain_started_at, drained.drain_started_at, "the deadline stays what it is");
    assert!(write(&decision).tests.contains(&(Field::Unschedulable, Value::Set)));
    assert_eq!(decision.reason, Reason::Draining);

    view.pods.known = false;
    let decision = decide(&fleet(), &view);
    assert_eq!((decision.effect, decision.reason), (None, Reason::Draining), "a new leader looks first");

    view.pods = PodFacts { known: true, drained: true, ..view.pods };
    let decision = decide(&fleet(), &view);
    assert_eq!(next_state(&decision), Some(RebootedIntoUpdate));
    let Some(Effect::Grant { confirm, .. }) = &decision.effect else {
        panic!("on a fresh list: {decision:?}")
    };
    assert!(confirm.tests.contains(&(Field::Unschedulable, Value::Set)), "and on the Node as it is then");
    assert!(confirm.tests.iter().any(|(field, value)| *field == Field::Marker && *value != Value::Absent));
    assert_eq!(decision.reason, Reason::Draining, "nothing is granted before");
}

#[test]
fn a_drain_without_grant_ends_by_deadline() {
    let drained = marker(1, true);
    let looked = |known, drained| PodFacts { known, drained, ..PodFacts::default() };
    let timed_out = Reason::Aborting(Abort::DrainTimedOut);
    for (says, pods, unschedulable, force, reason, next) in [
        ("its pods cannot be looked at", looked(false, false), true, false, timed_out, Some(Idle)),
        ("its pods come back each time", looked(true, false), true, false, timed_out, Some(Idle)),
        ("no fresh list agrees", looked(true, true), true, false, timed_out, Some(Idle)),
        ("with force they are deleted", looked(true, false), true, true, Reason::Draining, None),
        (
            "with force it is tried on",
            looked(true, true),
            true,
            true,
            Reason::Draining,
            Some(RebootedIntoUpdate),
        ),
        ("uncordoned after its drain", looked(true, true), false, false, Reason::Cordoning, None),
    ] {
        let mut view = updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
        marked(&mut view, &drained);
        node(&mut view, |node| node.unschedulable = unschedulable);
        view.pods = pods;
        view.time.drain_overdue = true;
        let decision = decide(&FleetFacts { force, ..fleet() }, &view);
        assert_eq!((decision.reason, next_state(&decision)), (reason, next), "{says}");
        view.time.drain_overdue = false;
        let decision = decide(&FleetFacts { force, ..fleet() }, &view);
        assert!(!matches!(decision.reason, Reason::Aborting(_)), "in time: {says}");
    }
}

#[test]
fn after_the_claim_only_the_node_counts() {
    let drained = marker(1, true);
    let mut view = updating(RebootedIntoUpdate, StagedAndPerformedUpdate);
    marked(&mut view, &drained);
    shadow(&mut view, |shadow| {
        shadow.spec.reboot_from_boot_id = Some(FIRST_BOOT);
        shadow.status.reboot_requested = Some(FIRST_BOOT);
    });
    assert_eq!(decide(&fleet(), &view).reason, Reason::Rebooting);
    // Neither a deadline nor a person takes back a reboot that was claimed.
    view.time.step_overdue = true;
    node(&mut view, |node| node.paused = true);
    let decision = decide(&fleet(), &view);
    let sentence = decision.reason.message();
    assert_eq!((decision.effect, decision.reason.as_str()), (None, "RebootOverdue"));
    assert!(sentence.contains("reports from the same boot") && !sentence.contains("come back"), "{sentence}");
    node(&mut view, |node| node.agent_ready = false);
    let sentence = decide(&fleet(), &view).reason.message();
    assert!(sentence.contains("has not come back"), "{sentence}");
    node(&mut view, |node| node.agent_ready = true);
    view.time.step_overdue = false;

    rebooted(&mut view, NEW);
    node(&mut view, |node| node.ready = false);
    assert_eq!(decide(&fleet(), &view).reason, Reason::Rebooting);
    // Ready in the new boot: back into service, whether the agent has said anything or not.
    node(&mut view, |node| node.ready = true);
    let decision = decide(&fleet(), &view);
    assert_eq!(sets(write(&decision), Field::Unschedulable), Some(Value::Absent));
    let Some(Value::Marker(rest)) = sets(write(&decision), Field::Marker) else { panic!("no marker") };
    assert!(!rest.holds_changes() && !rest.evicted_owners.is_empty());

    let owners = rest.into_owned();
    node(&mut view, |node| {
        node.unschedulable = false;
        node.tainted = false;
        node.marker = Some(&owners);
    });
    assert_eq!(decide(&fleet(), &view).reason, Reason::NotReported);
    shadow(&mut view, |shadow| shadow.status.current_state = Some(RebootedIntoUpdate));
    assert_eq!(next_state(&decide(&fleet(), &view)), Some(MonitoringUpdate));
}

#[test]
fn a_finished_update_counts_once() {
    let mut view = updating(MonitoringUpdate, MonitoringUpdate);
    rebooted(&mut view, NEW);
    view.time.soak_over = false;
    assert_eq!(decide(&fleet(), &view).reason, Reason::Monitoring);
    view.time.soak_over = true;
    assert_eq!(next_state(&decide(&fleet(), &view)), Some(Idle));

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
fn upstreams_shadows_in_mid_update_are_adopted() {
    let mut view = updating(RebootedIntoUpdate, StagedAndPerformedUpdate);
    shadow(&mut view, |shadow| {
        shadow.spec.attempt = None;
        shadow.spec.baseline_boot_id = None;
        shadow.status.attempt = None;
    });
    node(&mut view, |node| node.unschedulable = true);
    let taken = slots(&without_slots(), &[view]).write.unwrap();
    assert!(matches!(sets(&taken, Field::Slot(SHADOW)), Some(Value::Slot(slot)) if slot.attempt == 1));
    let decision = decide(&fleet(), &view);
    let Some(Value::Marker(adopted)) = sets(write(&decision), Field::Marker) else { panic!("no marker") };
    assert!(adopted.cordoned_at.is_some() && adopted.drained_at.is_none());
    // Then it gets the slot's attempt, and is not uncordoned on the way.
    let adopted = adopted.into_owned();
    node(&mut view, |node| node.marker = Some(&adopted));
    let decision = decide(&fleet(), &view);
    assert_eq!(sets(write(&decision), Field::SpecAttempt), Some(Value::Number(1)));
    assert_eq!(sets(write(&decision), Field::Marker), None);
    // When it is drained then, the cordon is still ours to undo.
    shadow(&mut view, |shadow| {
        shadow.spec.attempt = Some(1);
        shadow.spec.baseline_boot_id = Some(FIRST_BOOT);
    });
    let decision = decide(&fleet(), &view);
    let Some(Value::Marker(draining)) = sets(write(&decision), Field::Marker) else { panic!("no marker") };
    assert!(draining.drain_started_at.is_some() && draining.cordoned_at == adopted.cordoned_at);
}

#[test]
fn upstreams_cordon_is_adopted_after_its_states() {
    let rows = [(StagedAndPerformedUpdate, false), (RebootedIntoUpdate, true), (MonitoringUpdate, true)];
    for (state, adopted) in rows {
        for (unschedulable, excluded) in [(true, false), (false, true), (true, true)] {
            let mut view = updating(state, StagedAndPerformedUpdate);
            shadow(&mut view, |shadow| (shadow.spec.attempt, shadow.status.attempt) = (None, None));
            node(&mut view, |node| (node.unschedulable, node.excluded) = (unschedulable, excluded));
            let decision = decide(&fleet(), &view);
            let marker = match sets(write(&decision), Field::Marker) {
                Some(Value::Marker(marker)) => Some(marker.into_owned()),
                _ => None,
            };
            let ours = (
                marker.as_ref().is_some_and(|marker| marker.cordoned_at.is_some()),
                marker.as_ref().is_some_and(|marker| marker.excluded_at.is_some()),
            );
            assert_eq!(ours, (adopted && unschedulable, adopted && excluded), "{state:?}");
            assert_eq!(marker.is_none(), sets(write(&decision), Field::SpecAttempt).is_some(), "{state:?}");
            assert_eq!(decision.reason, Reason::Starting(NEW), "it may not have to be emptied: {state:?}");
        }
    }
}

#[test]
fn upstreams_cordon_stays_where_the_label_is_gone() {
    for state in [StagedAndPerformedUpdate, RebootedIntoUpdate, MonitoringUpdate] {
        let mut view = updating(state, StagedAndPerformedUpdate);
        shadow(&mut view, |shadow| (shadow.spec.attempt, shadow.status.attempt) = (None, None));
        node(&mut view, |node| {
            (node.labelled, node.unschedulable, node.excluded) = (false, true, true);
            node.version = Some(if state == MonitoringUpdate { NEW } else { OLD });
        });
        let decision = decide(&fleet(), &view);
        assert_eq!(sets(write(&decision), Field::SpecAttempt), Some(Value::Number(1)), "{state:?}");
        shadow(&mut view, |shadow| {
            (shadow.spec.attempt, shadow.spec.baseline_boot_id) = (Some(1), Some(FIRST_BOOT));
        });
        let decision = decide(&fleet(), &view);
        assert_eq!(decision.reason, Reason::Aborting(Abort::NotLabelled), "{state:?}");
        assert_eq!(next_state(&decision), Some(Idle), "{state:?}");
    }
}

#[test]
fn an_adopted_updated_host_is_not_drained() {
    let mut view = updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
    node(&mut view, |node| node.version = Some(NEW));
    let decision = decide(&fleet(), &view);
    assert_eq!(next_state(&decision), Some(RebootedIntoUpdate));
    assert_eq!(sets(write(&decision), Field::SpecRebootFromBootId), None);

    let mut view = updating(RebootedIntoUpdate, RebootedIntoUpdate);
    node(&mut view, |node| node.version = Some(NEW));
    assert_eq!(next_state(&decide(&fleet(), &view)), Some(MonitoringUpdate));
}

#[test]
fn a_spent_claim_holds_up_no_grant() {
    let drained = marker(1, true);
    let mut view = updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
    marked(&mut view, &drained);
    view.pods.drained = true;
    shadow(&mut view, |shadow| shadow.status.reboot_requested = Some("an earlier boot"));
    let decision = decide(&fleet(), &view);
    let spent = (Field::StatusRebootRequested, Value::text("an earlier boot"));
    assert_eq!(next_state(&decision), Some(RebootedIntoUpdate));
    assert!(write(&decision).tests.contains(&spent));
}
