//! Who begins, and who leads.

use std::collections::BTreeMap;

use brupop_api::State::{Idle, RebootedIntoUpdate, StagedAndPerformedUpdate};
use brupop_api::crds::COUNTER_MAX;
use brupop_api::fleet::{BottlerocketFleet, BottlerocketFleetStatus, Halt, Slot, VersionRecord};
use brupop_api::{Field, Marker, Problem, State, Value, Write};
use brupop_apply::apply;
use serde_json::json;

use super::super::{
    Abort, Effect, LimitScope, Reason, UsedUp, counts, new_shadow, new_term, node as decide, slots,
};
use super::pool_halts::rules;
use super::world::{
    FIRST_BOOT, NEW, OLD, SECOND_BOOT, SHADOW, UID, fleet, idle, ledger, limited, marked, marker, node,
    outside, shadow, updating, without_slots,
};
use super::{next_state, sets, write};
use crate::facts::{FleetFacts, NodeView, PoolFacts, Steering};
use crate::window::{Starts, Until};

#[test]
fn nothing_is_written_without_our_term() {
    for ledger_term in [None, Some(3), Some(5)] {
        let fleet = FleetFacts { ledger_term, ..fleet() };
        assert_eq!(decide(&fleet, &idle()).effect, None);
        assert_eq!(slots(&fleet, &[idle()]).write, None);
    }
}

#[test]
fn the_label_decides_whether_there_is_a_shadow() {
    let mut view = idle();
    view.shadow = None;
    assert_eq!(decide(&fleet(), &view).effect, Some(Effect::CreateShadow { attempt: None }));
    // Made again in mid-update: at the next attempt, so that the old marker is over.
    let marker = marker(3, true);
    marked(&mut view, &marker);
    assert_eq!(decide(&fleet(), &view).effect, Some(Effect::CreateShadow { attempt: Some(4) }));

    let mut view = idle();
    node(&mut view, |node| node.labelled = false);
    assert_eq!(decide(&fleet(), &view).effect, Some(Effect::DeleteShadow { uid: UID }));
    view.shadow = None;
    assert_eq!(decide(&fleet(), &view).effect, None);
}

#[test]
fn the_shadow_of_an_earlier_node_goes() {
    let mut view = idle();
    view.owner_uid = Some("an earlier node");
    assert_eq!(decide(&fleet(), &view).effect, Some(Effect::DeleteShadow { uid: UID }));
    let mut view = idle();
    view.node = None;
    assert_eq!(decide(&fleet(), &view).effect, Some(Effect::DeleteShadow { uid: UID }));
}

