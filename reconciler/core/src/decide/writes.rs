//! The writes of the protocol, each with its tests: of shadows, of Nodes, and in [`ledger`] of the ledger.

mod ledger;

pub(super) use ledger::ledger_tests;
pub use ledger::new_term;

use std::borrow::Cow;
use std::collections::BTreeMap;

use brupop_api::crds::MESSAGE_MAX;
use brupop_api::facts::ShadowFacts;
use brupop_api::fleet::Slot;
use brupop_api::printable::printable;
use brupop_api::shadow::LastFailure;
use brupop_api::{
    BottlerocketShadow, BottlerocketShadowSpec, Field, Marker, Object, Problem, State, Value,
    Write, names,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::Abort;
use crate::facts::{FleetFacts, NodeView};
use crate::objects::{NodeFacts, Words};

/// Why a host may have come back with another version.
const DEACTIVATED: &str = "before its reboot its agent had said that the update was not what it would boot next, so somebody may \
                           have deactivated it";

/// A change of a shadow's spec, in the leader's term. It tests that the shadow still has the generation that was read.
pub(super) fn spec<'a>(
    fleet: &FleetFacts<'a>,
    shadow: &ShadowFacts<'a>,
    tests: impl IntoIterator<Item = (Field<'a>, Value<'a>)>,
    sets: impl IntoIterator<Item = (Field<'a>, Value<'a>)>,
) -> Write<'a> {
    let identity = [
        (Field::Uid, Value::text(shadow.uid)),
        (Field::Generation, Value::Number(shadow.generation)),
    ];
    Write {
        object: Object::ShadowSpec(shadow.name),
        tests: identity.into_iter().chain(tests).collect(),
        sets: [(Field::SpecLeaderTerm, Value::Number(fleet.term))]
            .into_iter()
            .chain(sets)
            .collect(),
    }
}

/// A new state of the spec, and the time of the change.
fn state<'a>(fleet: &FleetFacts<'a>, state: State) -> [(Field<'a>, Value<'a>); 2] {
    [
        (Field::SpecState, Value::State(state)),
        (Field::SpecTransitionTimestamp, Value::text(fleet.now)),
    ]
}

/// Tests that the agent's claim of a reboot is as it was read: absent, or spent in an earlier boot. A test for "absent"
/// would have every grant refused, until the deadline, for an agent that never removes a spent claim.
fn claim_as_read<'a>(shadow: &ShadowFacts<'a>) -> (Field<'a>, Value<'a>) {
    (
        Field::StatusRebootClaimedBootId,
        Value::text_or_absent(shadow.status.reboot_claimed_boot_id),
    )
}

/// The update begins: the slot is taken, the spec follows.
pub(super) fn stage<'a>(
    fleet: &FleetFacts<'a>,
    shadow: &ShadowFacts<'a>,
    node: &'a NodeFacts,
    slot: &Slot,
    version: &'a str,
) -> Write<'a> {
    let sets = [
        (Field::SpecVersion, Value::text(version)),
        (Field::SpecAttempt, Value::Number(slot.attempt)),
        (Field::SpecBaselineBootId, Value::text(node.boot_id())),
        (Field::SpecRebootGrantedBootId, Value::Absent),
    ];
    spec(
        fleet,
        shadow,
        [
            (Field::CurrentState, Value::State(State::Idle)),
            (Field::TargetVersion, Value::text(version)),
        ],
        state(fleet, State::StagedAndPerformedUpdate)
            .into_iter()
            .chain(sets),
    )
}

/// The slot is not used: the shadow takes the slot's attempt while Idle, so that the slot can be given back for good.
pub(super) fn skip_attempt<'a>(
    fleet: &FleetFacts<'a>,
    shadow: &ShadowFacts<'a>,
    slot: &Slot,
) -> Write<'a> {
    let sets = [
        (Field::SpecAttempt, Value::Number(slot.attempt)),
        // The version is that of an earlier attempt, and must not make this one look like a success.
        (Field::SpecVersion, Value::Absent),
        (Field::SpecTransitionTimestamp, Value::text(fleet.now)),
    ];
    spec(fleet, shadow, [], sets)
}

/// The node is drained in this boot: the agent may reboot it from here.
pub(super) fn grant<'a>(
    fleet: &FleetFacts<'a>,
    shadow: &ShadowFacts<'a>,
    node: &'a NodeFacts,
) -> Write<'a> {
    spec(
        fleet,
        shadow,
        [
            (
                Field::CurrentState,
                Value::state_or_absent(shadow.status.current_state),
            ),
            claim_as_read(shadow),
        ],
        state(fleet, State::RebootedIntoUpdate)
            .into_iter()
            .chain([(Field::SpecRebootGrantedBootId, Value::text(node.boot_id()))]),
    )
}

