//! The objects of the cluster, as small as the protocol allows, with the fields that writes test and set.

use std::collections::BTreeSet;
use std::sync::{LazyLock, Mutex, PoisonError};

use brupop_api::fleet::Slot;
use brupop_api::shadow::{Failures, Staged};
use brupop_api::write::Fields;
use brupop_api::{Field, Marker, State, Value};

/// Most nodes in a model.
pub const NODES_MAX: usize = 4;
/// Most attempts of a node.
pub const ATTEMPTS_MAX: usize = 4;
/// The versions: the one that every host begins with, and the update.
pub const VERSIONS: [&str; 2] = ["1.0.0", "1.1.0"];
/// The boots that a host can be in.
pub const BOOTS: [&str; 10] = ["b0", "b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8", "b9"];
/// Names of shadows; their UIDs are the same.
pub const SHADOWS: [&str; NODES_MAX] = ["brs-0", "brs-1", "brs-2", "brs-3"];
/// Names of nodes; their UIDs are the same.
pub const NODES: [&str; NODES_MAX] = ["0", "1", "2", "3"];
/// The only time there is.
pub const NOW: &str = "now";

/// A shadow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the fields of a shadow; boots and versions by index")]
pub struct Shadow {
    pub index: u8,
    pub generation: u8,
    pub state: State,
    pub version: Option<u8>,
    pub attempt: Option<u8>,
    pub term: Option<u8>,
    pub baseline: Option<u8>,
    pub grant: Option<u8>,
    /// Failures: how many, and the attempt of the last.
    pub failures: Option<(u8, u8)>,
    pub current_version: Option<u8>,
    pub target_version: Option<u8>,
    pub current_state: Option<State>,
    pub status_attempt: Option<u8>,
    pub boot: Option<u8>,
    pub staged: bool,
    pub claim: Option<u8>,
    pub message: Option<&'static str>,
}

/// The marker on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the fields of a marker")]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Mark {
    pub attempt: u8,
    pub cordoned: bool,
    pub started: bool,
    pub drained: bool,
    pub tainted: bool,
}

/// A Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the fields of a Node")]
pub struct Node {
    pub index: u8,
    pub boot: u8,
    pub version: u8,
    pub ready: bool,
    pub unschedulable: bool,
    pub tainted: bool,
    pub marker: Option<Mark>,
}

/// The ledger; a slot is the attempt it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the fields of the ledger")]
pub struct Ledger {
    pub term: u8,
    pub slots: [Option<u8>; NODES_MAX],
}

/// Every [`Failures`] there can be, by count and attempt.
pub static FAILURES: LazyLock<Vec<Vec<Failures>>> = LazyLock::new(|| {
    let failures = |count: usize, attempt: usize| Failures {
        count: count as u64,
        attempt: attempt as u64,
        at: NOW.into(),
        reason: "FellBack".into(),
    };
    (0..=ATTEMPTS_MAX)
        .map(|count| (0..=ATTEMPTS_MAX).map(|attempt| failures(count, attempt)).collect())
        .collect()
});

/// What an agent says of the one image it can stage.
pub static STAGED: LazyLock<Staged> =
    LazyLock::new(|| Staged { version: VERSIONS[1].into(), at: COMMAND_TIME.to_string(), prefetched: false });

/// When every command of a host ends. That a command is over is told by its kind here, not by the clock.
pub const COMMAND_TIME: jiff::Timestamp = jiff::Timestamp::UNIX_EPOCH;

impl Mark {
    /// The marker as it stands in an object; owned, for tests and sets.
    pub fn marker(self, index: u8) -> Marker {
        let when = |set: bool| set.then(|| NOW.to_owned());
        Marker {
            shadow_uid: SHADOWS[usize::from(index)].to_owned(),
            attempt: self.attempt.into(),
            term: 0,
            excluded_at: None,
            drain_started_at: when(self.started),
            cordoned_at: when(self.cordoned),
            tainted: self.tainted,
            drained_at: when(self.drained),
            evicted_owners: vec![],
        }
    }

    fn of(marker: &Marker) -> Self {
        Self {
            attempt: small(marker.attempt),
            cordoned: marker.cordoned_at.is_some(),
            started: marker.drain_started_at.is_some(),
            drained: marker.drained_at.is_some(),
            tainted: marker.tainted,
        }
    }
}

/// A number of this bounded world.
fn small(number: u64) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

/// The one copy of a text; agents have few things to say.
fn known_text(text: &str) -> &'static str {
    static TEXTS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = texts.get(text) {
        return known;
    }
    let known: &'static str = Box::leak(text.to_owned().into_boxed_str());
    texts.insert(known);
    known
}

fn to_number(value: &Value<'_>) -> Option<u8> {
    if let Value::Number(number) = value { Some(small(*number)) } else { None }
}

fn index_in(names: &[&str], value: &Value<'_>) -> Option<u8> {
    let Value::Text(text) = value else { return None };
    names.iter().position(|name| name == text).and_then(|at| u8::try_from(at).ok())
}

