//! Rules for agents: only the status of the own node's shadow, along the state machine, at its own attempt.

use super::request::{is_node, read};
use super::{Change, Refusal, ReviewedShadow, Rule, ShadowRequest};
use brupop_api::names::{PodIdentity, pod_identity};
use brupop_api::shadow::status_may_become;
use brupop_api::{BottlerocketShadowSpec, BottlerocketShadowStatus, State, names};
use kube::core::admission::Operation;
use std::collections::BTreeMap;

/// The fields of a status that are the agent's; the policy has the same list.
pub(super) const OWN_FIELDS: [&str; 12] = [
    "current_version",
    "target_version",
    "current_state",
    "crash_count",
    "state_transition_failure_timestamp",
    "attempt",
    "boot_id",
    "staged",
    "reboot_claimed_boot_id",
    "problem",
    "problem_since",
    "message",
];

pub(super) fn decide(request: &ShadowRequest, change: &Change<'_>) -> Result<Rule, Refusal> {
    let nothing = BTreeMap::new();
    let me =
        pod_identity(request.user_info.extra.as_ref().unwrap_or(&nothing)).map_err(|error| {
            Rule::AgentIdentity.refuse(
                "",
                format!("{error}; use the token that is mounted into the agent's pod"),
            )
        })?;
    let (Operation::Update, Some("status")) = (&request.operation, request.sub_resource.as_deref())
    else {
        return Err(Rule::AgentStatusOnly.refuse(
            "",
            format!(
                "the agent on {} may update the status of {} and nothing else",
                me.node_name,
                own(&me)
            ),
        ));
    };
    own_shadow(request, &me)?;
    own_fields(change, &me)?;
    let spec: BottlerocketShadowSpec = read(&change.old.spec, "spec")?;
    let old: BottlerocketShadowStatus = read(&change.old.status, "status")?;
    let new: BottlerocketShadowStatus = read(&change.new.status, "status")?;
    attempt(&spec, &old, &new)?;
    transition(&spec, &old, &new)?;
    claim(&spec, &old, &new)?;
    Ok(Rule::AgentReport)
}

fn own(me: &PodIdentity) -> String {
    names::shadow_name(&me.node_name)
}

/// The shadow must be named after the token's node, and owned by the very Node that the token is bound to: an earlier Node
/// may have had the same name.
fn own_shadow(request: &ShadowRequest, me: &PodIdentity) -> Result<(), Refusal> {
    if request.name != own(me) {
        return Err(Rule::AgentOwnNode.refuse(
            "metadata.name",
            format!(
                "the agent on {} may update the status of {} only",
                me.node_name,
                own(me)
            ),
        ));
    }
    let owners = request
        .old_object
        .as_ref()
        .map(ReviewedShadow::owners)
        .unwrap_or_default();
    if let [owner] = owners.as_slice()
        && is_node(owner, &me.node_name)
        && owner.uid == me.node_uid
    {
        return Ok(());
    }
    Err(Rule::AgentNodeUid.refuse(
        "metadata.ownerReferences",
        format!(
            "the shadow's only owner must be the Node {} with UID {}, to which the token is bound",
            me.node_name, me.node_uid
        ),
    ))
}

fn own_fields(change: &Change<'_>, me: &PodIdentity) -> Result<(), Refusal> {
    let foreign = change.fields.iter().find(|field| {
        let own = field.strip_prefix("status.");
        !own.is_some_and(|own| OWN_FIELDS.contains(&own))
    });
    foreign.map_or(Ok(()), |field| {
        let allowed = format!(
            "the agent on {} may change these fields of the status only: {}",
            me.node_name,
            OWN_FIELDS.join(", ")
        );
        Err(Rule::AgentOwnFields.refuse(field, allowed))
    })
}

