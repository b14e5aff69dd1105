//! Facts for the shipped functions, from the model's objects.

use brupop_agent_core::step::{HostFacts, LastCommand, UpdateFacts, Updates};
use brupop_api::State;
use brupop_api::fleet::FailureThreshold;
use brupop_api::shadow::ShadowFacts;
use brupop_core::facts::{FleetFacts, NodeView, TimeFacts};

use crate::ledger::{Ledger, Record};
use crate::objects::{BOOTS, COMMAND_TIME, FLEET_UID, SHADOWS, Shadow, TIMES, UIDS, VERSIONS};
use crate::pools;
use crate::state::{Config, Host, MORE_THAN_NODES, Safeguard};
use crate::tables;
use crate::world::{Leader, World};

/// A step that takes longer than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Late {
    Step,
    Drain,
    /// A change of the shadow: the API server has taken none.
    Denied,
}

fn boot(index: u8) -> &'static str {
    BOOTS[usize::from(index)]
}

fn version(index: u8) -> &'static str {
    VERSIONS[usize::from(index)]
}

fn uid(index: u8, life: u8) -> &'static str {
    UIDS[usize::from(index)][usize::from(life)]
}

pub(crate) fn shadow(shadow: &Shadow) -> ShadowFacts<'static> {
    let (spec, status) = tables::shadow(*shadow);
    ShadowFacts {
        name: SHADOWS[usize::from(shadow.index)],
        uid: uid(shadow.index, shadow.life),
        generation: shadow.generation.into(),
        spec,
        status,
    }
}

pub(crate) fn host(host: Host) -> HostFacts<'static> {
    let updates = host.updates.map_or(Updates::Unknown, |updater| {
        let (command, success) = updater.last;
        Updates::Known(UpdateFacts {
            state: host.update_state(),
            chosen: (updater.looked && host.version == 0).then(|| version(1)),
            newest: None,
            staged_version: host.staged.then(|| version(1)),
            last: Some(LastCommand {
                kind: Some(command),
                success,
                at: COMMAND_TIME,
                exit_status: None,
                stderr: "",
            }),
        })
    });
    HostFacts {
        boot_id: boot(host.boot),
        version: version(host.version),
        updates,
        now: TIMES[0],
    }
}

/// Returns what a reconciler sees of the fleet.
pub(crate) fn fleet(config: &Config, world: &World, leader: &Leader) -> FleetFacts<'static> {
    fleet_of(config, world, leader, &leader.ledger(world))
}

/// Returns what a reconciler makes of this ledger.
pub(crate) fn fleet_of(
    config: &Config,
    world: &World,
    leader: &Leader,
    ledger: &Ledger,
) -> FleetFacts<'static> {
    let blind = config.without == Some(Safeguard::Halt);
    let record = ledger.record.map(|record| Record {
        halted: record.halted.filter(|_| !blind),
        ..record
    });
    let now = TIMES[usize::from(world.clock())];
    FleetFacts {
        now,
        term: leader.term.unwrap_or(0).into(),
        ledger_term: Some(ledger.term.into()),
        uid: Some(FLEET_UID),
        generation: Some(ledger.generation.into()),
        paused: ledger.paused,
        slots: tables::slots(ledger),
        versions: tables::versions(record),
        done_pools: tables::done_pools(ledger.done),
        resumed: tables::resumed(ledger.resumed),
        threshold: match config.without {
            Some(Safeguard::Canaries) => FailureThreshold {
                unproven: MORE_THAN_NODES.unproven,
                ..config.threshold()
            },
            _ => config.threshold(),
        },
        ceiling: config.limit,
        default_pool: pools::default_facts(config, leader.pools(world)),
        pools: pools::facts(config, leader.pools(world), ledger.done, now),
        ..FleetFacts::EXAMPLE
    }
}

/// Returns what a reconciler sees of one node.
pub(crate) fn view(
    config: &Config,
    world: &World,
    leader: &Leader,
    at: usize,
    late: Option<Late>,
) -> NodeView<'static> {
    let (place, stale) = (&world.places[at], leader.stale);
    let (shadow, seen) = (leader.shadow(world, at), leader.node(world, at));
    let empty = stale
        .and_then(|stale| stale.pods)
        .map_or(place.empty, |all| all[at]);
    let attempt = shadow.and_then(|shadow| shadow.attempt).unwrap_or(0);
    // A silent agent never acknowledges that its update is over, so that wait ends by its deadline.
    let waits_in_vain = place.silent && shadow.is_none_or(|shadow| shadow.state == State::Idle);
    let owner = pools::owner(config, leader.pools(world), seen.map(|node| node.pool));
    let held = pools::held(leader.pools(world), owner);
    // As if the node itself were paused, which ends an update at any time before its reboot.
    let gives_up = config.without == Some(Safeguard::Finished) && held;
    NodeView {
        owner,
        node: seen.map(|node| tables::node(node, gives_up)),
        agent_ready: true,
        shadow: shadow.as_ref().map(self::shadow),
        owner_uid: shadow.map(|shadow| uid(shadow.index, shadow.owner)),
        led: tables::led(empty, late == Some(Late::Denied)),
        time: TimeFacts {
            exclusion_over: true,
            backing_off: attempt >= config.attempts,
            step_overdue: late == Some(Late::Step) || waits_in_vain,
            drain_overdue: late == Some(Late::Drain),
            verified: true,
            lost: late == Some(Late::Step),
            missing: late == Some(Late::Step),
            // Other nodes may need it for hours, but not for ever.
            kept_for_long: true,
            trial_overdue: late.is_some() || waits_in_vain || place.silent,
            ..TimeFacts::default()
        },
        ..NodeView::nothing(SHADOWS[at])
    }
}

/// Returns what a reconciler sees of each node; one of them may be late.
pub(crate) fn views(
    config: &Config,
    world: &World,
    leader: &Leader,
    late: Option<usize>,
) -> Vec<NodeView<'static>> {
    let see = |at| {
        view(
            config,
            world,
            leader,
            at,
            (late == Some(at)).then_some(Late::Step),
        )
    };
    (0..world.places.len()).map(see).collect()
}
