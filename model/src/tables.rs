//! Values that facts borrow: markers, slots, records and failures. Each is made once, when it is first needed, and stays.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::Arc;
use std::thread::LocalKey;

use ahash::AHashMap;
use brupop_api::fleet::{DonePool, NodeFailure, ResumedVersion, Slot, VersionRecord};
use brupop_api::shadow::LastFailure;
use brupop_api::{BottlerocketShadowSpec, BottlerocketShadowStatus, Marker};
use brupop_core::cluster::LedNode;
use brupop_core::drain::{DrainPlan, PodKey};
use brupop_core::objects::{NodeFacts, Readiness};
use brupop_core::workloads::{Scale, Scales};

use crate::ledger::{Held, Ledger, Record};
use crate::objects::{
    BOOTS, Failed, Mark, NODES, NODES_MAX, Node, POOLS, SHADOWS, Shadow, TIMES, UIDS, VERSIONS,
    said_staged,
};

/// The values that one thread has made, by their input.
pub(crate) type Table<K, V> = RefCell<AHashMap<K, &'static V>>;

/// The value of this key.
pub(crate) fn once<K: Eq + Hash, V>(
    table: &'static LocalKey<Table<K, V>>,
    key: K,
    make: impl FnOnce() -> V,
) -> &'static V {
    table.with_borrow_mut(|made| {
        *made
            .entry(key)
            .or_insert_with(|| Box::leak(Box::new(make())))
    })
}

fn when(time: u8) -> String {
    TIMES[usize::from(time)].to_owned()
}

/// The workload whose pods run on every node.
const CART: &str = "apps/v1/ReplicaSet/shop/cart";

/// The leader's knowledge of a node: whether its pods are gone, and whether changes of its shadow are denied.
pub(crate) fn led(is_empty: bool, is_denied: bool) -> &'static LedNode {
    thread_local! { static LED: Table<(bool, bool), LedNode> = Table::default(); }
    once(&LED, (is_empty, is_denied), || {
        let mut led = LedNode::default();
        let pod = PodKey {
            namespace: "shop".to_owned(),
            name: "cart-0".to_owned(),
            uid: "pod".to_owned(),
        };
        let plan = DrainPlan {
            evict: (!is_empty).then_some(pod).into_iter().collect(),
            ..DrainPlan::default()
        };
        led.plan = Some(Arc::new(plan));
        let scale = Scale {
            is_leaving: false,
            wanted: 2,
            available: 2,
        };
        led.scales = (!is_empty).then(|| Scales::from([(CART.to_owned(), Some(scale))]));
        led.shadow_denied = is_denied.then(|| "a rule of somebody else".to_owned());
        led
    })
}

pub(crate) fn marker(index: u8, mark: Mark) -> &'static Marker {
    thread_local! { static MARKERS: Table<(u8, Mark), Marker> = Table::default(); }
    once(&MARKERS, (index, mark), || {
        let at = |set: bool| set.then(|| when(mark.again.into()));
        // They are set with the cordon.
        let annotated = mark.started || mark.kept;
        Marker {
            shadow_uid: UIDS[usize::from(index)][usize::from(mark.life)].to_owned(),
            attempt: mark.attempt.into(),
            cordoned_at: at(mark.cordoned),
            drain_started_at: at(mark.started),
            drained_at: at(mark.drained),
            was_drained: mark.was_drained,
            tainted: mark.tainted,
            evicted_owners: if mark.owners {
                BTreeMap::from([(CART.to_owned(), 2)])
            } else {
                BTreeMap::new()
            },
            kept_since: at(mark.kept),
            // Whatever is evicted here has an owner.
            emptied: mark.owners,
            do_not_disrupt: annotated,
            scale_down_disabled: annotated,
            ..Marker::default()
        }
    })
}

pub(crate) fn node(node: Node, paused: bool) -> &'static NodeFacts {
    thread_local! { static FACTS: Table<(Node, bool), NodeFacts> = Table::default(); }
    once(&FACTS, (node, paused), || NodeFacts {
        name: NODES[usize::from(node.index)].to_owned(),
        uid: UIDS[usize::from(node.index)][usize::from(node.life)].to_owned(),
        readiness: Some(Readiness {
            ready: node.ready,
            since: None,
        }),
        boot_id: BOOTS[usize::from(node.boot)].to_owned(),
        version: Some(VERSIONS[usize::from(node.version)].to_owned()),
        unschedulable: node.unschedulable,
        tainted: node.tainted,
        marker: node.marker.map(|mark| Ok(marker(node.index, mark).clone())),
        paused,
        ..NodeFacts::example()
    })
}

type Slots = BTreeMap<String, Slot>;

