//! Facts for the shipped functions, from the model's objects.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use brupop_agent::step::{HostFacts, LastCommand, UpdateFacts, Updates};
use brupop_api::facts::{ShadowFacts, SpecFacts, StatusFacts};
use brupop_api::fleet::{Slot, VersionRecord};
use brupop_api::{Marker, State};
use brupop_reconciler::facts::{
    Evicted, FailureBudget, FleetFacts, Gate, NodeFacts, PodFacts, Situation, TimeFacts,
};

use crate::objects::{
    ATTEMPTS_MAX, BOOTS, COMMAND_TIME, FAILURES, Ledger, Mark, NODES, NODES_MAX, NOW, Node, SHADOWS, STAGED,
    Shadow, VERSIONS,
};
use crate::state::{Config, Host, Leader, Place, World};

/// Every marker there can be; facts borrow them.
static MARKERS: LazyLock<Vec<Marker>> = LazyLock::new(|| {
    let bits = [false, true];
    let mut markers = vec![];
    for index in 0..u8::try_from(NODES_MAX).unwrap_or(0) {
        for attempt in 0..=u8::try_from(ATTEMPTS_MAX).unwrap_or(0) {
            for (cordoned, started) in bits.into_iter().flat_map(|a| bits.map(|b| (a, b))) {
                for (drained, tainted) in bits.into_iter().flat_map(|a| bits.map(|b| (a, b))) {
                    markers.push(Mark { attempt, cordoned, started, drained, tainted }.marker(index));
                }
            }
        }
    }
    markers
});

/// Every set of slots there can be; facts borrow them.
static SLOTS: LazyLock<Vec<BTreeMap<String, Slot>>> = LazyLock::new(|| {
    let each = ATTEMPTS_MAX + 2;
    (0..each.pow(u32::try_from(NODES_MAX).unwrap_or(0)))
        .map(|mut code| {
            let mut slots = BTreeMap::new();
            for name in SHADOWS {
                let digit = code % each;
                code /= each;
                if digit > 0 {
                    let slot = Slot { uid: name.to_owned(), attempt: digit as u64 - 1, since: None };
                    slots.insert(name.to_owned(), slot);
                }
            }
            slots
        })
        .collect()
});

static NO_VERSIONS: BTreeMap<String, VersionRecord> = BTreeMap::new();

fn marker(index: u8, mark: Mark) -> &'static Marker {
    let bits = [mark.cordoned, mark.started, mark.drained, mark.tainted];
    let attempt = usize::from(mark.attempt).min(ATTEMPTS_MAX);
    let at = (usize::from(index) * (ATTEMPTS_MAX + 1) + attempt) * 16;
    &MARKERS[bits.into_iter().rev().enumerate().fold(at, |at, (bit, set)| at + (usize::from(set) << bit))]
}

fn slots(ledger: &Ledger) -> &'static BTreeMap<String, Slot> {
    let each = ATTEMPTS_MAX + 2;
    let digit = |slot: Option<u8>| slot.map_or(0, |attempt| usize::from(attempt).min(ATTEMPTS_MAX) + 1);
    &SLOTS[ledger.slots.iter().rev().fold(0, |code, slot| code * each + digit(*slot))]
}

fn boot(index: u8) -> &'static str {
    BOOTS[usize::from(index)]
}

fn version(index: u8) -> &'static str {
    VERSIONS[usize::from(index)]
}

pub(crate) fn shadow(shadow: &Shadow) -> ShadowFacts<'static> {
    let name = SHADOWS[usize::from(shadow.index)];
    ShadowFacts {
        name,
        uid: name,
        generation: shadow.generation.into(),
        spec: SpecFacts {
            state: shadow.state,
            version: shadow.version.map(version),
            attempt: shadow.attempt.map(u64::from),
            leader_term: shadow.term.map(u64::from),
            baseline_boot_id: shadow.baseline.map(boot),
            reboot_from_boot_id: shadow.grant.map(boot),
            failures: shadow.failures.map(|(count, attempt)| {
                let bounded = |number: u8| usize::from(number).min(ATTEMPTS_MAX);
                &FAILURES[bounded(count)][bounded(attempt)]
            }),
        },
        status: StatusFacts {
            present: shadow.current_state.is_some(),
            current_version: shadow.current_version.map(version),
            target_version: shadow.target_version.map(version),
            current_state: shadow.current_state,
            crash_count: Some(0),
            failed_at: None,
            attempt: shadow.status_attempt.map(u64::from),
            boot_id: shadow.boot.map(boot),
            staged: shadow.staged.then(|| &*STAGED),
            reboot_requested: shadow.claim.map(boot),
            message: shadow.message,
        },
    }
}

