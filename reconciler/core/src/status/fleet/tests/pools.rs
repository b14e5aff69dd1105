//! The status of a pool, from the objects of its nodes.

#![allow(
    clippy::needless_pass_by_value,
    reason = "JSON is written where it is used"
)]

mod stalls;

use super::super::*;
use crate::cluster::{Cluster, Watched as _};
use crate::leader::LeaderState;
use crate::pool::Pool;
use crate::rules::Policy;
use crate::tests::world::{
    NEW, NOW, OLD, annotated, known, node, observe_knowing, pool as a_pool, put_agent, put_ledger,
    read, rows, shadow, with,
};
use brupop_api::{Item, names};
use serde_json::json;

/// A node of the pool that runs this version and wants that one; `None` = it has not reported.
fn join(cluster: &mut Cluster, name: &str, runs: &str, wants: Option<&str>, paused: bool) {
    let image = json!({"status": {"nodeInfo": {"osImage": format!("Bottlerocket OS {runs} (aws-k8s-1.29)")}}});
    node(
        name,
        with(image, &annotated(names::PAUSE_ANNOTATION, paused)),
    )
    .put(cluster);
    let status = wants.map(|wants| {
        json!({"current_version": runs, "target_version": (wants != runs).then_some(wants), "current_state": "Idle",
            "boot_id": "boot-1"})
    });
    shadow(
        &names::shadow_name(name),
        json!({"state": "Idle"}),
        json!(status),
    )
    .put(cluster);
    put_agent(cluster, name, true, None);
}

/// The pool `web`, as it is stored.
fn pool(spec: &Value, status: &Value) -> Item<Pool> {
    read(
        json!({"metadata": {"name": "web", "uid": "u", "generation": 3, "resourceVersion": "7"},
        "spec": spec, "status": status}),
    )
}

/// A cluster with this pool, and none of its nodes.
fn of_pool(spec: Value) -> Cluster {
    let mut cluster = Cluster::default();
    pool(&with(json!({"nodeSelector": {}}), &spec), &json!({})).put(&mut cluster);
    cluster
}

/// The status that the only pool should have.
fn status(cluster: &mut Cluster) -> BottlerocketPoolStatus {
    status_with(cluster, json!({}))
}

/// The same, with this ledger.
fn status_with(cluster: &mut Cluster, ledger: Value) -> BottlerocketPoolStatus {
    status_of(cluster, ledger, |_| Ok(()))
}

/// The same, if these queries have no answer.
fn status_of(
    cluster: &mut Cluster,
    ledger: Value,
    unanswered: impl Fn(&PrometheusGate) -> Result<(), Option<&'static str>>,
) -> BottlerocketPoolStatus {
    put_ledger(cluster, json!({}), ledger);
    let policy = Policy::default();
    let observed = observe_knowing(cluster, &known(cluster), &policy, NOW);
    let decided = observed.decide();
    pools(&observed, &decided.nodes, unanswered, false)
        .pop()
        .unwrap()
}

/// Status and reason of each condition.
fn words(status: &BottlerocketPoolStatus) -> Vec<String> {
    status
        .conditions
        .iter()
        .map(|it| format!("{}={:?}/{}", it.type_, it.status, it.reason))
        .collect()
}

#[test]
fn a_pool_counts_its_nodes() {
    let mut cluster = of_pool(json!({"maxUnavailable": "50%"}));
    join(&mut cluster, "a", NEW, Some(NEW), false);
    join(&mut cluster, "b", OLD, Some(NEW), false);
    join(&mut cluster, "c", OLD, Some(NEW), true);
    join(&mut cluster, "d", OLD, None, false);
    let seen = status(&mut cluster);
    let counts = NodeCounts {
        nodes: 4,
        updated_nodes: 1,
        updating_nodes: 0,
        pending_nodes: 1,
        blocked_nodes: 1,
        not_offered_nodes: 0,
        locked_nodes: 0,
        unavailable_limit: 2,
    };
    assert_eq!(seen.counts, counts);
    let versions: Vec<_> = seen
        .versions
        .iter()
        .map(|it| (it.version.as_str(), it.nodes))
        .collect();
    assert_eq!(versions, [("1.19.4", 3), ("1.20.0", 1)]);
    assert_eq!(
        words(&seen),
        [
            "Accepted=True/Understood",
            "Progressing=False/LimitReached",
            "Updated=False/UpdatesPending",
            "Ready=True/InForce",
            "Stalled=False/NotStalled"
        ]
    );
}

#[test]
fn force_without_the_right_counts_as_abort_and_is_told() {
    let (ready, not_ready) = ("Ready=True/InForce", "Ready=False/ForceNotGranted");
    for (on_timeout, may_force, force, told) in [
        ("Abort", true, false, ready),
        ("Force", false, false, not_ready),
        ("Force", true, true, ready),
    ] {
        let mut cluster = of_pool(json!({"drain": {"onTimeout": on_timeout}}));
        join(&mut cluster, "n", OLD, Some(NEW), false);
        put_ledger(&mut cluster, json!({}), json!({}));
        let known = LeaderState {
            may_force,
            ..known(&cluster)
        };
        let policy = Policy::default();
        let observed = observe_knowing(&cluster, &known, &policy, NOW);
        let decided = observed.decide();
        let status = pools(&observed, &decided.nodes, |_| Ok(()), may_force).pop();
        assert_eq!(observed.views[0].force, force, "{on_timeout} {may_force}");
        assert_eq!(words(&status.unwrap())[3], told, "{on_timeout} {may_force}");
    }
}

