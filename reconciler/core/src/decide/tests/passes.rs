//! Properties of every pass over any fleet: from real objects to decisions, and to the objects after them.

use std::collections::BTreeSet;

use brupop_api::conditions::ConditionStatus;
use brupop_api::fleet::{BottlerocketFleetStatus, VersionRecord};
use brupop_api::{Field, Object, State, Value, Write};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use super::fleets::{Fleet, never};
use super::{Decided, allocate, decide, records_of};
use crate::decide::{Abort, Reason, Step};
use crate::facts::NodeView;
use crate::window::Starts;

/// Most passes until a reconciler has done all that it can do by itself.
const PASSES_MAX: usize = 16;

pub(super) fn fleet() -> impl Strategy<Value = Fleet> {
    // A zero chooses what is usual. Of a union each byte would have a generator of its own, which costs more than a pass.
    let tame = any::<u16>().prop_map(|it| if it < 0xc000 { 0 } else { it.to_le_bytes()[0] });
    let row = || {
        prop_oneof![
            prop::collection::vec(tame.clone(), 96),
            prop::collection::vec(any::<u8>(), 96)
        ]
    };
    (prop::collection::vec(row(), 1..6), row()).prop_map(|(nodes, all)| Fleet::of(&nodes, &all))
}

/// Names of the shadows that get a slot, or one for another attempt.
pub(super) fn taken(
    before: &BottlerocketFleetStatus,
    write: Option<&Write<'_>>,
) -> BTreeSet<String> {
    let sets = write.into_iter().flat_map(|write| &write.sets);
    sets.filter_map(|(field, value)| match (field, value) {
        (Field::Slot(name), Value::Slot(slot)) => {
            let held = before
                .slots
                .get(*name)
                .is_some_and(|it| (&it.uid, it.attempt) == (&slot.uid, slot.attempt));
            (!held).then(|| (*name).to_owned())
        }
        _ => None,
    })
    .collect()
}

/// The records of versions after this write.
pub(super) fn records(
    before: &BottlerocketFleetStatus,
    write: Option<&Write<'_>>,
) -> Vec<VersionRecord> {
    write
        .and_then(records_of)
        .unwrap_or_else(|| before.versions.clone())
}

pub(super) fn is_idle(view: &NodeView<'_>) -> bool {
    view.shadow
        .is_some_and(|shadow| shadow.spec.state == State::Idle)
}

/// Returns what is done although the condition does not say that the node moves.
fn is_house_keeping(decision: &Decided<'_>, view: &NodeView<'_>) -> bool {
    match (&decision.step, &decision.write, &decision.reason) {
        (
            Some(Step::CreateShadow { .. }),
            _,
            Reason::AgentNotReported | Reason::NodeChangesDenied(_),
        )
        | (
            Some(Step::DeleteShadow),
            _,
            Reason::NodeGone
            | Reason::NodeReplaced
            | Reason::NotLabelled
            | Reason::NodeChangesDenied(_),
        ) => true,
        // Changes left on a node that is no longer opted in.
        (_, Some(write), Reason::NotLabelled) => {
            matches!(write.object, Object::Node(_))
        }
        // It is tried, and refused.
        (_, Some(write), Reason::NodeChangesDenied(_)) => {
            only_undoes(write) || matches!(write.object, Object::ShadowSpec(_))
        }
        // A slot that is not wanted after all; the reason is why it is not.
        (_, Some(write), _) => {
            is_idle(view) && write.sets.contains(&(Field::SpecVersion, Value::Absent))
        }
        _ => false,
    }
}

/// Whether this write of a Node only undoes our changes.
fn only_undoes(write: &Write<'_>) -> bool {
    write
        .sets
        .iter()
        .all(|(field, value)| *field == Field::Marker || *value == Value::Absent)
}

