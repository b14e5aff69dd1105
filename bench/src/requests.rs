//! What the operator asks of the API server during a roll-out, by its audit log.

use brupop_testbed::audit::Event;
use brupop_testbed::operator::NAMESPACE;

/// Number of requests that reconciler, agents and webhook make in a roll-out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// From the first change of a spec to the last node's Idle.
    pub during: usize,
    /// Of these, those with clocks of their own, such as renewals of the Lease.
    pub clocked: usize,
    /// After that, until nothing more came.
    pub after: usize,
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

/// Is it a request of our programs? A watch stands in the log when it begins, and again when it ends.
pub fn is_ours(event: &Event) -> bool {
    program(event).is_some() && (event.verb == "watch") == (event.stage == "ResponseStarted")
}

/// Was the request made because nodes are updated? Leases, dry runs, and looks for upstream's operator have clocks of their
/// own.
pub fn is_of_a_roll_out(event: &Event) -> bool {
    let resource = event.object.resource.as_str();
    let looks_for_upstream = resource == "deployments" && event.verb == "get";
    is_ours(event) && !event.is_dry_run() && resource != "leases" && !looks_for_upstream
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

/// An agent reports.
fn is_report(event: &Event) -> bool {
    program(event) == Some("agent") && is_of_shadow(event, "status")
}

fn reports_idle(event: &Event) -> bool {
    let operations = event
        .request_object
        .as_ref()
        .and_then(|body| body.as_array())
        .into_iter()
        .flatten();
    let mut sets = operations.filter(|operation| operation["op"] == "add");
    is_report(event)
        && sets.any(|set| set["path"] == "/status/current_state" && set["value"] == "Idle")
}

fn is_eviction(event: &Event) -> bool {
    event.object.subresource == "eviction" && event.code() < 400
}

impl Requests {
    pub fn of(events: &[Event]) -> Self {
        let began = events
            .iter()
            .position(is_spec)
            .map(|at| events[at].request_received_timestamp);
        let ended = events
            .iter()
            .rfind(|event| reports_idle(event))
            .map(|event| event.stage_timestamp);
        let mut requests = Self::default();
        for event in events.iter().filter(|event| is_ours(event)) {
            let at = event.request_received_timestamp;
            if began.is_none_or(|began| at < began) {
                continue;
            }
            if ended.is_some_and(|ended| at > ended) {
                requests.after += usize::from(is_of_a_roll_out(event));
            } else {
                requests.during += 1;
                requests.clocked += usize::from(!is_of_a_roll_out(event));
                requests.evicted += usize::from(is_eviction(event));
            }
        }
        requests
    }
}