/// The attempt that the agent reports never runs ahead of the spec, and never goes back, but to the spec's if it was ahead
/// of it: while the webhook's configuration was gone, any number could be written.
fn attempt(
    spec: &BottlerocketShadowSpec,
    old: &BottlerocketShadowStatus,
    new: &BottlerocketShadowStatus,
) -> Result<(), Refusal> {
    let (asked, before, echo) = (
        number(spec.attempt),
        number(old.attempt),
        number(new.attempt),
    );
    // One that stays is fine, even if the spec is elsewhere: only a change is this write's doing.
    if echo == before || echo == asked || (before..asked).contains(&echo) {
        return Ok(());
    }
    Err(Rule::AgentAttempt.refuse(
        "status.attempt",
        format!("it was {before}, and may become only {asked}, which the spec asks for"),
    ))
}

fn number(attempt: Option<u64>) -> u64 {
    attempt.unwrap_or_default()
}

/// A new state is the one that the spec asks for, or `ErrorReset`. Unless it is Idle, the status must be at the attempt that
/// the spec asks for.
fn transition(
    spec: &BottlerocketShadowSpec,
    old: &BottlerocketShadowStatus,
    new: &BottlerocketShadowStatus,
) -> Result<(), Refusal> {
    if new.current_state == old.current_state {
        return Ok(());
    }
    let goal = spec.state;
    let refuse = |allowed| Err(Rule::AgentTransition.refuse("status.current_state", allowed));
    match new.current_state {
        Some(to) if status_may_become(goal, old.current_state, to) => {}
        _ if goal == State::Idle => {
            return refuse("the spec asks for Idle, so it may become Idle only".to_owned());
        }
        _ => {
            return refuse(format!(
                "the spec asks for {goal}, so it may become {goal} or ErrorReset"
            ));
        }
    }
    if new.current_state == Some(State::Idle) || number(new.attempt) == number(spec.attempt) {
        return Ok(());
    }
    Err(Rule::AgentAttempt.refuse(
        "status.attempt",
        format!(
            "the spec asks for attempt {}: report that attempt before a new state",
            number(spec.attempt)
        ),
    ))
}

/// A reboot may be claimed from the boot that it is granted for, and only while the host is in that boot. A claim may be
/// taken back when the step has failed, when the host is in another boot, or when the spec asks for no reboot any more.
fn claim(
    spec: &BottlerocketShadowSpec,
    old: &BottlerocketShadowStatus,
    new: &BottlerocketShadowStatus,
) -> Result<(), Refusal> {
    if new.reboot_claimed_boot_id == old.reboot_claimed_boot_id {
        return Ok(());
    }
    let refuse = |allowed| Err(Rule::AgentClaim.refuse("status.reboot_claimed_boot_id", allowed));
    let Some(claimed) = &new.reboot_claimed_boot_id else {
        let failed = new.current_state == Some(State::ErrorReset);
        let spent = new.boot_id.is_some() && new.boot_id != old.reboot_claimed_boot_id;
        if failed || spent || spec.state != State::RebootedIntoUpdate {
            return Ok(());
        }
        return refuse(
            "a claim may be withdrawn only together with ErrorReset, or in another boot".to_owned(),
        );
    };
    match &spec.reboot_granted_boot_id {
        _ if spec.state != State::RebootedIntoUpdate => refuse(
            "a reboot may be claimed while the spec asks for RebootedIntoUpdate only".to_owned(),
        ),
        None => {
            refuse("no reboot is granted yet (spec.reboot_granted_boot_id): wait for it".to_owned())
        }
        Some(granted) if granted != claimed => {
            refuse(format!("the reboot is granted for the boot {granted} only"))
        }
        Some(granted) if new.boot_id.as_ref() != Some(granted) => refuse(format!(
            "status.boot_id must be {granted}, the boot that the reboot is granted for"
        )),
        Some(_) if number(new.attempt) != number(spec.attempt) => refuse(format!(
            "the spec asks for attempt {}: report that attempt before a claim",
            number(spec.attempt)
        )),
        Some(_) => Ok(()),
    }
}
