//! One node in mid-fleet, to be varied by each test.

use kube::Resource as _;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use brupop_api::facts::{ShadowFacts, SpecFacts, StatusFacts};
use brupop_api::fleet::{BottlerocketFleet, Slot, VersionRecord};
use brupop_api::{Marker, State};
use serde_json::json;

use crate::facts::{FleetFacts, NodeFacts, NodeView, PodFacts, PoolFacts, TimeFacts};
use crate::window::{Starts, Until};

pub(super) const OLD: &str = "1.19.4";
pub(super) const NEW: &str = "1.20.0";
pub(super) const FIRST_BOOT: &str = "boot-1";
pub(super) const SECOND_BOOT: &str = "boot-2";
pub(super) const SHADOW: &str = "brs-n";
pub(super) const UID: &str = "shadow-uid";

pub(super) static NO_SLOTS: BTreeMap<String, Slot> = BTreeMap::new();
pub(super) static NO_VERSIONS: BTreeMap<String, VersionRecord> = BTreeMap::new();
pub(super) static SLOT: LazyLock<BTreeMap<String, Slot>> = LazyLock::new(|| slot(SHADOW, UID, 1));

pub(super) fn slot(shadow: &str, uid: &str, attempt: u64) -> BTreeMap<String, Slot> {
    BTreeMap::from([(shadow.to_owned(), Slot { uid: uid.to_owned(), attempt, ..Slot::default() })])
}

/// A marker of this shadow's attempt, cordoned and tainted by us, drained or not yet.
pub(super) fn marker(attempt: u64, drained: bool) -> Marker {
    let then = || Some("then".to_owned());
    Marker {
        shadow_uid: UID.to_owned(),
        attempt,
        term: 4,
        cordoned_at: then(),
        drain_started_at: then(),
        emptied: true,
        tainted: true,
        drained_at: drained.then(|| "then".to_owned()),
        evicted_owners: vec!["apps/v1/ReplicaSet/shop/cart".to_owned()],
        ..Marker::default()
    }
}

/// A default pool with this limit. Facts borrow from it, and tests are short.
pub(super) fn limited(limit: u64) -> &'static PoolFacts<'static> {
    Box::leak(Box::new(PoolFacts { limit, ..PoolFacts::DEFAULT }))
}

/// A default pool outside its window, to its end.
pub(super) fn outside() -> &'static PoolFacts<'static> {
    let starts = Starts::OutsideWindow(Until::Unknown);
    Box::leak(Box::new(PoolFacts { starts, goes_on: starts, ..PoolFacts::DEFAULT }))
}

pub(super) fn fleet() -> FleetFacts<'static> {
    FleetFacts { slots: &SLOT, ..FleetFacts::EXAMPLE }
}

/// The ledger that this fleet was read from; without slots.
pub(super) fn ledger(fleet: &FleetFacts<'_>) -> BottlerocketFleet {
    serde_json::from_value(json!({
        "apiVersion": BottlerocketFleet::api_version(&()), "kind": "BottlerocketFleet",
        "metadata": {"name": "fleet", "uid": fleet.uid, "generation": fleet.generation}, "spec": {},
        "status": {"term": fleet.term},
    }))
    .unwrap()
}

pub(super) fn without_slots() -> FleetFacts<'static> {
    FleetFacts { slots: &NO_SLOTS, ..fleet() }
}

/// Idle, reported, with an update to be had.
pub(super) fn idle() -> NodeView<'static> {
    NodeView {
        node: Some(NodeFacts {
            uid: "node-uid",
            boot_id: FIRST_BOOT,
            version: Some(OLD),
            zone: Some("a"),
            ..NodeFacts::EXAMPLE
        }),
        shadow: Some(ShadowFacts {
            name: SHADOW,
            uid: UID,
            generation: 7,
            spec: SpecFacts::default(),
            status: StatusFacts {
                current_version: Some(OLD),
                target_version: Some(NEW),
                current_state: Some(State::Idle),
                boot_id: Some(FIRST_BOOT),
                ..StatusFacts::default()
            },
        }),
        owner_uid: Some("node-uid"),
        pods: PodFacts { known: true, ..PodFacts::default() },
        time: TimeFacts { exclusion_over: true, soak_over: true, ..TimeFacts::default() },
        ..NodeView::nothing(SHADOW)
    }
}

/// In mid-update at attempt 1: the spec asks for `goal`, the status has `reached`.
pub(super) fn updating(goal: State, reached: State) -> NodeView<'static> {
    let mut view = idle();
    shadow(&mut view, |shadow| {
        shadow.spec = SpecFacts {
            state: goal,
            version: Some(NEW),
            attempt: Some(1),
            leader_term: Some(4),
            baseline_boot_id: Some(FIRST_BOOT),
            ..SpecFacts::default()
        };
        shadow.status.attempt = Some(1);
        shadow.status.current_state = Some(reached);
    });
    view
}

/// Cordoned, tainted and marked by us.
pub(super) fn marked<'a>(view: &mut NodeView<'a>, marker: &'a Marker) {
    node(view, |node| {
        node.marker = Some(marker);
        node.unschedulable = true;
        node.tainted = true;
    });
}

/// Back from a reboot with this version.
pub(super) fn rebooted(view: &mut NodeView<'_>, version: &'static str) {
    node(view, |node| {
        node.boot_id = SECOND_BOOT;
        node.version = Some(version);
    });
}

pub(super) fn shadow<'a>(view: &mut NodeView<'a>, change: impl FnOnce(&mut ShadowFacts<'a>)) {
    view.shadow.as_mut().map(change).unwrap();
}

pub(super) fn node<'a>(view: &mut NodeView<'a>, change: impl FnOnce(&mut NodeFacts<'a>)) {
    view.node.as_mut().map(change).unwrap();
}
