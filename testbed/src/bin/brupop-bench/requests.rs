//! What the operator asks of the API server during a roll-out, by its audit log.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use brupop_testbed::audit::Event;
use brupop_testbed::figures::number;
use brupop_testbed::operator::NAMESPACE;
use jiff::Timestamp;

/// Requests of reconciler, agents and webhook, by kind.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    /// From the first change of a spec to the last node's Idle.
    pub during: BTreeMap<Kind, usize>,
    /// After that, until nothing more came.
    pub after: BTreeMap<Kind, usize>,
}

/// A kind of request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// What it is for, in a word or two.
    pub group: &'static str,
    /// Who asked: `reconciler`, `agent`, `webhook`.
    pub who: &'static str,
    /// Verb, resource and sub-resource; of a failure also how it was answered.
    pub what: String,
}

/// The program that has asked, if it is one of ours.
pub fn program(event: &Event) -> Option<&'static str> {
    let account = event.user.username.strip_prefix("system:serviceaccount:")?;
    let account = account.strip_prefix(NAMESPACE)?.strip_prefix(":brupop-")?;
    ["reconciler", "agent", "webhook"].into_iter().find(|program| *program == account)
}

/// The node that an agent's token is bound to.
pub fn node_of_agent(event: &Event) -> Option<&String> {
    event.user.extra.get("authentication.kubernetes.io/node-name")?.first()
}

/// A watch stands in the log when it begins, and again when it ends.
pub fn is_request(event: &Event) -> bool {
    (event.verb == "watch") == (event.stage == "ResponseStarted")
}

/// Was the request made because nodes are updated? Leases, dry runs, and looks for upstream's operator have clocks of their
/// own.
pub fn is_of_a_roll_out(event: &Event) -> bool {
    program(event).is_some()
        && is_request(event)
        && !["leadership", "dry runs", "looks for upstream's operator"].contains(&group(event))
}

fn resource(event: &Event) -> (&str, &str) {
    event.object_ref.as_ref().map_or(("", ""), |object| (&object.resource, &object.subresource))
}

/// What a request is for.
pub fn group(event: &Event) -> &'static str {
    let (resource, subresource) = resource(event);
    match (program(event), resource, subresource) {
        _ if event.request_uri.contains("dryRun=All") => "dry runs",
        (_, "events", _) if is_about_a_node(event) => "Events of Nodes",
        (_, "events", _) => "Events of shadows",
        (Some("agent"), "bottlerocketshadows", "status") => "reports of agents",
        (Some("agent"), _, _) => "starts of agents",
        (Some("webhook"), _, _) => "webhook",
        (_, "bottlerocketshadows", "status") => "conditions of shadows",
        (_, "bottlerocketshadows", "") if event.verb == "patch" => "specs of shadows",
        (_, "nodes", _) if event.verb == "patch" => "Nodes",
        (_, "bottlerocketfleets", "status") if event.request_uri.contains("fieldManager=") => {
            "conditions and counts of the fleet"
        }
        (_, "bottlerocketfleets", "status") => "ledger",
        (_, "pods", "eviction") => "evictions",
        (_, "pods", _) if event.verb == "watch" => "watches of pods",
        (_, "pods", _) => "lists of pods",
        (_, "leases", _) => "leadership",
        (_, "deployments", _) if event.verb == "get" => "looks for upstream's operator",
        _ if event.verb == "watch" => "other watches",
        _ if event.verb == "list" => "other lists",
        _ => "other",
    }
}

fn is_about_a_node(event: &Event) -> bool {
    let body = event.request_object.as_ref();
    body.and_then(|body| body.pointer("/regarding/kind")?.as_str()) == Some("Node")
}

fn kind(event: &Event, who: &'static str) -> Kind {
    let (resource, subresource) = resource(event);
    let subresource = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
    let refused = if event.code() < 400 { String::new() } else { format!(" ({})", event.code()) };
    Kind { group: group(event), who, what: format!("{} {resource}{subresource}{refused}", event.verb) }
}

/// A spec has changed.
pub fn is_spec(event: &Event) -> bool {
    group(event) == "specs of shadows" && event.code() == 200
}

impl Requests {
    /// Counts them.
    pub fn of(events: &[Event]) -> Self {
        let began = events.iter().find(|event| is_spec(event)).map(|event| event.request_received_timestamp);
        let idle = |event: &&Event| {
            let body = event.request_object.as_ref().and_then(|body| body.as_array());
            group(event) == "reports of agents"
                && body.into_iter().flatten().any(|operation| {
                    operation["op"] == "add"
                        && operation["path"] == "/status/current_state"
                        && operation["value"] == "Idle"
                })
        };
        let ended = events.iter().rfind(idle).map(|event| event.stage_timestamp);
        let mut requests = Self::default();
        for event in events.iter().filter(|event| is_request(event)) {
            let Some(who) = program(event) else { continue };
            let at: Timestamp = event.request_received_timestamp;
            if began.is_none_or(|began| at < began) {
                continue;
            }
            let after = ended.is_some_and(|ended| at > ended);
            if after && !is_of_a_roll_out(event) {
                continue;
            }
            let counts = if after { &mut requests.after } else { &mut requests.during };
            *counts.entry(kind(event, who)).or_default() += 1;
        }
        requests
    }

    /// How many until the last node's Idle.
    pub fn count(&self) -> usize {
        self.during.values().sum()
    }

    /// The same for each of so many nodes.
    pub fn per_node(&self, nodes: usize) -> f64 {
        number(self.count()) / number(nodes)
    }

    /// Those after it, for each of so many nodes.
    pub fn per_node_after(&self, nodes: usize) -> f64 {
        number(self.after.values().sum()) / number(nodes)
    }

    /// Evictions that went well.
    pub fn evicted(&self) -> usize {
        let evictions = self.during.iter().filter(|(kind, _)| kind.group == "evictions");
        evictions.filter(|(kind, _)| !kind.what.ends_with(')')).map(|(_, count)| count).sum()
    }
}

/// As a table, most first.
pub fn render(requests: &Requests, nodes: usize) -> String {
    let mut groups: BTreeMap<&str, Vec<(&Kind, usize)>> = BTreeMap::new();
    for (kind, count) in &requests.during {
        groups.entry(kind.group).or_default().push((kind, *count));
    }
    let sum = |kinds: &[(&Kind, usize)]| kinds.iter().map(|(_, count)| count).sum::<usize>();
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, kinds)| std::cmp::Reverse(sum(kinds)));
    let mut text = format!(
        "Requests per updated node: {:.1}, and {:.1} more after the last node's Idle\n",
        requests.per_node(nodes),
        requests.per_node_after(nodes),
    );
    // Writing to a String does not fail.
    for (group, kinds) in groups {
        let _ = writeln!(text, "{:6.2}  {group}", number(sum(&kinds)) / number(nodes));
        for (kind, count) in kinds {
            let _ = writeln!(text, "          {count:4}  {} {}", kind.who, kind.what);
        }
    }
    for (kind, count) in &requests.after {
        let _ = writeln!(text, "  after: {count:4}  {}: {} {}", kind.group, kind.who, kind.what);
    }
    text
}
