//! The model's size, its faults, and the hosts.

use brupop_agent_core::step::{StepMemory, UpdateState};
use brupop_api::fleet::FailureThreshold;
use clap::{Args, Parser, ValueEnum};

use crate::objects::NODES_MAX;

/// Number of faults of each kind that may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Args)]
pub struct Faults {
    /// Changes of leader while the old one goes on.
    #[arg(long, default_value_t = 0)]
    pub takeovers: u8,
    /// Times that a reconciler goes on with a stale view.
    #[arg(long, default_value_t = 0)]
    pub stale_leaders: u8,
    /// Times that an agent goes on with a stale view.
    #[arg(long, default_value_t = 0)]
    pub stale_agents: u8,
    /// Number of crashes of agents that may happen.
    #[arg(long, default_value_t = 0)]
    pub agent_crashes: u8,
    /// Hosts that fall back when they boot the update.
    #[arg(long, default_value_t = 0)]
    pub fall_backs: u8,
    /// Hosts that reboot by themselves.
    #[arg(long, default_value_t = 0)]
    pub own_reboots: u8,
    /// Commands of hosts that fail.
    #[arg(long, default_value_t = 0)]
    pub failed_commands: u8,
    /// Times that a person cordons or uncordons a node.
    #[arg(long, default_value_t = 0)]
    pub people: u8,
    /// Steps that take too long.
    #[arg(long, default_value_t = 0)]
    pub deadlines: u8,
    /// Agents that are never heard of again.
    #[arg(long, default_value_t = 0)]
    pub silent_agents: u8,
    /// Times that something untrue is said in an agent's name.
    #[arg(long, default_value_t = 0)]
    pub lies: u8,
    /// Shadows that a person deletes, at most 1.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=1))]
    pub deletions: u8,
    /// Nodes that go away with their machines, at most 1.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=1))]
    pub replacements: u8,
    /// Times that a person resumes the update or takes that out again, at most 3.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=3))]
    pub resumes: u8,
    /// Times that a person pauses the fleet or lets it go on, at most 3.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=3))]
    pub pauses: u8,
    /// Times that a person labels a node for the other pool.
    #[arg(long, default_value_t = 0)]
    pub moves: u8,
    /// Times that a person pauses a pool or lets it go on.
    #[arg(long, default_value_t = 0)]
    pub pool_pauses: u8,
    /// Times that a person deletes a pool, which may be made again.
    #[arg(long, default_value_t = 0)]
    pub pool_deletions: u8,
    /// Times that the window of the default pool opens or closes.
    #[arg(long, default_value_t = 0)]
    pub windows: u8,
}

/// A safeguard that a sensitivity run leaves out, to see that the model notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Safeguard {
    /// Writes of a shadow test its generation.
    Generation,
    /// Writes of the ledger that take slots test the generation of the fleet's spec.
    Pause,
    /// Writes of the ledger test the slots.
    Slots,
    /// Aborts and withdrawn grants test the claim.
    Claim,
    /// The agent reboots only from a boot that it has claimed and that was granted.
    Handshake,
    /// Writes of a Node test the marker, and change only what it names.
    Marker,
    /// A reboot is granted, and "drained" written before that, only when a fresh list of pods agrees.
    FreshPods,
    /// A reboot is granted only when a write of the Node confirms that it is still cordoned and marked.
    FreshNode,
    /// Nobody begins with a version that is halted, or has its reboot into it granted.
    Halt,
    /// Only as many nodes try an unproven version at once as may fail.
    Canaries,
    /// A slot is given back only when the spec is Idle at the slot's own attempt.
    OwnAttempt,
    /// A cordon that was there before is not ours to undo.
    ForeignCordon,
    /// "Drained" is taken back when somebody uncordons the node.
    DrainedAgain,
    /// The ledger remembers a failure in the patch that gives its slot back.
    Counted,
    /// A slot counts in the pool in which it was taken, wherever its node goes.
    SlotPool,
    /// A slot counts even if the pool is gone in which it was taken.
    GoneSlot,
    /// A pool begins with a version only after the pool that goes first is done with it.
    Order,
    /// A pool is done only if none of its nodes wants the version.
    NoneWants,
    /// A pool that was done stays so, no matter who joins it.
    Latch,
    /// A halt clears what is noted of pools that are done.
    DoneUntilHalt,
    /// The pool is asked once more before the cordon.
    AskedAgain,
    /// From the cordon on nobody asks the pool any more.
    Finished,
    /// A node is cordoned on a view of now. It is not, with leaders whose views are stale.
    SeenNow,
    /// To be given up for what is said of a pool is no failure.
    NoFailure,
}

