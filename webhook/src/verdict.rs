//! May this caller make this change? A pure function of the admission request.
//!
//! What a caller may do is read from the *old* object. Of the new object, only the caller's own fields may differ: a change
//! of a field that nobody thought of is refused.

mod agent;
mod attempt_and_grant;
mod change;
mod reconciler;
mod request;
mod rules;

#[cfg(test)]
mod tests;

use brupop_api::names::{Component, component, service_account};
use brupop_api::{BottlerocketShadow, names};
use kube::Resource as _;

pub use change::Change;
pub use request::{ReviewedShadow, ShadowRequest};
pub use rules::{Refusal, Rule};

brupop_api::words! {
    /// The kind of the requester. The variants are few, so that each can be a value of a metric's label.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Actor {
        /// An agent of the object's namespace.
        Agent => "agent",
        /// The reconciler of the object's namespace.
        Reconciler => "reconciler",
        /// The webhook of the object's namespace.
        Webhook => "webhook",
        /// Another service account of the object's namespace.
        Stranger => "stranger",
        Outsider => "outsider",
    }
}

impl Actor {
    /// Returns who has this user name, seen from the object's namespace.
    fn of(username: &str, namespace: &str) -> Self {
        match component(username, namespace) {
            Some(Component::Agent) => Self::Agent,
            Some(Component::Reconciler) => Self::Reconciler,
            Some(Component::Webhook) => Self::Webhook,
            None if service_account(username, namespace).is_some() => Self::Stranger,
            None => Self::Outsider,
        }
    }
}

/// The answer, and the rule behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub actor: Actor,
    /// The rule that allows it, or the refusal.
    pub outcome: Result<Rule, Refusal>,
}

impl Verdict {
    pub fn rule(&self) -> Rule {
        self.outcome
            .as_ref()
            .map_or_else(|refusal| refusal.rule, |rule| *rule)
    }
}

/// Decides. A dry run is judged like any other request, and there are no side effects.
pub fn verdict(request: &ShadowRequest, change: &Change<'_>) -> Verdict {
    let username = request.user_info.username.as_deref().unwrap_or_default();
    let namespace = request.namespace.as_deref().unwrap_or_default();
    let actor = Actor::of(username, namespace);
    Verdict {
        actor,
        outcome: known_kind(request).and_then(|()| decide(actor, request, change)),
    }
}

fn decide(actor: Actor, request: &ShadowRequest, change: &Change<'_>) -> Result<Rule, Refusal> {
    match actor {
        Actor::Agent => agent::decide(request, change),
        Actor::Reconciler => reconciler::decide(request, change),
        Actor::Webhook => {
            Err(Rule::WebhookNothing.refuse("", "the webhook reads and writes no shadows"))
        }
        Actor::Stranger => Err(Rule::UnknownAccount.refuse(
            "",
            "of this namespace's service accounts, only those of brupop's agent and reconciler may write shadows",
        )),
        // Not ours to judge: RBAC let them in, and the webhook's configuration does not even ask.
        Actor::Outsider => Ok(Rule::Outsider),
    }
}

/// Only shadows of the version that is known here can be judged: another version has other fields.
fn known_kind(request: &ShadowRequest) -> Result<(), Refusal> {
    let (kind, resource) = (&request.kind, &request.resource);
    let known = kind.group == names::GROUP
        && kind.version == BottlerocketShadow::version(&())
        && kind.kind == "BottlerocketShadow"
        && resource.group == names::GROUP
        && resource.version == BottlerocketShadow::version(&())
        && resource.resource == "bottlerocketshadows";
    if known {
        return Ok(());
    }
    Err(Rule::UnknownKind.refuse(
        "",
        format!(
            "the webhook does not know {}/{} {}: write {} BottlerocketShadow",
            kind.group,
            kind.version,
            kind.kind,
            BottlerocketShadow::api_version(&())
        ),
    ))
}
