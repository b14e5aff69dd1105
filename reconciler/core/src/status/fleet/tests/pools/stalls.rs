//! Tests of the messages about a pool that comes to no update.

use super::*;

use crate::tests::world::rows;

/// A fault of another pool holds this one too, also across several pools.
#[test]
fn a_pool_says_at_once_that_none_before_it_ever_begins() {
    let after = |pool: &str| json!({"priority": 1, "dependsOn": [{"pool": pool}]});
    let first = "b goes first (spec.dependsOn), and cannot begin: ";
    for (b, why) in rows! {
        json!({"priority": 2}) => None;
        after("nowhere") => Some(format!("{first}the pool nowhere goes"));
        json!({"priority": 2, "maxUnavailable": 0}) => Some(format!("{first}spec.maxUnavailable: write"));
        after("a") => Some(first.replacen('b', "a", 1) + "spec.dependsOn: these pools wait");
    } {
        let mut cluster = of_pool(
            json!({"nodeSelector": {"matchLabels": {"no": "node"}}, "dependsOn": [{"pool": "a"}]}),
        );
        a_pool("a", after("b")).put(&mut cluster);
        a_pool("b", b).put(&mut cluster);
        let seen = status(&mut cluster);
        let [accepted, progressing, .., stalled] = &seen.conditions[..] else {
            panic!("{seen:?}");
        };
        assert_eq!(accepted.status, True, "{seen:?}");
        match why {
            None => assert_eq!(
                (&*stalled.reason, &*progressing.reason),
                ("NotStalled", "NoNodes")
            ),
            Some(why) => {
                assert!(
                    stalled.message.starts_with(&format!("the pool {why}")),
                    "{}",
                    stalled.message
                );
                assert_eq!(
                    (&*stalled.reason, &progressing.message),
                    ("WaitingForPool", &stalled.message)
                );
            }
        }
    }
}

/// Such as one whose nodes have lost their labels. Without a node that waits, nobody has to act.
#[test]
fn a_pool_stalls_behind_one_that_owns_no_node() {
    let mut cluster = of_pool(json!({"priority": 2, "dependsOn": [{"pool": "a"}]}));
    let selector = json!({"nodeSelector": {"matchLabels": {"no": "node"}}});
    a_pool("a", selector).put(&mut cluster);
    join(&mut cluster, "n", NEW, None, false);
    let seen = status(&mut cluster);
    assert_eq!(words(&seen)[4], "Stalled=False/NotStalled");
    join(&mut cluster, "n", OLD, Some(NEW), false);
    let seen = status(&mut cluster);
    assert_eq!(words(&seen)[4], "Stalled=True/WaitingForPool");
    let why = "the pool a goes first (spec.dependsOn), and cannot begin: it owns no node that is opted in";
    assert_eq!(seen.conditions[4].message, why);
}

/// Of a version that the first pool was done with before.
#[test]
fn a_pool_that_is_being_updated_is_not_stalled_by_the_one_before_it() {
    let mut cluster = of_pool(json!({"priority": 2, "dependsOn": [{"pool": "a"}]}));
    let ghost =
        json!({"nodeSelector": {"matchLabels": {"no": "node"}}, "dependsOn": [{"pool": "ghost"}]});
    a_pool("a", ghost).put(&mut cluster);
    let stalled =
        |cluster: &mut Cluster, ledger: Value| words(&status_with(cluster, ledger))[4].clone();
    join(&mut cluster, "n", NEW, None, false);
    assert_eq!(
        stalled(&mut cluster, json!({})),
        "Stalled=True/WaitingForPool"
    );
    join(&mut cluster, "n", OLD, Some(NEW), false);
    assert_eq!(
        stalled(&mut cluster, json!({})),
        "Stalled=True/WaitingForPool"
    );
    let slots = json!({"slots": {"brs-n": {"uid": "uid-brs-n", "attempt": 1}}});
    assert_eq!(stalled(&mut cluster, slots), "Stalled=False/NotStalled");
}

/// Long before there is an update that the gate would hold.
#[test]
fn a_pool_says_at_once_that_a_gate_has_no_answer() {
    let gate = |name: &str, query: &str| json!({"name": name, "prometheus": {"source": "main", "query": query}});
    let gates = [gate("well", "up == 0"), gate("broken", "up =")];
    let mut cluster = of_pool(json!({"gates": gates}));
    let asked = |query: &PrometheusGate| {
        if query.query == "up =" {
            Err(Some("bad_data: 1:4: parse error"))
        } else {
            Ok(())
        }
    };
    let seen = status_of(&mut cluster, json!({}), asked);
    let expected = "the gate broken (spec.gates) is closed, because its source main gives no answer: bad_data: 1:4: parse error";
    // `kubectl get brp` shows the reason of Progressing.
    for (type_, reason, message) in [
        ("Accepted", "Understood", "the pool is understood"),
        ("Progressing", "GateUnknown", expected),
        ("Ready", "GateUnknown", expected),
    ] {
        let of_type = seen.conditions.iter().find(|it| it.type_ == type_).unwrap();
        assert_eq!(
            (&*of_type.reason, of_type.message.as_str()),
            (reason, message),
            "{type_}"
        );
    }
    join(&mut cluster, "n", OLD, Some(NEW), false);
    let waits = status_of(&mut cluster, json!({}), asked);
    assert_eq!(
        (
            &*waits.conditions[1].reason,
            waits.conditions[1].message.as_str()
        ),
        ("GateUnknown", expected)
    );
    // A source may come back by itself.
    assert_eq!(
        words(&seen)[3..],
        ["Ready=False/GateUnknown", "Stalled=False/NotStalled"]
    );
    assert_eq!(
        words(&status(&mut cluster))[3..],
        ["Ready=True/InForce", "Stalled=False/NotStalled"]
    );
    // A new leader does not know yet, and nor does anybody after a change of the gate.
    let not_asked = status_of(&mut cluster, json!({}), |_| Err(None));
    assert_eq!(
        words(&not_asked)[3..],
        ["Ready=Unknown/GateUnknown", "Stalled=False/NotStalled"]
    );
}

#[test]
fn a_stalled_pool_stalls_the_fleet() {
    let halt = condition(HALTED, False, "WithinFailureBudget", "");
    let checks = checks(Some(Ok(())), Some(Ok(())), &[]);
    let [ready, stalled] = fleet_health(3, &checks, &halt, Some("pool web: it owns no node"));
    assert_eq!((ready.status, stalled.status), (False, True));
    assert_eq!([&*ready.reason, &*stalled.reason], ["PoolStalled"; 2]);
}
