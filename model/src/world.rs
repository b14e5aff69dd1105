//! The world of the model: the truth, what each process believes, and how many faults are left.

use brupop_agent_core::step::StepMemory;

use stateright::Representative;

use crate::ledger::Ledger;
use crate::objects::{NODES_MAX, Node, Shadow, TIMES, small};
use crate::pools::Pools;
use crate::state::{Config, Faults, Host, started};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Place {
    /// The truth of its shadow; `None` when there is none.
    pub shadow: Option<Shadow>,
    /// The truth of its Node; `None` when it is gone, and the machine with it.
    pub node: Option<Node>,
    pub host: Host,
    /// Shadows made under this name.
    pub shadows_made: u8,
    /// Nodes made under this name.
    pub nodes_made: u8,
    /// No pod that a drain would evict runs on it.
    pub empty: bool,
    /// A person cordoned it, and has not changed their mind.
    pub foreign_cordon: bool,
    /// In this boot a person uncordoned it, or deleted its shadow, when it was too late to count.
    pub meddled: bool,
    /// The boot from which its agent has claimed the reboot.
    pub claimed: Option<u8>,
    /// Facts of the Node have shown a failure: a boot with the old version, or an absence that was too long.
    pub failed: bool,
    /// A person deleted its shadow: nobody knows whose the staged image is.
    pub forgotten: bool,
    /// Its agent is never heard of again.
    pub silent: bool,
    pub memory: StepMemory,
    /// The shadow that its agent still sees, if that is not the truth.
    pub agent_sees: Option<Shadow>,
}

/// A reconciler's stale view, if it differs from the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stale {
    pub shadows: Option<[Option<Shadow>; NODES_MAX]>,
    pub nodes: Option<[Option<Node>; NODES_MAX]>,
    /// Whether the Nodes were empty.
    pub pods: Option<[bool; NODES_MAX]>,
    pub ledger: Option<Ledger>,
    /// The specs of the pools.
    pub pools: Option<Pools>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Leader {
    /// The term in which it believes to lead.
    pub term: Option<u8>,
    /// The stale view of this leader, if any.
    pub stale: Option<Stale>,
}

/// What a reconciler sees: the truth, but for what is stale.
impl Leader {
    pub(crate) fn ledger(&self, world: &World) -> Ledger {
        let stale = self.stale.and_then(|stale| stale.ledger);
        stale.unwrap_or(world.ledger)
    }

    pub(crate) fn pools(&self, world: &World) -> Pools {
        let stale = self.stale.and_then(|stale| stale.pools);
        stale.unwrap_or(world.pools)
    }

    pub(crate) fn shadow(&self, world: &World, at: usize) -> Option<Shadow> {
        let stale = self.stale.and_then(|stale| stale.shadows);
        stale.map_or(world.places[at].shadow, |all| all[at])
    }

    pub(crate) fn node(&self, world: &World, at: usize) -> Option<Node> {
        let stale = self.stale.and_then(|stale| stale.nodes);
        stale.map_or(world.places[at].node, |all| all[at])
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct World {
    pub places: Vec<Place>,
    pub ledger: Ledger,
    /// The specs of the pools.
    pub pools: Pools,
    pub leaders: [Leader; 2],
    /// Hosts that have come up with the update.
    pub arrivals: u8,
    /// The faults that may still happen.
    pub faults: Faults,
    /// An invariant that was broken on the way here; see [`crate::properties`].
    pub broken: Option<&'static str>,
}

impl World {
    /// Returns what the clock says: a second more than any time that the ledger knows of the update.
    pub fn clock(&self) -> u8 {
        let record = self.ledger.record.unwrap_or_default();
        let known = record.failures.into_iter();
        let last = known
            .chain([record.halted, self.ledger.resumed])
            .flatten()
            .max();
        last.map_or(0, |last| (last + 1).min(small(TIMES.len() as u64 - 1)))
    }

    /// Returns how it begins: every shadow Idle, every host in its first boot with the old version.
    pub fn new(config: &Config) -> Self {
        let places = (0..config.nodes)
            .map(|at| {
                let foreign_cordon = config.foreign_cordon && at == 0;
                let index = u8::try_from(at).unwrap_or(0);
                let pool = u8::from(config.pools.is_some_and(|first| at >= first));
                let node = Node {
                    unschedulable: foreign_cordon,
                    pool,
                    ..Node::new(index, 0, 0)
                };
                Place {
                    shadow: Some(Shadow::new(index, 0, 0)),
                    node: Some(node),
                    shadows_made: 1,
                    nodes_made: 1,
                    foreign_cordon,
                    memory: started(),
                    ..Place::default()
                }
            })
            .collect();
        Self {
            places,
            faults: config.faults,
            ..Self::default()
        }
    }

    /// The same world with its nodes in another order: `order` says which node comes to each place.
    pub(crate) fn in_order(&self, order: &[usize]) -> Self {
        let mut world = self.clone();
        world.ledger = self.ledger.in_order(order);
        for (to, &from) in order.iter().enumerate() {
            let index = u8::try_from(to).unwrap_or(0);
            world.places[to] = self.places[from].renamed(index);
            for (new, old) in world.leaders.iter_mut().zip(&self.leaders) {
                let (Some(new), Some(old)) = (&mut new.stale, old.stale) else {
                    continue;
                };
                if let (Some(new), Some(old)) = (&mut new.shadows, old.shadows) {
                    new[to] = old[from].map(|shadow| Shadow { index, ..shadow });
                }
                if let (Some(new), Some(old)) = (&mut new.nodes, old.nodes) {
                    new[to] = old[from].map(|node| Node { index, ..node });
                }
                if let (Some(new), Some(old)) = (&mut new.pods, old.pods) {
                    new[to] = old[from];
                }
            }
        }
        for leader in &mut world.leaders {
            if let Some(stale) = &mut leader.stale {
                stale.ledger = stale.ledger.map(|ledger| ledger.in_order(order));
            }
        }
        world
    }
}

impl Representative for World {
    /// Nodes have no names that matter: a world in another order of its nodes is the same world.
    fn representative(&self) -> Self {
        let of_ledger = |ledger: Ledger, at: usize| {
            (
                ledger.slots[at],
                ledger.record.map(|record| record.failures[at]),
            )
        };
        let seen = |leader: &Leader, at: usize| {
            leader.stale.map(|stale| {
                (
                    stale
                        .shadows
                        .map(|shadows| shadows[at].map(|shadow| Shadow { index: 0, ..shadow })),
                    stale
                        .nodes
                        .map(|nodes| nodes[at].map(|node| Node { index: 0, ..node })),
                    stale.pods.map(|pods| pods[at]),
                    stale.ledger.map(|ledger| of_ledger(ledger, at)),
                )
            })
        };
        let mut order: Vec<usize> = (0..self.places.len()).collect();
        order.sort_by_cached_key(|&at| {
            let [one, other] = &self.leaders;
            (
                self.places[at].renamed(0),
                of_ledger(self.ledger, at),
                seen(one, at),
                seen(other, at),
            )
        });
        self.in_order(&order)
    }
}

impl Place {
    fn renamed(&self, index: u8) -> Self {
        let named = |shadow: Shadow| Shadow { index, ..shadow };
        Self {
            shadow: self.shadow.map(named),
            node: self.node.map(|node| Node { index, ..node }),
            agent_sees: self.agent_sees.map(named),
            ..*self
        }
    }
}
