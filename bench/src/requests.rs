//! Counts the operator's requests during a roll-out, by the API server's audit log.

use std::collections::BTreeMap;

use brupop_testbed::audit::Event;
use brupop_testbed::operator::NAMESPACE;
use jiff::Timestamp;

/// Number of requests that reconciler, agents and webhook make in a roll-out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// From its beginning to the last node's Idle, by program, verb and resource.
    pub during: BTreeMap<String, usize>,
    /// Reports that a host names a version, whether its node is updated or not.
    pub offers: usize,
    pub evicted: usize,
}

/// The program that has asked, if it is one of ours.
pub fn program(event: &Event) -> Option<&'static str> {
    let account = event.user.username.strip_prefix("system:serviceaccount:")?;
    let account = account.strip_prefix(NAMESPACE)?.strip_prefix(":brupop-")?;
    ["reconciler", "agent", "webhook"]
        .into_iter()
        .find(|program| *program == account)
}

/// Was the request made by our programs because nodes are updated? Leases, dry runs, and looks for upstream's operator have
/// clocks of their own. A watch stands in the log when it begins, and again when it ends.
fn is_of_a_roll_out(event: &Event) -> bool {
    let resource = event.object.resource.as_str();
    let looks_for_upstream = resource == "deployments" && event.verb == "get";
    program(event).is_some()
        && (event.verb == "watch") == (event.stage == "ResponseStarted")
        && !event.is_dry_run()
        && resource != "leases"
        && !looks_for_upstream
}

fn is_of_shadow(event: &Event, subresource: &str) -> bool {
    event.object.resource == "bottlerocketshadows" && event.object.subresource == subresource
}

pub fn is_spec(event: &Event) -> bool {
    program(event) == Some("reconciler")
        && is_of_shadow(event, "")
        && event.verb == "patch"
        && !event.is_dry_run()
        && event.code() == 200
}

/// Whether this is a report of an agent.
fn is_report(event: &Event) -> bool {
    program(event) == Some("agent") && is_of_shadow(event, "status")
}

/// Whether the agent reports this value of the field.
fn reports(event: &Event, field: &str, value: Option<&str>) -> bool {
    let operations = event
        .request_object
        .as_ref()
        .and_then(|body| body.as_array());
    let is_it = |set: &serde_json::Value| {
        set["op"] == "add"
            && set["path"] == format!("/status/{field}")
            && value.is_none_or(|value| set["value"] == value)
    };
    is_report(event) && operations.into_iter().flatten().any(is_it)
}

fn reports_idle(event: &Event) -> bool {
    reports(event, "current_state", Some("Idle"))
}

fn is_eviction(event: &Event) -> bool {
    event.object.subresource == "eviction" && event.code() < 400
}

impl Requests {
    pub fn of(events: &[Event]) -> Self {
        let mut requests = Self::default();
        let last = events.iter().rfind(|event| reports_idle(event));
        let ended = last.map_or(Timestamp::MAX, |event| event.stage_timestamp);
        let is_before = |event: &&Event| event.request_received_timestamp <= ended;
        for event in events.iter().filter(is_before) {
            let Some(program) = program(event).filter(|_| is_of_a_roll_out(event)) else {
                continue;
            };
            let (verb, of) = (&event.verb, &event.object);
            if reports(event, "target_version", None) {
                requests.offers += 1;
            } else {
                let what = format!("{program} {verb} {}/{}", of.resource, of.subresource);
                *requests.during.entry(what).or_default() += 1;
                requests.evicted += usize::from(is_eviction(event));
            }
        }
        requests
    }

    /// Number of requests that this program made during the roll-out.
    pub fn by(&self, program: &str) -> usize {
        let of_it = self
            .during
            .iter()
            .filter(|(what, _)| what.starts_with(program));
        of_it.map(|(_, count)| count).sum()
    }
}
