//! The steps of an update: what each asks of the API server, and what it means for the update.

use std::borrow::Cow;
use std::collections::BTreeMap;

use brupop_api::crds::MESSAGE_MAX;
use brupop_api::fleet::Slot;
use brupop_api::printable::printable;
use brupop_api::shadow::{LastFailure, ShadowFacts};
use brupop_api::{
    BottlerocketShadow, BottlerocketShadowSpec, Field, Marker, Object, State, Value, Write, names,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::reason::Abort;
use crate::drain::Obstacle;
use crate::facts::{FleetFacts, NodeView};
use crate::objects::NodeFacts;

/// A step that is taken for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Creates the shadow, Idle, owned by the Node. Its `spec.attempt` is one more than that of an earlier shadow, if the Node's
    /// marker names one.
    CreateShadow {
        /// The `spec.attempt` that the update begins with.
        attempt: Option<u64>,
    },
    /// Deletes the shadow, as it was read.
    DeleteShadow,
    /// Begins the update to this version.
    Stage(&'a str),
    /// Uses up the attempt of a slot while the shadow stays Idle.
    SkipAttempt,
    /// Excludes the node from load balancers.
    Exclude,
    /// Cordons the node, which begins its drain.
    Cordon,
    /// Cordons the node once more, because somebody has uncordoned it during its drain.
    CordonAgain,
    /// Lists the operator's own pods in the marker, because no other pod is left to evict.
    ListOperatorPods,
    /// Removes the record that the node is drained, because pods have come since.
    DrainAgain,
    /// Evicts the pods that a drain evicts.
    Evict,
    /// Deletes the pods that are left at the drain's deadline, including those without a controller.
    DeletePods,
    /// Grants the reboot. Before that, a fresh list of the node's pods and then [`drained`] confirm that the node is drained.
    Grant,
    /// Withdraws the grant, unless the agent has claimed its reboot meanwhile.
    WithdrawGrant,
    /// Goes on without a grant, because the host runs the update already.
    SkipReboot,
    /// Begins to monitor the updated node.
    Monitor,
    /// Ends the update as a success.
    Finish,
    Abort(Abort),
    /// Puts the node back into service. The marker keeps the owners of evicted pods until the update is over.
    PutBack,
    /// Undoes all that the marker records.
    Undo,
    /// Removes the annotations that keep autoscalers from removing the node.
    Release,
}

impl<'a> Step<'a> {
    /// Returns the write that this step makes; `None` if it makes none, or an object that it is about is not there.
    pub fn write(self, fleet: &FleetFacts<'a>, view: &NodeView<'a>) -> Option<Write<'a>> {
        if self.changes_node() {
            self.write_of_node(fleet, view)
        } else {
            self.write_of_shadow(fleet, view)
        }
    }

    /// A change of the shadow's spec, in the leader's term. It tests that the shadow still has the generation that was read.
    fn write_of_shadow(self, fleet: &FleetFacts<'a>, view: &NodeView<'a>) -> Option<Write<'a>> {
        let shadow = &view.shadow?;
        let boot_id = || Some(Value::text(view.node?.boot_id()));
        let reached = |state| (Field::CurrentState, Value::State(state));
        // The agent's claim of a reboot is tested as it was read: absent, or spent in an earlier boot. A test for "absent" would
        // have every grant refused, until the deadline, for an agent that never removes a spent claim.
        let claim = (
            Field::StatusRebootClaimedBootId,
            Value::text_or_absent(shadow.status.reboot_claimed_boot_id.as_deref()),
        );
        let current = Value::state_or_absent(shadow.status.current_state);
        let current = (Field::CurrentState, current);
        let ungranted = (Field::SpecRebootGrantedBootId, Value::Absent);
        let no_baseline = (Field::SpecBaselineBootId, Value::Absent);
        let (state, tests, sets) = match self {
            Self::Stage(version) => (
                Some(State::StagedAndPerformedUpdate),
                vec![
                    reached(State::Idle),
                    (Field::TargetVersion, Value::text(version)),
                ],
                vec![
                    (Field::SpecVersion, Value::text(version)),
                    (
                        Field::SpecFromVersion,
                        Value::text_or_absent(shadow.status.current_version.as_deref()),
                    ),
                    (Field::SpecAttempt, attempt_of(view.held()?)),
                    (Field::SpecBaselineBootId, boot_id()?),
                    ungranted,
                ],
            ),
            // The version is that of an earlier attempt, and must not make this one look like a success.
            Self::SkipAttempt => (
                None,
                vec![],
                vec![
                    (Field::SpecAttempt, attempt_of(view.held()?)),
                    (Field::SpecVersion, Value::Absent),
                    (Field::SpecTransitionTimestamp, Value::text(fleet.now)),
                ],
            ),
            Self::Grant => (
                Some(State::RebootedIntoUpdate),
                vec![current, claim],
                vec![(Field::SpecRebootGrantedBootId, boot_id()?)],
            ),
            Self::WithdrawGrant => (None, vec![claim], vec![ungranted]),
            Self::SkipReboot => (Some(State::RebootedIntoUpdate), vec![claim], vec![]),
            Self::Monitor => (
                Some(State::MonitoringUpdate),
                vec![reached(State::RebootedIntoUpdate)],
                vec![],
            ),
            Self::Finish => (
                Some(State::Idle),
                vec![reached(State::MonitoringUpdate)],
                vec![
                    ungranted,
                    no_baseline,
                    (Field::SpecLastFailure, Value::Absent),
                ],
            ),
            // Either the abort or the reboot wins, and never both.
            Self::Abort(why) => {
                let failed = failure(fleet, view, shadow, why).map(Value::LastFailure);
                let failed = failed.map(|failed| (Field::SpecLastFailure, failed));
                let sets = [ungranted, no_baseline].into_iter().chain(failed);
                // The agent may confirm the update meanwhile.
                let unconfirmed = Some(current).filter(|_| why == Abort::NotConfirmed);
                let tests = unconfirmed.into_iter().chain([claim]);
                (Some(State::Idle), tests.collect(), sets.collect())
            }
            _ => return None,
        };
        let identity = [
            (Field::Uid, Value::text(shadow.uid)),
            (Field::Generation, Value::Number(shadow.generation)),
        ];
        let term = (Field::SpecLeaderTerm, Value::Number(fleet.term));
        let state = state.into_iter().flat_map(|state| {
            [
                (Field::SpecState, Value::State(state)),
                (Field::SpecTransitionTimestamp, Value::text(fleet.now)),
            ]
        });
        Some(Write {
            object: Object::ShadowSpec(shadow.name),
            tests: identity.into_iter().chain(tests).collect(),
            sets: std::iter::once(term).chain(state).chain(sets).collect(),
        })
    }

    /// A change of the Node and its marker.
    fn write_of_node(self, fleet: &FleetFacts<'a>, view: &NodeView<'a>) -> Option<Write<'a>> {
        let node = view.node?;
        let now = || Some(fleet.now.to_owned());
        let own = || own_marker(fleet, view, node);
        let still_cordoned = |marker| {
            let tests = vec![(Field::Unschedulable, Value::Set)];
            mark(node, tests, vec![], marker)
        };
        let mut write = match self {
            Self::Exclude => mark(
                node,
                vec![(Field::ExcludedFromLoadBalancers, Value::Absent)],
                vec![(Field::ExcludedFromLoadBalancers, Value::Set)],
                Marker {
                    excluded_at: now(),
                    ..own()
                },
            ),
            // A person's cordon never becomes ours.
            Self::Cordon => cordon(
                node,
                Marker {
                    drain_started_at: now(),
                    cordoned_at: now().filter(|_| !node.unschedulable),
                    tainted: true,
                    ..note_pods(view, own())
                },
            ),
            Self::CordonAgain => {
                let marker = note_pods(view, own());
                let again = Marker {
                    cordoned_at: now(),
                    was_drained: marker.was_drained || marker.drained_at.is_some(),
                    drained_at: None,
                    operator_pods: vec![],
                    ..marker
                };
                cordon(node, again)
            }
            Self::ListOperatorPods => still_cordoned(Marker {
                operator_pods: view.led.plan.as_ref()?.operator_pods.clone(),
                ..own()
            }),
            Self::DrainAgain => still_cordoned(Marker {
                drained_at: None,
                was_drained: true,
                ..own()
            }),
            Self::PutBack => take_back(node, put_back(fleet, view, node)?)?,
            Self::Undo => take_back(node, Marker::default())?,
            Self::Release => {
                let rest = Marker {
                    do_not_disrupt: false,
                    scale_down_disabled: false,
                    kept_since: None,
                    ..node.marker()?.clone()
                };
                take_back(node, rest)?
            }
            _ => return None,
        };
        if let Some(past) = view.past_retry() {
            let read = Value::Text(Cow::Owned(past.to_string()));
            write.tests.push((Field::Retry, read));
            write.sets.push((Field::Retry, Value::Absent));
        }
        // The request for an update ends with it, also with one that was given up. A marker of an earlier attempt goes when the
        // next one begins.
        let its_own = view.shadow.zip(node.marker()).is_some_and(|(it, marker)| {
            marker.holds_changes()
                && it.spec.version.is_some()
                && it.spec.attempt == Some(marker.attempt)
        });
        if self.undoes() && node.update_now && its_own {
            write.tests.push((Field::UpdateNow, Value::text("true")));
            write.sets.push((Field::UpdateNow, Value::Absent));
        }
        Some(write)
    }

    /// Whether this step changes the Node alone.
    pub fn changes_node(self) -> bool {
        self.empties() && self != Self::Grant || self.undoes() || self == Self::Release
    }

    /// Whether this step takes changes of ours back from the Node.
    pub(super) fn undoes(self) -> bool {
        matches!(self, Self::PutBack | Self::Undo)
    }

    /// Whether this step waits until the pods of its node are known, because it goes on from there to the reboot. To withdraw a
    /// grant does not wait: while a grant stands, nobody watches the pods.
    pub fn empties(self) -> bool {
        matches!(
            self,
            Self::Exclude
                | Self::Cordon
                | Self::CordonAgain
                | Self::ListOperatorPods
                | Self::DrainAgain
                | Self::Grant
        )
    }
}

