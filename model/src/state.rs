//! The world of the model: the truth, what each process believes, and how many faults are left.

use brupop_agent::step::{Memory, Prefetch, UpdateState};
use brupop_api::State;
use stateright::Representative;

use crate::objects::{Ledger, NODES_MAX, Node, Shadow};

/// How many of each fault may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "named after the faults")]
pub struct Faults {
    /// A reconciler takes over although the other may still believe to lead.
    pub takeovers: u8,
    /// A reconciler goes on with what it saw at some moment.
    pub stale_leaders: u8,
    /// An agent goes on with the shadow that it saw at some moment.
    pub stale_agents: u8,
    /// An agent forgets what it remembers.
    pub agent_crashes: u8,
    /// A host boots the old version although the new one was next.
    pub fall_backs: u8,
    /// A host reboots by itself.
    pub own_reboots: u8,
    /// A command of a host fails.
    pub failed_commands: u8,
    /// A person cordons or uncordons a node.
    pub people: u8,
    /// A step takes too long.
    pub deadlines: u8,
    /// An agent is never heard of again.
    pub silent_agents: u8,
}

/// A safeguard that a sensitivity run leaves out, to see that the model notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Safeguard {
    /// Writes of a shadow test its generation.
    Generation,
    /// Writes of the ledger test the slots.
    Slots,
    /// Aborts and withdrawn grants test the claim.
    Claim,
    /// The agent reboots only from a boot that it has claimed and that was granted.
    Handshake,
    /// Writes of a Node test the marker, and change only what it names.
    Marker,
    /// "Drained" is written only when a fresh list of pods agrees.
    FreshPods,
}

impl Safeguard {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Generation, Self::Slots, Self::Claim, Self::Handshake, Self::Marker, Self::FreshPods];
}

/// The model's size.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How many nodes, at most [`NODES_MAX`].
    pub nodes: usize,
    /// How many may be updated at once.
    pub limit: u64,
    /// Updates tried on a node before it is left alone.
    pub attempts: u8,
    /// Faults that may happen.
    pub faults: Faults,
    /// One node was cordoned by a person beforehand.
    pub foreign_cordon: bool,
    /// The safeguard left out, in sensitivity runs.
    pub without: Option<Safeguard>,
}

/// A host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Host {
    /// The boot it is in.
    pub boot: u8,
    /// The version that runs.
    pub version: u8,
    /// Its updater; `None` = 404, nothing was asked since boot.
    pub updates: Option<Updater>,
    /// The staging partition holds the update.
    pub staged: bool,
    /// The staging partition is next to boot.
    pub next: bool,
    /// It is going down, to boot again.
    pub rebooting: bool,
}

/// The host's updater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Updater {
    /// The last command, and whether it succeeded.
    pub last: (brupop_agent::step::Command, bool),
    /// It has looked, so the update is known.
    pub looked: bool,
}

impl Host {
    /// `update_state`.
    pub fn update_state(&self) -> UpdateState {
        match self.updates {
            Some(_) if self.next => UpdateState::Ready,
            Some(_) if self.staged => UpdateState::Staged,
            Some(updater) if updater.looked && self.version == 0 => UpdateState::Available,
            _ => UpdateState::Idle,
        }
    }
}

/// What an agent remembers when it starts: only that it has not looked for updates.
pub const STARTED: Memory = Memory {
    asked: None,
    began: None,
    refreshed: None,
    refresh_due: true,
    prefetch: Prefetch::Off,
    reboot_refused: false,
};

/// Everything about one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Place {
    /// The truth of its shadow.
    pub shadow: Shadow,
    /// The truth of its Node.
    pub node: Node,
    /// The machine.
    pub host: Host,
    /// No pod that a drain would evict runs on it.
    pub empty: bool,
    /// A person cordoned it, and has not changed their mind.
    pub foreign_cordon: bool,
    /// A person uncordoned it while we were at it.
    pub meddled: bool,
    /// Its agent is never heard of again.
    pub silent: bool,
    /// What its agent remembers.
    pub memory: Memory,
    /// The shadow that its agent still sees, if that is not the truth.
    pub agent_sees: Option<Shadow>,
}

/// What a reconciler still sees, if that is not the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stale {
    /// The shadows.
    pub shadows: Option<[Option<Shadow>; NODES_MAX]>,
    /// The Nodes.
    pub nodes: Option<[Option<Node>; NODES_MAX]>,
    /// Whether the Nodes were empty.
    pub pods: Option<[bool; NODES_MAX]>,
    /// The ledger.
    pub ledger: Option<Ledger>,
}

