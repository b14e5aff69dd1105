//! Once the faults have stopped everything comes to rest: each node is updated, or says truly why not.

use serde_json::Value as Json;

use super::json::{
    OPTED_IN, condition, is_cordoned, is_halted, is_ready, is_set, marker, members, shadow_of, text,
};
use super::objects::Objects;

/// What is not at rest, by node, with what is said of it. Empty: everything is.
pub(crate) fn restless(objects: &Objects, version: &str) -> Vec<String> {
    let slots = members(&objects.ledger, "/status/slots").map(|(shadow, _)| format!("{shadow} has a slot"));
    let nodes = objects.nodes.iter().filter_map(|(node, state)| {
        let why = restless_node(node, &state.object, objects, version)?;
        Some(format!("{node}: {why}"))
    });
    slots.chain(nodes).collect()
}

fn restless_node(name: &str, node: &Json, objects: &Objects, version: &str) -> Option<String> {
    let marker = marker(node);
    if !marker.is_null() {
        return Some(format!("it is marked {marker}"));
    }
    if is_cordoned(node) {
        return Some("it is cordoned, and nobody says so".to_owned());
    }
    if !is_ready(node) {
        return Some("it is not Ready".to_owned());
    }
    let Some(shadow) = objects.shadows.get(&shadow_of(name)) else {
        return Some("it has no shadow".to_owned());
    };
    let (goal, reached) = (text(shadow, "/spec/state"), text(shadow, "/status/current_state"));
    let runs = text(shadow, "/status/current_version");
    if goal == "Idle" && reached == "Idle" && (runs == version || says_why(shadow, node, objects, version)) {
        return None;
    }
    let said = condition(shadow, "Progressing").cloned().unwrap_or_default();
    Some(format!("goal {goal}, reached {reached}, runs {runs}: {} ({})", said["reason"], said["message"]))
}

/// Does the shadow say why its node is not updated, and is that so?
fn says_why(shadow: &Json, node: &Json, objects: &Objects, version: &str) -> bool {
    let reason = condition(shadow, "Progressing").map(|condition| condition["reason"].clone());
    match reason.as_ref().and_then(Json::as_str).unwrap_or_default() {
        "VersionHalted" => is_halted(&objects.ledger["status"]["versions"][version], Some(node)),
        "VersionHaltedInPool" => {
            let tier = text(node, "/metadata/labels/tier");
            is_set(&objects.ledger["status"]["poolVersions"][format!("{tier}/{version}")], "/halted")
        }
        "WaitingForPool" => objects.nodes.iter().any(|(name, state)| {
            let first = text(&state.object, "/metadata/labels/tier") == "canary";
            let shadow = objects.shadows.get(&shadow_of(name));
            first && shadow.is_some_and(|shadow| text(shadow, "/status/current_version") != version)
        }),
        "FleetPaused" => objects.ledger.pointer("/spec/paused") == Some(&Json::Bool(true)),
        "NodePaused" => is_set(node, "/metadata/annotations/brupop.bottlerocket.aws~1pause"),
        "NotLabelled" => !is_set(node, OPTED_IN),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::objects::NodeState;
    use serde_json::json;

    fn fleet(goal: &str, runs: &str, reason: &str, paused: bool) -> Objects {
        let node = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let progressing = json!([{"type": "Progressing", "reason": reason}]);
        let status = json!({"current_state": "Idle", "current_version": runs, "conditions": progressing});
        Objects {
            nodes: [("n".to_owned(), NodeState { object: node, ..NodeState::default() })].into(),
            shadows: [("brs-n".to_owned(), json!({"spec": {"state": goal}, "status": status}))].into(),
            ledger: json!({"spec": {"paused": paused}}),
            ..Objects::default()
        }
    }

    #[test]
    fn a_node_is_updated_or_says_truly_why_not() {
        let rests = |objects: &Objects| restless(objects, "2").is_empty();
        assert!(rests(&fleet("Idle", "2", "NoUpdate", false)));
        assert!(rests(&fleet("Idle", "1", "FleetPaused", true)));
        assert!(!rests(&fleet("Idle", "1", "FleetPaused", false)), "that is not true");
        assert!(!rests(&fleet("Idle", "1", "LimitReached", false)));
        assert!(!rests(&fleet("MonitoringUpdate", "2", "Monitoring", false)));
    }
}