fn attempt_of(slot: &Slot) -> Value<'static> {
    Value::Number(slot.attempt)
}

/// Returns the failure to record when an update is given up for this reason, with what it failed on as far as that is known;
/// `None` if nobody failed.
fn failure(
    fleet: &FleetFacts<'_>,
    view: &NodeView<'_>,
    shadow: &ShadowFacts<'_>,
    why: Abort,
) -> Option<LastFailure> {
    let led = view.led;
    let failed_on = match why {
        _ if !why.is_failure() => return None,
        Abort::DrainBlocked | Abort::DrainTimedOut => {
            let obstacle = || led.obstacle.as_ref().map(Obstacle::why);
            led.held_up_by.as_deref().or_else(obstacle)
        }
        Abort::StepFailed => shadow.status.message.as_deref(),
        Abort::NodeChangesDenied => led.node_denied.as_deref(),
        _ => None,
    };
    let message = failed_on.map_or_else(|| why.to_string(), |on| format!("{why}: {on}"));
    let before = shadow
        .spec
        .last_failure
        .as_ref()
        .map_or(0, |failed| failed.count);
    Some(LastFailure {
        count: before.saturating_add(1),
        attempt: shadow.spec.attempt.unwrap_or(0),
        at: fleet.now.to_owned(),
        reason: why.as_str().to_owned(),
        message: printable(&message, MESSAGE_MAX).into_owned(),
    })
}

