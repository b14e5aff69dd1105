//! What happened to a node during its update, by the API server's audit log and the journal of its host.

use std::collections::BTreeMap;

use brupop_api::names;
use brupop_testbed::audit::Event;
use brupop_testbed::host::Host;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value as Json;

use crate::requests::{is_request, node_of_agent, program};

/// Something that was asked of the API server, or of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When it was asked.
    pub at: Timestamp,
    /// How long the answer took.
    pub took: SignedDuration,
    /// What.
    pub what: String,
    /// Does anybody wait for it? Nobody waits for Events and conditions.
    pub matters: bool,
}

/// The moments of each node since then, in order.
pub fn of(events: &[Event], hosts: &[Host], since: Timestamp) -> BTreeMap<String, Vec<Moment>> {
    let mut moments: BTreeMap<String, Vec<Moment>> = BTreeMap::new();
    let mut add = |node: String, moment: Moment| {
        if moment.at >= since {
            moments.entry(node).or_default().push(moment);
        }
    };
    for event in events.iter().filter(|event| is_request(event)) {
        let took = event.stage_timestamp.duration_since(event.request_received_timestamp);
        for (node, what, matters) in said(event) {
            let refused = if event.code() < 400 { String::new() } else { format!(" ({})", event.code()) };
            let what = format!("{what}{refused}");
            add(node, Moment { at: event.request_received_timestamp, took, what, matters });
        }
    }
    for (number, host) in hosts.iter().enumerate() {
        for call in host.calls() {
            let ago = SignedDuration::try_from(call.at.elapsed()).unwrap_or_default();
            let what = format!("host: {} {}", call.method, call.path);
            let moment =
                Moment { at: Timestamp::now() - ago, took: SignedDuration::ZERO, what, matters: true };
            add(format!("node-{number}"), moment);
        }
    }
    for moments in moments.values_mut() {
        moments.sort_by_key(|moment| moment.at);
    }
    moments
}

/// Which nodes a request is about, what it says, and whether anybody waits for it.
fn said(event: &Event) -> Vec<(String, String, bool)> {
    let object = event.object_ref.clone().unwrap_or_default();
    let body = event.request_object.as_ref().unwrap_or(&Json::Null);
    let of_shadow = || names::node_of_shadow(&object.name).map(str::to_owned);
    let one = |node: Option<String>, what: String, matters| {
        node.into_iter().map(|node| (node, what.clone(), matters)).collect()
    };
    if event.request_uri.contains("dryRun=All") {
        return vec![];
    }
    match (program(event), object.resource.as_str(), object.subresource.as_str()) {
        (None, "nodes", "status") => one(Some(object.name.clone()), kubelet(body), true),
        (None, ..) => vec![],
        (Some("agent"), "bottlerocketshadows", "status") => {
            one(of_shadow(), format!("report: {}", changed(body, "/status/")), true)
        }
        (Some("agent"), resource, _) => {
            one(node_of_agent(event).cloned(), format!("agent: {} {resource}", event.verb), true)
        }
        (_, "bottlerocketshadows", "") if event.verb == "patch" => {
            one(of_shadow(), format!("spec: {}", added(body, "/spec/state")), true)
        }
        (_, "bottlerocketshadows", "status") => {
            let reason = body.pointer("/status/conditions/0/reason").and_then(Json::as_str);
            one(of_shadow(), format!("condition: {}", reason.unwrap_or_default()), false)
        }
        (_, "nodes", _) => one(Some(object.name.clone()), format!("Node: {}", node_change(body)), true),
        (_, "bottlerocketfleets", "status") => slots(body),
        (_, "events", _) => {
            let text = |pointer: &str| body.pointer(pointer).and_then(Json::as_str).unwrap_or_default();
            let name = text("/regarding/name");
            let node = names::node_of_shadow(name).unwrap_or(name).to_owned();
            one(Some(node), format!("Event of {}: {}", text("/regarding/kind"), text("/reason")), false)
        }
        (_, "pods", _) if object.subresource.is_empty() => {
            let node = event.request_uri.split("spec.nodeName%3D").nth(1);
            let node = node.and_then(|rest| rest.split('&').next()).map(str::to_owned);
            one(node, format!("pods: {}", event.verb), event.verb == "list")
        }
        _ => vec![],
    }
}

/// The operations of a JSON patch that are no tests.
fn changes(body: &Json) -> impl Iterator<Item = (&str, &Json)> {
    let operations = body.as_array().into_iter().flatten();
    operations
        .filter(|operation| operation["op"] != "test")
        .filter_map(|operation| Some((operation["path"].as_str()?, &operation["value"])))
}

fn added<'a>(body: &'a Json, path: &str) -> &'a str {
    changes(body).find(|(at, _)| *at == path).and_then(|(_, value)| value.as_str()).unwrap_or("other fields")
}

/// The fields that a patch changes; of a state its new value.
fn changed(body: &Json, under: &str) -> String {
    let field = |(path, value): (&str, &Json)| match (path.strip_prefix(under).unwrap_or(path), value) {
        ("current_state", Json::String(state)) => state.clone(),
        (field, Json::Null) => format!("no {field}"),
        (field, _) => field.to_owned(),
    };
    changes(body).map(field).collect::<Vec<_>>().join(", ")
}

fn node_change(body: &Json) -> String {
    let mut said = vec![];
    for (path, value) in changes(body) {
        if path == "/spec/unschedulable" {
            said.push(if *value == Json::Bool(true) { "cordon" } else { "uncordon" });
        } else if path.contains("brupop.bottlerocket.aws~1marker") {
            let drained = value.as_str().is_some_and(|marker| marker.contains("drained"));
            said.push(match value {
                Json::Null => "no marker",
                _ if drained => "marker: drained",
                _ => "marker",
            });
        } else if path.contains("exclude-from-external-load-balancers") {
            said.push("load balancers");
        }
    }
    said.join(", ")
}

fn kubelet(body: &Json) -> String {
    let conditions = body.pointer("/status/conditions").and_then(Json::as_array).into_iter().flatten();
    let ready = conditions
        .filter(|condition| condition["type"] == "Ready")
        .any(|condition| condition["status"] == "True");
    let boot = if body.pointer("/status/nodeInfo").is_some() { ", in this boot" } else { "" };
    format!("kubelet: {}{boot}", if ready { "Ready" } else { "not Ready" })
}

/// The slots that a patch of the ledger takes and gives back.
fn slots(body: &Json) -> Vec<(String, String, bool)> {
    let slot = |(path, value): (&str, &Json)| {
        let node = names::node_of_shadow(path.strip_prefix("/status/slots/")?)?;
        let what = if value.is_null() { "ledger: slot given back" } else { "ledger: slot" };
        Some((node.to_owned(), what.to_owned(), true))
    };
    changes(body).filter_map(slot).collect()
}
