//! How long an updated node keeps the annotations that keep autoscalers away.

use std::collections::BTreeMap;

use brupop_api::Marker;
use brupop_api::State::{Idle, MonitoringUpdate, RebootedIntoUpdate, StagedAndPerformedUpdate};
use brupop_api::fleet::VersionRecord;
use serde_json::json;

use super::pool_halts::{placed, pool, rules, updated};
use super::world::*;
use super::*;
use crate::decide::{Milestone, fleet as decide_all, node as decide, slots};
use crate::facts::Observed;
use crate::facts::{BetweenUpdates, ClosedGate, FleetFacts, NodeView, Steering, is_unavailable};
use crate::objects::Words;
use crate::window::Starts;

/// Of a node with both annotations, in service since `kept_since`, or in mid-update.
fn with_annotations(marker: Marker) -> Marker {
    Marker { do_not_disrupt: true, scale_down_disabled: true, ..marker }
}

fn kept_marker() -> Marker {
    let since = Some("2026-11-21T03:00:00Z".to_owned());
    with_annotations(Marker {
        shadow_uid: "brs-a".to_owned(),
        attempt: 1,
        kept_since: since,
        ..Marker::default()
    })
}

/// Updated, Idle, and kept by this marker.
fn kept(marker: &Marker) -> NodeView<'_> {
    let mut view: NodeView<'_> = updated("brs-a", 0, None);
    node(&mut view, |node| {
        node.marker = Some(marker);
        (node.do_not_disrupt, node.scale_down_disabled) = (Some(Words::Ours), Some(Words::Ours));
    });
    shadow(&mut view, |shadow| (shadow.spec.attempt, shadow.status.attempt) = (Some(1), Some(1)));
    node(&mut view, |node| node.boot_id = FIRST_BOOT);
    view.steering = Steering::Default;
    view
}

/// Does this write let autoscalers have the node?
fn releases(write: &Write<'_>) -> bool {
    let gone = [Field::DoNotDisrupt, Field::ScaleDownDisabled].map(|field| sets(write, field));
    gone.iter().all(|value| *value == Some(Value::Absent))
}

#[test]
fn an_updated_node_comes_back_with_its_annotations() {
    let both = Some(Words::Ours);
    // It runs what it was to run; or it fell back; or it was empty before.
    for (version, emptied, stay) in [(NEW, true, true), (OLD, true, false), (NEW, false, false)] {
        let drained = Marker { emptied, ..with_annotations(marker(1, true)) };
        let mut view = updating(RebootedIntoUpdate, RebootedIntoUpdate);
        marked(&mut view, &drained);
        node(&mut view, |node| (node.do_not_disrupt, node.scale_down_disabled) = (both, both));
        rebooted(&mut view, version);
        let back = decide(&fleet(), &view);
        assert_eq!(back.reason.as_str(), "ReturningToService");
        assert_eq!(sets(write(&back), Field::Unschedulable), Some(Value::Absent));
        let Some(Value::Marker(rest)) = sets(write(&back), Field::Marker) else { panic!("no marker") };
        assert_eq!((releases(write(&back)), rest.is_kept()), (!stay, stay), "{version} {emptied}");
        assert_eq!(rest.kept_since.as_deref(), stay.then_some(fleet().now));
        let rest = rest.into_owned();
        assert!(!rest.holds_changes() && !rest.evicted_owners.is_empty());
        // It is monitored like any other.
        node(&mut view, |node| {
            (node.unschedulable, node.tainted, node.marker) = (false, false, Some(&rest));
        });
        assert!(!is_unavailable(&view));
        if stay {
            shadow(&mut view, |shadow| shadow.spec.state = MonitoringUpdate);
            shadow(&mut view, |shadow| shadow.status.current_state = Some(MonitoringUpdate));
            assert_eq!(next_state(&decide(&fleet(), &view)), Some(Idle));
        }
    }
}

#[test]
fn a_kept_node_holds_up_nothing() {
    let marker = kept_marker();
    let mut view = kept(&marker);
    let held = slot("brs-a", "brs-a", 1);
    let over = slots(&FleetFacts { slots: &held, ..fleet() }, &[view]);
    assert_eq!(over.freed.len(), 1, "its slot is given back");
    shadow(&mut view, |shadow| shadow.status.target_version = Some("1.21.0"));
    assert_eq!(slots(&without_slots(), &[view]).taken, [0], "its next update begins");
}

/// What the only other node does.
#[derive(Clone, Copy, Debug)]
enum Other {
    Waits,
    IsUnknown,
    HasItsSlot,
    IsDrained,
    IsMonitored,
    IsTooYoung,
    IsTooYoungForAnother,
    WaitsForAnother,
    IsOfAnotherPool,
    IsNotReady,
    IsNew,
}

