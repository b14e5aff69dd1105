//! Random objects, ledgers, pools and settings.

use std::collections::BTreeMap;

use brupop_api::crds::VERSION_RECORDS_MAX;
use brupop_api::{BottlerocketFleet, State, names, pool::Limit};
use jiff::SignedDuration;
use kube::Resource as _;
use serde_json::{Value, json};

use super::{Place, TERM, never};
use crate::decide::tests::objects::{Dice, node, shadow, uid_of};
use crate::decide::tests::world::{NEW, OLD};
use crate::drain::{DrainPlan, PodKey};
use crate::objects::{AgentPod, Readiness};
use crate::rules::{Policy, Rules, StepDurations};
use crate::tests::world::{NOW, read};

pub(super) fn place(name: &str, dice: &mut Dice<'_>) -> Place {
    let pod = || PodKey {
        namespace: "shop".into(),
        name: "cart".into(),
        uid: "pod".into(),
    };
    let full = DrainPlan {
        evict: vec![pod()],
        owners: ["apps/v1/ReplicaSet/shop/cart".into()].into(),
        ..DrainPlan::default()
    };
    let shadow = (!dice.rarely(12)).then(|| shadow(name, dice));
    let readiness = (!dice.rarely(6)).then(|| Readiness {
        ready: true,
        since: dice.ago().parse().ok(),
    });
    Place {
        agent: (!dice.rarely(12)).then(|| AgentPod {
            node: name.to_owned(),
            readiness,
        }),
        plan: if dice.rarely(4) {
            None
        } else {
            Some(if dice.rarely(2) {
                full
            } else {
                DrainPlan::default()
            })
        },
        undrainable: dice.rarely(8),
        crowded: dice.rarely(12),
        blocked: dice.rarely(8).then(|| dice.rarely(2)),
        denied: dice.rarely(12),
        shadow_denied: dice.rarely(12),
        missing: dice.one_of(&[Some(false), Some(true), None]),
        node: (!dice.rarely(20)).then(|| node(name, shadow.as_ref(), dice)),
        shadow,
    }
}

const VARIANTS: [&str; 2] = ["aws-k8s-1.36", "metal-k8s-1.36"];

pub(super) fn policy(dice: &mut Dice<'_>) -> Policy {
    let seconds = SignedDuration::from_secs;
    let limit = dice.one_of(&[
        Limit::Nodes(2),
        Limit::Percent(40),
        Limit::Nodes(1),
        Limit::Unlimited,
    ]);
    let windows = if dice.rarely(5) { never() } else { vec![] };
    let steps = StepDurations {
        exclusion: seconds(dice.one_of(&[0, 30])),
        drain: seconds(900),
        verify: seconds(60),
        workloads: seconds(dice.one_of(&[600, 0])),
    };
    Policy {
        default_pool: Rules::of_settings(limit, windows, steps),
        stage: seconds(3600),
        reboot: seconds(1800),
        settle: seconds(600),
        back_off_base: seconds(120),
        min_node_age: seconds(dice.one_of(&[0, 300])),
        ..Policy::default()
    }
}

