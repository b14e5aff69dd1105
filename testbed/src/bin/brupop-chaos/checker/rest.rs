//! Once the faults have stopped everything comes to rest: each node is updated, or says truly why not.

use serde_json::Value as Json;

use super::json::{
    EXCLUDED, condition, is_cordoned, is_halted, is_ready, is_set, marker, members, number,
    shadow_of, text,
};
use super::objects::{Objects, PodState};

/// The operator's changes of a Node out of service, except cordon and taint. Nobody else makes them here.
const LEFT_BY_US: [&str; 3] = [
    EXCLUDED,
    "/metadata/annotations/karpenter.sh~1do-not-disrupt",
    "/metadata/annotations/cluster-autoscaler.kubernetes.io~1scale-down-disabled",
];
const OUR_TAINT: &str = "brupop.bottlerocket.aws/updating";

/// Returns what is not at rest, by node, with what is said of it, of this many nodes. Empty: everything is. Who waits for a
/// budget may do so only `for_good`: most budgets allow something again soon.
pub(crate) fn restless(
    objects: &Objects,
    version: &str,
    nodes: usize,
    for_good: bool,
) -> Vec<String> {
    let slots =
        members(&objects.ledger, "/status/slots").map(|(shadow, _)| format!("{shadow} has a slot"));
    let restless = objects.nodes.iter().filter_map(|(node, state)| {
        let why = restless_node(node, &state.object, objects, version, for_good)?;
        Some(format!("{node}: {why}"))
    });
    let missing = nodes.saturating_sub(objects.nodes.len());
    let missing = (missing > 0).then(|| format!("{missing} nodes are not there"));
    slots.chain(restless).chain(missing).collect()
}

fn restless_node(
    name: &str,
    node: &Json,
    objects: &Objects,
    version: &str,
    for_good: bool,
) -> Option<String> {
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
    let (goal, reached) = (
        text(shadow, "/spec/state"),
        text(shadow, "/status/current_state"),
    );
    if let Some(left) = LEFT_BY_US.iter().find(|left| is_set(node, left)) {
        return Some(format!("it still has {left}"));
    }
    if node
        .pointer("/spec/taints")
        .is_some_and(|taints| taints.to_string().contains(OUR_TAINT))
    {
        return Some("it still has our taint".to_owned());
    }
    let runs = text(shadow, "/status/current_version");
    // Its kubelet's word, beside the agent's.
    if text(node, "/status/nodeInfo/osImage").split(' ').nth(2) != Some(runs) {
        return Some(format!(
            "its shadow says that it runs {runs}, and its kubelet does not"
        ));
    }
    let may_stay = || {
        is_held_by_halt(shadow, node, objects, version)
            || (for_good && is_held_up(shadow, node, objects))
    };
    if goal == "Idle" && reached == "Idle" && (runs == version || may_stay()) {
        return None;
    }
    let said = condition(shadow, "Progressing")
        .cloned()
        .unwrap_or_default();
    Some(format!(
        "goal {goal}, reached {reached}, runs {runs}: {} ({})",
        said["reason"], said["message"]
    ))
}

/// Does the shadow say that a halt holds its node, and is that so? Nothing else that people say outlasts the faults.
fn is_held_by_halt(shadow: &Json, node: &Json, objects: &Objects, version: &str) -> bool {
    let said = condition(shadow, "Progressing").unwrap_or(&Json::Null);
    text(said, "/reason") == "VersionHalted" && is_halted(&objects.ledger, version, node)
}