#[test]
fn the_annotations_stay_while_pods_of_others_need_room() {
    use Other::*;
    type Change = fn(&mut NodeView<'_>, &mut FleetFacts<'_>);
    let unchanged: Change = |_, _| ();
    let paused: Change = |_, fleet| fleet.starts = Starts::Paused;
    let pausing: Change = |_, fleet| fleet.between_updates = BetweenUpdates::Pausing;
    let outside: Change = |_, fleet| fleet.default_pool = outside();
    let unlabelled: Change = |view, _| node(view, |node| node.labelled = false);
    let lost: Change = |view, _| {
        node(view, |node| node.ready = false);
        view.time.kept_is_lost = true;
    };
    let away: Change = |view, _| node(view, |node| node.ready = false);
    let for_long: Change = |view, _| view.time.kept_for_long = true;
    for (other, change, stay) in [
        (Waits, pausing, true),
        (Waits, unchanged, true),
        (HasItsSlot, unchanged, true),
        (IsDrained, unchanged, true),
        (IsUnknown, unchanged, true),
        (IsMonitored, unchanged, true),
        (IsTooYoung, unchanged, true),
        (IsTooYoungForAnother, unchanged, false),
        (WaitsForAnother, unchanged, false),
        (IsOfAnotherPool, unchanged, false),
        (IsNotReady, unchanged, false),
        (IsNew, unchanged, false),
        (Waits, outside, false),
        (Waits, away, true),
        (Waits, for_long, false),
        (HasItsSlot, for_long, false),
        (HasItsSlot, paused, false),
        (HasItsSlot, unlabelled, false),
        (HasItsSlot, lost, false),
    ] {
        let (marker, drained) = (kept_marker(), marker(1, true));
        let mut b = placed("brs-b", 0, None);
        let mut its = BTreeMap::new();
        if matches!(other, HasItsSlot | IsDrained | IsMonitored) {
            its = slot("brs-b", "brs-b", 1);
            for slot in its.values_mut() {
                slot.version = Some(NEW.to_owned());
            }
            let state = match other {
                HasItsSlot => StagedAndPerformedUpdate,
                IsDrained => RebootedIntoUpdate,
                _ => MonitoringUpdate,
            };
            shadow(&mut b, |shadow| {
                shadow.spec.state = state;
                (shadow.spec.attempt, shadow.spec.version) = (Some(1), Some(NEW));
                shadow.spec.baseline_boot_id = Some(FIRST_BOOT);
            });
        }
        match other {
            IsUnknown => b.pods.known = false,
            IsDrained => marked(&mut b, &drained),
            IsMonitored => rebooted(&mut b, NEW),
            IsTooYoung | IsTooYoungForAnother => b.time.young = true,
            _ => {}
        }
        match other {
            IsTooYoungForAnother | WaitsForAnother => {
                shadow(&mut b, |shadow| shadow.status.target_version = Some("1.21.0"));
            }
            IsNotReady => node(&mut b, |node| node.ready = false),
            IsNew => b = updated("brs-b", 0, None),
            _ => {}
        }
        let in_pool = matches!(other, IsOfAnotherPool);
        b.steering = if in_pool { Steering::Pool(0) } else { Steering::Default };
        let mut views = vec![kept(&marker), b];
        let open = rules(&json!({}));
        let pools = [pool("other", &open)];
        let mut fleet = FleetFacts { slots: &its, pools: &pools, default_pool: limited(1), ..fleet() };
        change(&mut views[0], &mut fleet);
        assert_eq!(released(fleet, views), !stay, "{other:?}");
    }
}

/// Are the annotations of the first of these nodes given back now?
fn released(fleet: FleetFacts<'_>, views: Vec<NodeView<'_>>) -> bool {
    let (unreadable, too_long) = (BTreeMap::new(), vec![]);
    let observed = Observed { fleet, views, unreadable, too_long, not_opted_in: 0, next: None };
    let decided = decide_all(&observed);
    let decision = &decided.nodes[0];
    decision.effect.is_some() && releases(write(decision))
}

