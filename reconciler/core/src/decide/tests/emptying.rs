//! What is left on a node that is being emptied, what is kept away from it, and what its Node has to say.

use brupop_api::State::{MonitoringUpdate, RebootedIntoUpdate, StagedAndPerformedUpdate};
use brupop_api::marker::Before;
use brupop_api::{Field, Marker, Value};

use super::super::{Abort, Decision, Effect, Reason, node as decide};
use super::world::{NEW, OLD, fleet, idle, marked, marker, node, rebooted, updating, without_slots};
use super::{sets, write};
use crate::facts::{FleetFacts, PodFacts};
use crate::objects::Words;

/// The marker that the decision writes.
fn written(decision: &Decision<'_>) -> Marker {
    let Some(Value::Marker(marker)) = sets(write(decision), Field::Marker) else { panic!("{decision:?}") };
    marker.into_owned()
}

#[test]
fn the_cordon_notes_how_workloads_are() {
    let owners = ["apps/v1/ReplicaSet/shop/cart".to_owned()];
    let before = [Before { available: 3, revision: None }];
    let mut view = updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
    (view.pods.owners, view.pods.owners_before) = (&owners, &before);
    let marker = written(&decide(&fleet(), &view));
    assert_eq!(marker.evicted().collect::<Vec<_>>(), [(&owners[0], Some(&before[0]))]);
}

#[test]
fn returning_pods_are_left_or_end_drain() {
    let cordoned = marker(1, false);
    let owners = ["apps/v1/ReplicaSet/shop/cart".to_owned()];
    let mut view = updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
    marked(&mut view, &cordoned);
    view.pods.returning = &owners;
    let decision = decide(&fleet(), &view);
    assert_eq!((written(&decision).left_owners, decision.reason), (owners.to_vec(), Reason::Draining));
    assert!(write(&decision).tests.contains(&(Field::Unschedulable, Value::Set)));

    let full =
        Marker { left_owners: (0..8).map(|it| format!("v1/Pod/shop/{it}")).collect(), ..cordoned.clone() };
    marked(&mut view, &full);
    assert_eq!(decide(&fleet(), &view).reason, Reason::Aborting(Abort::PodsComeBack), "one more");

    let left = Marker { left_owners: owners.to_vec(), ..marker(1, false) };
    let drained = Marker { drained_at: Some(fleet().now.to_owned()), ..left.clone() };
    view.pods = PodFacts { known: true, drained: true, needed: Some("shop/cart-0"), ..PodFacts::default() };
    for marker in [&left, &drained] {
        marked(&mut view, marker);
        let forced = FleetFacts { force: true, ..fleet() };
        for (fleet, overdue, reason, confirms) in [
            (fleet(), false, Reason::Aborting(Abort::PodsComeBack), false),
            (forced, false, Reason::Draining, false),
            (forced, true, Reason::Draining, true),
        ] {
            view.time.drain_overdue = overdue;
            let decision = decide(&fleet, &view);
            let confirmed = matches!(decision.effect, Some(Effect::Grant { .. }));
            let evicts = decision.effect == Some(Effect::Evict);
            assert_eq!(evicts, fleet.force && !overdue, "others go meanwhile, as their budgets allow");
            assert_eq!((decision.reason, confirmed), (reason, confirms), "force {} {overdue}", fleet.force);
        }
    }
    view.time.drain_overdue = false;
    node(&mut view, |node| node.unschedulable = false);
    view.pods.needed = None;
    assert!(written(&decide(&fleet(), &view)).left_owners.is_empty(), "a drain again");
}

#[test]
fn a_reboot_waits_for_volumes_and_not_for_ever() {
    let granted = |in_use: bool, overdue: bool, force: bool, marker: &Marker| {
        let mut view = updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
        marked(&mut view, marker);
        view.pods = PodFacts { known: true, drained: true, ..PodFacts::default() };
        node(&mut view, |node| node.volumes_in_use = in_use);
        view.time.volumes_overdue = overdue;
        let decision = decide(&FleetFacts { force, ..fleet() }, &view);
        assert_eq!(decision.effect.is_none(), decision.reason == Reason::VolumesInUse, "{decision:?}");
        matches!(decision.effect, Some(Effect::Grant { .. }))
    };
    for (drained, force) in [(false, false), (true, false), (false, true)] {
        let marker = marker(1, drained);
        assert!(!granted(true, false, force, &marker), "volumes are still attached");
        assert!(granted(true, true, force, &marker), "it has waited for long enough");
        assert!(granted(false, false, force, &marker), "they are detached");
    }
}

