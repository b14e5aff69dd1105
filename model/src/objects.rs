//! The objects of a node, as small as the protocol allows, with the fields that writes test and set.

use std::collections::BTreeSet;
use std::sync::{Mutex, OnceLock, PoisonError};

use brupop_api::shadow::Staged;
use brupop_api::{Marker, Problem, State, Value};

/// Most nodes in a model.
pub const NODES_MAX: usize = 3;
/// Number of times that an object may be made under the same name.
pub const LIVES: usize = 4;
/// The versions: the one that every host begins with, and the update.
pub const VERSIONS: [&str; 2] = ["1.0.0", "1.1.0"];
/// The boots that a host can be in.
pub const BOOTS: [&str; 10] = ["b0", "b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8", "b9"];
pub(crate) const FLEET_UID: &str = "fleet";
pub const SHADOWS: [&str; NODES_MAX] = ["brs-0", "brs-1", "brs-2"];
pub const NODES: [&str; NODES_MAX] = ["0", "1", "2"];
/// UIDs, of shadows and Nodes alike, by index and life.
pub const UIDS: [[&str; LIVES]; NODES_MAX] = [
    ["0a", "0b", "0c", "0d"],
    ["1a", "1b", "1c", "1d"],
    ["2a", "2b", "2c", "2d"],
];
pub const POOLS: [&str; 2] = ["p0", "p1"];
/// The times there are, see [`crate::World::clock`].
pub const TIMES: [&str; 9] = [
    "2026-01-01T00:00:00Z",
    "2026-01-01T00:00:01Z",
    "2026-01-01T00:00:02Z",
    "2026-01-01T00:00:03Z",
    "2026-01-01T00:00:04Z",
    "2026-01-01T00:00:05Z",
    "2026-01-01T00:00:06Z",
    "2026-01-01T00:00:07Z",
    "2026-01-01T00:00:08Z",
];

/// Failures in a spec; the time by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Failed {
    pub count: u8,
    pub attempt: u8,
    pub at: u8,
    /// Facts of the Node show it.
    pub corroborated: bool,
}

/// A shadow; boots and versions by index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shadow {
    pub index: u8,
    pub life: u8,
    /// The life of the Node that owns it.
    pub owner: u8,
    pub generation: u8,
    pub state: State,
    pub version: Option<u8>,
    pub attempt: Option<u8>,
    pub term: Option<u8>,
    pub baseline: Option<u8>,
    pub grant: Option<u8>,
    pub failures: Option<Failed>,
    pub current_version: Option<u8>,
    pub target_version: Option<u8>,
    pub current_state: Option<State>,
    pub status_attempt: Option<u8>,
    pub boot: Option<u8>,
    pub staged: Option<u8>,
    pub claim: Option<u8>,
    pub problem: Option<Problem>,
    pub message: Option<&'static str>,
}

/// The marker on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Mark {
    pub life: u8,
    pub attempt: u8,
    pub cordoned: bool,
    pub started: bool,
    pub drained: bool,
    /// It was, before pods came or somebody uncordoned it.
    pub was_drained: bool,
    pub tainted: bool,
    /// It names workloads whose pods were evicted.
    pub owners: bool,
    /// It keeps the node from autoscalers, and nothing else.
    pub kept: bool,
    /// The times in it are those of another cordon than the last one's.
    pub again: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node {
    pub index: u8,
    pub life: u8,
    pub boot: u8,
    pub version: u8,
    /// The pool that its labels put it in, where there are pools.
    pub pool: u8,
    pub ready: bool,
    pub unschedulable: bool,
    pub tainted: bool,
    pub marker: Option<Mark>,
}

/// All that an agent has ever said of the one image that it can stage; shadows name it by index.
static STAGED: [OnceLock<Staged>; 4] = [const { OnceLock::new() }; 4];

/// When every command of a host ends. That a command is over is told by its kind here, not by the clock.
pub const COMMAND_TIME: jiff::Timestamp = jiff::Timestamp::UNIX_EPOCH;

impl Shadow {
    /// A new one: Idle, and its agent has said nothing.
    pub fn new(index: u8, life: u8, owner: u8) -> Self {
        Self {
            index,
            life,
            owner,
            generation: 1,
            ..Self::default()
        }
    }
}

impl Node {
    /// A new one: Ready, in this boot, with the old version.
    pub fn new(index: u8, life: u8, boot: u8) -> Self {
        Self {
            index,
            life,
            boot,
            ready: true,
            ..Self::default()
        }
    }
}

impl Mark {
    pub(crate) fn of(marker: &Marker) -> Self {
        let life = UIDS
            .iter()
            .flatten()
            .position(|uid| *uid == marker.shadow_uid);
        Self {
            life: life.map_or(0, |at| small((at % LIVES) as u64)),
            attempt: small(marker.attempt),
            cordoned: marker.cordoned_at.is_some(),
            started: marker.drain_started_at.is_some(),
            drained: marker.drained_at.is_some(),
            was_drained: marker.was_drained,
            tainted: marker.tainted,
            owners: !marker.evicted_owners.is_empty(),
            kept: marker.is_kept(),
            again: false,
        }
    }
}

/// A number of this bounded world.
pub(crate) fn small(number: u64) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

/// A time by its index; one that is none of them is the last.
pub(crate) fn time(time: &str) -> u8 {
    small(
        TIMES
            .iter()
            .position(|known| *known == time)
            .unwrap_or(TIMES.len() - 1) as u64,
    )
}

/// The one copy of a text; agents have few things to say.
pub(crate) fn known_text(text: &str) -> &'static str {
    static TEXTS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = texts.get(text) {
        return known;
    }
    let known: &'static str = Box::leak(text.to_owned().into_boxed_str());
    texts.insert(known);
    known
}

/// The index of what an agent says it staged.
pub(crate) fn saying_staged(staged: &Staged) -> Option<u8> {
    let at = STAGED
        .iter()
        .position(|said| said.get_or_init(|| staged.clone()) == staged);
    at.map(|at| small(at as u64))
}

/// Returns what an agent says it staged.
pub(crate) fn said_staged(index: Option<u8>) -> Option<&'static Staged> {
    index.and_then(|index| STAGED[usize::from(index)].get())
}

pub(crate) fn to_number(value: &Value<'_>) -> Option<u8> {
    if let Value::Number(number) = value {
        Some(small(*number))
    } else {
        None
    }
}

pub(crate) fn index_in(names: &[&str], value: &Value<'_>) -> Option<u8> {
    let Value::Text(text) = value else {
        return None;
    };
    names
        .iter()
        .position(|name| name == text)
        .and_then(|at| u8::try_from(at).ok())
}

pub(crate) fn name_of(names: &[&'static str], index: Option<u8>) -> Value<'static> {
    Value::text_or_absent(index.map(|index| names[usize::from(index)]))
}

pub(crate) fn number(number: Option<u8>) -> Value<'static> {
    Value::number_or_absent(number.map(u64::from))
}
