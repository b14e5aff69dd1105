//! A conditional change of one object: the facts it was decided on, and what it sets.
//!
//! A [`Write`] is a plain value, and [`Write::patch`] says it as a JSON patch for the API server. In tests and in the model,
//! the crate `brupop-apply` carries it out on objects in memory. A property test on a real API server holds the two against
//! each other.

use std::borrow::Cow;
use std::collections::BTreeMap;

use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, TestOperation, jsonptr::PointerBuf};
use serde_json::json;

use crate::fleet::{Slot, VersionRecord};
use crate::names;
use crate::problem::Problem;
use crate::shadow::{Failures, Staged};
use crate::{Marker, State};

mod fit;
mod pointer;

pub use fit::Misfit;

/// An object, and the part of it, that is written. `N` is the type of its name: `&str`, or `String` for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Object<N> {
    /// The shadow of this name: itself and its spec, by the reconciler.
    ShadowSpec(N),
    /// The shadow of this name, through `/status`: by its agent, but for pool and conditions, which are the reconciler's.
    ShadowStatus(N),
    /// The Node of this name.
    Node(N),
    /// The fleet, through `/status`: slots and records, on which decisions rest. Also the fleet itself, when it is created.
    Ledger,
    /// The fleet, through `/status`: limit, counts and conditions, which only people read.
    FleetStatus,
    /// The pool of this name, through `/status`.
    PoolStatus(N),
}

impl<N> Object<N> {
    /// The word for metrics and logs.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::ShadowSpec(_) => "shadow",
            Self::ShadowStatus(_) => "shadow-status",
            Self::Node(_) => "node",
            Self::Ledger => "ledger",
            Self::FleetStatus => "fleet-status",
            Self::PoolStatus(_) => "pool-status",
        }
    }
}

impl Object<&str> {
    /// The object by an owned name.
    pub fn owned(self) -> Object<String> {
        match self {
            Self::ShadowSpec(name) => Object::ShadowSpec(name.to_owned()),
            Self::ShadowStatus(name) => Object::ShadowStatus(name.to_owned()),
            Self::Node(name) => Object::Node(name.to_owned()),
            Self::Ledger => Object::Ledger,
            Self::FleetStatus => Object::FleetStatus,
            Self::PoolStatus(name) => Object::PoolStatus(name.to_owned()),
        }
    }
}

