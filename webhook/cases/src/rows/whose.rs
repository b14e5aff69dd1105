//! Rows for identities: each shadow with each token.

use crate::actor::Actor::{
    Admin, Agent, DeletedPod, Elsewhere, FormerNode, FormerNodeBound, Impersonator,
    ImpersonatorOfTheAccount, ImpersonatorOfTwo, LongestAgent, NewNode, NodeBound, OtherAgent,
    Reconciler, SecretBound, Stray, Unbound, Webhook,
};
use crate::row::Row;
use crate::row::Verdict::{Allowed, ByBoth, ByPolicy, ByRbac, ByServer};
use crate::situations::{first_report, idle, known, message, spec, staging_known};
use crate::world::Host::{Again, Longest, Second};
use serde_json::{Value, json};

/// An agent is the node that its token is bound to.
pub(super) fn tokens() -> Vec<Row> {
    rows! {
        "an agent's news": Agent, known(), message() => Allowed;
        "an agent's news, tried": Agent, known(), message() => Allowed, dry_run: true;
        "another node's shadow": Agent, known(), message() => ByBoth("agent-own-node"), of: Second;
        "another node's shadow, tried": Agent, known(), message() => ByBoth("agent-own-node"), of: Second, dry_run: true;
        "another node's agent": OtherAgent, known(), message() => ByBoth("agent-own-node");
        "another node's agent, on its own": OtherAgent, known(), message() => Allowed, of: Second;
        "the longest legal name": LongestAgent, known(), message() => Allowed, of: Longest;
        "the longest legal name, elsewhere": LongestAgent, known(), message() => ByBoth("agent-own-node");
        "an agent, on the longest legal name": Agent, known(), message() => ByBoth("agent-own-node"), of: Longest;
        "a token bound to nothing": Unbound, known(), message() => ByBoth("agent-identity");
        "a token bound to a Secret": SecretBound, known(), message() => ByBoth("agent-identity");
        "a token bound to a Node without a pod": NodeBound, known(), message() => ByBoth("agent-identity");
        "a token of a deleted pod": DeletedPod, known(), message()
            => ByServer(401, "Unauthorized"), alone: Some("agent-report");
        "a token of a pod of the same name in another namespace": Elsewhere, known(), message()
            => ByRbac, alone: Some("outsider");
        "a token bound to a Node that was deleted, whose name another has now": FormerNodeBound, known(), message()
            => ByServer(401, "Unauthorized"), of: Again, alone: Some("agent-identity");
        "a token of a Node that was deleted, on the Node that has its name now": FormerNode, known(), message()
            => ByBoth("agent-node-uid"), of: Again;
        "a token of a Node that was made again, on its shadow": NewNode, known(), message() => Allowed, of: Again;
        "a token of a Node that was made again, on the shadow of the one before": NewNode, known(), message()
            => ByBoth("agent-node-uid"), of: Again, metadata: former();
        "an agent impersonated with all that its token tells": Impersonator, known(), message() => Allowed;
        "an agent impersonated, on another node": Impersonator, known(), message()
            => ByBoth("agent-own-node"), of: Second;
        "an agent impersonated with two nodes": ImpersonatorOfTwo, known(), message() => ByBoth("agent-identity");
        "an agent impersonated with two nodes, on the other": ImpersonatorOfTwo, known(), message()
            => ByBoth("agent-identity"), of: Second;
        "an agent's account impersonated": ImpersonatorOfTheAccount, known(), message() => ByBoth("agent-identity");
    }
}

fn former() -> Value {
    json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "node-again", "uid": "{former-uid}"}]})
}

pub(super) fn accounts() -> Vec<Row> {
    rows! {
        "the webhook's own account": Webhook, known(), message() => ByRbac, behind: Some(ByBoth("webhook-nothing"));
        "the webhook's own account, nothing": Webhook, known(), spec(json!({}))
            => ByRbac, behind: Some(ByBoth("webhook-nothing"));
        "an account with the agents' role": Stray, known(), message() => ByBoth("unknown-account");
        "an account with the agents' role, tried": Stray, known(), message() => ByBoth("unknown-account"), dry_run: true;
        "an account with the agents' role, on the spec": Stray, known(), spec(json!({"attempt": 9}))
            => ByRbac, behind: Some(ByBoth("unknown-account"));
        "the reconciler in an agent's place": Reconciler, known(), message()
            => ByPolicy("reconciler-own-fields");
        "a person's hand on a status": Admin, known(), message() => Allowed;
        "a person's hand on a spec": Admin, staging_known(), spec(idle()) => Allowed;
    }
}

fn owner(kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid})
}

/// The shadow's only owner is the very Node of the token.
pub(super) fn owners() -> Vec<Row> {
    const UID: &str = "00000000-0000-4000-8000-000000000000";
    let owned_by = |owner: Value| json!({"ownerReferences": [owner]});
    let two =
        json!({"ownerReferences": [owner("Node", "node-0", UID), owner("Node", "node-1", UID)]});
    let of_a_group = json!({"apiVersion": "apps/v1", "kind": "Node", "name": "node-0", "uid": UID});
    rows! {
        "a first report on the shadow of a Node that had this name before":
            Agent, (idle(), Value::Null), first_report()
            => ByBoth("agent-node-uid"), metadata: owned_by(owner("Node", "node-0", UID));
        "news on the shadow of a Node that had this name before": Agent, known(), message()
            => ByBoth("agent-node-uid"), metadata: owned_by(owner("Node", "node-0", UID));
        "a shadow owned by another Node": Agent, known(), message()
            => ByBoth("agent-node-uid"), metadata: owned_by(owner("Node", "node-1", UID));
        "a shadow owned by a pod of the node's name": Agent, known(), message()
            => ByBoth("agent-node-uid"), metadata: owned_by(owner("Pod", "node-0", UID));
        "a shadow owned by another group's Node": Agent, known(), message()
            => ByBoth("agent-node-uid"), metadata: owned_by(of_a_group);
        "a shadow of two owners": Agent, known(), message() => ByBoth("agent-node-uid"), metadata: two;
        "a shadow of no owner": Agent, known(), message()
            => ByBoth("agent-node-uid"), metadata: json!({"ownerReferences": null});
    }
}