/// The host runs the update already, after a reboot of its own: no grant is needed.
pub(super) fn skip_reboot<'a>(fleet: &FleetFacts<'a>, shadow: &ShadowFacts<'a>) -> Write<'a> {
    spec(
        fleet,
        shadow,
        [claim_as_read(shadow)],
        state(fleet, State::RebootedIntoUpdate),
    )
}

/// The node is not drained any more: the grant is taken back, unless the agent has claimed its reboot meanwhile.
pub(super) fn withdraw_grant<'a>(fleet: &FleetFacts<'a>, shadow: &ShadowFacts<'a>) -> Write<'a> {
    spec(
        fleet,
        shadow,
        [claim_as_read(shadow)],
        [(Field::SpecRebootGrantedBootId, Value::Absent)],
    )
}

/// The host is back: watch it.
pub(super) fn monitor<'a>(fleet: &FleetFacts<'a>, shadow: &ShadowFacts<'a>) -> Write<'a> {
    let reached = (Field::CurrentState, Value::State(State::RebootedIntoUpdate));
    spec(
        fleet,
        shadow,
        [reached],
        state(fleet, State::MonitoringUpdate),
    )
}

/// The update is a success.
pub(super) fn finish<'a>(fleet: &FleetFacts<'a>, shadow: &ShadowFacts<'a>) -> Write<'a> {
    let sets = [
        (Field::SpecRebootGrantedBootId, Value::Absent),
        (Field::SpecBaselineBootId, Value::Absent),
        (Field::SpecLastFailure, Value::Absent),
    ];
    spec(
        fleet,
        shadow,
        [(Field::CurrentState, Value::State(State::MonitoringUpdate))],
        state(fleet, State::Idle).into_iter().chain(sets),
    )
}

/// The update is given up. The write tests the claim, so that either the abort or the reboot wins, and never both.
/// If that is a failure, it records why, and what it failed on.
pub(super) fn abort<'a>(
    fleet: &FleetFacts<'a>,
    view: &NodeView<'a>,
    shadow: &ShadowFacts<'a>,
    why: Abort,
) -> Write<'a> {
    let failed_on = failed_on(view, shadow, why);
    let mut sets = vec![
        (Field::SpecRebootGrantedBootId, Value::Absent),
        (Field::SpecBaselineBootId, Value::Absent),
    ];
    if why.is_failure() {
        let message = failed_on.map_or_else(|| why.to_string(), |on| format!("{why}: {on}"));
        let failures = LastFailure {
            count: shadow
                .spec
                .last_failure
                .map_or(0, |failures| failures.count)
                .saturating_add(1),
            attempt: shadow.spec.attempt.unwrap_or(0),
            at: fleet.now.to_owned(),
            reason: why.as_str().to_owned(),
            message: printable(&message, MESSAGE_MAX).into_owned(),
        };
        sets.push((Field::SpecLastFailure, Value::LastFailure(failures)));
    }
    spec(
        fleet,
        shadow,
        [claim_as_read(shadow)],
        state(fleet, State::Idle).into_iter().chain(sets),
    )
}

/// Returns what an attempt failed on that is given up for this reason, if more is known than the reason.
fn failed_on<'a>(view: &NodeView<'a>, shadow: &ShadowFacts<'a>, why: Abort) -> Option<&'a str> {
    let pods = &view.pods;
    match why {
        Abort::DrainBlocked | Abort::DrainTimedOut => {
            pods.held_up_by.or(pods.undrainable).or(pods.blocked)
        }
        Abort::StepFailed => shadow.status.message,
        Abort::NodeChangesDenied => view.denied,
        // It counts all the same: no word of an agent may hide a bad release.
        Abort::FellBack => {
            (shadow.status.problem == Some(Problem::NotNextToBoot)).then_some(DEACTIVATED)
        }
        _ => None,
    }
}

/// A change of a Node and its marker. It tests that the marker is still as it was read.
pub(super) fn mark<'a>(
    node: &'a NodeFacts,
    tests: impl IntoIterator<Item = (Field<'a>, Value<'a>)>,
    sets: impl IntoIterator<Item = (Field<'a>, Value<'a>)>,
    marker: Marker,
) -> Write<'a> {
    let read = node
        .marker()
        .map_or(Value::Absent, |marker| Value::Marker(Cow::Borrowed(marker)));
    let identity = [
        (Field::Uid, Value::text(node.uid.as_str())),
        (Field::Marker, read),
    ];
    let says_something =
        marker.holds_changes() || marker.is_kept() || !marker.evicted_owners.is_empty();
    let marker = if says_something {
        Value::Marker(Cow::Owned(marker))
    } else {
        Value::Absent
    };
    Write {
        object: Object::Node(node.name()),
        tests: identity.into_iter().chain(tests).collect(),
        sets: sets.into_iter().chain([(Field::Marker, marker)]).collect(),
    }
}