pub(crate) fn slots(ledger: &Ledger) -> &'static Slots {
    thread_local! { static SLOTS: Table<[Option<Held>; NODES_MAX], Slots> = Table::default(); }
    once(&SLOTS, ledger.slots, || {
        let taken = (0..NODES_MAX).filter_map(|index| {
            let Held {
                life,
                attempt,
                lost,
                counted,
                pool,
                ..
            } = ledger.slots[index]?;
            let uid = UIDS[index][usize::from(life)].to_owned();
            let version = Some(VERSIONS[1].to_owned());
            let pool = pool.map(|pool| POOLS[usize::from(pool)].to_owned());
            let slot = Slot {
                uid,
                attempt: attempt.into(),
                version,
                variant: Some(NodeFacts::EXAMPLE_VARIANT.to_owned()),
                pool,
                lost,
                counted,
                ..Slot::default()
            };
            Some((SHADOWS[index].to_owned(), slot))
        });
        taken.collect()
    })
}

pub(crate) fn versions(record: Option<Record>) -> &'static Vec<VersionRecord> {
    thread_local! { static VERSION_RECORDS: Table<Option<Record>, Vec<VersionRecord>> = Table::default(); }
    let of = |record: Record| {
        let failures = record.failures.iter().zip(NODES).filter_map(|(at, node)| {
            let (node, at, reason) = (node.to_owned(), when((*at)?), "FellBack".to_owned());
            Some(NodeFailure { node, at, reason })
        });
        VersionRecord {
            version: VERSIONS[1].to_owned(),
            variant: NodeFacts::EXAMPLE_VARIANT.to_owned(),
            reported_at: Some(when(0)),
            halted_at: record.halted.map(when),
            failures: failures.collect(),
            succeeded: record.succeeded.into(),
        }
    };
    once(&VERSION_RECORDS, record, || {
        record.map(of).into_iter().collect()
    })
}

pub(crate) fn done_pools(since: Option<u8>) -> &'static Vec<DonePool> {
    thread_local! { static DONE_POOLS: Table<Option<u8>, Vec<DonePool>> = Table::default(); }
    let of = |since| DonePool {
        pool: POOLS[0].to_owned(),
        version: VERSIONS[1].to_owned(),
        since: when(since),
    };
    once(&DONE_POOLS, since, || since.map(of).into_iter().collect())
}

fn failure(failed: Failed) -> LastFailure {
    let reason = if failed.corroborated {
        "FellBack"
    } else {
        "StepFailed"
    };
    LastFailure {
        count: failed.count.into(),
        attempt: failed.attempt.into(),
        at: when(failed.at),
        reason: reason.to_owned(),
        message: String::new(),
    }
}

/// A shadow's spec and status.
pub(crate) fn shadow(
    shadow: Shadow,
) -> &'static (BottlerocketShadowSpec, BottlerocketShadowStatus) {
    type Parts = (BottlerocketShadowSpec, BottlerocketShadowStatus);
    thread_local! { static SHADOWS: Table<Shadow, Parts> = Table::default(); }
    let boot = |index: u8| BOOTS[usize::from(index)].to_owned();
    let version = |index: u8| VERSIONS[usize::from(index)].to_owned();
    // They are the same for all of these.
    let key = Shadow {
        index: 0,
        life: 0,
        owner: 0,
        generation: 0,
        ..shadow
    };
    once(&SHADOWS, key, || {
        let spec = BottlerocketShadowSpec {
            state: shadow.state,
            version: shadow.version.map(version),
            attempt: shadow.attempt.map(u64::from),
            leader_term: shadow.term.map(u64::from),
            baseline_boot_id: shadow.baseline.map(boot),
            reboot_granted_boot_id: shadow.grant.map(boot),
            last_failure: shadow.failures.map(failure),
            ..BottlerocketShadowSpec::default()
        };
        let status = BottlerocketShadowStatus {
            current_version: shadow.current_version.map(version),
            target_version: shadow.target_version.map(version),
            current_state: shadow.current_state,
            crash_count: Some(0),
            attempt: shadow.status_attempt.map(u64::from),
            boot_id: shadow.boot.map(boot),
            staged: said_staged(shadow.staged).cloned(),
            reboot_claimed_boot_id: shadow.claim.map(boot),
            problem: shadow.problem,
            // The agent's clock stands still, so this is what it wrote.
            problem_since: shadow.problem.map(|_| TIMES[0].to_owned()),
            message: shadow.message.map(str::to_owned),
            ..BottlerocketShadowStatus::default()
        };
        (spec, status)
    })
}

/// Returns what stands in `spec.resumedVersions`, by its time.
pub(crate) fn resumed(time: Option<u8>) -> &'static Vec<ResumedVersion> {
    thread_local! { static RESUMED: Table<Option<u8>, Vec<ResumedVersion>> = Table::default(); }
    let of = |time| ResumedVersion {
        version: VERSIONS[1].to_owned(),
        variant: NodeFacts::EXAMPLE_VARIANT.to_owned(),
        halted_at: when(time),
    };
    once(&RESUMED, time, || time.map(of).into_iter().collect())
}