fn name_of(names: &[&'static str], index: Option<u8>) -> Value<'static> {
    Value::text_or_absent(index.map(|index| names[usize::from(index)]))
}

fn number(number: Option<u8>) -> Value<'static> {
    Value::number_or_absent(number.map(u64::from))
}

impl Fields for Shadow {
    fn get(&self, field: Field<'_>) -> Value<'_> {
        match field {
            Field::Uid => Value::text(SHADOWS[usize::from(self.index)]),
            Field::Generation => Value::Number(self.generation.into()),
            Field::SpecState => Value::State(self.state),
            Field::SpecVersion => name_of(&VERSIONS, self.version),
            Field::SpecAttempt => number(self.attempt),
            Field::SpecLeaderTerm => number(self.term),
            Field::SpecBaselineBootId => name_of(&BOOTS, self.baseline),
            Field::SpecRebootFromBootId => name_of(&BOOTS, self.grant),
            Field::CurrentVersion => name_of(&VERSIONS, self.current_version),
            Field::TargetVersion => name_of(&VERSIONS, self.target_version),
            Field::CurrentState => Value::state_or_absent(self.current_state),
            Field::StatusAttempt => number(self.status_attempt),
            Field::StatusBootId => name_of(&BOOTS, self.boot),
            Field::StatusStaged if self.staged => Value::Staged(STAGED.clone()),
            Field::StatusRebootRequested => name_of(&BOOTS, self.claim),
            Field::StatusMessage => Value::text_or_absent(self.message),
            _ => Value::Absent,
        }
    }

    fn set(&mut self, field: Field<'_>, value: &Value<'_>) {
        match field {
            Field::SpecState => {
                self.state = if let Value::State(state) = value { *state } else { self.state }
            }
            Field::SpecVersion => self.version = index_in(&VERSIONS, value),
            Field::SpecAttempt => self.attempt = to_number(value),
            Field::SpecLeaderTerm => self.term = to_number(value),
            Field::SpecBaselineBootId => self.baseline = index_in(&BOOTS, value),
            Field::SpecRebootFromBootId => self.grant = index_in(&BOOTS, value),
            Field::SpecFailures => {
                self.failures = if let Value::Failures(failures) = value {
                    Some((small(failures.count), small(failures.attempt)))
                } else {
                    None
                };
            }
            Field::CurrentVersion => self.current_version = index_in(&VERSIONS, value),
            Field::TargetVersion => self.target_version = index_in(&VERSIONS, value),
            Field::CurrentState => {
                self.current_state = if let Value::State(state) = value { Some(*state) } else { None };
            }
            Field::StatusAttempt => self.status_attempt = to_number(value),
            Field::StatusBootId => self.boot = index_in(&BOOTS, value),
            Field::StatusStaged => self.staged = *value != Value::Absent,
            Field::StatusRebootRequested => self.claim = index_in(&BOOTS, value),
            Field::StatusMessage => {
                self.message = if let Value::Text(text) = value { Some(known_text(text)) } else { None };
            }
            _ => {}
        }
    }
}

impl Fields for Node {
    fn get(&self, field: Field<'_>) -> Value<'_> {
        match field {
            Field::Uid => Value::text(NODES[usize::from(self.index)]),
            Field::Unschedulable => Value::flag(self.unschedulable),
            Field::UpdatingTaint => Value::flag(self.tainted),
            Field::Marker => self.marker.map_or(Value::Absent, |mark| {
                Value::Marker(std::borrow::Cow::Owned(mark.marker(self.index)))
            }),
            _ => Value::Absent,
        }
    }

    fn set(&mut self, field: Field<'_>, value: &Value<'_>) {
        match field {
            Field::Unschedulable => self.unschedulable = *value == Value::Set,
            Field::UpdatingTaint => self.tainted = *value == Value::Set,
            Field::Marker => {
                self.marker = if let Value::Marker(marker) = value { Some(Mark::of(marker)) } else { None };
            }
            _ => {}
        }
    }
}

impl Fields for Ledger {
    fn get(&self, field: Field<'_>) -> Value<'_> {
        match field {
            Field::Term => Value::Number(self.term.into()),
            Field::Slots => Value::Slots(std::borrow::Cow::Owned(
                self.slots
                    .iter()
                    .enumerate()
                    .filter_map(|(index, slot)| {
                        let slot = Slot {
                            uid: SHADOWS[index].to_owned(),
                            attempt: u64::from((*slot)?),
                            since: None,
                        };
                        Some((SHADOWS[index].to_owned(), slot))
                    })
                    .collect(),
            )),
            _ => Value::Absent,
        }
    }

    fn set(&mut self, field: Field<'_>, value: &Value<'_>) {
        match field {
            Field::Term => self.term = to_number(value).unwrap_or(self.term),
            Field::Slot(shadow) => {
                if let Some(index) = SHADOWS.iter().position(|name| *name == shadow) {
                    self.slots[index] =
                        if let Value::Slot(slot) = value { Some(small(slot.attempt)) } else { None };
                }
            }
            _ => {}
        }
    }
}
