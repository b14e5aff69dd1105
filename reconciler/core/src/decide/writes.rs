//! The writes of the protocol, each with its tests: of shadows, of Nodes, and the one with which a leader begins.

use std::borrow::Cow;
use std::collections::BTreeMap;

use brupop_api::crds::COUNTER_MAX;
use brupop_api::facts::ShadowFacts;
use brupop_api::fleet::{BottlerocketFleetStatus, Slot};
use brupop_api::shadow::{DrainObstacle, Failures};
use brupop_api::{
    BottlerocketShadow, BottlerocketShadowSpec, Field, Marker, Object, State, Value, Write, names,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::Abort;
use crate::facts::{FleetFacts, NodeFacts, NodeView};
use crate::objects::Words;

/// A change of a shadow's spec, in the leader's term. It tests that the shadow still has the generation that was read.
pub(super) fn spec<'a>(
    fleet: &FleetFacts<'a>,
    shadow: &ShadowFacts<'a>,
    tests: impl IntoIterator<Item = (Field<'a>, Value<'a>)>,
    sets: impl IntoIterator<Item = (Field<'a>, Value<'a>)>,
) -> Write<'a> {
    let identity =
        [(Field::Uid, Value::text(shadow.uid)), (Field::Generation, Value::Number(shadow.generation))];
    Write {
        object: Object::ShadowSpec(shadow.name),
        tests: identity.into_iter().chain(tests).collect(),
        sets: [(Field::SpecLeaderTerm, Value::Number(fleet.term))].into_iter().chain(sets).collect(),
    }
}

/// A new state of the spec, and the time of the change.
fn state<'a>(fleet: &FleetFacts<'a>, state: State) -> [(Field<'a>, Value<'a>); 2] {
    [(Field::SpecState, Value::State(state)), (Field::SpecTransitionTimestamp, Value::text(fleet.now))]
}

/// Tests that the agent's claim of a reboot is as it was read: absent, or spent in an earlier boot. A test for "absent"
/// would have every grant refused, until the deadline, for an agent that never removes a spent claim.
fn claim_as_read<'a>(shadow: &ShadowFacts<'a>) -> (Field<'a>, Value<'a>) {
    (Field::StatusRebootRequested, Value::text_or_absent(shadow.status.reboot_requested))
}

/// The update begins: the slot is taken, the spec follows.
pub(super) fn stage<'a>(
    fleet: &FleetFacts<'a>,
    shadow: &ShadowFacts<'a>,
    node: &NodeFacts<'a>,
    slot: &Slot,
    version: &'a str,
) -> Write<'a> {
    let sets = [
        (Field::SpecVersion, Value::text(version)),
        (Field::SpecAttempt, Value::Number(slot.attempt)),
        (Field::SpecBaselineBootId, Value::text(node.boot_id)),
        (Field::SpecRebootFromBootId, Value::Absent),
    ];
    spec(
        fleet,
        shadow,
        [(Field::CurrentState, Value::State(State::Idle)), (Field::TargetVersion, Value::text(version))],
        state(fleet, State::StagedAndPerformedUpdate).into_iter().chain(sets),
    )
}

/// The slot is not used: the shadow takes the slot's attempt while Idle, so that the slot can be given back for good.
pub(super) fn skip_attempt<'a>(fleet: &FleetFacts<'a>, shadow: &ShadowFacts<'a>, slot: &Slot) -> Write<'a> {
    let sets = [
        (Field::SpecAttempt, Value::Number(slot.attempt)),
        // The version is that of an earlier attempt, and must not make this one look like a success.
        (Field::SpecVersion, Value::Absent),
        (Field::SpecTransitionTimestamp, Value::text(fleet.now)),
    ];
    spec(fleet, shadow, [], sets)
}

/// A shadow in mid-update that knows no attempt gets that of its slot.
pub(super) fn adopt<'a>(
    fleet: &FleetFacts<'a>,
    shadow: &ShadowFacts<'a>,
    node: &NodeFacts<'a>,
    slot: &Slot,
) -> Write<'a> {
    let sets = [
        (Field::SpecAttempt, Value::Number(slot.attempt)),
        (Field::SpecBaselineBootId, Value::text(node.boot_id)),
        (Field::SpecTransitionTimestamp, Value::text(fleet.now)),
    ];
    spec(fleet, shadow, [], sets)
}

