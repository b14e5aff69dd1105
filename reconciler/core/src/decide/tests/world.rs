//! One node in mid-fleet, to be varied by each test, and what most of the tests use.

use kube::Resource as _;

use brupop_api::fleet::BottlerocketFleet;

pub(super) use State::{
    ErrorReset, Idle, MonitoringUpdate, RebootedIntoUpdate, StagedAndPerformedUpdate,
};
pub(super) use brupop_api::fleet::{
    FailureThreshold, NodeFailure, ResumedVersion, Slot, VersionRecord,
};
pub(super) use brupop_api::names::KEPT_FROM_AUTOSCALERS;
use brupop_api::names::{DO_NOT_DISRUPT_ANNOTATION, SCALE_DOWN_DISABLED_ANNOTATION};
pub(super) use brupop_api::shadow::{LastFailure, ShadowFacts};
pub(super) use brupop_api::{
    BottlerocketShadowSpec, BottlerocketShadowStatus, Field, Marker, Problem, State, Value, Write,
};
pub(super) use jiff::Timestamp;
pub(super) use serde_json::json;
pub(super) use std::collections::BTreeMap;
pub(super) use std::sync::{Arc, LazyLock};

pub(super) use super::{
    Decided, allocate, decide, failures_of, marker_of, next_state, records_of, sets, slot_of, write,
};
pub(super) use crate::cluster::LedNode;
pub(super) use crate::decide::{Abort, Reason, Step};
pub(super) use crate::drain::{DrainPlan, Obstacle, PodKey, TOO_MANY_PODS};
pub(super) use crate::facts::{FleetFacts, NodeView, Observed, Owner, PoolFacts, TimeFacts};
pub(super) use crate::objects::Ahead;
use crate::objects::Clock;
pub(super) use crate::objects::{NodeFacts, Readiness};
pub(super) use crate::tests::world::{NEW, OLD, rows};
pub(super) use crate::window::{Starts, Until};

pub(super) const FIRST_BOOT: &str = "boot-1";
pub(super) const SECOND_BOOT: &str = "boot-2";
pub(super) const SHADOW: &str = "brs-n";
pub(super) const UID: &str = "shadow-uid";

pub(super) static NO_SLOTS: BTreeMap<String, Slot> = BTreeMap::new();
pub(super) static SLOT: LazyLock<BTreeMap<String, Slot>> = LazyLock::new(|| slot(SHADOW, UID, 1));

pub(super) fn slot(shadow: &str, uid: &str, attempt: u64) -> BTreeMap<String, Slot> {
    BTreeMap::from([(
        shadow.to_owned(),
        Slot {
            uid: uid.to_owned(),
            attempt,
            ..Slot::default()
        },
    )])
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
        evicted_owners: [("apps/v1/ReplicaSet/shop/cart".to_owned(), 2)].into(),
        ..Marker::default()
    }
}

/// Cordoned by us, and drained or not yet.
pub(super) static CORDONED: LazyLock<Marker> = LazyLock::new(|| marker(1, false));
pub(super) static DRAINED: LazyLock<Marker> = LazyLock::new(|| marker(1, true));

/// Enough failures for tests that are not about halts.
pub(super) const MANY: FailureThreshold = FailureThreshold {
    unproven: 8,
    proven: 8,
};

/// A default pool with this limit. Facts borrow from it, and tests are short.
pub(super) fn limited(limit: u64) -> &'static PoolFacts<'static> {
    Box::leak(Box::new(PoolFacts {
        limit,
        ..PoolFacts::DEFAULT
    }))
}

/// A default pool outside its window, to its end.
pub(super) fn outside() -> &'static PoolFacts<'static> {
    let starts = Starts::OutsideWindow(Until::Unknown);
    Box::leak(Box::new(PoolFacts {
        starts,
        ..PoolFacts::DEFAULT
    }))
}

pub(super) fn fleet() -> FleetFacts<'static> {
    FleetFacts {
        slots: &SLOT,
        ..FleetFacts::EXAMPLE
    }
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
    FleetFacts {
        slots: &NO_SLOTS,
        ..fleet()
    }
}