/// Otherwise the properties would say little.
#[test]
fn random_fleets_get_everywhere() {
    let mut runner = TestRunner::deterministic();
    let all = Reason::WORDS
        .iter()
        .copied()
        .filter(|word| !["NotLeading", "NotUnderstood", "TooManyPools"].contains(word));
    let others = [
        "a slot is taken",
        "a version is halted",
        "a reboot is granted",
    ];
    let mut missing: BTreeSet<&str> = all.chain(others).collect();
    for _ in 0..16384 {
        if missing.is_empty() {
            break;
        }
        let fleet = fleet().new_tree(&mut runner).unwrap().current();
        let cluster = fleet.cluster();
        let observed = fleet.observe(&cluster);
        let chosen = allocate(&observed.fleet, &observed.views);
        let decided = observed.decide().nodes;
        let grants = decided.iter().any(|it| it.step == Some(Step::Grant));
        let met = [!chosen.taken.is_empty(), !chosen.halted.is_empty(), grants];
        let reasons = decided.iter().map(|it| it.reason);
        missing.retain(|word| {
            others
                .iter()
                .zip(met)
                .all(|(other, met)| !met || other != word)
        });
        for reason in reasons {
            missing.remove(reason.as_str());
        }
    }
    assert!(missing.is_empty(), "never met: {missing:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Each write holds on what it was decided on and changes it, and a reconciler that is left alone comes to rest.
    #[test]
    fn what_was_done_is_not_done_again(fleet in fleet()) {
        let mut fleet = fleet;
        for pass in 0.. {
            let before = fleet.clone();
            let cluster = before.cluster();
            let observed = before.observe(&cluster);
            let mut acts = false;
            if let Some(write) = allocate(&observed.fleet, &observed.views).write {
                fleet.write_ledger(&write);
                acts = true;
            } else {
                for view in &observed.views {
                    acts |= fleet.carry_out(view.shadow_name, &decide(&observed.fleet, view));
                }
            }
            if !acts {
                break;
            }
            prop_assert!(pass < PASSES_MAX, "it goes on and on: {:?}", fleet);
        }
    }

    #[test]
    fn a_node_that_is_touched_says_so(fleet in fleet()) {
        let cluster = fleet.cluster();
        let observed = fleet.observe(&cluster);
        let chosen = allocate(&observed.fleet, &observed.views);
        for (index, view) in observed.views.iter().enumerate() {
            let decision = decide(&observed.fleet, view);
            let reason = decision.reason;
            prop_assert!(Reason::WORDS.contains(&reason.as_str()), "{reason:?}");
            prop_assert!(!reason.message().is_empty(), "{reason:?}");
            let moves = reason.status() == ConditionStatus::True;
            let house_keeping = is_house_keeping(&decision, view);
            prop_assert!(decision.step.is_none() || moves || house_keeping, "{decision:?}");
            // Nodes that wait for a slot wait in one queue, and for nothing else.
            let queued = chosen.queued.iter().filter(|(queued, _)| *queued == index).count();
            prop_assert!(queued <= 1 && (queued == 0 || !chosen.taken.contains(&index)));
            let waits = matches!(reason, Reason::LimitReached | Reason::CheckingPods) && decision.step.is_none() && is_idle(view);
            prop_assert!(!waits || queued + usize::from(chosen.taken.contains(&index)) == 1
                || chosen.halted.iter().any(|halted| view.shadow.is_some_and(|shadow| shadow.update() == Some(&halted.version)))
                || view.node.is_some_and(|node| node.marker.is_some())
                || observed.fleet.slots.contains_key(view.shadow_name), "{view:?}");
        }
    }

    #[test]
    fn nothing_starts_where_nothing_may(fleet in fleet()) {
        let cluster = fleet.cluster();
        let observed = fleet.observe(&cluster);
        let chosen = allocate(&observed.fleet, &observed.views);
        let before = &fleet.status().versions;
        let after = records(fleet.status(), chosen.write.as_ref());
        let taken = taken(fleet.status(), chosen.write.as_ref());
        for view in observed.views.iter().filter(|view| is_idle(view)) {
            let starts = matches!(decide(&observed.fleet, view).reason, Reason::StagingBegins(_));
            if !starts && !taken.contains(view.shadow_name) {
                continue;
            }
            let node = view.node.unwrap();
            prop_assert!(node.labelled && node.is_ready() && !node.paused && view.agent_ready && !view.time.backing_off);
            prop_assert!(fleet.alone);
            let steered = observed.fleet.pool_of(view).is_some_and(|pool| {
                let closed_by_time = matches!(pool.starts, Starts::OutsideWindow(_) | Starts::Frozen(_));
                let version = view.shadow.unwrap().update().unwrap();
                let allowed = pool.rules.unwrap().allow(version) && pool.waits_for(version).is_none();
                let allowed = allowed && (node.update_now || pool.ripens((version, view.node.unwrap().variant())).is_none());
                let allowed = allowed && pool.gate.is_none();
                allowed && (pool.starts == Starts::Open || (closed_by_time && node.update_now))
            });
            prop_assert!(steered && !fleet.paused && fleet.enforced);
            prop_assert!(node.update_now || !view.time.young);
            let version = view.shadow.unwrap().update().unwrap();
            let halted = |records: &[VersionRecord]| {
                records.iter().any(|it| it.is_of(version, node.variant()) && it.halted_at.is_some())
            };
            prop_assert!(!halted(before) && (starts || !halted(&after)), "{version} is halted");
        }
    }

    #[test]
    fn a_closed_gate_lets_no_update_end_and_fails_none(fleet in fleet()) {
        let mut open = fleet.clone();
        for pool in &mut open.pools {
            for gate in pool["spec"]["gates"].as_array_mut().unwrap() {
                gate["prometheus"]["query"] = "Open".into();
            }
        }
        let (held_snapshot, open_snapshot) = (fleet.cluster(), open.cluster());
        let (held, open) = (fleet.observe(&held_snapshot), open.observe(&open_snapshot));
        for (in_open, in_held) in open.views.iter().zip(&held.views).filter(|(view, _)| !is_idle(view)) {
            let (would, does) = (decide(&open.fleet, in_open), decide(&held.fleet, in_held));
            match does.reason {
                Reason::GateClosed(_) | Reason::GateUnknown(_) => {
                    let ends = would.step == Some(Step::Finish);
                    prop_assert!(does.step.is_none() && ends, "{would:?}");
                }
                // Whatever is told, such as that its shadow takes no change.
                _ if does.step == Some(Step::Abort(Abort::PoolClosed)) => {
                    // Another node of the control plane that is out of service ends it without a gate, too.
                    let has_begun = in_held.node.unwrap().marker().is_some_and(|marker| marker.drain_started_at.is_some());
                    prop_assert!(!has_begun || would.step == does.step);
                }
                _ => prop_assert_eq!(would, does),
            }
        }
    }

    #[test]
    fn what_has_begun_is_finished(fleet in fleet(), held_by in 1..4_usize) {
        let (mut free, mut held) = (fleet.clone(), fleet);
        (free.paused, free.enforced) = (false, true);
        (held.paused, held.enforced) = (held_by == 1, held_by != 3);
        free.policy.default_pool.windows = vec![];
        held.policy.default_pool.windows = if held_by == 2 { never() } else { vec![] };
        held.alone = held_by != 2;
        held.policy.min_node_age = jiff::SignedDuration::from_hours(1000);
        let (free_snapshot, held_snapshot) = (free.cluster(), held.cluster());
        let (free, held) = (free.observe(&free_snapshot), held.observe(&held_snapshot));
        for (in_free, in_held) in free.views.iter().zip(&held.views) {
            if is_idle(in_free) {
                continue;
            }
            let (in_free, in_held) = (decide(&free.fleet, in_free), decide(&held.fleet, in_held));
            // But no node is emptied while its reboot could not be granted. What is not cordoned yet is given up in a pause,
            // outside the window, and when its deadline is over.
            let ended = if held_by < 3 { Abort::PoolClosed } else { Abort::DeadlineExceeded };
            if in_held.step == Some(Step::Abort(ended)) {
                continue;
            }
            if [&in_free, &in_held].iter().any(|decision| decision.reason == Reason::AdmissionNotEnforced) {
                continue;
            }
            prop_assert_eq!(in_free, in_held);
        }
    }

    #[test]
    fn a_node_without_label_is_only_put_back(fleet in fleet()) {
        let cluster = fleet.cluster();
        let observed = fleet.observe(&cluster);
        let seen: BTreeSet<&str> = observed.views.iter().map(|view| view.shadow_name).collect();
        for (name, place) in &fleet.places {
            let ours = cluster.node(name).is_some_and(|node| node.is_managed());
            prop_assert_eq!(seen.contains(name.as_str()), ours || place.shadow.is_some());
        }
        for view in &observed.views {
            let Some(node) = view.node else { continue };
            if node.labelled {
                continue;
            }
            let decision = decide(&observed.fleet, view);
            let of_node = |write: &&Write<'_>| matches!(write.object, Object::Node(_));
            let write = decision.write.iter().chain(&decision.confirm).find(of_node);
            let refused = write.is_some_and(|write| !(node.marker.is_some() && only_undoes(write)))
                || matches!(decision.step, Some(Step::Evict | Step::DeletePods));
            prop_assert!(!refused, "{decision:?}");
        }
    }
}