/// A change of a Node and its marker. It tests that the marker is still as it was read.
fn mark<'a>(
    node: &'a NodeFacts,
    tests: Vec<(Field<'a>, Value<'a>)>,
    mut sets: Vec<(Field<'a>, Value<'a>)>,
    marker: Marker,
) -> Write<'a> {
    let read = node
        .marker()
        .map(|marker| Value::Marker(Cow::Borrowed(marker)));
    let identity = [
        (Field::Uid, Value::text(node.uid.as_str())),
        (Field::Marker, read.unwrap_or(Value::Absent)),
    ];
    let says_something =
        marker.holds_changes() || marker.is_kept() || !marker.evicted_owners.is_empty();
    let marker = says_something.then_some(Value::Marker(Cow::Owned(marker)));
    sets.push((Field::Marker, marker.unwrap_or(Value::Absent)));
    Write {
        object: Object::Node(node.name()),
        tests: identity.into_iter().chain(tests).collect(),
        sets,
    }
}

/// Returns the marker of this node's update, in the leader's term.
fn own_marker(fleet: &FleetFacts<'_>, view: &NodeView<'_>, node: &NodeFacts) -> Marker {
    let shadow = view.shadow;
    let marker = node.marker().cloned().unwrap_or_else(|| Marker {
        shadow_uid: shadow.map_or("", |shadow| shadow.uid).to_owned(),
        attempt: shadow.and_then(|it| it.spec.attempt).unwrap_or(0),
        ..Marker::default()
    });
    Marker {
        term: fleet.term,
        ..marker
    }
}

