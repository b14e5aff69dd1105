//! The rules of admission as a table: who, in which situation, changes what, and who refuses it.

use serde_json::{Map, Value as Json, json};

use Actor::{Admin, Agent, Elsewhere, OtherAgent, Reconciler, Stray, Unbound, Webhook};
use Change::{Create, Delete, DeleteAll, DryStatus, Node, Object, Put, Request, Status, StatusOf};
use Verdict::{Allowed, ByBoth, ByPolicy, ByRbac, BySchema, ByWebhook};

mod own_node;
mod reconciler;
mod steps;

/// Whose token is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    /// The agent on node-0, whose shadow the rows are about.
    Agent,
    /// The agent on node-1.
    OtherAgent,
    /// The agents' account, by a token that is bound to nothing.
    Unbound,
    /// An account of the agents' name in another namespace, bound to a pod there of the agent's name, on node-0.
    Elsewhere,
    Reconciler,
    Webhook,
    /// Another account of the operator's namespace, to which somebody gave the agents' role.
    Stray,
    /// A person who may do everything.
    Admin,
}

/// What is asked of the API server. Bodies are merge patches unless they are lists.
#[derive(Clone, Debug)]
pub enum Change {
    /// Of the shadow of node-0, through `/status`: the whole body.
    Status(Json),
    /// The same, as a dry run.
    DryStatus(Json),
    /// Of the shadow of node-1, through `/status`.
    StatusOf(Json),
    /// Of the shadow of node-0 itself.
    Object(Json),
    /// The shadow as it is, with this merged in, by PUT to `/status`.
    Put(Json),
    /// The shadow of node-0, which is not there: this merged into the one that was.
    Create(Json),
    Delete,
    DeleteAll,
    /// Of node-0, or below it; as a dry run.
    Node(&'static str, Json),
    /// Anything else: method, path (with `{namespace}`), body.
    Request(http::Method, &'static str, Json),
}

/// Who refuses, and by which rule.
#[derive(Clone, Copy, Debug)]
pub enum Verdict {
    Allowed,
    ByRbac,
    BySchema(&'static str),
    ByPolicy(&'static str),
    ByWebhook(&'static str),
    /// By each of the two, also without the other.
    ByBoth(&'static str),
}

/// What it says.
pub type Says = &'static str;
/// (what it says, who, the shadow's spec, its status, what is asked, the verdict)
pub type Row = (Says, Actor, Json, Json, Change, Verdict);

fn merged(before: &Json, change: &Json) -> Json {
    let mut after = before.clone();
    json_patch::merge(&mut after, change);
    after
}

fn idle() -> Json {
    json!({"state": "Idle"})
}

fn staging() -> Json {
    json!({"state": "StagedAndPerformedUpdate", "version": "1.20.0", "attempt": 7, "leader_term": 2, "baseline_boot_id": "b1"})
}

fn rebooting() -> Json {
    merged(&staging(), &json!({"state": "RebootedIntoUpdate"}))
}

fn granted() -> Json {
    merged(&rebooting(), &json!({"reboot_from_boot_id": "b1"}))
}

fn monitoring() -> Json {
    merged(&staging(), &json!({"state": "MonitoringUpdate"}))
}

fn at(state: &str) -> Json {
    json!({"current_state": state, "current_version": "1.19.4", "attempt": 7, "boot_id": "b1"})
}

fn staged() -> Json {
    at("StagedAndPerformedUpdate")
}

fn claimed() -> Json {
    merged(&staged(), &json!({"reboot_requested": "b1"}))
}

fn conditions(reason: &str) -> Json {
    json!({"conditions": [{"type": "Progressing", "status": "False", "reason": reason, "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
}

fn explained() -> Json {
    merged(&at("Idle"), &conditions("NoUpdate"))
}

fn status(fields: Json) -> Change {
    Status(Json::Object(Map::from_iter([("status".to_owned(), fields)])))
}

fn state(state: &str) -> Change {
    status(json!({"current_state": state}))
}

fn spec(fields: Json) -> Change {
    Object(Json::Object(Map::from_iter([("spec".to_owned(), fields)])))
}

/// All rows.
pub fn table() -> Vec<Row> {
    [
        own_node::whose(),
        own_node::what(),
        own_node::how(),
        steps::states(),
        steps::attempts(),
        steps::claims(),
        reconciler::specs(),
        reconciler::statuses(),
        reconciler::nodes(),
    ]
    .concat()
}