/// A reconciler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Leader {
    /// The term in which it believes to lead.
    pub term: Option<u8>,
    /// What it sees instead of the truth.
    pub stale: Option<Stale>,
}

/// The whole world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// The nodes.
    pub places: Vec<Place>,
    /// The ledger.
    pub ledger: Ledger,
    /// Two reconcilers.
    pub leaders: [Leader; 2],
    /// What may still go wrong.
    pub faults: Faults,
    /// An invariant that was broken on the way here; see [`crate::properties`].
    pub broken: Option<&'static str>,
}

impl World {
    /// How it begins: every shadow Idle, every host in its first boot with the old version.
    pub fn new(config: &Config) -> Self {
        let places = (0..config.nodes)
            .map(|index| {
                let foreign_cordon = config.foreign_cordon && index == 0;
                let index = u8::try_from(index).unwrap_or(0);
                Place {
                    shadow: Shadow {
                        index,
                        generation: 1,
                        state: State::Idle,
                        version: None,
                        attempt: None,
                        term: None,
                        baseline: None,
                        grant: None,
                        failures: None,
                        current_version: None,
                        target_version: None,
                        current_state: None,
                        status_attempt: None,
                        boot: None,
                        staged: false,
                        claim: None,
                        message: None,
                    },
                    node: Node {
                        index,
                        boot: 0,
                        version: 0,
                        ready: true,
                        unschedulable: foreign_cordon,
                        tainted: false,
                        marker: None,
                    },
                    host: Host {
                        boot: 0,
                        version: 0,
                        updates: None,
                        staged: false,
                        next: false,
                        rebooting: false,
                    },
                    empty: false,
                    foreign_cordon,
                    meddled: false,
                    silent: false,
                    memory: STARTED,
                    agent_sees: None,
                }
            })
            .collect();
        Self {
            places,
            ledger: Ledger { term: 0, slots: [None; NODES_MAX] },
            leaders: [Leader::default(); 2],
            faults: config.faults,
            broken: None,
        }
    }
}

impl Representative for World {
    /// Nodes have no names that matter: a world in another order of its nodes is the same world.
    fn representative(&self) -> Self {
        let mut order: Vec<usize> = (0..self.places.len()).collect();
        let key = |at: usize| {
            let seen = |leader: &Leader| {
                leader.stale.map(|stale| {
                    (
                        stale.shadows.map(|shadows| shadows[at].map(|shadow| Shadow { index: 0, ..shadow })),
                        stale.nodes.map(|nodes| nodes[at].map(|node| Node { index: 0, ..node })),
                        stale.pods.map(|pods| pods[at]),
                        stale.ledger.map(|ledger| ledger.slots[at]),
                    )
                })
            };
            let place = self.places[at].renamed(0);
            (place, self.ledger.slots[at], seen(&self.leaders[0]), seen(&self.leaders[1]))
        };
        order.sort_by_key(|&at| key(at));
        let mut world = self.clone();
        for (to, &from) in order.iter().enumerate() {
            let index = u8::try_from(to).unwrap_or(0);
            world.places[to] = self.places[from].renamed(index);
            world.ledger.slots[to] = self.ledger.slots[from];
            for (new, old) in world.leaders.iter_mut().zip(&self.leaders) {
                let (Some(new), Some(old)) = (&mut new.stale, old.stale) else { continue };
                if let (Some(new), Some(old)) = (&mut new.shadows, old.shadows) {
                    new[to] = old[from].map(|shadow| Shadow { index, ..shadow });
                }
                if let (Some(new), Some(old)) = (&mut new.nodes, old.nodes) {
                    new[to] = old[from].map(|node| Node { index, ..node });
                }
                if let (Some(new), Some(old)) = (&mut new.pods, old.pods) {
                    new[to] = old[from];
                }
                if let (Some(new), Some(old)) = (&mut new.ledger, old.ledger) {
                    new.slots[to] = old.slots[from];
                }
            }
        }
        world
    }
}

impl Place {
    fn renamed(&self, index: u8) -> Self {
        Self {
            shadow: Shadow { index, ..self.shadow },
            node: Node { index, ..self.node },
            agent_sees: self.agent_sees.map(|shadow| Shadow { index, ..shadow }),
            ..*self
        }
    }
}
