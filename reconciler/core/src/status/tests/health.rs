//! The fleet's conditions for kstatus.

use brupop_api::NodeCounts;
use brupop_api::fleet::{NodeFailure, VersionRecord};
use serde_json::json;

use super::super::{DesiredCondition, DesiredFleetStatus};
use crate::facts::FleetFacts;
use crate::tests::world::{NOW, rows};
use brupop_api::conditions::Condition;

/// A check that found nothing wrong, one that did, and none yet.
type Check = Option<Result<(), &'static str>>;
const WELL: Check = Some(Ok(()));
const WRONG: Check = Some(Err("this is wrong"));

fn fleet(nodes: u64, admission: Check, alone: Check, halted: bool) -> DesiredFleetStatus {
    let versions = [VersionRecord {
        version: "1.20.0".to_owned(),
        variant: "metal".to_owned(),
        halted_at: halted.then(|| NOW.to_owned()),
        failures: vec![NodeFailure {
            node: "node-0".to_owned(),
            at: NOW.to_owned(),
            reason: "FellBack".to_owned(),
        }],
        ..VersionRecord::default()
    }];
    let facts = FleetFacts {
        versions: &versions,
        ..FleetFacts::EXAMPLE
    };
    let halts: Vec<_> = versions.iter().filter(|_| halted).collect();
    DesiredFleetStatus {
        halt: DesiredCondition::halted("ns", &facts, &halts),
        admission: admission.map(DesiredCondition::admission),
        other_operator: alone.map(DesiredCondition::other_operator),
        ..super::desired(NodeCounts {
            nodes,
            ..NodeCounts::default()
        })
    }
}

fn words(fleet: &DesiredFleetStatus, stored: &[Condition]) -> String {
    let health = fleet.health(stored);
    health
        .map(|it| format!("{}={:?}/{}", it.type_, it.status, it.reason))
        .join(" ")
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
        let words = words(&fleet(nodes, admission, alone, halted), &[]);
        assert_eq!(words, format!("Ready={ready} Stalled={stalled}"), "{what}");
    }
    let [ready, stalled] = fleet(3, WELL, WELL, true).health(&[]);
    assert!(
        ready
            .message
            .starts_with("1.20.0 for metal: it failed on node-0 (FellBack)"),
        "{}",
        ready.message
    );
    assert_eq!(ready.message, stalled.message);
    let of_pool = DesiredFleetStatus {
        stalled_pool: Some("pool web: it owns no node".to_owned()),
        ..fleet(3, WELL, WELL, false)
    };
    let says = "Ready=False/PoolStalled Stalled=True/PoolStalled";
    assert_eq!(words(&of_pool, &[]), says);
    assert_eq!(
        fleet(3, WRONG, WELL, false).health(&[])[0].message,
        "this is wrong"
    );
}

/// A new leader has tried nothing out yet: until then it is what the one before it saw, so that nothing is written.
#[test]
fn what_the_last_leader_saw_stands() {
    for (admission, alone) in [(WELL, WELL), (WRONG, WELL), (WELL, WRONG)] {
        let before = fleet(3, admission, alone, false);
        let patch = before.patch(&super::fleet(1, json!({})), NOW);
        let stored = super::fleet(1, patch["status"].clone());
        let after = fleet(3, None, None, false);
        assert!(
            before.is_stored_in(&stored) && after.is_stored_in(&stored),
            "{admission:?} {alone:?}"
        );
    }
}
