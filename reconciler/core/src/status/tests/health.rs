//! The fleet's conditions for kstatus.

use brupop_api::conditions::Condition;
use brupop_api::fleet::{BottlerocketFleetStatus, NodeFailure, VersionRecord};
use serde_json::{Value, json};

use super::{Check, desired, fleet_has, fleet_patch};
use crate::tests::world::{NOW, rows};

const WELL: Check = Some(Ok(()));
const WRONG: Check = Some(Err("this is wrong"));

fn fleet(
    nodes: u64,
    admission: Check,
    alone: Check,
    halted: bool,
    stored: Value,
) -> BottlerocketFleetStatus {
    let record = VersionRecord {
        version: "1.20.0".to_owned(),
        variant: "metal".to_owned(),
        halted_at: Some(NOW.to_owned()),
        failures: vec![NodeFailure {
            node: "node-0".to_owned(),
            at: NOW.to_owned(),
            reason: "FellBack".to_owned(),
        }],
        ..VersionRecord::default()
    };
    let halts = if halted { &[&record][..] } else { &[] };
    desired(nodes, [admission, alone], halts, stored)
}

/// The conditions `Ready` and `Stalled`, and what they say.
fn health(fleet: &BottlerocketFleetStatus) -> (&[Condition], String) {
    let health = &fleet.conditions[fleet.conditions.len() - 2..];
    let words = health
        .iter()
        .map(|it| format!("{}={:?}/{}", it.type_, it.status, it.reason));
    (health, words.collect::<Vec<_>>().join(" "))
}

#[test]
fn a_fleet_is_ready_once_its_rules_are_in_force_and_it_is_alone() {
    let spent = "False/FailureBudgetSpent";
    for (what, nodes, admission, alone, halted, ready) in rows! {
        "all is well", 3, WELL, WELL, false => "True/InForce";
        "nothing is known", 3, None, None, false => "Unknown/NotTriedOut";
        "rules not tried", 3, None, WELL, false => "Unknown/NotTriedOut";
        "no node to try them on", 0, None, WELL, false => "True/InForce";
        "nobody has looked", 0, None, None, false => "Unknown/NotTriedOut";
        "rules not in force", 3, WRONG, WELL, false => "False/AdmissionNotEnforced";
        "not alone", 3, WELL, WRONG, false => "False/OtherOperator";
        "not alone, rules not tried", 3, None, WRONG, false => "False/OtherOperator";
        "halted", 3, WELL, WELL, true => spent;
        "halted first", 3, WRONG, None, true => spent;
    } {
        let stalled = if halted {
            "True/FailureBudgetSpent"
        } else {
            "False/NotStalled"
        };
        let status = fleet(nodes, admission, alone, halted, json!({}));
        assert_eq!(
            health(&status).1,
            format!("Ready={ready} Stalled={stalled}"),
            "{what}"
        );
    }
    let status = fleet(3, WELL, WELL, true, json!({}));
    let [ready, stalled] = health(&status).0 else {
        panic!("{status:?}");
    };
    assert!(
        ready
            .message
            .starts_with("1.20.0 for metal: it failed on node-0 (FellBack)"),
        "{}",
        ready.message
    );
    assert_eq!(ready.message, stalled.message);
    let wrong = fleet(3, WRONG, WELL, false, json!({}));
    assert_eq!(health(&wrong).0[0].message, "this is wrong");
}

/// A new leader has tried nothing out yet: until then it is what the one before it saw, so that nothing is written.
#[test]
fn what_the_last_leader_saw_stands() {
    for (admission, alone) in [(WELL, WELL), (WRONG, WELL), (WELL, WRONG)] {
        let before = fleet(3, admission, alone, false, json!({}));
        let patch = fleet_patch(&super::fleet(1, json!({})), &before, NOW);
        let stored = super::fleet(1, patch["status"].clone());
        let after = fleet(3, None, None, false, patch["status"].clone());
        assert!(
            fleet_has(&stored, &before) && fleet_has(&stored, &after),
            "{admission:?} {alone:?}"
        );
    }
}