/// Notes the pods that are there at a cordon, beside those of an earlier one.
fn note_pods(view: &NodeView<'_>, marker: Marker) -> Marker {
    let led = view.led;
    let scales = led.scales.iter().flatten();
    let available =
        scales.filter_map(|(owner, scale)| Some((owner.clone(), scale.as_ref()?.available)));
    let mut evicted_owners: BTreeMap<String, u32> = available.collect();
    evicted_owners.extend(marker.evicted_owners);
    Marker {
        emptied: marker.emptied || !led.is_drained(),
        evicted_owners,
        ..marker
    }
}

/// The node is cordoned, unless it is, and tainted if the marker says so. It gets the annotations that keep autoscalers from
/// removing it, for an empty node is what they remove.
fn cordon(node: &NodeFacts, marker: Marker) -> Write<'_> {
    let mut tests = vec![(Field::Unschedulable, Value::flag(node.unschedulable))];
    let mut sets = vec![];
    if !node.unschedulable {
        sets.push((Field::Unschedulable, Value::Set));
    }
    if marker.tainted && !node.tainted {
        sets.push((Field::UpdatingTaint, Value::Set));
    }
    let mut marker = Marker {
        kept_since: None,
        ..marker
    };
    for (field, key, is_ours) in [
        (
            Field::DoNotDisrupt,
            names::DO_NOT_DISRUPT_ANNOTATION,
            &mut marker.do_not_disrupt,
        ),
        (
            Field::ScaleDownDisabled,
            names::SCALE_DOWN_DISABLED_ANNOTATION,
            &mut marker.scale_down_disabled,
        ),
    ] {
        if node.annotation(key).is_none() {
            tests.push((field, Value::Absent));
            sets.push((field, Value::Set));
            *is_ours = true;
        }
    }
    mark(node, tests, sets, marker)
}

/// Returns the write of the Node that goes before the grant of its reboot, after a fresh list of its pods: it tests that the Node is
/// still cordoned and marked, and records that it is drained now.
pub fn drained<'a>(fleet: &FleetFacts<'a>, node: &'a NodeFacts) -> Write<'a> {
    let drained = Marker {
        drained_at: Some(fleet.now.to_owned()),
        term: fleet.term,
        ..node.marker().cloned().unwrap_or_default()
    };
    mark(
        node,
        vec![(Field::Unschedulable, Value::Set)],
        vec![],
        drained,
    )
}

