//! A conditional change of one object: the facts it was decided on, and what it sets.
//!
//! A [`Write`] is a plain value, and [`Write::patch`] says it as a JSON patch for the API server. In tests and in the model,
//! the crate `brupop-apply` carries it out on objects in memory. A property test on a real API server holds the two against
//! each other.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use json_patch::{
    AddOperation, Patch, PatchOperation, RemoveOperation, TestOperation, jsonptr::PointerBuf,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

use crate::fleet::{DonePool, Slot, VersionRecord};
use crate::item::null_as_default;
use crate::shadow::{LastFailure, Staged};
use crate::{Marker, Problem, State, names};

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

impl Object<String> {
    /// Returns the name that the shadow of its node has or would have.
    pub fn shadow(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::ShadowSpec(name) | Self::ShadowStatus(name) => Some(name.into()),
            Self::Node(name) => Some(names::shadow_name(name).into()),
            Self::Ledger | Self::FleetStatus | Self::PoolStatus(_) => None,
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
    SpecFromVersion,
    SpecAttempt,
    SpecLeaderTerm,
    SpecBaselineBootId,
    /// The grant of a reboot in the spec.
    SpecRebootGrantedBootId,
    SpecLastFailure,
    CurrentVersion,
    TargetVersion,
    CurrentState,
    CrashCount,
    FailureTimestamp,
    StatusAttempt,
    StatusBootId,
    StatusStaged,
    /// The claim of a reboot in the status.
    StatusRebootClaimedBootId,
    StatusProblem,
    StatusProblemSince,
    StatusMessage,
    /// The field `spec.unschedulable` of the Node.
    Unschedulable,
    /// Node: our label that keeps it out of load balancers, or anybody's.
    ExcludedFromLoadBalancers,
    /// The operator's taint on the Node.
    UpdatingTaint,
    /// Node: the annotation that keeps Karpenter from disrupting it, ours or anybody's.
    DoNotDisrupt,
    /// Node: the annotation that keeps the cluster autoscaler from removing it, ours or anybody's.
    ScaleDownDisabled,
    /// The annotation with the Node's marker.
    Marker,
    /// Node: the annotation by which a person has ended a back-off.
    Retry,
    /// Node: the annotation by which a person has requested its update.
    UpdateNow,
    /// Node: the label by which it is looked after.
    UpdaterInterface,
    /// Node: what its kubelet says that it runs; only to be tested.
    OsImage,
    /// The leader's term in the ledger.
    Term,
    /// Fleet: all slots; only to be tested. None is the same as no map of them.
    Slots,
    /// Fleet: the slot of one shadow; only to be set.
    Slot(&'a str),
    /// Fleet: what became of the versions. No record is the same as no list of them.
    Versions,
    /// Fleet: which pools are done with which versions; none likewise.
    DonePools,
    /// Fleet: when an update last finished.
    LastFinished,
}

/// The value of a [`Field`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Nothing: the field is not there. A flag that is not set is absent, too.
    Absent,
    /// A flag that is set.
    Set,
    /// A counter or another number.
    Number(u64),
    /// A text: a version, a boot id, a UID, a time.
    Text(Cow<'a, str>),
    /// A state of an update's steps.
    State(State),
    /// A problem that an agent reports.
    Problem(Problem),
    /// The image that an agent staged.
    Staged(Staged),
    /// The record of the last failed attempt.
    LastFailure(LastFailure),
    /// The marker of a Node's changes.
    Marker(Cow<'a, Marker>),
    /// One slot of the ledger's slots.
    Slot(Slot),
    /// All slots of the ledger together.
    Slots(Cow<'a, BTreeMap<String, Slot>>),
    /// The ledger's records of all versions.
    Versions(Cow<'a, [VersionRecord]>),
    /// The versions that pools have finished.
    DonePools(Cow<'a, [DonePool]>),
}

impl<'a> Value<'a> {
    /// Makes a value of a text.
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

    /// A problem that may be absent.
    pub fn problem_or_absent(problem: Option<Problem>) -> Self {
        problem.map_or(Self::Absent, Self::Problem)
    }

    /// Makes a value that is set, or absent.
    pub fn flag(set: bool) -> Self {
        if set { Self::Set } else { Self::Absent }
    }

    fn json(&self) -> Json {
        match self {
            Self::Absent => Json::Null,
            Self::Set => json!(true),
            Self::Number(number) => json!(number),
            Self::Text(text) => json!(text),
            Self::State(state) => json!(state),
            Self::Problem(problem) => json!(problem),
            Self::Staged(staged) => json!(staged),
            Self::LastFailure(failures) => json!(failures),
            Self::Marker(marker) => json!(marker.render()),
            Self::Slot(slot) => json!(slot),
            Self::Slots(slots) => json!(slots),
            Self::Versions(records) => json!(records),
            Self::DonePools(done) => json!(done),
        }
    }
}

/// A conditional change of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// The object that the write changes.
    pub object: Object<&'a str>,
    /// The fields and values that the write tests.
    pub tests: Vec<(Field<'a>, Value<'a>)>,
    /// The fields and values that the write sets.
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
    /// more (a parent or a list has changed), never less. What it stores is what the write says, except that a second taint of
    /// ours that came meanwhile stays.
    pub fn patch(&self, observed: &Json) -> Patch {
        let mut patch = Builder {
            observed,
            tests: vec![],
            sets: vec![],
            made: BTreeSet::new(),
        };
        for (field, value) in &self.tests {
            if field.value_in(observed).as_ref() == Some(value) {
                patch.test_as_read(&field.pointer());
            } else {
                patch.test(&field.pointer(), field.json(value, observed));
            }
        }
        for (field, value) in &self.sets {
            if *field == Field::UpdatingTaint {
                if *value == Value::Absent && patch.remove_taint(&field.pointer()) {
                    continue;
                }
                patch.test_as_read(&field.pointer());
            }
            patch.set(&field.pointer(), field.json(value, observed));
        }
        patch.finish()
    }
}

/// Every pointer here begins with a slash and is escaped, so it parses; a bad one would be the whole document, which
/// no test matches.
fn parse(path: &str) -> PointerBuf {
    PointerBuf::parse(path).unwrap_or_default()
}

/// Collects the operations; parents that are absent are tested to be so, and made once.
struct Builder<'a> {
    observed: &'a Json,
    tests: Vec<(String, Json)>,
    /// Null is removed.
    sets: Vec<(String, Json)>,
    made: BTreeSet<String>,
}

impl<'a> Builder<'a> {
    fn read(&self, path: &str) -> &'a Json {
        self.observed.pointer(path).unwrap_or(&Json::Null)
    }

    /// `test`: null stands for absent, which the server takes as long as the parent is there.
    fn test(&mut self, path: &str, value: Json) {
        let path = self
            .absent_ancestor(path)
            .filter(|_| value.is_null())
            .unwrap_or_else(|| path.to_owned());
        let test = (path, value);
        if !self.tests.contains(&test) {
            self.tests.push(test);
        }
    }

    /// `test` that what stands there is what was read.
    fn test_as_read(&mut self, path: &str) {
        self.test(path, self.read(path).clone());
    }

    /// `add` (which replaces a member that exists), or `remove` for null; of what is absent, a test that it still is.
    fn set(&mut self, path: &str, value: Json) {
        if value.is_null() && self.read(path).is_null() {
            return self.test_absent(path);
        }
        while let Some(ancestor) = self.absent_ancestor(path).filter(|it| it != path) {
            self.test_absent(&ancestor);
            self.sets.push((ancestor.clone(), json!({})));
            self.made.insert(ancestor);
        }
        self.sets.push((path.to_owned(), value));
    }

    /// Tests and removes our taint where it was read, if it was: controllers add and remove others of the list all the time.
    fn remove_taint(&mut self, path: &str) -> bool {
        let taints = self.read(path).as_array().into_iter().flatten().enumerate();
        let ours: Vec<_> = taints.filter(|(_, taint)| is_ours(taint)).collect();
        // The last one first, so that the others stay where they are.
        for (index, taint) in ours.iter().rev() {
            let path = format!("{path}/{index}");
            self.test(&path, (*taint).clone());
            self.sets.push((path, Json::Null));
        }
        !ours.is_empty()
    }

    fn finish(self) -> Patch {
        let tests = self.tests.into_iter().map(|(path, value)| {
            let path = parse(&path);
            PatchOperation::Test(TestOperation { path, value })
        });
        let sets = self.sets.into_iter().map(|(path, value)| {
            let path = parse(&path);
            match value {
                Json::Null => PatchOperation::Remove(RemoveOperation { path }),
                value => PatchOperation::Add(AddOperation { path, value }),
            }
        });
        Patch(tests.chain(sets).collect())
    }

    /// `test` that nothing stands there; but below a parent that this patch makes nothing can, nor be tested.
    fn test_absent(&mut self, path: &str) {
        let below = |made: &String| {
            path.strip_prefix(made.as_str())
                .is_some_and(|rest| rest.starts_with('/'))
        };
        if !self.made.iter().any(below) {
            self.test(path, Json::Null);
        }
    }

    /// The topmost pointer on the way to `path` (itself included) that neither was read nor is made by this patch.
    fn absent_ancestor(&self, path: &str) -> Option<String> {
        path.match_indices('/')
            .map(|(at, _)| &path[..at])
            .skip(1)
            .chain([path])
            .find(|prefix| !self.made.contains(*prefix) && self.read(prefix).is_null())
            .map(str::to_owned)
    }
}

impl<'a> Field<'a> {
    /// Returns how its values are read, the pointer to it, and the name of a member there that has to be escaped.
    fn place(self) -> (Read, &'static str, Option<&'a str>) {
        let at = |read, path| (read, path, None);
        let label = |read, key| (read, "/metadata/labels", Some(key));
        let annotation = |read, key| (read, "/metadata/annotations", Some(key));
        match self {
            Self::Uid => at(TEXT, "/metadata/uid"),
            Self::Generation => at(NUMBER, "/metadata/generation"),
            Self::SpecState => at(STATE, "/spec/state"),
            Self::SpecTransitionTimestamp => at(TEXT, "/spec/state_transition_timestamp"),
            Self::SpecVersion => at(TEXT, "/spec/version"),
            Self::SpecFromVersion => at(TEXT, "/spec/from_version"),
            Self::SpecAttempt => at(NUMBER, "/spec/attempt"),
            Self::SpecLeaderTerm => at(NUMBER, "/spec/leader_term"),
            Self::SpecBaselineBootId => at(TEXT, "/spec/baseline_boot_id"),
            Self::SpecRebootGrantedBootId => at(TEXT, "/spec/reboot_granted_boot_id"),
            Self::SpecLastFailure => at(LAST_FAILURE, "/spec/last_failure"),
            Self::CurrentVersion => at(TEXT, "/status/current_version"),
            Self::TargetVersion => at(TEXT, "/status/target_version"),
            Self::CurrentState => at(STATE, "/status/current_state"),
            Self::CrashCount => at(NUMBER, "/status/crash_count"),
            Self::FailureTimestamp => at(TEXT, "/status/state_transition_failure_timestamp"),
            Self::StatusAttempt => at(NUMBER, "/status/attempt"),
            Self::StatusBootId => at(TEXT, "/status/boot_id"),
            Self::StatusStaged => at(STAGED, "/status/staged"),
            Self::StatusRebootClaimedBootId => at(TEXT, "/status/reboot_claimed_boot_id"),
            Self::StatusProblem => at(PROBLEM, "/status/problem"),
            Self::StatusProblemSince => at(TEXT, "/status/problem_since"),
            Self::StatusMessage => at(TEXT, "/status/message"),
            Self::Unschedulable => at(FLAG, "/spec/unschedulable"),
            Self::ExcludedFromLoadBalancers => label(KEY, names::EXCLUDE_FROM_LB_LABEL),
            Self::UpdatingTaint => at(TAINT, "/spec/taints"),
            Self::DoNotDisrupt => annotation(KEY, names::DO_NOT_DISRUPT_ANNOTATION),
            Self::ScaleDownDisabled => annotation(KEY, names::SCALE_DOWN_DISABLED_ANNOTATION),
            Self::Marker => annotation(MARKER, names::MARKER_ANNOTATION),
            Self::Retry => annotation(TEXT, names::RETRY_ANNOTATION),
            Self::UpdateNow => annotation(TEXT, names::UPDATE_NOW_ANNOTATION),
            Self::UpdaterInterface => label(TEXT, names::UPDATER_INTERFACE_LABEL),
            Self::OsImage => at(TEXT, "/status/nodeInfo/osImage"),
            Self::Term => at(NUMBER, "/status/term"),
            Self::Slots => at(SLOTS, "/status/slots"),
            Self::Slot(shadow) => (SLOT, "/status/slots", Some(shadow)),
            Self::Versions => at(VERSIONS, "/status/versions"),
            Self::DonePools => at(DONE_POOLS, "/status/donePools"),
            Self::LastFinished => at(TEXT, "/status/lastFinished"),
        }
    }

    /// JSON pointer to the field in its object.
    pub fn pointer(self) -> String {
        let (_, path, key) = self.place();
        key.map_or_else(
            || path.to_owned(),
            |key| format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")),
        )
    }

    /// Returns what stands there in the object as it was read, by meaning: a null is absent, and words, order and defaults do
    /// not matter. `None` is something that is no value of the field.
    pub fn value_in(self, observed: &Json) -> Option<Value<'static>> {
        let (read, ..) = self.place();
        read(observed.pointer(&self.pointer()).unwrap_or(&Json::Null))
    }

    /// Returns what stands at the field's pointer when it has this value.
    pub fn json(self, value: &Value<'_>, observed: &Json) -> Json {
        match self {
            Self::UpdatingTaint => taints(observed, *value == Value::Set),
            Self::ExcludedFromLoadBalancers if *value == Value::Set => {
                json!(names::EXCLUDE_FROM_LB_VALUE)
            }
            Self::DoNotDisrupt | Self::ScaleDownDisabled if *value == Value::Set => {
                json!(names::KEPT_FROM_AUTOSCALERS)
            }
            _ => value.json(),
        }
    }
}

/// Reads a value of a field from what stands there.
type Read = fn(&Json) -> Option<Value<'static>>;

const TEXT: Read = |it| parsed(it, |text: String| Value::Text(text.into()));
const NUMBER: Read = |it| parsed(it, Value::Number);
const STATE: Read = |it| parsed(it, Value::State);
const PROBLEM: Read = |it| parsed(it, Value::Problem);
const STAGED: Read = |it| parsed(it, Value::Staged);
const LAST_FAILURE: Read = |it| parsed(it, Value::LastFailure);
const SLOT: Read = |it| parsed(it, Value::Slot);
// None of them may be written as an empty map or list, or be absent.
const SLOTS: Read = |it| Some(Value::Slots(null_as_default(it).ok().map(Cow::Owned)?));
const VERSIONS: Read = |it| Some(Value::Versions(null_as_default(it).ok().map(Cow::Owned)?));
const DONE_POOLS: Read = |it| Some(Value::DonePools(null_as_default(it).ok().map(Cow::Owned)?));
/// A marker that cannot be read is a text.
const MARKER: Read = |it| {
    parsed(it, |text: String| match Marker::parse(&text) {
        Ok(marker) => Value::Marker(Cow::Owned(marker)),
        Err(_) => Value::Text(text.into()),
    })
};
const FLAG: Read = |it| Some(Value::flag(*it == json!(true)));
/// A flag that is set by a label or an annotation, of which only the key counts.
const KEY: Read = |it| Some(Value::flag(!it.is_null()));
/// A flag that is set by our taint in the list of all.
const TAINT: Read = |it| {
    let mut taints = it.as_array().into_iter().flatten();
    Some(Value::flag(taints.any(is_ours)))
};

/// Reads what stands there; null is absent.
fn parsed<T: DeserializeOwned>(
    found: &Json,
    value: fn(T) -> Value<'static>,
) -> Option<Value<'static>> {
    let found: Option<T> = Deserialize::deserialize(found).ok()?;
    Some(found.map_or(Value::Absent, value))
}

fn is_ours(taint: &Json) -> bool {
    taint["key"] == names::UPDATING_TAINT
}

/// The node's taints as read, with or without ours; null when none is left.
fn taints(observed: &Json, ours: bool) -> Json {
    let taints = observed.pointer("/spec/taints").and_then(Json::as_array);
    let mut taints = taints.cloned().unwrap_or_default();
    taints.retain(|taint| !is_ours(taint));
    if ours {
        taints.push(json!({"key": names::UPDATING_TAINT, "effect": names::UPDATING_TAINT_EFFECT}));
    }
    if taints.is_empty() {
        Json::Null
    } else {
        Json::Array(taints)
    }
}