/// Idle, reported, with an update to be had.
pub(super) fn idle() -> NodeView<'static> {
    NodeView {
        node: Some(leaked(NodeFacts {
            uid: "node-uid".to_owned(),
            boot_id: FIRST_BOOT.to_owned(),
            version: Some(OLD.to_owned()),
            ..NodeFacts::example()
        })),
        zone: Some("a"),
        agent_ready: true,
        shadow: Some(ShadowFacts {
            name: SHADOW,
            uid: UID,
            generation: 7,
            spec: leaked(BottlerocketShadowSpec::default()),
            status: leaked(BottlerocketShadowStatus {
                current_version: Some(OLD.to_owned()),
                target_version: Some(NEW.to_owned()),
                current_state: Some(Idle),
                boot_id: Some(FIRST_BOOT.to_owned()),
                ..BottlerocketShadowStatus::default()
            }),
        }),
        owner_uid: Some("node-uid"),
        led: &KNOWN,
        time: TimeFacts {
            exclusion_over: true,
            verified: true,
            ..TimeFacts::default()
        },
        ..NodeView::nothing(SHADOW)
    }
}

/// In mid-update at attempt 1: the spec asks for `goal`, the status has `reached`.
pub(super) fn updating(goal: State, reached: State) -> NodeView<'static> {
    let mut view = idle();
    shadow(&mut view, |shadow| {
        shadow.spec = BottlerocketShadowSpec {
            state: goal,
            version: Some(NEW.to_owned()),
            attempt: Some(1),
            leader_term: Some(4),
            baseline_boot_id: Some(FIRST_BOOT.to_owned()),
            ..BottlerocketShadowSpec::default()
        };
        shadow.status.attempt = Some(1);
        shadow.status.current_state = Some(reached);
    });
    view
}

pub(super) fn staged() -> NodeView<'static> {
    updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate)
}

/// Its reboot is granted, and claimed or not.
pub(super) fn granted(claimed: bool) -> NodeView<'static> {
    updating(RebootedIntoUpdate, StagedAndPerformedUpdate).with_shadow(|shadow| {
        shadow.spec.reboot_granted_boot_id = Some(FIRST_BOOT.into());
        shadow.status.reboot_claimed_boot_id = claimed.then(|| FIRST_BOOT.to_owned());
    })
}

/// In service with the new version, and watched.
pub(super) fn watched() -> NodeView<'static> {
    updating(MonitoringUpdate, MonitoringUpdate).rebooted(NEW)
}

/// Idle, and its update is asked for at once.
pub(super) fn asked_for() -> NodeView<'static> {
    idle().with_node(|node| node.update_now = true)
}

/// One pod is left to evict.
static KNOWN: LazyLock<LedNode> = LazyLock::new(|| LedNode {
    plan: Some(Arc::new(DrainPlan {
        evict: vec![pod("cart-0")],
        ..DrainPlan::default()
    })),
    ..LedNode::default()
});

pub(super) fn pod(name: &str) -> PodKey {
    let [namespace, name, uid] = ["shop", name, "uid"].map(str::to_owned);
    PodKey {
        namespace,
        name,
        uid,
    }
}

/// Changes what the leader knows of the node.
pub(super) fn led(view: &mut NodeView<'_>, change: impl FnOnce(&mut LedNode)) {
    let mut led = view.led.clone();
    change(&mut led);
    view.led = Box::leak(Box::new(led));
}

/// Changes the plan of the node's drain; its pods are known.
pub(super) fn plan(view: &mut NodeView<'_>, change: impl FnOnce(&mut DrainPlan)) {
    led(view, |led| {
        change(Arc::make_mut(led.plan.get_or_insert_default()));
    });
}

/// Nothing is known of its pods.
pub(super) fn unknown_pods(view: &mut NodeView<'_>) {
    led(view, |led| led.plan = None);
}

/// Its pods are known, and none is left.
pub(super) fn drained(view: &mut NodeView<'_>) {
    plan(view, |plan| plan.evict.clear());
}