/// Returns the marker of a node that is back in service. It stays as long as it names owners of evicted pods: they have to become
/// available again. So do the annotations for autoscalers on a node that we emptied: an empty node is what they remove, and the
/// pods of the next node go there. One that was empty before is theirs.
fn put_back(fleet: &FleetFacts<'_>, view: &NodeView<'_>, node: &NodeFacts) -> Option<Marker> {
    let marker = node.marker()?;
    let updated = view
        .shadow
        .is_some_and(|shadow| node.version() == shadow.spec.version.as_deref());
    let keeps = marker.emptied && updated && marker.keeps_autoscalers_away();
    Some(Marker {
        evicted_owners: marker.evicted_owners.clone(),
        do_not_disrupt: keeps && marker.do_not_disrupt,
        scale_down_disabled: keeps && marker.scale_down_disabled,
        kept_since: keeps.then(|| fleet.now.to_owned()),
        ..Marker::default()
    })
}

/// Takes back from the Node what its marker records and this rest of it does not, as far as it is still there, and nobody else has
/// written it since.
fn take_back(node: &NodeFacts, rest: Marker) -> Option<Write<'_>> {
    let before = node.marker()?;
    let is_ours = |key| node.annotation(key) == Some(names::KEPT_FROM_AUTOSCALERS);
    let rows = [
        (
            Field::Unschedulable,
            before.cordoned_at.is_some() && rest.cordoned_at.is_none() && node.unschedulable,
        ),
        (
            Field::ExcludedFromLoadBalancers,
            before.excluded_at.is_some() && rest.excluded_at.is_none() && node.excluded,
        ),
        (
            Field::UpdatingTaint,
            before.tainted && !rest.tainted && node.tainted,
        ),
        (
            Field::DoNotDisrupt,
            before.do_not_disrupt
                && !rest.do_not_disrupt
                && is_ours(names::DO_NOT_DISRUPT_ANNOTATION),
        ),
        (
            Field::ScaleDownDisabled,
            before.scale_down_disabled
                && !rest.scale_down_disabled
                && is_ours(names::SCALE_DOWN_DISABLED_ANNOTATION),
        ),
    ];
    let ours = rows.into_iter().filter(|(_, goes)| *goes);
    let sets = ours.map(|(field, _)| (field, Value::Absent)).collect();
    let rest = Marker {
        shadow_uid: before.shadow_uid.clone(),
        attempt: before.attempt,
        term: before.term,
        ..rest
    };
    Some(mark(node, vec![], sets, rest))
}

/// A new shadow of a node, Idle. From `now` on, its agent has a limited time to report.
pub fn new_shadow(
    node: &str,
    node_uid: &str,
    attempt: Option<u64>,
    term: u64,
    now: &str,
) -> BottlerocketShadow {
    let labels = [
        ("app.kubernetes.io/component", "brupop-shadow"),
        ("app.kubernetes.io/managed-by", "brupop"),
        ("app.kubernetes.io/part-of", "brupop"),
    ];
    // A spec is Idle by default.
    let spec = BottlerocketShadowSpec {
        attempt,
        leader_term: Some(term),
        state_transition_timestamp: Some(now.to_owned()),
        ..BottlerocketShadowSpec::default()
    };
    let metadata = ObjectMeta {
        name: Some(names::shadow_name(node)),
        labels: Some(
            labels
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
        ),
        owner_references: Some(vec![OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: node.to_owned(),
            uid: node_uid.to_owned(),
            ..OwnerReference::default()
        }]),
        ..ObjectMeta::default()
    };
    BottlerocketShadow {
        metadata,
        spec,
        status: None,
    }
}
