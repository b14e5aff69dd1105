//! The result of an action.

use brupop_api::State;

use crate::actions::{ModelAction, Part};
use crate::objects::{NODES_MAX, Node, Shadow, small};
use crate::pools::{DEFAULT, Pool};
use crate::properties;
use crate::state::{Config, Host, started};
use crate::world::{Place, Stale, World};

impl World {
    /// Whether only faults can still happen.
    pub fn is_stuck(&self, config: &Config) -> bool {
        let mut actions = vec![];
        stateright::Model::actions(config, self, &mut actions);
        actions
            .into_iter()
            .filter(|action| action.is_progress(self))
            .all(|action| {
                let mut world = self.clone();
                world.happen(config, action);
                world == *self
            })
    }

    pub(crate) fn happen(&mut self, config: &Config, action: ModelAction) {
        match action {
            ModelAction::Lead(at) => self.lead(config, at),
            ModelAction::Slots(at, first) => self.slots(config, at, first),
            ModelAction::SlotsOverdue(at, node) => {
                self.in_overdue(config, node, |world| {
                    world.slots_with(config, at, Some(node));
                });
            }
            ModelAction::Reconcile(at, node) => self.reconcile(config, at, node, None),
            ModelAction::ReconcileOverdue(at, node, late) => {
                self.in_overdue(config, node, |world| {
                    world.reconcile(config, at, node, Some(late));
                });
            }
            ModelAction::Freeze(at, part) => self.freeze(at, part),
            ModelAction::Linger(at) => {
                self.leaders[1 - at].term = self.leaders[at].term;
                self.freeze(1 - at, Part::Everything);
            }
            ModelAction::Thaw(at) => self.leaders[at].stale = None,
            ModelAction::Agent(at) => self.agent(config, at, true),
            ModelAction::AgentFails(at) => self.agent(config, at, false),
            ModelAction::FreezeAgent(at) => {
                self.faults.stale_agents -= 1;
                self.places[at].agent_sees = self.places[at].shadow;
            }
            ModelAction::ThawAgent(at) => self.places[at].agent_sees = None,
            ModelAction::CrashAgent(at) => {
                self.faults.agent_crashes -= 1;
                self.places[at].memory = started();
            }
            ModelAction::SilenceAgent(at) => {
                self.faults.silent_agents -= 1;
                self.places[at].silent = true;
                self.places[at].memory = started();
                self.places[at].agent_sees = None;
            }
            ModelAction::Lie(at, lie) => self.lie(at, lie),
            ModelAction::Boot(at) => self.boot(config, at),
            ModelAction::FallBack(at) => {
                self.faults.fall_backs -= 1;
                self.places[at].host.next = false;
                self.places[at].host.staged = false;
                self.boot(config, at);
            }
            ModelAction::Move(_)
            | ModelAction::PausePool(_)
            | ModelAction::RemovePool(_)
            | ModelAction::MakePool(_)
            | ModelAction::Window => self.happen_to_pools(action),
            ModelAction::OwnReboot(at) => {
                self.faults.own_reboots -= 1;
                self.go_down(at);
            }
            ModelAction::Cordon(at) => {
                self.faults.people -= 1;
                let place = &mut self.places[at];
                place.foreign_cordon = true;
                if let Some(node) = &mut place.node {
                    node.unschedulable = true;
                }
            }
            ModelAction::Uncordon(at) => self.uncordon(at),
            ModelAction::DeleteShadow(at) => {
                self.faults.deletions -= 1;
                let late = self.is_too_late(at);
                let place = &mut self.places[at];
                place.meddled |= late;
                place.forgotten = true;
                place.shadow = None;
            }
            ModelAction::RemoveNode(at) => self.remove(at),
            ModelAction::JoinNode(at) => self.join(at),
            ModelAction::Resume => {
                self.faults.resumes -= 1;
                self.ledger.generation += 1;
                self.ledger.resumed = self.ledger.record.and_then(|record| record.halted);
            }
            ModelAction::TakeOut => {
                self.faults.resumes -= 1;
                self.ledger.generation += 1;
                self.ledger.resumed = None;
            }
            ModelAction::Pause => {
                self.faults.pauses -= 1;
                self.ledger.generation += 1;
                self.ledger.paused = !self.ledger.paused;
            }
        }
        if let Some(broken) = properties::broken_rule(config, self) {
            self.broken.get_or_insert(broken);
        }
    }