/// A place in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named after the fields they stand for")]
pub enum Field<'a> {
    Uid,
    Generation,
    SpecState,
    SpecTransitionTimestamp,
    SpecVersion,
    SpecAttempt,
    SpecLeaderTerm,
    SpecBaselineBootId,
    /// The grant.
    SpecRebootFromBootId,
    SpecFailures,
    CurrentVersion,
    TargetVersion,
    CurrentState,
    CrashCount,
    FailureTimestamp,
    StatusAttempt,
    StatusBootId,
    StatusStaged,
    /// The claim.
    StatusRebootRequested,
    StatusProblem,
    StatusProblemSince,
    StatusMessage,
    /// Node: `spec.unschedulable`.
    Unschedulable,
    /// Node: our label that keeps it out of load balancers, or anybody's.
    ExcludedFromLoadBalancers,
    /// Node: our taint.
    UpdatingTaint,
    /// Node: the annotation that keeps Karpenter from disrupting it, ours or anybody's.
    DoNotDisrupt,
    /// Node: the annotation that keeps the cluster autoscaler from removing it, ours or anybody's.
    ScaleDownDisabled,
    /// Node: the marker.
    Marker,
    /// Node: the label by which it is looked after.
    UpdaterInterface,
    /// Node: what its kubelet says that it runs; only to be tested.
    OsImage,
    /// Fleet: the leader's term.
    Term,
    /// Fleet: all slots; only to be tested. None is the same as no map of them.
    Slots,
    /// Fleet: the slot of one shadow; only to be set.
    Slot(&'a str),
    /// Fleet: what became of one version.
    VersionRecord(&'a str),
    /// Fleet: what became of one version in one pool.
    #[allow(missing_docs, reason = "named after what they are")]
    PoolRecord {
        pool: &'a str,
        version: &'a str,
    },
    /// Fleet: when one version was first seen.
    Seen(&'a str),
    /// Fleet: when an update last finished.
    LastFinished,
}

/// What stands in a [`Field`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Nothing: the field is not there. A flag that is not set is absent, too.
    Absent,
    /// A flag that is set.
    Set,
    /// A counter.
    Number(u64),
    /// A text: a version, a boot id, a UID, a time.
    Text(Cow<'a, str>),
    /// A state.
    State(State),
    /// What is wrong.
    Problem(Problem),
    /// What an agent staged.
    Staged(Staged),
    /// Failures since the last success.
    Failures(Failures),
    /// A marker.
    Marker(Cow<'a, Marker>),
    /// One slot.
    Slot(Slot),
    /// All slots.
    Slots(Cow<'a, BTreeMap<String, Slot>>),
    /// What became of a version.
    VersionRecord(VersionRecord),
}

impl<'a> Value<'a> {
    /// A text.
    pub fn text(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }

    /// A text that may be absent.
    pub fn text_or_absent(text: Option<&'a str>) -> Self {
        text.map_or(Self::Absent, Self::text)
    }

    /// A counter that may be absent.
    pub fn number_or_absent(number: Option<u64>) -> Self {
        number.map_or(Self::Absent, Self::Number)
    }

    /// A state that may be absent.
    pub fn state_or_absent(state: Option<State>) -> Self {
        state.map_or(Self::Absent, Self::State)
    }

    /// What is wrong, if anything is.
    pub fn problem_or_absent(problem: Option<Problem>) -> Self {
        problem.map_or(Self::Absent, Self::Problem)
    }

    /// Set or absent.
    pub fn flag(set: bool) -> Self {
        if set { Self::Set } else { Self::Absent }
    }

    fn json(&self) -> serde_json::Value {
        match self {
            Self::Absent => serde_json::Value::Null,
            Self::Set => json!(true),
            Self::Number(number) => json!(number),
            Self::Text(text) => json!(text),
            Self::State(state) => json!(state),
            Self::Problem(problem) => json!(problem),
            Self::Staged(staged) => json!(staged),
            Self::Failures(failures) => json!(failures),
            Self::Marker(marker) => json!(marker.render()),
            Self::Slot(slot) => json!(slot),
            Self::Slots(slots) => json!(slots),
            Self::VersionRecord(record) => json!(record),
        }
    }
}

/// A conditional change of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// Where it goes.
    pub object: Object<&'a str>,
    /// What must still be so.
    pub tests: Vec<(Field<'a>, Value<'a>)>,
    /// What will be so.
    pub sets: Vec<(Field<'a>, Value<'a>)>,
}

impl Write<'_> {
    /// The write as a JSON patch on the object as it was read.
    ///
    /// The object is needed for three things that JSON patch wants to be told: which parents exist (a leaf cannot be
    /// added to an absent parent, nor tested in one), how a list with our entry looked, and in what words a value was
    /// written (a marker, or a record with defaults spelled out).
    ///
    /// On what was read, the API server takes the patch exactly when all tests hold. On anything newer it may refuse
    /// more (a parent or a list has changed), never less, and what it stores is always what the write says.
    ///
    /// # Errors
    /// The first field that the write's object does not have, or that takes no such value.
    pub fn patch(&self, observed: &serde_json::Value) -> Result<Patch, Misfit> {
        self.fits()?;
        let mut patch = pointer::Builder::new(observed);
        for (field, value) in &self.tests {
            if pointer::field_equals(*field, value, observed) {
                patch.test_as_read(&field.pointer());
            } else {
                patch.test(&field.pointer(), field.json(value, observed));
            }
        }
        for (field, value) in &self.sets {
            if *field == Field::UpdatingTaint {
                patch.test_as_read(&field.pointer());
            }
            patch.set(&field.pointer(), field.json(value, observed));
        }
        Ok(patch.finish())
    }
}

impl Field<'_> {
    /// The fields of a shadow's status that are its agent's.
    pub const OF_AGENTS: [Field<'static>; 12] = [
        Field::CurrentVersion,
        Field::TargetVersion,
        Field::CurrentState,
        Field::CrashCount,
        Field::FailureTimestamp,
        Field::StatusAttempt,
        Field::StatusBootId,
        Field::StatusStaged,
        Field::StatusRebootRequested,
        Field::StatusProblem,
        Field::StatusProblemSince,
        Field::StatusMessage,
    ];

    /// JSON pointer to the field in its object.
    pub fn pointer(&self) -> String {
        let leaf =
            |parent: &str, key: &str| format!("{parent}/{}", key.replace('~', "~0").replace('/', "~1"));
        match self {
            Self::Uid => "/metadata/uid".into(),
            Self::Generation => "/metadata/generation".into(),
            Self::SpecState => "/spec/state".into(),
            Self::SpecTransitionTimestamp => "/spec/state_transition_timestamp".into(),
            Self::SpecVersion => "/spec/version".into(),
            Self::SpecAttempt => "/spec/attempt".into(),
            Self::SpecLeaderTerm => "/spec/leader_term".into(),
            Self::SpecBaselineBootId => "/spec/baseline_boot_id".into(),
            Self::SpecRebootFromBootId => "/spec/reboot_from_boot_id".into(),
            Self::SpecFailures => "/spec/failures".into(),
            Self::CurrentVersion => "/status/current_version".into(),
            Self::TargetVersion => "/status/target_version".into(),
            Self::CurrentState => "/status/current_state".into(),
            Self::CrashCount => "/status/crash_count".into(),
            Self::FailureTimestamp => "/status/state_transition_failure_timestamp".into(),
            Self::StatusAttempt => "/status/attempt".into(),
            Self::StatusBootId => "/status/boot_id".into(),
            Self::StatusStaged => "/status/staged".into(),
            Self::StatusRebootRequested => "/status/reboot_requested".into(),
            Self::StatusProblem => "/status/problem".into(),
            Self::StatusProblemSince => "/status/problem_since".into(),
            Self::StatusMessage => "/status/message".into(),
            Self::Unschedulable => "/spec/unschedulable".into(),
            Self::ExcludedFromLoadBalancers => leaf("/metadata/labels", names::EXCLUDE_FROM_LB_LABEL),
            Self::UpdatingTaint => "/spec/taints".into(),
            Self::DoNotDisrupt => leaf("/metadata/annotations", names::DO_NOT_DISRUPT_ANNOTATION),
            Self::ScaleDownDisabled => leaf("/metadata/annotations", names::SCALE_DOWN_DISABLED_ANNOTATION),
            Self::Marker => leaf("/metadata/annotations", names::MARKER_ANNOTATION),
            Self::UpdaterInterface => leaf("/metadata/labels", names::UPDATER_INTERFACE_LABEL),
            Self::OsImage => "/status/nodeInfo/osImage".into(),
            Self::Term => "/status/term".into(),
            Self::Slots => "/status/slots".into(),
            Self::Slot(shadow) => leaf("/status/slots", shadow),
            Self::VersionRecord(version) => leaf("/status/versions", version),
            Self::PoolRecord { pool, version } => leaf("/status/poolVersions", &format!("{pool}/{version}")),
            Self::Seen(version) => leaf("/status/seen", version),
            Self::LastFinished => "/status/lastFinished".into(),
        }
    }
}

impl Field<'_> {
    /// What stands at the field's pointer when it has this value.
    fn json(self, value: &Value<'_>, observed: &serde_json::Value) -> serde_json::Value {
        match self {
            Field::UpdatingTaint => pointer::taints(observed, *value == Value::Set),
            Field::ExcludedFromLoadBalancers if *value == Value::Set => json!(names::EXCLUDE_FROM_LB_VALUE),
            Field::DoNotDisrupt | Field::ScaleDownDisabled if *value == Value::Set => {
                json!(names::KEPT_FROM_AUTOSCALERS)
            }
            _ => value.json(),
        }
    }

    /// Is it a label or an annotation of which only the key counts?
    fn is_key(self) -> bool {
        matches!(self, Field::ExcludedFromLoadBalancers | Field::DoNotDisrupt | Field::ScaleDownDisabled)
    }
}

/// One operation of a patch, by its verb.
fn test(path: &str, value: serde_json::Value) -> PatchOperation {
    PatchOperation::Test(TestOperation { path: parse(path), value })
}

fn add(path: &str, value: serde_json::Value) -> PatchOperation {
    PatchOperation::Add(AddOperation { path: parse(path), value })
}

fn remove(path: &str) -> PatchOperation {
    PatchOperation::Remove(RemoveOperation { path: parse(path) })
}

/// Every pointer here begins with a slash and is escaped, so it parses; a bad one would be the whole document, which
/// no test matches.
fn parse(path: &str) -> PointerBuf {
    PointerBuf::parse(path).unwrap_or_default()
}
