//! Enumerates the possible next actions of a state.

use stateright::{Model, Property};

use crate::objects::LIVES;
use crate::pools::DEFAULT;
use crate::properties;
use crate::state::{Config, Faults, started};
use crate::view::Late;
use crate::world::{Place, World};

/// The part of a reconciler's view that lags behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    Everything,
    Shadows,
    Nodes,
    Pods,
    Ledger,
    Pools,
}

/// Lies in an agent's name. The webhook lets pass what an agent could say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lie {
    /// The spec's state is reached.
    Reached,
    Failed,
    NoTarget,
    Target,
    /// The granted reboot is claimed.
    Claim,
}

impl Lie {
    const ALL: [Self; 5] = [
        Self::Reached,
        Self::Failed,
        Self::NoTarget,
        Self::Target,
        Self::Claim,
    ];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelAction {
    /// A reconciler begins to lead.
    Lead(usize),
    /// A reconciler gives back and takes slots; of equal nodes, this one comes first.
    Slots(usize, usize),
    /// A reconciler gives back and takes slots, and a step of this node takes too long.
    SlotsOverdue(usize, usize),
    /// A reconciler acts for a node.
    Reconcile(usize, usize),
    /// A reconciler acts for a node where something takes too long.
    ReconcileOverdue(usize, usize, Late),
    /// A reconciler goes on with what it sees now.
    Freeze(usize, Part),
    /// Requests of a reconciler linger on their way, decided on what it sees now, while it goes on: the other
    /// reconciler's place is taken by them.
    Linger(usize),
    /// It sees the truth again.
    Thaw(usize),
    /// An agent takes a step.
    Agent(usize),
    /// An agent takes a step, and the command that it asks for fails.
    AgentFails(usize),
    /// An agent goes on with the shadow that it sees now.
    FreezeAgent(usize),
    /// It sees the truth again.
    ThawAgent(usize),
    /// An agent is killed and started again.
    CrashAgent(usize),
    /// An agent is never heard of again.
    SilenceAgent(usize),
    /// An agent's token is used to say what is not so.
    Lie(usize, Lie),
    /// A host boots what is next.
    Boot(usize),
    /// A host boots what is next, which fails, so it boots the old set.
    FallBack(usize),
    /// A host reboots by itself.
    OwnReboot(usize),
    /// A person cordons the node.
    Cordon(usize),
    /// A person uncordons the node.
    Uncordon(usize),
    /// A person deletes the shadow.
    DeleteShadow(usize),
    /// A Node is deleted, and its machine with it.
    RemoveNode(usize),
    /// Another machine comes under the same name.
    JoinNode(usize),
    /// A person puts the update's halt into `spec.resumedVersions`.
    Resume,
    /// A person takes out what stands there.
    TakeOut,
    /// A person pauses the fleet, or lets it go on.
    Pause,
    /// A person labels a node for the other pool.
    Move(usize),
    /// A person pauses this pool, or lets it go on.
    PausePool(usize),
    /// A person deletes this pool.
    RemovePool(usize),
    /// A person makes it again.
    MakePool(usize),
    /// The window of the default pool opens, or closes.
    Window,
}

impl ModelAction {
    /// Happens without a fault: what a quiet cluster does by itself, sooner or later.
    pub(crate) fn is_progress(self, world: &World) -> bool {
        let nobody_leads = world.leaders.iter().all(|leader| leader.term.is_none());
        match self {
            Self::Lead(_) => return nobody_leads,
            Self::ReconcileOverdue(_, node, Late::Step) | Self::SlotsOverdue(_, node) => {
                return world.places[node].silent;
            }
            _ => {}
        }
        matches!(
            self,
            Self::Slots(..)
                | Self::Reconcile(..)
                | Self::Thaw(_)
                | Self::Agent(_)
                | Self::ThawAgent(_)
                | Self::Boot(_)
        )
    }
}

impl Model for Config {
    type State = World;
    type Action = ModelAction;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<ModelAction>) {
        if world.broken.is_some() {
            return;
        }
        for at in 0..world.leaders.len() {
            of_leader(self, world, at, actions);
        }
        for (at, place) in world.places.iter().enumerate() {
            of_host_and_people(world, at, place, actions);
            if !place.host.rebooting && !place.silent && place.node.is_some() {
                of_agent(world, at, place, actions);
            }
        }
        if self.pools.is_some() {
            of_pools(world, actions);
        }
        let (faults, named) = (world.faults, world.ledger.resumed);
        let halted = world.ledger.record.and_then(|record| record.halted);
        let may = faults.resumes > 0;
        actions.extend(those_of([
            (faults.pauses > 0, ModelAction::Pause),
            (faults.windows > 0, ModelAction::Window),
            (
                may && halted.is_some() && named != halted,
                ModelAction::Resume,
            ),
            // Once it has had its effect.
            (
                may && named.is_some() && named != halted,
                ModelAction::TakeOut,
            ),
        ]));
    }

    fn next_state(&self, before: &World, action: ModelAction) -> Option<World> {
        let mut world = before.clone();
        world.happen(self, action);
        (world != *before).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all(self)
    }
}