/// The node is drained in this boot: the agent may reboot it from here.
pub(super) fn grant<'a>(fleet: &FleetFacts<'a>, shadow: &ShadowFacts<'a>, node: &NodeFacts<'a>) -> Write<'a> {
    spec(
        fleet,
        shadow,
        [(Field::CurrentState, Value::state_or_absent(shadow.status.current_state)), claim_as_read(shadow)],
        state(fleet, State::RebootedIntoUpdate)
            .into_iter()
            .chain([(Field::SpecRebootFromBootId, Value::text(node.boot_id))]),
    )
}

/// The host runs the update already, after a reboot of its own: no grant is needed.
pub(super) fn skip_reboot<'a>(fleet: &FleetFacts<'a>, shadow: &ShadowFacts<'a>) -> Write<'a> {
    spec(fleet, shadow, [claim_as_read(shadow)], state(fleet, State::RebootedIntoUpdate))
}

/// The node is not drained any more: the grant is taken back, unless the agent has claimed its reboot meanwhile.
pub(super) fn withdraw_grant<'a>(fleet: &FleetFacts<'a>, shadow: &ShadowFacts<'a>) -> Write<'a> {
    spec(fleet, shadow, [claim_as_read(shadow)], [(Field::SpecRebootFromBootId, Value::Absent)])
}

/// The host is back: watch it.
pub(super) fn monitor<'a>(fleet: &FleetFacts<'a>, shadow: &ShadowFacts<'a>) -> Write<'a> {
    let reached = (Field::CurrentState, Value::State(State::RebootedIntoUpdate));
    spec(fleet, shadow, [reached], state(fleet, State::MonitoringUpdate))
}

/// The update is a success.
pub(super) fn finish<'a>(fleet: &FleetFacts<'a>, shadow: &ShadowFacts<'a>) -> Write<'a> {
    let sets = [
        (Field::SpecRebootFromBootId, Value::Absent),
        (Field::SpecBaselineBootId, Value::Absent),
        (Field::SpecFailures, Value::Absent),
    ];
    spec(
        fleet,
        shadow,
        [(Field::CurrentState, Value::State(State::MonitoringUpdate))],
        state(fleet, State::Idle).into_iter().chain(sets),
    )
}

/// The update is given up. The write tests the claim, so that either the abort or the reboot wins, and never both.
/// If that is a failure, it notes what its drain failed on.
pub(super) fn abort<'a>(
    fleet: &FleetFacts<'a>,
    shadow: &ShadowFacts<'a>,
    why: Abort,
    obstacle: Option<DrainObstacle>,
) -> Write<'a> {
    let mut sets =
        vec![(Field::SpecRebootFromBootId, Value::Absent), (Field::SpecBaselineBootId, Value::Absent)];
    if why.is_failure() {
        let failures = Failures {
            count: shadow.spec.failures.map_or(0, |failures| failures.count).saturating_add(1),
            attempt: shadow.spec.attempt.unwrap_or(0),
            at: fleet.now.to_owned(),
            reason: why.as_str().to_owned(),
            obstacle,
        };
        sets.push((Field::SpecFailures, Value::Failures(failures)));
    }
    spec(fleet, shadow, [claim_as_read(shadow)], state(fleet, State::Idle).into_iter().chain(sets))
}

/// A change of a Node and its marker. It tests that the marker is still as it was read.
pub(super) fn mark<'a>(
    node: &NodeFacts<'a>,
    tests: impl IntoIterator<Item = (Field<'a>, Value<'a>)>,
    sets: impl IntoIterator<Item = (Field<'a>, Value<'a>)>,
    marker: Marker,
) -> Write<'a> {
    let read = node.marker.map_or(Value::Absent, |marker| Value::Marker(Cow::Borrowed(marker)));
    let identity = [(Field::Uid, Value::text(node.uid)), (Field::Marker, read)];
    let says_something = marker.holds_changes() || marker.is_kept() || !marker.evicted_owners.is_empty();
    let marker = if says_something { Value::Marker(Cow::Owned(marker)) } else { Value::Absent };
    Write {
        object: Object::Node(node.name),
        tests: identity.into_iter().chain(tests).collect(),
        sets: sets.into_iter().chain([(Field::Marker, marker)]).collect(),
    }
}

