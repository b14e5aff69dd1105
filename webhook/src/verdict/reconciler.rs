//! Rules for the reconciler: shadows, their spec and metadata. A status of its own it writes past the webhook, as its
//! policy allows.

use super::request::{is_node, read};
use super::{Change, Refusal, ReviewedShadow, Rule, ShadowRequest, attempt_and_grant};
use brupop_api::shadow::spec_may_move;
use brupop_api::{BottlerocketShadowSpec, BottlerocketShadowStatus, State, names};
use kube::core::admission::Operation;

pub(super) fn decide(request: &ShadowRequest, change: &Change<'_>) -> Result<Rule, Refusal> {
    match (&request.operation, request.sub_resource.as_deref().unwrap_or_default()) {
        (Operation::Create, "") => create(request, change),
        (Operation::Update, "") => update(change),
        (Operation::Delete, "") => Ok(Rule::ReconcilerSteer),
        (Operation::Update, "status") => Err(Rule::ReconcilerCheck.refuse(
            "",
            "the webhook is asked about the reconciler's writes of a status in dry runs only, and refuses them all",
        )),
        (operation, sub_resource) => Err(Rule::UnknownRequest.refuse(
            "",
            format!(
                "the reconciler may create, update and delete shadows, but this is {operation:?} of {:?}",
                if sub_resource.is_empty() { "bottlerocketshadows" } else { sub_resource }
            ),
        )),
    }
}

fn create(request: &ShadowRequest, change: &Change<'_>) -> Result<Rule, Refusal> {
    let owners = change.new.owners();
    let named_after_owner = names::node_of_shadow(&request.name).is_some_and(
        |node| matches!(owners.as_slice(), [owner] if is_node(owner, node) && !owner.uid.is_empty()),
    );
    if !named_after_owner {
        return Err(Rule::ReconcilerCreate.refuse(
            "metadata.ownerReferences",
            "a shadow must be named brs-<node>, with that Node as its only owner",
        ));
    }
    if change.new.metadata.contains_key("finalizers") {
        return Err(Rule::ReconcilerMetadata.refuse(
            "metadata.finalizers",
            "a shadow must be created without finalizers",
        ));
    }
    let spec: BottlerocketShadowSpec = read(&change.new.spec, "spec")?;
    if spec.state != State::Idle {
        return Err(Rule::ReconcilerCreate.refuse("spec.state", "a shadow must be created as Idle"));
    }
    attempt_and_grant::grant(None, &spec, &BottlerocketShadowStatus::default())?;
    Ok(Rule::ReconcilerSteer)
}

fn update(change: &Change<'_>) -> Result<Rule, Refusal> {
    let owners = |object: &'_ ReviewedShadow| object.metadata.get("ownerReferences").cloned();
    if owners(change.old) != owners(change.new) {
        return Err(Rule::ReconcilerOwner.refuse(
            "metadata.ownerReferences",
            "owners never change: for another Node, delete the shadow and create it again",
        ));
    }
    if let Some(field) = change
        .fields
        .iter()
        .find(|field| !field.starts_with("spec."))
    {
        return Err(Rule::ReconcilerMetadata.refuse(
            field,
            "the reconciler may change only the spec of a shadow that exists",
        ));
    }
    let old: BottlerocketShadowSpec = read(&change.old.spec, "spec")?;
    let new: BottlerocketShadowSpec = read(&change.new.spec, "spec")?;
    if !spec_may_move(old.state, new.state) {
        return Err(Rule::ReconcilerTransition.refuse(
            "spec.state",
            format!(
                "from {} it may go to the next step or back to Idle, not to {}",
                old.state, new.state
            ),
        ));
    }
    attempt_and_grant::attempt(&old, &new)?;
    attempt_and_grant::grant(Some(&old), &new, &read(&change.new.status, "status")?)?;
    Ok(Rule::ReconcilerSteer)
}
