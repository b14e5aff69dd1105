//! The fields that writes test and set: of each the kind of its value, and its JSON pointer.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

use super::Value;
use crate::{Marker, names};

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

/// The kind of a field's values.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Number,
    State,
    Problem,
    Staged,
    LastFailure,
    Marker,
    Slot,
    Slots,
    Versions,
    DonePools,
    Flag,
    /// A flag that is set by a label or an annotation, of which only the key counts.
    Key,
    /// A flag that is set by our taint in the list of all.
    Taint,
}

impl<'a> Field<'a> {
    /// The kind of its values, the pointer to it, and the name of a member there that has to be escaped.
    fn place(self) -> (Kind, &'static str, Option<&'a str>) {
        let at = |kind, path| (kind, path, None);
        let label = |kind, key| (kind, "/metadata/labels", Some(key));
        let annotation = |kind, key| (kind, "/metadata/annotations", Some(key));
        match self {
            Self::Uid => at(Kind::Text, "/metadata/uid"),
            Self::Generation => at(Kind::Number, "/metadata/generation"),
            Self::SpecState => at(Kind::State, "/spec/state"),
            Self::SpecTransitionTimestamp => at(Kind::Text, "/spec/state_transition_timestamp"),
            Self::SpecVersion => at(Kind::Text, "/spec/version"),
            Self::SpecFromVersion => at(Kind::Text, "/spec/from_version"),
            Self::SpecAttempt => at(Kind::Number, "/spec/attempt"),
            Self::SpecLeaderTerm => at(Kind::Number, "/spec/leader_term"),
            Self::SpecBaselineBootId => at(Kind::Text, "/spec/baseline_boot_id"),
            Self::SpecRebootGrantedBootId => at(Kind::Text, "/spec/reboot_granted_boot_id"),
            Self::SpecLastFailure => at(Kind::LastFailure, "/spec/last_failure"),
            Self::CurrentVersion => at(Kind::Text, "/status/current_version"),
            Self::TargetVersion => at(Kind::Text, "/status/target_version"),
            Self::CurrentState => at(Kind::State, "/status/current_state"),
            Self::CrashCount => at(Kind::Number, "/status/crash_count"),
            Self::FailureTimestamp => at(Kind::Text, "/status/state_transition_failure_timestamp"),
            Self::StatusAttempt => at(Kind::Number, "/status/attempt"),
            Self::StatusBootId => at(Kind::Text, "/status/boot_id"),
            Self::StatusStaged => at(Kind::Staged, "/status/staged"),
            Self::StatusRebootClaimedBootId => at(Kind::Text, "/status/reboot_claimed_boot_id"),
            Self::StatusProblem => at(Kind::Problem, "/status/problem"),
            Self::StatusProblemSince => at(Kind::Text, "/status/problem_since"),
            Self::StatusMessage => at(Kind::Text, "/status/message"),
            Self::Unschedulable => at(Kind::Flag, "/spec/unschedulable"),
            Self::ExcludedFromLoadBalancers => label(Kind::Key, names::EXCLUDE_FROM_LB_LABEL),
            Self::UpdatingTaint => at(Kind::Taint, "/spec/taints"),
            Self::DoNotDisrupt => annotation(Kind::Key, names::DO_NOT_DISRUPT_ANNOTATION),
            Self::ScaleDownDisabled => annotation(Kind::Key, names::SCALE_DOWN_DISABLED_ANNOTATION),
            Self::Marker => annotation(Kind::Marker, names::MARKER_ANNOTATION),
            Self::Retry => annotation(Kind::Text, names::RETRY_ANNOTATION),
            Self::UpdateNow => annotation(Kind::Text, names::UPDATE_NOW_ANNOTATION),
            Self::UpdaterInterface => label(Kind::Text, names::UPDATER_INTERFACE_LABEL),
            Self::OsImage => at(Kind::Text, "/status/nodeInfo/osImage"),
            Self::Term => at(Kind::Number, "/status/term"),
            Self::Slots => at(Kind::Slots, "/status/slots"),
            Self::Slot(shadow) => (Kind::Slot, "/status/slots", Some(shadow)),
            Self::Versions => at(Kind::Versions, "/status/versions"),
            Self::DonePools => at(Kind::DonePools, "/status/donePools"),
            Self::LastFinished => at(Kind::Text, "/status/lastFinished"),
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
        let (kind, ..) = self.place();
        let Some(found) = observed
            .pointer(&self.pointer())
            .filter(|found| !found.is_null())
        else {
            // None of them may be written as an empty map or list, or be absent.
            return Some(match kind {
                Kind::Slots => Value::Slots(Cow::default()),
                Kind::Versions => Value::Versions(Cow::Borrowed(&[])),
                Kind::DonePools => Value::DonePools(Cow::Borrowed(&[])),
                _ => Value::Absent,
            });
        };
        Some(match kind {
            Kind::Text => Value::Text(found.as_str()?.to_owned().into()),
            Kind::Number => Value::Number(found.as_u64()?),
            Kind::State => Value::State(parsed(found)?),
            Kind::Problem => Value::Problem(parsed(found)?),
            Kind::Staged => Value::Staged(parsed(found)?),
            Kind::LastFailure => Value::LastFailure(parsed(found)?),
            Kind::Slot => Value::Slot(parsed(found)?),
            Kind::Slots => Value::Slots(Cow::Owned(parsed(found)?)),
            Kind::Versions => Value::Versions(Cow::Owned(parsed(found)?)),
            Kind::DonePools => Value::DonePools(Cow::Owned(parsed(found)?)),
            // One that cannot be read is a text.
            Kind::Marker => {
                let text = found.as_str()?;
                let marker = Marker::parse(text)
                    .ok()
                    .map(|marker| Value::Marker(Cow::Owned(marker)));
                marker.unwrap_or_else(|| Value::Text(text.to_owned().into()))
            }
            Kind::Flag => Value::flag(*found == json!(true)),
            Kind::Key => Value::Set,
            Kind::Taint => Value::flag(
                found
                    .as_array()
                    .is_some_and(|taints| taints.iter().any(is_ours)),
            ),
        })
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

fn parsed<T: DeserializeOwned>(found: &Json) -> Option<T> {
    T::deserialize(found).ok()
}

pub(super) fn is_ours(taint: &Json) -> bool {
    taint["key"] == names::UPDATING_TAINT
}

/// The node's taints as read, with or without ours; null when none is left.
fn taints(observed: &Json, ours: bool) -> Json {
    let mut taints: Vec<Json> = observed
        .pointer("/spec/taints")
        .and_then(Json::as_array)
        .cloned()
        .unwrap_or_default();
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