pub(crate) fn host(host: Host) -> HostFacts<'static> {
    let updates = host.updates.map_or(Updates::Unknown, |updater| {
        let (command, success) = updater.last;
        Updates::Known(UpdateFacts {
            state: host.update_state(),
            chosen: (updater.looked && host.version == 0).then(|| version(1)),
            staged: host.staged.then(|| version(1)),
            last: Some(LastCommand {
                kind: Some(command),
                success,
                at: COMMAND_TIME,
                exit_status: None,
                stderr: "",
            }),
        })
    });
    HostFacts { boot_id: boot(host.boot), version: version(host.version), updates, now: NOW }
}

fn situation(
    config: &Config,
    shadow: &Shadow,
    node: &Node,
    empty: bool,
    overdue: bool,
) -> Situation<'static> {
    Situation {
        shadow_name: SHADOWS[usize::from(node.index)],
        node: Some(NodeFacts {
            name: NODES[usize::from(node.index)],
            uid: NODES[usize::from(node.index)],
            labelled: true,
            ready: node.ready,
            boot_id: boot(node.boot),
            version: Some(version(node.version)),
            unschedulable: node.unschedulable,
            excluded: false,
            tainted: node.tainted,
            marker: node.marker.map(|mark| marker(node.index, mark)),
            zone: None,
            paused: false,
            update_now: false,
            agent_ready: true,
            ours: false,
        }),
        shadow: Some(self::shadow(shadow)),
        owner_uid: Some(NODES[usize::from(node.index)]),
        pods: PodFacts { known: true, hopeless: None, drained: empty, owners: &[], elsewhere: true },
        evicted: Evicted::Back,
        time: TimeFacts {
            exclusion_over: true,
            young: false,
            backing_off: shadow.attempt.unwrap_or(0) >= config.attempts,
            step_overdue: overdue,
            drain_overdue: false,
            soak_over: true,
            workloads_overdue: false,
            slot_seconds: None,
        },
    }
}

/// What a reconciler sees of the fleet, and of each node; `overdue` names the node whose step takes too long.
pub(crate) fn of(
    config: &Config,
    world: &World,
    leader: &Leader,
    overdue: Option<usize>,
) -> (FleetFacts<'static>, Vec<Situation<'static>>) {
    let stale = leader.stale;
    let ledger = stale.and_then(|stale| stale.ledger).unwrap_or(world.ledger);
    let see = |at: usize, place: &Place| {
        let shadow = stale.and_then(|stale| stale.shadows).and_then(|all| all[at]).unwrap_or(place.shadow);
        let node = stale.and_then(|stale| stale.nodes).and_then(|all| all[at]).unwrap_or(place.node);
        let empty = stale.and_then(|stale| stale.pods).map_or(place.empty, |all| all[at]);
        // A silent agent never acknowledges that its update is over, so that wait ends by its deadline.
        let waits_in_vain = place.silent && shadow.state == State::Idle;
        situation(config, &shadow, &node, empty, overdue == Some(at) || waits_in_vain)
    };
    let situations = world.places.iter().enumerate().map(|(at, place)| see(at, place)).collect();
    let fleet = FleetFacts {
        now: NOW,
        term: leader.term.unwrap_or(0).into(),
        ledger_term: Some(ledger.term.into()),
        slots: slots(&ledger),
        versions: &NO_VERSIONS,
        resume: &[],
        budget: FailureBudget::default(),
        force: false,
        resting: false,
        typical_seconds: None,
        limit: Some(config.limit),
        gate: Gate::Open,
        exclude: false,
    };
    (fleet, situations)
}