/// The node is cordoned, and was seen empty now.
pub(super) fn drained<'a>(fleet: &FleetFacts<'a>, node: &NodeFacts<'a>) -> Write<'a> {
    let marker = node.marker.cloned().unwrap_or_default();
    let drained = Marker { drained_at: Some(fleet.now.to_owned()), term: fleet.term, ..marker };
    mark(node, [(Field::Unschedulable, Value::Set)], [], drained)
}

/// Undoes what the marker says we changed, and nothing else, and removes the marker.
pub(super) fn undo<'a>(node: &NodeFacts<'a>, marker: &'a Marker) -> Write<'a> {
    undo_but(node, marker, Marker::default())
}

/// Undoes what we changed. The marker stays as long as it names owners of evicted pods: they have to become available again.
/// If the node is to be `kept`, the annotations for autoscalers stay, too.
pub(super) fn undo_and_keep_owners<'a>(
    fleet: &FleetFacts<'a>,
    node: &NodeFacts<'a>,
    marker: &'a Marker,
    kept: bool,
) -> Write<'a> {
    let Marker { evicted_owners, owners_before, .. } = marker.clone();
    let owners = Marker { evicted_owners, owners_before, ..Marker::default() };
    if !kept || !marker.keeps_autoscalers_away() {
        return undo_but(node, marker, owners);
    }
    let Marker { do_not_disrupt, scale_down_disabled, .. } = *marker;
    let kept_since = Some(fleet.now.to_owned());
    undo_but(node, marker, Marker { do_not_disrupt, scale_down_disabled, kept_since, ..owners })
}

/// Lets autoscalers have the node again. The rest stays as it is.
pub(super) fn release_to_autoscalers<'a>(node: &NodeFacts<'a>, marker: &Marker) -> Write<'a> {
    let sets = our_autoscaler_annotations(node, marker).into_iter().map(|field| (field, Value::Absent));
    let rest =
        Marker { do_not_disrupt: false, scale_down_disabled: false, kept_since: None, ..marker.clone() };
    mark(node, [], sets.collect::<Vec<_>>(), rest)
}

/// The annotations that keep autoscalers away, and who has written each.
pub(super) fn autoscaler_annotations<'a>(node: &NodeFacts<'_>) -> [(Field<'a>, Option<Words>); 2] {
    [(Field::DoNotDisrupt, node.do_not_disrupt), (Field::ScaleDownDisabled, node.scale_down_disabled)]
}

/// The annotations that keep autoscalers away, as far as we have written them, and nobody since.
fn our_autoscaler_annotations<'a>(node: &NodeFacts<'_>, marker: &Marker) -> Vec<Field<'a>> {
    let set = [marker.do_not_disrupt, marker.scale_down_disabled];
    let all = autoscaler_annotations(node).into_iter().zip(set);
    all.filter_map(|((field, words), set)| (set && words == Some(Words::Ours)).then_some(field)).collect()
}

fn undo_but<'a>(node: &NodeFacts<'a>, marker: &'a Marker, kept: Marker) -> Write<'a> {
    let undone = [
        (Field::Unschedulable, marker.cordoned_at.is_some() && node.unschedulable),
        (Field::ExcludedFromLoadBalancers, marker.excluded_at.is_some() && node.excluded),
        (Field::UpdatingTaint, marker.tainted && node.tainted),
    ];
    let rest =
        Marker { shadow_uid: marker.shadow_uid.clone(), attempt: marker.attempt, term: marker.term, ..kept };
    let undone = undone.into_iter().filter(|(_, set)| *set).map(|(field, _)| field);
    let annotations = if rest.is_kept() { vec![] } else { our_autoscaler_annotations(node, marker) };
    let sets = undone.chain(annotations).map(|field| (field, Value::Absent));
    mark(node, [], sets.collect::<Vec<_>>(), rest)
}

