//! What a new leader makes of what it finds, and whose turn it is of what upstream's operator left.

use std::borrow::Cow;

use brupop_api::crds::COUNTER_MAX;
use brupop_api::fleet::BottlerocketFleetStatus;

use super::world::*;
use crate::decide::{new_shadow, new_term};

#[test]
fn a_new_leader_has_the_highest_term() {
    let view =
        updating(StagedAndPerformedUpdate, Idle).with_shadow(|it| it.spec.leader_term = Some(9));
    let ledger = BottlerocketFleetStatus {
        term: Some(4),
        ..BottlerocketFleetStatus::default()
    };
    let (term, take) = new_term(Some(&ledger), &[view]);
    assert_eq!(
        (term, sets(&take, Field::Term)),
        (10, Some(Value::Number(10)))
    );
    let slots = Value::Slots(Cow::Owned(BTreeMap::new()));
    let as_read = [(Field::Term, Value::Number(4)), (Field::Slots, slots)];
    assert_eq!(take.tests, as_read, "another leader may have begun since");
    assert_eq!(
        sets(&take, Field::Slot(SHADOW)),
        None,
        "the ledger knows its slots"
    );
    // A lost ledger's slots are made again.
    let (term, take) = new_term(None, &[view]);
    assert_eq!(term, 10);
    let made_again = Slot {
        uid: UID.into(),
        attempt: 1,
        version: Some(NEW.into()),
        ..Slot::default()
    };
    assert_eq!(
        sets(&take, Field::Slot(SHADOW)),
        Some(Value::Slot(made_again))
    );
}

#[test]
fn no_slot_is_taken_in_the_ledger_of_another_term() {
    let fleet = without_slots();
    for (ledger_term, takes) in [
        (Some(fleet.term), true),
        (Some(fleet.term + 1), false),
        (None, false),
    ] {
        let write = slots(
            &FleetFacts {
                ledger_term,
                ..fleet
            },
            &[idle()],
        )
        .write;
        assert_eq!(write.is_some(), takes, "{ledger_term:?}");
    }
}

/// Found by chaos (seed 7012): a person had deleted the shadow of a node that was being updated, and then the ledger.
#[test]
fn a_node_of_ours_that_lost_shadow_and_ledger_has_a_slot() {
    let left = Marker {
        term: 12,
        ..marker(3, true)
    };
    let mut view = NodeView {
        shadow: None,
        ..granted(false).marked_by(&left)
    };
    let (term, take) = new_term(None, &[view]);
    assert_eq!(term, 13);
    let node = view.node.unwrap();
    let slot = Slot {
        uid: node.uid.to_owned(),
        attempt: 3,
        ..Slot::default()
    };
    assert_eq!(sets(&take, Field::Slot(SHADOW)), Some(Value::Slot(slot)));
    let ledger = BottlerocketFleetStatus {
        term: Some(4),
        ..BottlerocketFleetStatus::default()
    };
    assert_eq!(
        sets(&new_term(Some(&ledger), &[view]).1, Field::Slot(SHADOW)),
        None,
        "it knows its slots"
    );

    // Nothing is out of service any more: only the owners of evicted pods are remembered.
    let tidy = Marker {
        evicted_owners: [("apps/v1/ReplicaSet/a/b".into(), 1)].into(),
        ..Marker::default()
    };
    marked(&mut view, &tidy);
    assert_eq!(sets(&new_term(None, &[view]).1, Field::Slot(SHADOW)), None);

    // What the ledger could not hold, as the term after the highest, must not keep everybody from leading.
    let [highest, beyond] = [COUNTER_MAX - 1, COUNTER_MAX].map(|term| Marker {
        term,
        ..marker(3, true)
    });
    marked(&mut view, &highest);
    assert_eq!(new_term(None, &[view]).0, COUNTER_MAX);
    marked(&mut view, &beyond);
    assert_eq!(new_term(None, &[view]).0, 1);
    let absurd = Marker {
        term: u64::MAX,
        attempt: u64::MAX,
        shadow_uid: "no UID".into(),
        ..marker(3, true)
    };
    marked(&mut view, &absurd);
    let (term, take) = new_term(None, &[view]);
    assert_eq!(term, 1);
    let slot = slot_of(&take, SHADOW).unwrap();
    assert_eq!((slot.uid.as_str(), slot.attempt), (node.uid, COUNTER_MAX));
}