#[test]
fn our_pods_are_listed_before_eviction() {
    let cordoned = marker(1, false);
    let uids = ["uid-webhook".to_owned()];
    let mut view = updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
    marked(&mut view, &cordoned);
    view.pods.operator_pods = &uids;
    assert_eq!(written(&decide(&fleet(), &view)).operator_pods, uids);
}

#[test]
fn autoscalers_are_kept_away_while_cordoned() {
    let kept = [Field::DoNotDisrupt, Field::ScaleDownDisabled];
    let somebodys = Some(Words::Others);
    for there in [[None, None], [somebodys, None], [None, somebodys], [None, Some(Words::Ours)]] {
        let mut view = updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
        node(&mut view, |node| [node.do_not_disrupt, node.scale_down_disabled] = there);
        let decision = decide(&fleet(), &view);
        assert_eq!(decision.reason, Reason::Cordoning);
        let marker = written(&decision);
        assert_eq!([marker.do_not_disrupt, marker.scale_down_disabled], there.map(|it| it.is_none()));
        for (field, there) in kept.into_iter().zip(there) {
            assert_eq!(sets(write(&decision), field), there.is_none().then_some(Value::Set), "{field:?}");
            assert_eq!(
                write(&decision).tests.contains(&(field, Value::Absent)),
                there.is_none(),
                "{field:?}"
            );
        }

        // What was there before stays, and so does what somebody has changed since.
        let mut back = updating(RebootedIntoUpdate, RebootedIntoUpdate);
        marked(&mut back, &marker);
        node(&mut back, |node| {
            [node.do_not_disrupt, node.scale_down_disabled] = there.map(|it| it.or(Some(Words::Ours)));
        });
        let mut away = back;
        rebooted(&mut back, OLD);
        let decision = decide(&fleet(), &back);
        assert_eq!(decision.reason, Reason::ReturningToService);
        for (field, there) in kept.into_iter().zip(there) {
            assert_eq!(sets(write(&decision), field), there.is_none().then_some(Value::Absent), "{field:?}");
        }
        node(&mut back, |node| [node.do_not_disrupt, node.scale_down_disabled] = [somebodys; 2]);
        let decision = decide(&fleet(), &back);
        assert!(kept.into_iter().all(|field| sets(write(&decision), field).is_none()), "{decision:?}");

        // A host that does not come back is for them to replace, once.
        rebooted(&mut away, OLD);
        node(&mut away, |node| node.ready = false);
        assert_eq!(decide(&fleet(), &away).effect, None);
        away.time.step_overdue = true;
        let decision = decide(&fleet(), &away);
        assert_eq!(decision.reason.as_str(), "RebootOverdue");
        for (field, there) in kept.into_iter().zip(there) {
            assert_eq!(sets(write(&decision), field), there.is_none().then_some(Value::Absent), "{field:?}");
        }
        let after = written(&decision);
        assert_eq!(after, Marker { do_not_disrupt: false, scale_down_disabled: false, ..marker.clone() });
        marked(&mut away, &after);
        assert_eq!(decide(&fleet(), &away).effect, None);
    }
}

#[test]
fn the_node_tells_what_runs() {
    let mut view = idle();
    node(&mut view, |node| node.version = None);
    assert_eq!(decide(&without_slots(), &view).reason, Reason::NotBottlerocket);
    assert!(!Abort::is_corroborated(Abort::NotBottlerocket.as_str()));
    for goal in [RebootedIntoUpdate, MonitoringUpdate] {
        let mut view = updating(goal, goal);
        rebooted(&mut view, NEW);
        node(&mut view, |node| node.version = None);
        assert_eq!(decide(&fleet(), &view).reason, Reason::Aborting(Abort::NotBottlerocket), "{goal:?}");
    }
    let mut leaving = idle();
    node(&mut leaving, |node| node.leaving = true);
    assert_eq!(decide(&without_slots(), &leaving).reason, Reason::NodeLeaving);
}