/// Makes variations of a view.
pub(super) trait Vary<'a>: Sized {
    fn with(self, change: impl FnOnce(&mut NodeView<'a>)) -> Self;

    fn with_node(self, change: impl FnOnce(&mut NodeFacts)) -> Self {
        self.with(|view| node(view, change))
    }

    fn with_shadow(self, change: impl FnOnce(&mut Shadow<'a>)) -> Self {
        self.with(|view| shadow(view, change))
    }

    /// Another node: `n` of the shadow `brs-n`, which has its name for a UID.
    fn named(self, name: &'a str) -> Self {
        self.with(|view| view.shadow_name = name)
            .with_node(|node| node.name = name.strip_prefix("brs-").unwrap_or(name).to_owned())
            .with_shadow(|shadow| (shadow.name, shadow.uid) = (name, name))
    }

    fn in_pool(self, index: usize) -> Self {
        self.with(|view| view.owner = Owner::Pool(index))
    }

    /// Cordoned, tainted and marked by us.
    fn marked_by(self, marker: &'a Marker) -> Self {
        self.with(|view| marked(view, marker))
    }

    /// Back from a reboot with this version.
    fn rebooted(self, version: &'static str) -> Self {
        self.with_node(|node| {
            (node.boot_id, node.version) = (SECOND_BOOT.to_owned(), Some(version.to_owned()));
        })
    }

    fn not_ready(self) -> Self {
        self.with_node(|node| node.readiness = None)
    }
}

impl<'a> Vary<'a> for NodeView<'a> {
    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

/// A fleet of these nodes, all of which can be read.
pub(super) fn observed<'a>(fleet: FleetFacts<'a>, views: Vec<NodeView<'a>>) -> Observed<'a> {
    let views = views.into_iter().map(|view| view.with_slot_of(&fleet));
    Observed {
        fleet,
        views: views.collect(),
        too_long: vec![],
        not_opted_in: 0,
        clock: Clock::new(Timestamp::UNIX_EPOCH, Ahead::NONE),
    }
}

/// Cordoned, tainted and marked by us.
pub(super) fn marked<'a>(view: &mut NodeView<'a>, marker: &'a Marker) {
    node(view, |node| {
        node.marker = Some(Ok(marker.clone()));
        node.unschedulable = true;
        node.tainted = true;
    });
}

/// A shadow in the making.
pub(super) struct Shadow<'a> {
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
    pub(super) spec: BottlerocketShadowSpec,
    pub(super) status: BottlerocketShadowStatus,
}

pub(super) fn shadow<'a>(view: &mut NodeView<'a>, change: impl FnOnce(&mut Shadow<'a>)) {
    let read = view.shadow.unwrap();
    let mut shadow = Shadow {
        name: read.name,
        uid: read.uid,
        spec: read.spec.clone(),
        status: read.status.clone(),
    };
    change(&mut shadow);
    let (spec, status) = (leaked(shadow.spec), leaked(shadow.status));
    let (name, uid) = (shadow.name, shadow.uid);
    view.shadow = Some(ShadowFacts {
        name,
        uid,
        spec,
        status,
        ..read
    });
}

pub(super) fn node(view: &mut NodeView<'_>, change: impl FnOnce(&mut NodeFacts)) {
    let mut facts = view.node.unwrap().clone();
    change(&mut facts);
    view.node = Some(leaked(facts));
}

/// Sets the annotations that keep autoscalers away, as far as there are values.
pub(super) fn annotate(node: &mut NodeFacts, values: [Option<&str>; 2]) {
    let keys = [DO_NOT_DISRUPT_ANNOTATION, SCALE_DOWN_DISABLED_ANNOTATION];
    let there = std::iter::zip(keys, values).filter_map(|(key, value)| Some((key, value?)));
    let there = there.map(|(key, value)| (key.to_owned(), value.to_owned()));
    node.annotations.get_or_insert_default().extend(there);
}

/// The condition Ready, which is so.
pub(super) fn readiness(ready: bool) -> Readiness {
    Readiness { ready, since: None }
}

/// Facts borrow from it, and tests are short.
pub(super) fn leaked<T>(facts: T) -> &'static T {
    Box::leak(Box::new(facts))
}