#[test]
fn what_upstream_left_takes_slots_in_turn() {
    let of_upstream = upstreams(RebootedIntoUpdate, StagedAndPerformedUpdate);
    let mut views = ["brs-a", "brs-b", "brs-c"].map(|name| of_upstream.named(name));
    let (_, take) = new_term(None, &views);
    assert!(
        take.sets
            .iter()
            .all(|(field, _)| !matches!(field, Field::Slot(_))),
        "{:?}",
        take.sets
    );
    let fleet = FleetFacts {
        default_pool: limited(2),
        ..without_slots()
    };
    assert_eq!(slots(&fleet, &views).taken, [0, 1]);
    // One whose cordon a leader had begun to adopt when the ledger was lost keeps its slot.
    marked(&mut views[2], &CORDONED);
    let (_, take) = new_term(None, &views);
    assert_eq!(slot_of(&take, "brs-c").map(|slot| slot.attempt), Some(1));
}

/// Left by upstream's operator in mid-update: wanted, whether its host runs the update, whether it is cordoned.
fn left(name: &'static str, state: State, updated: bool, cordoned: bool) -> NodeView<'static> {
    upstreams(state, StagedAndPerformedUpdate)
        .named(name)
        .with_node(|node| {
            node.version = Some(if updated { NEW } else { OLD });
            node.unschedulable = cordoned;
        })
}

/// What is said, the limit, who is there, who gets a slot, why the others wait.
type Row<'r> = (
    &'static str,
    u64,
    &'r [NodeView<'r>],
    &'r [usize],
    Reason<'static>,
);

#[test]
fn who_is_out_of_service_goes_on_first() {
    let staged = left("brs-a", StagedAndPerformedUpdate, false, false);
    let by_a_person = left("brs-b", StagedAndPerformedUpdate, false, true);
    let cordoned = left("brs-c", RebootedIntoUpdate, false, true);
    let away = cordoned.not_ready();
    let updated = left("brs-d", RebootedIntoUpdate, true, true);
    let back = left("brs-d", RebootedIntoUpdate, true, false);
    let dead = NodeView {
        shadow_name: "brs-0",
        ..idle().not_ready()
    };
    let drained = NodeView {
        shadow_name: "brs-0",
        ..idle()
    }
    .with(|it| it.time.cordoned_lately = true);
    let by = UsedUp {
        node: "n",
        limit: LimitScope::DefaultPool,
    };
    let (by_limit, by_others) = (
        Reason::LimitReached(Turn::NoSlot),
        Reason::LimitUsedByUnavailableNodes(by),
    );
    // Out of load balancers, and nothing else.
    let marker = Marker {
        excluded_at: Some("then".into()),
        ..Marker::default()
    };
    let excluded = left("brs-e", StagedAndPerformedUpdate, false, false)
        .with_node(|node| node.marker = Some(&marker));
    let rows: [Row<'_>; 16] = [
        (
            "updated before others",
            1,
            &[staged, cordoned, updated],
            &[2],
            by_limit,
        ),
        (
            "then who is cordoned",
            2,
            &[staged, cordoned, updated],
            &[2, 1],
            by_limit,
        ),
        (
            "then all",
            3,
            &[staged, cordoned, updated],
            &[2, 1, 0],
            by_limit,
        ),
        ("none is allowed", 0, &[updated], &[], by_limit),
        (
            "updated beside a dead one",
            1,
            &[dead, updated],
            &[1],
            by_limit,
        ),
        (
            "cordoned beside a dead one",
            1,
            &[dead, cordoned],
            &[1],
            by_limit,
        ),
        (
            "out of load balancers beside a dead one",
            1,
            &[dead, excluded],
            &[1],
            by_limit,
        ),
        (
            "updated and in service beside a dead one",
            1,
            &[dead, back],
            &[1],
            by_limit,
        ),
        (
            "in service beside a dead one",
            1,
            &[dead, staged],
            &[],
            by_others,
        ),
        (
            "a person's cordon before the reboot",
            1,
            &[dead, by_a_person],
            &[],
            by_others,
        ),
        (
            "a dead one takes its part from those in service",
            2,
            &[dead, staged, updated],
            &[2],
            by_limit,
        ),
        (
            "nobody beside somebody's drain",
            1,
            &[drained, staged],
            &[],
            by_others,
        ),
        ("nor itself", 1, &[drained], &[], by_others),
        ("one more beside it", 2, &[drained, staged], &[1], by_limit),
        (
            "who cannot come back now lets those pass who can",
            1,
            &[away, updated],
            &[1],
            by_limit,
        ),
        ("and those who download", 2, &[staged, away], &[0], by_limit),
    ];
    for (says, limit, views, taken, why) in rows {
        let fleet = FleetFacts {
            default_pool: limited(limit),
            ..without_slots()
        };
        let chosen = slots(&fleet, views);
        assert_eq!(chosen.taken, taken, "{says}");
        assert!(
            chosen.queued.iter().all(|(_, reason)| *reason == why),
            "{says}: {:?}",
            chosen.queued
        );
    }
}