/// Returns the marker of this node's update, in the leader's term.
fn own_marker(fleet: &FleetFacts<'_>, view: &NodeView<'_>, node: &NodeFacts) -> Marker {
    let marker = node.marker().cloned().unwrap_or_else(|| Marker {
        shadow_uid: view.shadow.map_or("", |shadow| shadow.uid).to_owned(),
        attempt: view
            .shadow
            .and_then(|shadow| shadow.spec.attempt)
            .unwrap_or(0),
        ..Marker::default()
    });
    Marker {
        term: fleet.term,
        ..marker
    }
}

/// The node is excluded from load balancers from now on.
pub(super) fn exclude<'a>(
    fleet: &FleetFacts<'a>,
    view: &NodeView<'a>,
    node: &'a NodeFacts,
) -> Write<'a> {
    let excluded = Marker {
        excluded_at: Some(fleet.now.to_owned()),
        ..own_marker(fleet, view, node)
    };
    let tests = [(Field::ExcludedFromLoadBalancers, Value::Absent)];
    let sets = [(Field::ExcludedFromLoadBalancers, Value::Set)];
    mark(node, tests, sets, excluded)
}

/// The node is cordoned, and its drain begins. A person's cordon never becomes ours.
pub(super) fn cordon<'a>(
    fleet: &FleetFacts<'a>,
    view: &NodeView<'a>,
    node: &'a NodeFacts,
) -> Write<'a> {
    let now = || Some(fleet.now.to_owned());
    let cordoned = Marker {
        drain_started_at: now(),
        cordoned_at: now().filter(|_| !node.unschedulable),
        tainted: true,
        ..note_pods(view, own_marker(fleet, view, node))
    };
    cordon_as(node, cordoned)
}

/// Cordons a node again that somebody has uncordoned, and starts its drain again.
pub(super) fn cordon_again<'a>(
    fleet: &FleetFacts<'a>,
    view: &NodeView<'a>,
    node: &'a NodeFacts,
) -> Write<'a> {
    let now = || Some(fleet.now.to_owned());
    let marker = own_marker(fleet, view, node);
    let again = Marker {
        cordoned_at: now(),
        drain_started_at: now(),
        drained_at: None,
        was_drained: marker.was_drained || marker.drained_at.is_some(),
        operator_pods: vec![],
        ..note_pods(view, marker)
    };
    cordon_as(node, again)
}

/// Notes the pods that are there at a cordon, beside those of an earlier one.
fn note_pods(view: &NodeView<'_>, marker: Marker) -> Marker {
    let pods = &view.pods;
    let scales = pods.scales.into_iter().flatten();
    let available = scales
        .filter_map(|(owner, scale)| scale.as_ref().map(|scale| (owner.clone(), scale.available)));
    let mut evicted_owners: BTreeMap<String, u32> = available.collect();
    evicted_owners.extend(marker.evicted_owners);
    Marker {
        emptied: marker.emptied || !pods.drained,
        evicted_claims: marker.evicted_claims || pods.has_claims,
        evicted_owners,
        ..marker
    }
}

/// The node is cordoned, unless it is, and tainted if the marker says so. It gets the annotations that keep autoscalers from
/// removing it, for an empty node is what they remove.
fn cordon_as(node: &NodeFacts, marker: Marker) -> Write<'_> {
    let mut tests = vec![(Field::Unschedulable, Value::flag(node.unschedulable))];
    let mut sets = vec![];
    if !node.unschedulable {
        sets.push((Field::Unschedulable, Value::Set));
    }
    if marker.tainted && !node.tainted {
        sets.push((Field::UpdatingTaint, Value::Set));
    }
    for (field, words) in autoscaler_annotations(node) {
        if words.is_none() {
            tests.push((field, Value::Absent));
            sets.push((field, Value::Set));
        }
    }
    let marker = Marker {
        do_not_disrupt: marker.do_not_disrupt || node.do_not_disrupt.is_none(),
        scale_down_disabled: marker.scale_down_disabled || node.scale_down_disabled.is_none(),
        kept_since: None,
        ..marker
    };
    mark(node, tests, sets, marker)
}