#[test]
fn only_slots_that_are_taken_test_the_pause() {
    let generation = |write: &Write<'_>| write.tests.iter().any(|(field, _)| *field == Field::Generation);
    let fleet = without_slots();
    let taken = slots(&fleet, &[idle()]).write.unwrap();
    let ledger = ledger(&fleet);
    assert!(generation(&taken) && apply(&taken, &mut ledger.clone()).is_ok());
    let with = |change: fn(&mut BottlerocketFleet)| {
        let mut ledger = ledger.clone();
        change(&mut ledger);
        apply(&taken, &mut ledger)
    };
    assert!(with(|it| it.metadata.generation = Some(6)).is_err(), "a person has paused the fleet meanwhile");
    assert!(
        with(|it| it.metadata.uid = Some("u".into())).is_err(),
        "a person has made a new fleet meanwhile"
    );

    let mut over = idle();
    shadow(&mut over, |shadow| {
        (shadow.spec.attempt, shadow.status.attempt) = (Some(1), Some(1));
        shadow.status.target_version = Some(OLD);
    });
    let returned = slots(&super::world::fleet(), &[over]).write.unwrap();
    assert_eq!(sets(&returned, Field::Slot(SHADOW)), Some(Value::Absent));
    assert!(!generation(&returned));
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
#[test]
fn who_cannot_refresh_is_not_counted() {
    let counted = |target, problem| {
        let mut view = idle();
        shadow(&mut view, |it| (it.status.target_version, it.status.problem) = (target, problem));
        let counts = counts(&without_slots(), [(&view, None)].into_iter());
        (counts.nodes, counts.updated, counts.pending)
    };
    assert_eq!(counted(None, None), (1, 1, 0));
    assert_eq!(counted(None, Some(Problem::PrefetchFailed)), (1, 1, 0));
    assert_eq!(counted(None, Some(Problem::RefreshFailed)), (1, 0, 0));
    assert_eq!(counted(Some(NEW), Some(Problem::HostUnreachable)), (1, 0, 1));
}

const ROUTE: &str = "refresh failed with exit status 1: no route";
type Change = fn(&mut NodeView<'static>);

fn says(view: &mut NodeView<'static>, problem: Problem, message: Option<&'static str>) {
    shadow(view, |it| (it.status.problem, it.status.message) = (Some(problem), message));
}

#[test]
fn other_problems_hold_no_update_up() {
    for problem in Problem::ALL.into_iter().filter(|problem| !problem.prevents_update()) {
        let mut view = idle();
        // Not even in the words of another problem.
        says(&mut view, problem, Some(ROUTE));
        assert_eq!(decide(&without_slots(), &view).reason, Reason::LimitReached, "{problem}");
    }
}

#[test]
fn an_idle_node_says_why_it_waits() {
    let paused_after_failure: Change = |s| {
        s.time.backing_off = true;
        node(s, |n| n.paused = true);
    };
    let rows: [(&str, Change, Reason<'_>); 13] = [
        ("its agent's pod is not Ready", |s| node(s, |n| n.agent_ready = false), Reason::AgentSilent),
        ("not ready", |s| node(s, |n| n.ready = false), Reason::NodeNotReady),
        ("no report", |s| shadow(s, |w| w.status.current_version = None), Reason::NotReported),
        ("no report since its boot", |s| node(s, |n| n.boot_id = SECOND_BOOT), Reason::NotReported),
        ("no update", |s| shadow(s, |w| w.status.target_version = None), Reason::NoUpdate),
        ("already there", |s| shadow(s, |w| w.status.target_version = Some(OLD)), Reason::NoUpdate),
        (
            "cannot look for updates",
            |s| says(s, Problem::RefreshFailed, Some(ROUTE)),
            Reason::RefreshFailed(ROUTE),
        ),
        (
            "cannot ask its host",
            |s| says(s, Problem::HostUnreachable, Some("nobody answers")),
            Reason::HostUnreachable("nobody answers"),
        ),
        (
            "its host refuses to look, without a sentence",
            |s| says(s, Problem::CommandRefused, None),
            Reason::CommandRefused("CommandRefused"),
        ),
        ("its Node runs it already", |s| node(s, |n| n.version = Some(NEW)), Reason::NoUpdate),
        ("failed not long ago", |s| s.time.backing_off = true, Reason::BackingOff),
        ("paused by a person", |s| node(s, |n| n.paused = true), Reason::NodePaused),
        ("paused by a person after a failure", paused_after_failure, Reason::NodePaused),
    ];
    for (name, change, reason) in rows {
        let mut view = idle();
        change(&mut view);
        assert_eq!(decide(&without_slots(), &view).reason, reason, "{name}");
        assert_eq!(slots(&without_slots(), &[view]).write, None, "{name}");
        // A slot that was taken all the same is given back by way of a spent attempt.
        let decision = decide(&fleet(), &view);
        assert_eq!(sets(write(&decision), Field::SpecAttempt), Some(Value::Number(1)), "{name}");
        assert_eq!(sets(write(&decision), Field::SpecState), None, "{name}");
    }
}

/// The update was given up, and its host would boot into it, or cannot even be asked.
#[test]
fn who_cannot_undo_its_last_update_says_why() {
    for (problem, reason) in [
        (None, Reason::Finishing),
        (Some(Problem::StepFailed), Reason::Finishing),
        (Some(Problem::CannotDisarm), Reason::CannotDisarm(ROUTE)),
        (Some(Problem::HostUnreachable), Reason::HostUnreachable(ROUTE)),
        (Some(Problem::CommandRefused), Reason::CommandRefused(ROUTE)),
    ] {
        let mut view = idle();
        shadow(&mut view, |it| {
            (it.spec.attempt, it.status.attempt) = (Some(1), Some(1));
            it.status.current_state = Some(StagedAndPerformedUpdate);
            (it.status.problem, it.status.message) = (problem, Some(ROUTE));
        });
        // With the slot of this attempt, and without one.
        for fleet in [fleet(), without_slots()] {
            let decision = decide(&fleet, &view);
            assert_eq!((decision.reason, decision.effect), (reason, None), "{problem:?}");
        }
        assert_eq!(slots(&without_slots(), &[view]).write, None, "{problem:?}");
    }
}

#[test]
fn pause_window_and_admission_hold_new_updates_back() {
    let mut asked_for = idle();
    node(&mut asked_for, |node| node.update_now = true);
    let without = without_slots();
    for (closed, reason, is_asked) in [
        (FleetFacts { starts: Starts::Paused, ..without }, Reason::FleetPaused, false),
        (FleetFacts { default_pool: outside(), ..without }, Reason::OutsideWindow(Until::Unknown), true),
        (FleetFacts { starts: Starts::AdmissionNotEnforced, ..without }, Reason::AdmissionNotEnforced, false),
    ] {
        assert_eq!(decide(&closed, &idle()).reason, reason);
        assert_eq!(slots(&closed, &[idle()]).write, None);
        assert_eq!(slots(&closed, &[asked_for]).write.is_some(), is_asked, "{reason:?}");
    }
}

/// By the reason an agent knows whether to download ahead, which it does while it waits for a window.
#[test]
fn a_closed_window_hides_nothing_that_a_person_must_lift() {
    let closed = FleetFacts { default_pool: outside(), ..without_slots() };
    let until = Until::Unknown;
    let rules = rules(&json!({"versions": {"below": NEW}}));
    let [pools, not_allowed] = [None, Some(&rules)].map(|rules| [PoolFacts { rules, ..outside().clone() }]);
    for (says, fleet, reason) in [
        ("nothing else", closed, Reason::OutsideWindow(until)),
        (
            "not enforced",
            FleetFacts { starts: Starts::AdmissionNotEnforced, ..closed },
            Reason::OutsideWindow(until),
        ),
        ("the fleet is paused", FleetFacts { starts: Starts::Paused, ..closed }, Reason::FleetPaused),
        ("another operator", FleetFacts { alone: false, ..closed }, Reason::OtherOperator),
    ] {
        assert_eq!(decide(&fleet, &idle()).reason, reason, "{says}");
        let in_pool = FleetFacts { pools: &pools, ..fleet };
        let view = NodeView { steering: Steering::Pool(0), ..idle() };
        assert_eq!(decide(&in_pool, &view).reason, reason, "{says}, in a pool");
    }
    let view = NodeView { steering: Steering::Pool(0), ..idle() };
    let decision = decide(&FleetFacts { pools: &not_allowed, ..without_slots() }, &view);
    assert_eq!(decision.reason, Reason::VersionNotAllowed(NEW));
}

/// A pause and a closed window end what has begun before the node is cordoned, also if upstream's operator has begun it and
/// cordoned the node. Afterwards nothing does.
#[test]
fn what_is_not_cordoned_yet_is_given_up() {
    let paused = FleetFacts { starts: Starts::Paused, ..fleet() };
    let outside = FleetFacts { default_pool: outside(), ..fleet() };
    let unenforced = FleetFacts { starts: Starts::AdmissionNotEnforced, ..fleet() };
    let (given_up, goes_on, drains) =
        (Reason::Aborting(Abort::PoolClosed), Reason::Cordoning, Reason::Draining);
    let drained = marker(1, false);
    let taken_over = Marker { drain_started_at: None, tainted: false, emptied: false, ..drained.clone() };
    for (state, before) in [(StagedAndPerformedUpdate, None), (RebootedIntoUpdate, Some(&taken_over))] {
        for (says, fleet, not_cordoned, cordoned) in [
            ("open", fleet(), goes_on, drains),
            ("paused", paused, given_up, drains),
            ("outside its window", outside, given_up, drains),
            ("not enforced", unenforced, goes_on, drains),
        ] {
            for (mark, expected) in [(before, not_cordoned), (Some(&drained), cordoned)] {
                let mut view = updating(state, StagedAndPerformedUpdate);
                view.pods.drained = false;
                if let Some(mark) = mark {
                    marked(&mut view, mark);
                    node(&mut view, |node| node.unschedulable = true);
                }
                let decision = decide(&fleet, &view);
                assert_eq!(decision.reason, expected, "{says}, {state:?}, {mark:?}");
            }
        }
    }
}

#[test]
fn beside_another_operator_nothing_starts() {
    let beside = FleetFacts { alone: false, ..without_slots() };
    assert_eq!(decide(&beside, &idle()).reason, Reason::OtherOperator);
    let mut asked_for = idle();
    node(&mut asked_for, |node| node.update_now = true);
    assert_eq!(slots(&beside, &[idle(), asked_for]).write, None);
    // What the other one has begun is still its own; what we have begun without a slot, as after a loss of the ledger, is
    // ours.
    let ours = updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
    let mut others = ours;
    shadow(&mut others, |shadow| shadow.spec.attempt = None);
    assert_eq!(decide(&beside, &others).reason, Reason::OtherOperator);
    assert_eq!(slots(&beside, &[others]).write, None);
    assert!(slots(&without_slots(), &[others]).write.is_some());
    assert!(slots(&beside, &[ours]).write.is_some());
    assert!(decide(&FleetFacts { alone: false, ..fleet() }, &ours).effect.is_some());
}

#[test]
fn a_halted_version_is_not_begun() {
    let record = VersionRecord { halted: Some(Halt::default()), ..VersionRecord::default() };
    let versions = [(NEW.to_owned(), record)].into();
    let fleet = FleetFacts { versions: &versions, ..without_slots() };
    assert_eq!(decide(&fleet, &idle()).reason, Reason::VersionHalted(NEW));
}

#[test]
fn an_absent_node_counts_without_its_slot() {
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
fn update_now_ends_no_back_off() {
    let mut view = idle();
    node(&mut view, |node| node.update_now = true);
    view.time.backing_off = true;
    assert_eq!(slots(&without_slots(), &[view]).write, None);
}

#[test]
fn a_new_leader_has_the_highest_term() {
    let mut view = updating(StagedAndPerformedUpdate, Idle);
    shadow(&mut view, |shadow| shadow.spec.leader_term = Some(9));
    let ledger = BottlerocketFleetStatus { term: Some(4), ..BottlerocketFleetStatus::default() };
    let (term, take) = new_term(Some(&ledger), &[view]);
    assert_eq!(term, 10);
    assert_eq!(sets(&take, Field::Slot(SHADOW)), None, "the ledger knows its slots");
    // A lost ledger's slots are made again.
    let (term, take) = new_term(None, &[view]);
    assert_eq!(term, 10);
    let made_again = Slot { uid: UID.into(), attempt: 1, version: Some(NEW.into()), ..Slot::default() };
    assert_eq!(sets(&take, Field::Slot(SHADOW)), Some(Value::Slot(made_again)));
}

/// Found by chaos (seed 7012): a person had deleted the shadow of a node that was being updated, and then the ledger.
#[test]
fn a_node_of_ours_that_lost_shadow_and_ledger_has_a_slot() {
    let left = Marker { term: 12, ..marker(3, true) };
    let mut view = updating(RebootedIntoUpdate, StagedAndPerformedUpdate);
    marked(&mut view, &left);
    view.shadow = None;
    let (term, take) = new_term(None, &[view]);
    assert_eq!(term, 13);
    let node = view.node.unwrap();
    let slot = Slot { uid: node.uid.to_owned(), attempt: 3, ..Slot::default() };
    assert_eq!(sets(&take, Field::Slot(SHADOW)), Some(Value::Slot(slot)));
    let ledger = BottlerocketFleetStatus { term: Some(4), ..BottlerocketFleetStatus::default() };
    assert_eq!(sets(&new_term(Some(&ledger), &[view]).1, Field::Slot(SHADOW)), None, "it knows its slots");

    // Nothing is out of service any more: only the owners of evicted pods are remembered.
    let tidy = Marker { evicted_owners: vec!["apps/v1/ReplicaSet/a/b".into()], ..Marker::default() };
    marked(&mut view, &tidy);
    assert_eq!(sets(&new_term(None, &[view]).1, Field::Slot(SHADOW)), None);

    // What the ledger could not hold, as the term after the highest, must not keep everybody from leading.
    let [highest, beyond] = [COUNTER_MAX - 1, COUNTER_MAX].map(|term| Marker { term, ..marker(3, true) });
    marked(&mut view, &highest);
    assert_eq!(new_term(None, &[view]).0, COUNTER_MAX);
    marked(&mut view, &beyond);
    assert_eq!(new_term(None, &[view]).0, 1);
    let absurd = Marker { term: u64::MAX, attempt: u64::MAX, shadow_uid: "no UID".into(), ..marker(3, true) };
    marked(&mut view, &absurd);
    let (term, take) = new_term(None, &[view]);
    assert_eq!(term, 1);
    let Some(Value::Slot(slot)) = sets(&take, Field::Slot(SHADOW)) else { panic!("no slot: {take:?}") };
    assert_eq!((slot.uid.as_str(), slot.attempt), (node.uid, COUNTER_MAX));
}

#[test]
fn what_upstream_left_takes_slots_in_turn() {
    let mut views = [updating(RebootedIntoUpdate, StagedAndPerformedUpdate); 3];
    for (at, view) in views.iter_mut().enumerate() {
        shadow(view, |shadow| {
            shadow.name = ["brs-a", "brs-b", "brs-c"][at];
            shadow.spec.attempt = None;
            shadow.status.attempt = None;
        });
        view.shadow_name = ["brs-a", "brs-b", "brs-c"][at];
    }
    let (_, take) = new_term(None, &views);
    assert!(take.sets.iter().all(|(field, _)| !matches!(field, Field::Slot(_))), "{:?}", take.sets);
    let none = BTreeMap::new();
    let fleet = FleetFacts { slots: &none, default_pool: limited(2), ..fleet() };
    assert_eq!(slots(&fleet, &views).taken, [0, 1]);
    // One whose cordon a leader had begun to adopt when the ledger was lost keeps its slot.
    let adopted = marker(1, false);
    marked(&mut views[2], &adopted);
    let (_, take) = new_term(None, &views);
    assert!(matches!(sets(&take, Field::Slot("brs-c")), Some(Value::Slot(slot)) if slot.attempt == 1));
}

/// Left by upstream's operator in mid-update: wanted, whether its host runs the update, whether it is cordoned.
fn left(name: &'static str, state: State, updated: bool, cordoned: bool) -> NodeView<'static> {
    let mut view = updating(state, StagedAndPerformedUpdate);
    view.shadow_name = name;
    shadow(&mut view, |shadow| {
        shadow.name = name;
        (shadow.spec.attempt, shadow.status.attempt) = (None, None);
    });
    node(&mut view, |node| {
        node.version = Some(if updated { NEW } else { OLD });
        node.unschedulable = cordoned;
    });
    view
}

/// What is said, the limit, who is there, who gets a slot, why the others wait.
type Row<'r> = (&'static str, u64, &'r [NodeView<'r>], &'r [usize], Reason<'static>);

#[test]
fn who_is_out_of_service_goes_on_first() {
    fn away(mut view: NodeView<'_>) -> NodeView<'_> {
        node(&mut view, |node| node.ready = false);
        view
    }
    let staged = left("brs-a", StagedAndPerformedUpdate, false, false);
    let by_a_person = left("brs-b", StagedAndPerformedUpdate, false, true);
    let cordoned = left("brs-c", RebootedIntoUpdate, false, true);
    let updated = left("brs-d", RebootedIntoUpdate, true, true);
    let back = left("brs-d", RebootedIntoUpdate, true, false);
    let dead = NodeView { shadow_name: "brs-0", ..away(idle()) };
    let mut drained = NodeView { shadow_name: "brs-0", ..idle() };
    drained.time.cordoned_lately = true;
    let by = UsedUp { node: "n", limit: LimitScope::DefaultPool };
    let (by_limit, by_others) = (Reason::LimitReached, Reason::LimitUsedByUnavailableNodes(by));
    // Out of load balancers, and nothing else.
    let marker = Marker { excluded_at: Some("then".into()), ..Marker::default() };
    let mut excluded = left("brs-e", StagedAndPerformedUpdate, false, false);
    node(&mut excluded, |node| node.marker = Some(&marker));
    let rows: [Row<'_>; 16] = [
        ("updated before others", 1, &[staged, cordoned, updated], &[2], by_limit),
        ("then who is cordoned", 2, &[staged, cordoned, updated], &[2, 1], by_limit),
        ("then all", 3, &[staged, cordoned, updated], &[2, 1, 0], by_limit),
        ("none is allowed", 0, &[updated], &[], by_limit),
        ("updated beside a dead one", 1, &[dead, updated], &[1], by_limit),
        ("cordoned beside a dead one", 1, &[dead, cordoned], &[1], by_limit),
        ("out of load balancers beside a dead one", 1, &[dead, excluded], &[1], by_limit),
        ("updated and in service beside a dead one", 1, &[dead, back], &[1], by_limit),
        ("in service beside a dead one", 1, &[dead, staged], &[], by_others),
        ("a person's cordon before the reboot", 1, &[dead, by_a_person], &[], by_others),
        ("a dead one takes its part from those in service", 2, &[dead, staged, updated], &[2], by_limit),
        ("nobody beside somebody's drain", 1, &[drained, staged], &[], by_others),
        ("nor itself", 1, &[drained], &[], by_others),
        ("one more beside it", 2, &[drained, staged], &[1], by_limit),
        ("who cannot come back now lets those pass who can", 1, &[away(cordoned), updated], &[1], by_limit),
        ("and those who download", 2, &[staged, away(cordoned)], &[0], by_limit),
    ];
    for (says, limit, views, taken, why) in rows {
        let fleet = FleetFacts { default_pool: limited(limit), ..without_slots() };
        let chosen = slots(&fleet, views);
        assert_eq!(chosen.taken, taken, "{says}");
        assert!(chosen.queued.iter().all(|(_, reason)| *reason == why), "{says}: {:?}", chosen.queued);
    }
}

/// Also for nodes that no pool selects, the fleet's limit may be the lower one.
#[test]
fn the_lower_limit_is_named() {
    let mut dead = NodeView { shadow_name: "brs-0", ..idle() };
    node(&mut dead, |node| node.ready = false);
    for (of_fleet, of_pool, limit) in
        [(1, 1, LimitScope::Fleet), (1, 3, LimitScope::Fleet), (9, 1, LimitScope::DefaultPool)]
    {
        let fleet = FleetFacts { ceiling: of_fleet, default_pool: limited(of_pool), ..without_slots() };
        let chosen = slots(&fleet, &[dead, NodeView { shadow_name: "brs-1", ..idle() }]);
        let why = Reason::LimitUsedByUnavailableNodes(UsedUp { node: "n", limit });
        assert!(chosen.queued.iter().any(|(_, reason)| *reason == why), "{:?}", chosen.queued);
    }
}

/// The agent's image is still being pulled there. A node that is out of service needs no agent to come back.
#[test]
fn what_upstream_staged_waits_for_its_agent() {
    use Reason::{AgentSilent, LimitReached};
    let unlabelled = {
        let mut view = left("brs-n", StagedAndPerformedUpdate, false, false);
        node(&mut view, |node| node.labelled = false);
        view
    };
    for (view, agent_ready, taken, why) in [
        (left("brs-n", StagedAndPerformedUpdate, false, false), true, true, LimitReached),
        (left("brs-n", StagedAndPerformedUpdate, false, false), false, false, AgentSilent),
        (left("brs-n", StagedAndPerformedUpdate, false, true), false, false, AgentSilent),
        (left("brs-n", StagedAndPerformedUpdate, true, false), false, true, LimitReached),
        (left("brs-n", RebootedIntoUpdate, false, true), false, true, LimitReached),
        (unlabelled, false, true, LimitReached),
    ] {
        let mut view = view;
        node(&mut view, |node| node.agent_ready = agent_ready);
        let found = (slots(&without_slots(), &[view]).taken == [0], decide(&without_slots(), &view).reason);
        assert_eq!(found, (taken, why), "{view:?}");
    }
}

#[test]
fn a_new_shadow_is_idle_and_its_nodes() {
    let shadow =
        serde_json::to_value(new_shadow("n", "node-uid", Some(3), 7, "2026-11-21T04:00:00Z")).unwrap();
    assert_eq!(shadow["metadata"]["name"], "brs-n");
    assert_eq!(
        shadow["metadata"]["labels"],
        json!({"app.kubernetes.io/component": "brupop-shadow", "app.kubernetes.io/managed-by": "brupop",
            "app.kubernetes.io/part-of": "brupop"})
    );
    assert_eq!(
        shadow["metadata"]["ownerReferences"],
        json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "node-uid"}])
    );
    assert_eq!(
        shadow["spec"],
        json!({"state": "Idle", "attempt": 3, "leader_term": 7,
            "state_transition_timestamp": "2026-11-21T04:00:00Z"})
    );
}