/// The write to the ledger with which a process begins to lead, before it writes anything else; and the term in which it
/// then leads.
///
/// The term is higher than the ledger's, and higher than every term in a shadow or a marker. So it rises even if the ledger
/// was lost. The slots of a lost ledger are made again from the updates that run, and from the markers of nodes whose shadows
/// are lost, too. Updates that upstream's operator left behind never had a slot: they take theirs in turn, when there is room.
pub fn new_term<'a>(ledger: Option<&'a BottlerocketFleetStatus>, views: &[NodeView<'a>]) -> (u64, Write<'a>) {
    let shadows = || views.iter().filter_map(|view| Some((view, view.shadow?)));
    let markers = || views.iter().filter_map(|view| Some((view, view.node?, view.node?.marker?)));
    let seen = shadows().filter_map(|(_, shadow)| shadow.spec.leader_term);
    // The ledger has no room for what is beyond; in a marker anything may stand.
    let seen = seen.chain(markers().map(|(.., marker)| marker.term)).filter(|term| *term < COUNTER_MAX).max();
    let read = ledger.and_then(|ledger| ledger.term);
    let term = read.max(seen).unwrap_or(0).saturating_add(1);
    let slots = ledger.map_or_else(|| Cow::Owned(BTreeMap::new()), |ledger| Cow::Borrowed(&ledger.slots));

    let tests = vec![(Field::Term, Value::number_or_absent(read)), (Field::Slots, Value::Slots(slots))];
    let mut sets = vec![(Field::Term, Value::Number(term))];
    if read.is_none() {
        let running = shadows().filter(|(view, shadow)| {
            view.marked() || (shadow.spec.state != State::Idle && shadow.spec.attempt.is_some())
        });
        sets.extend(running.map(|(_, shadow)| {
            let slot = Slot {
                uid: shadow.uid.to_owned(),
                attempt: shadow.spec.attempt.unwrap_or(1),
                version: shadow.spec.version.map(str::to_owned),
                ..Slot::default()
            };
            (Field::Slot(shadow.name), Value::Slot(slot))
        }));
        let alone = markers().filter(|(view, _, marker)| view.shadow.is_none() && marker.holds_changes());
        sets.extend(alone.map(|(view, node, marker)| {
            // The Node's UID: what the marker calls the shadow's may be no UID, and the next shadow has another one anyway.
            let (uid, attempt) = (node.uid.to_owned(), marker.attempt.min(COUNTER_MAX));
            (Field::Slot(view.shadow_name), Value::Slot(Slot { uid, attempt, ..Slot::default() }))
        }));
    }
    (term, Write { object: Object::Ledger, tests, sets })
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
        labels: Some(labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()),
        owner_references: Some(vec![OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: node.to_owned(),
            uid: node_uid.to_owned(),
            ..OwnerReference::default()
        }]),
        ..ObjectMeta::default()
    };
    BottlerocketShadow { metadata, spec, status: None }
}

/// What must still be so when these fields of the ledger are set: the leader, the slots, and each record as it was read,
/// so that a write that lingers does not undo what was counted or halted since.
pub(super) fn ledger_tests<'a>(
    fleet: &FleetFacts<'a>,
    sets: &[(Field<'a>, Value<'a>)],
) -> Vec<(Field<'a>, Value<'a>)> {
    let records = sets.iter().filter_map(|(field, _)| {
        let read = match field {
            Field::VersionRecord(version) => fleet.versions.get(*version).cloned().map(Value::VersionRecord),
            Field::PoolRecord { pool, version } => {
                let record = fleet.pool_versions.get(&format!("{pool}/{version}"));
                record.cloned().map(Value::VersionRecord)
            }
            Field::Seen(version) => fleet.seen.get(*version).map(|at| Value::text(at)),
            _ => return None,
        };
        Some((*field, read.unwrap_or(Value::Absent)))
    });
    let fixed =
        [(Field::Term, Value::Number(fleet.term)), (Field::Slots, Value::Slots(Cow::Borrowed(fleet.slots)))];
    fixed.into_iter().chain(records).collect()
}