/// The size of the model, and its faults.
#[derive(Clone, Copy, Debug, Parser)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Config {
    /// Number of nodes, 1 to 3.
    #[arg(long, default_value_t = 3, value_parser = nodes)]
    pub nodes: usize,
    /// Number of nodes that may be updated at once.
    #[arg(long, default_value_t = 1)]
    pub limit: u64,
    /// Updates tried on a node before it is left alone, 1 to 3.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=3))]
    pub attempts: u8,
    #[command(flatten)]
    pub faults: Faults,
    /// Failed nodes halt the update, as is the default; otherwise nothing is counted.
    #[arg(long)]
    pub halts: bool,
    /// A person cordoned one of the nodes beforehand.
    #[arg(long)]
    pub foreign_cordon: bool,
    /// There are two pools, in each of which one node may be updated at once; this many nodes are in the first.
    #[arg(long)]
    pub pools: Option<usize>,
    /// The second pool comes after the first.
    #[arg(long, requires = "pools", requires = "halts")]
    pub order: bool,
    /// The safeguard left out, to see what then goes wrong.
    #[arg(long)]
    pub without: Option<Safeguard>,
}

fn nodes(text: &str) -> Result<usize, String> {
    let nodes = text
        .parse()
        .ok()
        .filter(|nodes| (1..=NODES_MAX).contains(nodes));
    nodes.ok_or_else(|| format!("1 to {NODES_MAX}"))
}

impl Config {
    /// Whether the only faults are stale views, and changes of windows, pools and fleet by people.
    pub fn only_pools_change(&self) -> bool {
        let others = Faults {
            takeovers: 0,
            stale_leaders: 0,
            pauses: 0,
            moves: 0,
            pool_pauses: 0,
            pool_deletions: 0,
            windows: 0,
            ..self.faults
        };
        others == Faults::default()
    }

    /// Returns how many nodes may fail before the update is halted.
    pub fn threshold(&self) -> FailureThreshold {
        if self.halts {
            FailureThreshold::DEFAULT
        } else {
            MORE_THAN_NODES
        }
    }
}

/// More failures than there can be nodes.
pub(crate) const MORE_THAN_NODES: FailureThreshold = FailureThreshold {
    unproven: 8,
    proven: 8,
};

/// A Bottlerocket host of the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Host {
    /// The boot it is in.
    pub boot: u8,
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

/// The state of the host's updater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Updater {
    /// The last command, and whether it succeeded.
    pub last: (brupop_agent_core::step::Command, bool),
    /// It has looked, so the update is known.
    pub looked: bool,
}

impl Host {
    /// A machine with the old version that has just come up in this boot.
    pub fn new(boot: u8) -> Self {
        Self {
            boot,
            ..Self::default()
        }
    }

    pub fn update_state(&self) -> UpdateState {
        match self.updates {
            Some(_) if self.next => UpdateState::Ready,
            Some(_) if self.staged => UpdateState::Staged,
            Some(updater) if updater.looked && self.version == 0 => UpdateState::Available,
            _ => UpdateState::Idle,
        }
    }
}

/// Returns what an agent remembers when it starts: only that it has not looked for updates.
pub fn started() -> StepMemory {
    StepMemory {
        refresh_due: true,
        ..StepMemory::default()
    }
}