/// The marker of a drain that goes on is changed.
pub(super) fn change_marker<'a>(
    fleet: &FleetFacts<'a>,
    view: &NodeView<'a>,
    node: &'a NodeFacts,
    change: impl FnOnce(&mut Marker),
) -> Write<'a> {
    let mut marker = own_marker(fleet, view, node);
    change(&mut marker);
    mark(node, [(Field::Unschedulable, Value::Set)], [], marker)
}

/// The node is cordoned, and was seen empty now.
pub(super) fn drained<'a>(fleet: &FleetFacts<'a>, node: &'a NodeFacts) -> Write<'a> {
    let marker = node.marker().cloned().unwrap_or_default();
    let drained = Marker {
        drained_at: Some(fleet.now.to_owned()),
        term: fleet.term,
        ..marker
    };
    mark(node, [(Field::Unschedulable, Value::Set)], [], drained)
}

/// Undoes what the marker says we changed, and nothing else, and removes the marker.
pub(super) fn undo<'a>(node: &'a NodeFacts, marker: &'a Marker) -> Write<'a> {
    undo_but(node, marker, Marker::default())
}

/// Undoes what we changed. The marker stays as long as it names owners of evicted pods: they have to become available again.
/// So do the annotations for autoscalers on a node that we emptied: an empty node is what they remove, and the pods of the next
/// node go there. One that was empty before is theirs.
pub(super) fn put_back<'a>(
    fleet: &FleetFacts<'a>,
    view: &NodeView<'a>,
    node: &'a NodeFacts,
    marker: &'a Marker,
) -> Write<'a> {
    let updated = view
        .shadow
        .is_some_and(|shadow| node.version() == shadow.spec.version);
    let owners = Marker {
        evicted_owners: marker.evicted_owners.clone(),
        ..Marker::default()
    };
    if !(marker.emptied && updated && marker.keeps_autoscalers_away()) {
        return undo_but(node, marker, owners);
    }
    let Marker {
        do_not_disrupt,
        scale_down_disabled,
        ..
    } = *marker;
    let kept_since = Some(fleet.now.to_owned());
    undo_but(
        node,
        marker,
        Marker {
            do_not_disrupt,
            scale_down_disabled,
            kept_since,
            ..owners
        },
    )
}

/// Lets autoscalers have the node again. The rest stays as it is.
pub(super) fn release_to_autoscalers<'a>(node: &'a NodeFacts, marker: &Marker) -> Write<'a> {
    let sets = our_autoscaler_annotations(node, marker)
        .into_iter()
        .map(|field| (field, Value::Absent));
    let rest = Marker {
        do_not_disrupt: false,
        scale_down_disabled: false,
        kept_since: None,
        ..marker.clone()
    };
    mark(node, [], sets.collect::<Vec<_>>(), rest)
}

/// The annotations that keep autoscalers away, and who has written each.
pub(super) fn autoscaler_annotations<'a>(node: &NodeFacts) -> [(Field<'a>, Option<Words>); 2] {
    [
        (Field::DoNotDisrupt, node.do_not_disrupt),
        (Field::ScaleDownDisabled, node.scale_down_disabled),
    ]
}

/// The annotations that keep autoscalers away, as far as we have written them, and nobody since.
fn our_autoscaler_annotations<'a>(node: &NodeFacts, marker: &Marker) -> Vec<Field<'a>> {
    let set = [marker.do_not_disrupt, marker.scale_down_disabled];
    let all = autoscaler_annotations(node).into_iter().zip(set);
    all.filter_map(|((field, words), set)| (set && words == Some(Words::Ours)).then_some(field))
        .collect()
}

fn undo_but<'a>(node: &'a NodeFacts, marker: &'a Marker, kept: Marker) -> Write<'a> {
    let undone = [
        (
            Field::Unschedulable,
            marker.cordoned_at.is_some() && node.unschedulable,
        ),
        (
            Field::ExcludedFromLoadBalancers,
            marker.excluded_at.is_some() && node.excluded,
        ),
        (Field::UpdatingTaint, marker.tainted && node.tainted),
    ];
    let rest = Marker {
        shadow_uid: marker.shadow_uid.clone(),
        attempt: marker.attempt,
        term: marker.term,
        ..kept
    };
    let undone = undone
        .into_iter()
        .filter(|(_, set)| *set)
        .map(|(field, _)| field);
    let annotations = if rest.is_kept() {
        vec![]
    } else {
        our_autoscaler_annotations(node, marker)
    };
    let sets = undone
        .chain(annotations)
        .map(|field| (field, Value::Absent));
    mark(node, [], sets.collect::<Vec<_>>(), rest)
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