    /// The specs and windows of pools, and the pool that a node is labelled for.
    fn happen_to_pools(&mut self, action: ModelAction) {
        match action {
            ModelAction::Move(at) => {
                self.faults.moves -= 1;
                if let Some(node) = &mut self.places[at].node {
                    node.pool = 1 - node.pool;
                }
            }
            ModelAction::PausePool(at) => {
                self.faults.pool_pauses -= 1;
                self.pools[at].paused = !self.pools[at].paused;
            }
            ModelAction::RemovePool(at) => {
                self.faults.pool_deletions -= 1;
                self.pools[at] = Pool {
                    gone: true,
                    paused: false,
                };
            }
            ModelAction::MakePool(at) => self.pools[at].gone = false,
            ModelAction::Window => {
                self.faults.windows -= 1;
                self.pools[DEFAULT].paused = !self.pools[DEFAULT].paused;
            }
            _ => {}
        }
    }

    /// Something that a deadline brings about: a fault, but for silent agents, of whom it is what must come.
    fn in_overdue(&mut self, config: &Config, node: usize, act: impl FnOnce(&mut Self)) {
        let mut world = self.clone();
        // The Node is away for as long as that, or somebody has not seen its return.
        let stale = self
            .leaders
            .iter()
            .filter_map(|leader| leader.stale?.nodes?[node]);
        let place = &self.places[node];
        let away = stale.chain(place.node).any(|node| !node.ready);
        // It runs the update, and its agent has not said so, or somebody has not seen that.
        let leaders = self.leaders.iter();
        let shadows = leaders.filter_map(|leader| leader.stale?.shadows?[node]);
        let unconfirmed = |it: Shadow| {
            matches!(
                it.state,
                State::RebootedIntoUpdate | State::MonitoringUpdate
            ) && it.current_state != Some(it.state)
        };
        let unconfirmed = shadows.chain(place.shadow).any(unconfirmed) && place.host.version == 1;
        world.places[node].failed |= config.halts && (away || unconfirmed);
        let before = world.clone();
        act(&mut world);
        if world != before {
            world.faults.deadlines -= u8::from(!world.places[node].silent);
            *self = world;
        }
    }

    fn freeze(&mut self, at: usize, part: Part) {
        self.faults.stale_leaders -= 1;
        let mut shadows = [None; NODES_MAX];
        let mut nodes = [None; NODES_MAX];
        let mut pods = [false; NODES_MAX];
        for (index, place) in self.places.iter().enumerate() {
            shadows[index] = place.shadow;
            nodes[index] = place.node;
            pods[index] = place.empty;
        }
        let every = part == Part::Everything;
        self.leaders[at].stale = Some(Stale {
            shadows: (every || part == Part::Shadows).then_some(shadows),
            nodes: (every || part == Part::Nodes).then_some(nodes),
            pods: (every || part == Part::Pods).then_some(pods),
            ledger: (every || part == Part::Ledger).then_some(self.ledger),
            pools: (every || part == Part::Pools).then_some(self.pools),
        });
    }

    fn is_too_late(&self, at: usize) -> bool {
        let place = &self.places[at];
        place
            .shadow
            .is_some_and(|shadow| shadow.grant == Some(place.host.boot))
    }

    fn uncordon(&mut self, at: usize) {
        self.faults.people -= 1;
        let late = self.is_too_late(at);
        let place = &mut self.places[at];
        place.empty = false;
        place.foreign_cordon = false;
        if let Some(node) = &mut place.node {
            node.unschedulable = false;
            place.meddled |= node.marker.is_some() && late;
        }
    }

    fn remove(&mut self, at: usize) {
        self.faults.replacements -= 1;
        let place = &mut self.places[at];
        *place = Place {
            node: None,
            host: Host::new(place.host.boot),
            empty: false,
            foreign_cordon: false,
            meddled: false,
            claimed: None,
            silent: false,
            memory: started(),
            agent_sees: None,
            ..*place
        };
    }

    fn join(&mut self, at: usize) {
        let place = &mut self.places[at];
        place.host = Host::new(place.host.boot + 1);
        place.node = Some(Node::new(
            small(at as u64),
            place.nodes_made,
            place.host.boot,
        ));
        place.nodes_made += 1;
    }
}