#[test]
fn a_pause_or_halt_of_its_pool_gives_the_annotations_back() {
    let (marker, open) = (kept_marker(), rules(&json!({})));
    let halted: VersionRecord =
        serde_json::from_value(json!({"halted": {"at": "2026-11-21T02:00:00Z", "reason": ""}})).unwrap();
    let in_fleet = BTreeMap::from([(NEW.to_owned(), halted.clone())]);
    let in_pool = BTreeMap::from([(format!("web/{NEW}"), halted)]);
    let (none, its) = (BTreeMap::new(), slot("brs-a", "brs-a", 1));
    for (gate, versions, pool_versions, gone) in [
        (Starts::Open, &none, &none, false),
        (Starts::Paused, &none, &none, true),
        (Starts::Open, &in_fleet, &none, true),
        (Starts::Open, &none, &in_pool, true),
    ] {
        let mut web = pool("web", &open);
        web.starts = gate;
        let pools = [web];
        let fleet = FleetFacts { slots: &its, pools: &pools, versions, pool_versions, ..fleet() };
        let mut view = kept(&marker);
        // It is still watched.
        view.steering = Steering::Pool(0);
        shadow(&mut view, |shadow| {
            shadow.spec.state = MonitoringUpdate;
            shadow.spec.version = Some(NEW);
        });
        view.time.soak_over = false;
        assert_eq!(released(fleet, vec![view]), gone, "{gate:?} {versions:?} {pool_versions:?}");
    }
}

#[test]
fn the_release_is_one_write_that_leaves_no_marker() {
    let owners = Marker { evicted_owners: vec!["apps/v1/ReplicaSet/shop/cart".to_owned()], ..kept_marker() };
    let view = kept(&owners);
    let (unreadable, too_long) = (BTreeMap::new(), vec![]);
    let observed = Observed {
        fleet: without_slots(),
        views: vec![view],
        unreadable,
        too_long,
        not_opted_in: 0,
        next: None,
    };
    let decided = decide_all(&observed);
    let release = write(&decided.nodes[0]);
    assert!(releases(release));
    assert_eq!(sets(release, Field::Marker), Some(Value::Absent), "nobody watches the owners any more");
    // A leader whose term is not in the ledger writes nothing.
    let deposed = FleetFacts { ledger_term: Some(5), ..without_slots() };
    assert!(!released(deposed, vec![kept(&owners)]));
    // What somebody else has written since stays.
    let mut theirs = kept(&owners);
    node(&mut theirs, |node| node.do_not_disrupt = Some(Words::Others));
    let observed = Observed { views: vec![theirs], ..observed };
    let decided = decide_all(&observed);
    assert_eq!(sets(write(&decided.nodes[0]), Field::DoNotDisrupt), None);
}

#[test]
fn a_node_that_is_removed_soon_after_its_update_is_told() {
    let told = |state, ran, soon| {
        let mut view = updating(state, state);
        shadow(&mut view, |shadow| shadow.status.current_version = Some(ran));
        (view.node, view.time.removed_soon) = (None, soon);
        decide(&fleet(), &view).milestone == Some(Milestone::Removed)
    };
    for (state, ran, soon, expected) in [
        (Idle, NEW, true, true),
        (MonitoringUpdate, NEW, true, true),
        (Idle, NEW, false, false),
        (Idle, OLD, true, false),
        (StagedAndPerformedUpdate, NEW, true, false),
    ] {
        assert_eq!(told(state, ran, soon), expected, "{state:?} {ran} {soon}");
    }
}

/// The other node's update begins once this is over, which ends by itself: the emptied node is needed then.
#[test]
fn what_ends_by_itself_releases_nothing() {
    type Change = fn(&mut NodeView<'_>, &mut FleetFacts<'_>);
    let hindrances: [(&str, Change, Option<ClosedGate<'_>>); 7] = [
        ("rules not tried out by a new leader", |_, fleet| fleet.starts = Starts::AdmissionNotEnforced, None),
        ("other operator not looked for by a new leader", |_, fleet| fleet.alone = false, None),
        ("budget", |view, _| view.pods.blocked = Some("shop/cart"), None),
        ("control plane", |view, _| view.busy_control_plane = Some("c"), None),
        ("agent restarts", |view, _| node(view, |node| node.agent_ready = false), None),
        ("gate not asked by a new leader", |_, _| (), Some(ClosedGate::Awaited("quiet"))),
        ("gate", |_, _| (), Some(ClosedGate::Closed("quiet"))),
    ];
    let (marker, none, open) = (kept_marker(), BTreeMap::new(), rules(&json!({})));
    for (what, change, gate) in hindrances {
        let (mut a, mut b) = (kept(&marker), placed("brs-b", 0, None));
        let mut web = pool("web", &open);
        web.gate = gate;
        let pools = [web];
        let mut fleet = FleetFacts { slots: &none, pools: &pools, default_pool: limited(1), ..fleet() };
        (a.steering, b.steering) = (Steering::Pool(0), Steering::Pool(0));
        change(&mut b, &mut fleet);
        assert!(!released(fleet, vec![a, b]), "{what}");
        a.time.kept_for_long = true;
        assert!(released(fleet, vec![a, b]), "{what}, for long");
    }
}