pub(super) fn ledger(places: &BTreeMap<String, Place>, dice: &mut Dice<'_>) -> BottlerocketFleet {
    let mut slots = json!({});
    for (shadow, place) in places {
        let name = names::node_of_shadow(shadow).unwrap();
        let spec = place
            .shadow
            .as_ref()
            .map(|shadow| &shadow.spec)
            .filter(|spec| spec.state != State::Idle);
        // Mostly those have slots that run.
        if dice.rarely(4) != spec.is_some() {
            let own = spec.and_then(|spec| spec.attempt).unwrap_or(1);
            let version = spec.and_then(|spec| spec.version.as_deref());
            slots[shadow] = json!({
                "uid": if dice.rarely(8) { "an earlier shadow".to_owned() } else { uid_of(name) },
                "attempt": dice.one_of(&[own, own, 1, 2, 3]),
                "version": version.or_else(|| dice.rarely(2).then_some(NEW)),
                "variant": dice.one_of(&[None, Some(VARIANTS[0]), Some(VARIANTS[1])]),
                "since": (!dice.rarely(4)).then(|| dice.ago()),
                "counted": dice.rarely(6),
                "lost": dice.rarely(8),
                "pool": dice.one_of(&[None, None, Some("p0"), Some("p1"), Some("gone")]),
            });
        }
    }
    let failed = |dice: &mut Dice<'_>| json!({"node": dice.one_of(&["n0", "n1", "elsewhere"]), "at": dice.ago(), "reason": "FellBack"});
    let record = |variant: &str, dice: &mut Dice<'_>| {
        json!({
            "version": NEW, "variant": variant,
            "failures": if dice.rarely(2) { vec![failed(dice)] } else { vec![] },
            "succeeded": dice.one_of(&[0, 1]),
            "haltedAt": dice.rarely(3).then(|| dice.ago()),
            "reportedAt": dice.ago_or_never(),
        })
    };
    let versions: Vec<Value> = if dice.rarely(16) {
        let halted =
            |nth| json!({"version": format!("1.0.{nth}"), "variant": VARIANTS[0], "haltedAt": NOW});
        (0..VERSION_RECORDS_MAX).map(halted).collect()
    } else {
        let known = VARIANTS
            .iter()
            .filter(|_| dice.rarely(2))
            .collect::<Vec<_>>();
        known
            .into_iter()
            .map(|variant| record(variant, dice))
            .collect()
    };
    let done = json!([{
        "pool": dice.one_of(&["p0", "p1", "gone"]), "version": NEW,
        "since": dice.ago(),
    }]);
    // Mostly by the time that is its halt's.
    let said = json!([{"version": NEW, "variant": VARIANTS[0],
        "haltedAt": versions.first().and_then(|it| it["haltedAt"].as_str()).map_or_else(|| dice.ago(), str::to_owned)}]);
    let spec = json!({
        "resumedVersions": if dice.rarely(4) { said } else { json!([]) },
        "maxUnavailable": dice.rarely(4).then_some(2),
    });
    let status = json!({
        "term": TERM, "slots": slots, "versions": versions,
        "donePools": if dice.rarely(3) { done } else { json!([]) },
        "lastFinished": dice.ago_or_never(),
    });
    let api_version = BottlerocketFleet::api_version(&());
    read(
        json!({"apiVersion": api_version, "kind": "BottlerocketFleet", "metadata": {"name": "fleet"}, "spec": spec,
        "status": status}),
    )
}

/// Pools whose selectors overlap, more often than not.
pub(super) fn pools(dice: &mut Dice<'_>) -> Vec<Value> {
    let count = dice.one_of(&[0, 0, 1, 2]);
    let zone = |zone: &str| json!({"matchLabels": {"topology.kubernetes.io/zone": zone}});
    (0..count)
        .map(|nth| {
            let selector = [json!({}), zone("a"), zone("b")][dice.one_of(&[0, 1, 2])].clone();
            let limit = [json!(1), json!("50%"), json!(3)][dice.one_of(&[0, 1, 2])].clone();
            // NOW is a Saturday.
            let schedule = dice.one_of(&["0 3 * * *", "0 3 * * *", "0 3 * * SUN", "not at all"]);
            let window = json!({"schedule": schedule, "duration": "2h"});
            let freeze = json!({"name": "now", "start": "2026-11-21T00:00:00Z", "end": "2026-11-22T00:00:00Z"});
            let soak = dice.one_of(&["0s", "1h"]);
            let below = if dice.rarely(6) { OLD } else { "9.0.0" };
            // The query of a gate is the name of its state.
            let gate = |state: &str| json!({"name": state.to_lowercase(),
                "prometheus": {"source": "main", "query": state}});
            let spec = json!({
                "nodeSelector": selector, "priority": dice.one_of(&[0, 0, 1]), "paused": dice.rarely(8),
                "maxUnavailable": limit, "windows": if dice.rarely(2) { vec![window] } else { vec![] },
                "freezes": if dice.rarely(6) { vec![freeze] } else { vec![] },
                "versions": {"below": below, "minAge": dice.one_of(&["0s", "0s", "1h"])},
                "topology": {"mode": dice.one_of(&["OneAtATime", "Spread"])},
                "drain": {"timeout": dice.one_of(&["15m", "1s"]), "onTimeout": dice.one_of(&["Abort", "Force"]),
                    "loadBalancerDelay": dice.one_of(&["0s", "1h"])},
                "verify": {"readyFor": dice.one_of(&["1m", "2h"]), "workloadsTimeout": dice.one_of(&["15m", "0s"])},
                "dependsOn": if dice.rarely(4) { vec![json!({"pool": format!("p{}", 1 - nth), "soak": soak})] } else { vec![] },
                "gates": dice.one_of(&[&[][..], &[], &[], &[], &["Open"], &["Open", "Closed"], &["Unknown"]])
                    .iter().map(|state| gate(state)).collect::<Vec<_>>(),
            });
            json!({"metadata": {"name": format!("p{nth}"), "uid": format!("pool-{nth}"), "generation": 1}, "spec": spec})
        })
        .collect()
}