/// A release is no change of a pool, so waiting for the pool is not waiting for the release.
#[test]
fn a_pool_is_ready_while_it_waits_and_stalled_once_a_person_has_to_act() {
    let (old, new) = (Some(OLD), Some(NEW));
    let halted =
        json!({"versions": [{"version": "1.20.0", "variant": "aws-k8s-1.29", "haltedAt": NOW}]});
    let slot = json!({"slots": {"brs-n": {"uid": "uid-brs-n", "attempt": 1}}});
    let outside = json!({"windows": [{"schedule": "0 5 * * *", "duration": "1h"}]});
    let (none, pending, invalid) = (json!({}), "False/UpdatesPending", Some("PoolInvalid"));
    // The reason why a person must act, if so; the reasons of Progressing and Updated.
    for (what, spec, wants, ledger, why, stands) in rows! {
        "no nodes", json!({}), &[][..], &none, None => Some(("NoNodes", "Unknown/NoNodes"));
        "up to date", json!({}), &[old], &none, None => Some(("NoUpdate", "True/NoUpdate"));
        "one not reported", json!({}), &[old, None], &none, None => Some(("NoUpdate", "Unknown/NotReported"));
        "next", json!({}), &[new], &none, None => Some(("LimitReached", pending));
        "in mid-update", json!({}), &[new], &slot, None => None;
        "paused", json!({"paused": true}), &[new], &none, None => Some(("PoolPaused", pending));
        "outside its window", outside, &[new], &none, None => Some(("OutsideWindow", pending));
        "halted for others only", json!({}), &[old], &halted, None => None;
        "halted", json!({}), &[new], &halted, Some("VersionHalted") => Some(("VersionHalted", pending));
        "not understood", json!({"maxUnavailable": 0}), &[new], &none, invalid => Some(("PoolInvalid", pending));
        "not even read", json!({"nodeSelector": 3}), &[new], &none, invalid => Some(("PoolInvalid", pending));
        "the same, and halted", json!({"nodeSelector": 3}), &[], &halted, invalid => None;
    } {
        let mut cluster = of_pool(spec);
        for (name, wants) in ["n", "o"].into_iter().zip(wants) {
            join(&mut cluster, name, OLD, *wants, false);
        }
        let status = status_with(&mut cluster, ledger.clone());
        let accepted = if why == invalid {
            "False/PoolInvalid"
        } else {
            "True/Understood"
        };
        assert_eq!(words(&status)[0], format!("Accepted={accepted}"), "{what}");
        if let Some((progressing, updated)) = stands {
            let expected = [
                format!("Progressing=False/{progressing}"),
                format!("Updated={updated}"),
            ];
            assert_eq!(words(&status)[1..3], expected, "{what}");
        }
        let expected = why.map_or_else(
            || "Ready=True/InForce Stalled=False/NotStalled".to_owned(),
            |why| format!("Ready=False/{why} Stalled=True/{why}"),
        );
        assert_eq!(words(&status)[3..].join(" "), expected, "{what}");
        let [accepted, progressing, _, ready, stalled] = &status.conditions[..] else {
            panic!()
        };
        let known = [accepted, progressing].map(|it| &it.message);
        assert!(
            stalled.status == False || known.contains(&&stalled.message),
            "{what}"
        );
        assert_eq!(
            ready.message == stalled.message,
            why.is_some(),
            "{what}: {ready:?}"
        );
    }
}

/// An applied status is not applied again, also for an unreadable pool.
#[test]
fn a_status_that_is_stored_is_not_written_again() {
    for spec in [
        json!({"nodeSelector": {}, "windows": [{"schedule": "0 5 * * *", "duration": "1h"}]}),
        json!({"nodeSelector": 3}),
    ] {
        let mut cluster = Cluster::default();
        pool(&spec, &json!({"nodes": "many"})).put(&mut cluster);
        join(&mut cluster, "a", OLD, Some(NEW), false);
        let wanted = status(&mut cluster);
        assert!(!pool_has(&cluster.pools["web"], &wanted), "{spec}");
        let patch = pool_patch(&cluster.pools["web"], &wanted, NOW);
        assert_eq!(patch["metadata"], json!({"name": "web", "uid": "u"}));
        assert_eq!(patch["status"]["observedGeneration"], json!(3));
        pool(&spec, &patch["status"]).put(&mut cluster);
        let again = status(&mut cluster);
        assert!(pool_has(&cluster.pools["web"], &again), "{spec}: {again:?}");
        let later = pool_patch(&cluster.pools["web"], &again, "2026-11-21T05:00:00Z");
        assert_eq!(
            later["status"], patch["status"],
            "times of conditions that have not changed stay"
        );
    }
}