/// Whether the shadow names a budget that allows nothing, or its last drain failed on one. Pods of the test bed may not come
/// back, which is not the operator's doing. Nor is it that a drain here is shorter than the minute after which a pod that tolerates
/// the cordon is left on its node.
fn is_held_up(shadow: &Json, node: &Json, objects: &Objects) -> bool {
    let said = condition(shadow, "Progressing").unwrap_or(&Json::Null);
    let failed = &shadow["spec"]["last_failure"];
    let why = match text(said, "/reason") {
        "BudgetAllowsNone" => text(said, "/message"),
        "BackingOff" if text(failed, "/reason") == "DrainBlocked" => text(failed, "/message"),
        "BackingOff" if text(failed, "/reason") == "DrainTimedOut" => {
            let comes_back = |(name, pod): (&String, &PodState)| {
                name.starts_with("shop/sticky-")
                    && text(&pod.object, "/spec/nodeName") == text(node, "/metadata/name")
            };
            return objects.pods.iter().any(comes_back);
        }
        _ => return false,
    };
    objects.budgets.iter().any(|(name, budget)| {
        let name = name.rsplit('/').next().unwrap_or(name);
        why.contains(name) && number(budget, "/status/disruptionsAllowed") == Some(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::objects::NodeState;
    use serde_json::json;

    fn fleet(goal: &str, runs: &str, reason: &str) -> Objects {
        let node = json!({
            "metadata": {},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "nodeInfo": {"osImage": format!("Bottlerocket OS {runs} (aws-k8s-1.36)")},
            },
        });
        let progressing = json!([{"type": "Progressing", "reason": reason}]);
        let status =
            json!({"current_state": "Idle", "current_version": runs, "conditions": progressing});
        Objects {
            nodes: [(
                "n".to_owned(),
                NodeState {
                    object: node,
                    ..NodeState::default()
                },
            )]
            .into(),
            shadows: [(
                "brs-n".to_owned(),
                json!({"spec": {"state": goal}, "status": status}),
            )]
            .into(),
            ledger: json!({}),
            ..Objects::default()
        }
    }

    #[test]
    fn slots_are_given_back_and_every_node_has_its_shadow() {
        let mut objects = fleet("Idle", "2", "NoUpdate");
        assert_eq!(restless(&objects, "2", 1, false), [""; 0]);
        objects.ledger["status"] = json!({"slots": {"brs-n": {}}});
        assert_eq!(restless(&objects, "2", 1, false), ["brs-n has a slot"]);
        objects.ledger["status"] = json!({});
        objects.shadows.clear();
        assert_eq!(restless(&objects, "2", 1, false), ["n: it has no shadow"]);
    }

    #[test]
    fn a_halt_holds_nodes_of_its_version() {
        let halted = |version: &str, variant: &str| json!({"versions": [{"version": version, "variant": variant, "haltedAt": "t"}]});
        for (reason, status, is_true) in [
            ("VersionHalted", halted("2", "aws-k8s-1.36"), true),
            ("VersionHalted", halted("1", "aws-k8s-1.36"), false),
            ("VersionHalted", halted("2", "other"), false),
            ("LimitReached", halted("2", "aws-k8s-1.36"), false),
        ] {
            let mut objects = fleet("Idle", "1", reason);
            objects.ledger["status"] = status.clone();
            let rests = restless(&objects, "2", 1, false).is_empty();
            assert_eq!(rests, is_true, "{reason} {status}");
        }
    }

    #[test]
    fn a_node_is_updated_or_says_truly_why_not() {
        let rests = |objects: &Objects| restless(objects, "2", 1, false).is_empty();
        assert!(rests(&fleet("Idle", "2", "NoUpdate")));
        assert!(!rests(&fleet("Idle", "1", "LimitReached")));
        let held_up = |name: &str, allowed: u64| {
            let mut objects = fleet("Idle", "1", "BudgetAllowsNone");
            let budget = json!({"status": {"disruptionsAllowed": allowed}});
            objects.budgets.insert(name.to_owned(), budget);
            let shadow = objects.shadows.get_mut("brs-n").unwrap();
            shadow["status"]["conditions"][0]["message"] =
                json!("the PodDisruptionBudget shop/cart allows none");
            objects
        };
        let waits_for_good = |objects: &Objects| restless(objects, "2", 1, true).is_empty();
        assert!(waits_for_good(&held_up("shop/cart", 0)));
        assert!(
            !rests(&held_up("shop/cart", 0)),
            "it may allow something soon"
        );
        assert!(
            !waits_for_good(&held_up("shop/cart", 1)),
            "that is not true any more"
        );
        assert!(
            !waits_for_good(&held_up("shop/web", 0)),
            "that is another one"
        );
        let mut failed = held_up("shop/cart", 0);
        let shadow = failed.shadows.get_mut("brs-n").unwrap();
        shadow["status"]["conditions"][0]["reason"] = json!("BackingOff");
        assert!(!waits_for_good(&failed), "it was no drain");
        failed.shadows.get_mut("brs-n").unwrap()["spec"]["last_failure"] = json!({"reason": "DrainBlocked", "message": "the disruption budget cart needs 2 healthy pods"});
        assert!(waits_for_good(&failed) && !rests(&failed));
        failed.shadows.get_mut("brs-n").unwrap()["spec"]["last_failure"] =
            json!({"reason": "DrainTimedOut"});
        assert!(!waits_for_good(&failed), "no pod came back");
        let node = &mut failed.nodes.values_mut().next().unwrap().object;
        node["metadata"]["name"] = json!("n");
        let sticky = PodState {
            object: json!({"spec": {"nodeName": "n"}}),
            ..PodState::default()
        };
        failed.pods.insert("shop/sticky-1".to_owned(), sticky);
        assert!(waits_for_good(&failed) && !rests(&failed));
        assert!(!rests(&fleet("MonitoringUpdate", "2", "Monitoring")));
        let changed = |change: fn(&mut Json)| {
            let mut objects = fleet("Idle", "2", "NoUpdate");
            objects
                .nodes
                .values_mut()
                .for_each(|state| change(&mut state.object));
            rests(&objects)
        };
        assert!(changed(|_| ()));
        assert!(!changed(|node| {
            node["metadata"]["annotations"] =
                json!({"brupop.bottlerocket.aws/marker": r#"{"attempt":1}"#});
        }));
        assert!(!changed(|node| node["spec"]["unschedulable"] = json!(true)));
        assert!(!changed(
            |node| node["status"]["conditions"][0]["status"] = json!("Unknown")
        ));
        assert!(!changed(|node| {
            node["metadata"]["annotations"] = json!({"karpenter.sh/do-not-disrupt": "true"});
        }));
        assert!(!changed(
            |node| node["spec"]["taints"] = json!([{"key": OUR_TAINT}])
        ));
        assert!(!changed(|node| {
            node["metadata"]["labels"]["node.kubernetes.io/exclude-from-external-load-balancers"] =
                json!("");
        }));
        assert!(!changed(
            |node| node["status"]["nodeInfo"]["osImage"] = json!("Bottlerocket OS 1 (a)")
        ));
        assert_eq!(
            restless(&fleet("Idle", "2", "NoUpdate"), "2", 2, false),
            ["1 nodes are not there"]
        );
    }
}