/// The faults that may happen.
fn those_of<const N: usize>(
    actions: [(bool, ModelAction); N],
) -> impl Iterator<Item = ModelAction> {
    actions
        .into_iter()
        .filter(|(may, _)| *may)
        .map(|(_, action)| action)
}

fn of_leader(config: &Config, world: &World, at: usize, actions: &mut Vec<ModelAction>) {
    let (leader, faults) = (&world.leaders[at], world.faults);
    let nodes = 0..world.places.len();
    if world.leaders.iter().all(|leader| leader.term.is_none()) || faults.takeovers > 0 {
        actions.push(ModelAction::Lead(at));
    }
    if leader.term.is_none() {
        return;
    }
    actions.extend(nodes.clone().map(|first| ModelAction::Slots(at, first)));
    actions.extend(nodes.clone().map(|node| ModelAction::Reconcile(at, node)));
    for node in nodes {
        let step_is_late = faults.deadlines > 0 || world.places[node].silent;
        actions.extend(those_of([
            (
                step_is_late,
                ModelAction::ReconcileOverdue(at, node, Late::Step),
            ),
            (step_is_late, ModelAction::SlotsOverdue(at, node)),
            (
                faults.deadlines > 0,
                ModelAction::ReconcileOverdue(at, node, Late::Drain),
            ),
            (
                faults.deadlines > 0,
                ModelAction::ReconcileOverdue(at, node, Late::Denied),
            ),
        ]));
    }
    match leader.stale {
        Some(_) => actions.push(ModelAction::Thaw(at)),
        None if faults.stale_leaders > 0 => {
            let parts = [
                Part::Everything,
                Part::Shadows,
                Part::Nodes,
                Part::Pods,
                Part::Ledger,
            ];
            actions.extend(parts.map(|part| ModelAction::Freeze(at, part)));
            let Faults {
                pool_pauses,
                pool_deletions,
                windows,
                ..
            } = config.faults;
            if pool_pauses + pool_deletions + windows > 0 {
                actions.push(ModelAction::Freeze(at, Part::Pools));
            }
            if world.leaders[1 - at].term.is_none() {
                actions.push(ModelAction::Linger(at));
            }
        }
        None => {}
    }
}

fn of_pools(world: &World, actions: &mut Vec<ModelAction>) {
    for (at, pool) in world.pools.iter().take(DEFAULT).enumerate() {
        actions.extend(those_of([
            (pool.gone, ModelAction::MakePool(at)),
            (
                !pool.gone && world.faults.pool_pauses > 0,
                ModelAction::PausePool(at),
            ),
            (
                !pool.gone && world.faults.pool_deletions > 0,
                ModelAction::RemovePool(at),
            ),
        ]));
    }
}

fn of_host_and_people(world: &World, at: usize, place: &Place, actions: &mut Vec<ModelAction>) {
    let faults = world.faults;
    let made = |times: u8| usize::from(times) < LIVES;
    let Some(node) = place.node else {
        if made(place.nodes_made) {
            actions.push(ModelAction::JoinNode(at));
        }
        return;
    };
    let deletable = place.shadow.is_some() && made(place.shadows_made);
    let boots = place.host.rebooting;
    // Nobody can tell a person's cordon from ours where the marker says that we did it.
    let may_cordon =
        faults.people > 0 && !node.unschedulable && node.marker.is_none_or(|mark| !mark.cordoned);
    actions.extend(those_of([
        (faults.replacements > 0, ModelAction::RemoveNode(at)),
        (
            faults.deletions > 0 && deletable,
            ModelAction::DeleteShadow(at),
        ),
        (boots, ModelAction::Boot(at)),
        (
            boots && faults.fall_backs > 0 && place.host.next,
            ModelAction::FallBack(at),
        ),
        (!boots && faults.own_reboots > 0, ModelAction::OwnReboot(at)),
        (!boots && faults.moves > 0, ModelAction::Move(at)),
        (!boots && may_cordon, ModelAction::Cordon(at)),
        (
            !boots && faults.people > 0 && node.unschedulable,
            ModelAction::Uncordon(at),
        ),
    ]));
}

fn of_agent(world: &World, at: usize, place: &Place, actions: &mut Vec<ModelAction>) {
    let faults = world.faults;
    let is_stale = place.agent_sees.is_some();
    actions.extend(those_of([
        (faults.silent_agents > 0, ModelAction::SilenceAgent(at)),
        (true, ModelAction::Agent(at)),
        (faults.failed_commands > 0, ModelAction::AgentFails(at)),
        (is_stale, ModelAction::ThawAgent(at)),
        (
            !is_stale && faults.stale_agents > 0,
            ModelAction::FreezeAgent(at),
        ),
        (
            faults.agent_crashes > 0 && place.memory != started(),
            ModelAction::CrashAgent(at),
        ),
    ]));
    if faults.lies > 0 {
        actions.extend(Lie::ALL.map(|lie| ModelAction::Lie(at, lie)));
    }
}