/// Also for nodes that no pool selects, the fleet's limit may be the lower one.
#[test]
fn the_lower_limit_is_named() {
    let dead = NodeView {
        shadow_name: "brs-0",
        ..idle().not_ready()
    };
    for (of_fleet, of_pool, limit) in [
        (1, 1, LimitScope::Fleet),
        (1, 3, LimitScope::Fleet),
        (9, 1, LimitScope::DefaultPool),
    ] {
        let fleet = FleetFacts {
            ceiling: of_fleet,
            default_pool: limited(of_pool),
            ..without_slots()
        };
        let chosen = slots(
            &fleet,
            &[
                dead,
                NodeView {
                    shadow_name: "brs-1",
                    ..idle()
                },
            ],
        );
        let why = Reason::LimitUsedByUnavailableNodes(UsedUp { node: "n", limit });
        assert!(
            chosen.queued.iter().any(|(_, reason)| *reason == why),
            "{:?}",
            chosen.queued
        );
    }
}

/// The agent's image is still being pulled there. A node that is out of service needs no agent to come back.
#[test]
fn what_upstream_staged_waits_for_its_agent() {
    let (silent, limit) = (
        Reason::AgentSilent(Silence::NoPod),
        Reason::LimitReached(Turn::NoSlot),
    );
    let waits = left("brs-n", StagedAndPerformedUpdate, false, false);
    for (view, agent_ready, taken, why) in [
        (waits, true, true, limit),
        (waits, false, false, silent),
        (
            left("brs-n", StagedAndPerformedUpdate, false, true),
            false,
            false,
            silent,
        ),
        (
            left("brs-n", StagedAndPerformedUpdate, true, false),
            false,
            true,
            limit,
        ),
        (
            left("brs-n", RebootedIntoUpdate, false, true),
            false,
            true,
            limit,
        ),
        (
            waits.with_node(|node| node.labelled = false),
            false,
            true,
            limit,
        ),
    ] {
        let view = view.with_node(|node| node.agent_ready = agent_ready);
        let found = (
            slots(&without_slots(), &[view]).taken == [0],
            decide(&without_slots(), &view).reason,
        );
        assert_eq!(found, (taken, why), "{view:?}");
    }
}

#[test]
fn a_new_shadow_is_idle_and_its_nodes() {
    let shadow = serde_json::to_value(new_shadow(
        "n",
        "node-uid",
        Some(3),
        7,
        "2026-11-21T04:00:00Z",
    ))
    .unwrap();
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
