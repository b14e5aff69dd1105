use std::convert::Infallible;

use brupop_api::shadow::LastFailure;
use brupop_api::{BottlerocketShadow, names};
use futures::FutureExt as _;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Bytes;
use kube::Resource as _;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::process::tests::not_leading;

/// A node in mid-update, whose agent has reached this state.
fn updating(cluster: &mut Cluster, name: &str, reached: State, has_marker: bool) {
    let marker = Marker {
        shadow_uid: "u".into(),
        attempt: 1,
        ..Marker::default()
    };
    let annotations = if has_marker {
        json!({names::MARKER_ANNOTATION: marker.render()})
    } else {
        json!({})
    };
    let node =
        json!({"metadata": {"name": name, "annotations": annotations}, "spec": {}, "status": {}});
    let shadow: Item<BottlerocketShadow> = serde_json::from_value(json!({
        "apiVersion": BottlerocketShadow::api_version(&()), "kind": "BottlerocketShadow",
        "metadata": {"name": format!("brs-{name}"), "uid": "u", "generation": 1},
        "spec": {"state": "StagedAndPerformedUpdate", "attempt": 1, "version": "1.20.0"},
        "status": {"current_state": reached, "attempt": 1},
    }))
    .unwrap();
    let entry = cluster.record(&format!("brs-{name}"));
    entry.node = Some(Arc::new(serde_json::from_value(node).unwrap()));
    entry.shadow = Some(Arc::new(shadow));
}

/// The pods that probably hold the drain up have a third of its time for themselves, and all of it if the last drain failed.
#[test]
fn others_are_left_in_peace_after_a_drain_that_failed() {
    let mut cluster = Cluster::default();
    updating(&mut cluster, "a", State::StagedAndPerformedUpdate, true);
    let began: Timestamp = "2026-11-21T03:00:00Z".parse().unwrap();
    for (failure, retry, first_over) in [
        (None, None, true),
        (Some("DrainTimedOut"), None, false),
        (Some("DrainBlocked"), None, false),
        (Some("DrainBlocked"), Some(1), true),
    ] {
        let record = cluster.record("brs-a");
        let node = Arc::make_mut(record.node.as_mut().unwrap());
        let marker = node.marker.as_mut().unwrap().as_mut().unwrap();
        marker.drain_started_at = Some(began.to_string());
        node.retry = retry;
        let shadow = Arc::make_mut(record.shadow.as_mut().unwrap());
        shadow.body.as_mut().unwrap().spec.last_failure = failure.map(|reason| LastFailure {
            attempt: 1,
            reason: reason.to_owned(),
            ..LastFailure::default()
        });
        let rules = Policy::default().default_pool;
        let half = began + rules.durations.drain / 2;
        let basis = Basis::new(Some(record), &rules, &LeaderState::default(), half);
        assert_eq!(basis.time.first_over, first_over, "{failure:?}");
        let pods = [("brief", 30), ("long", 3600)].map(|(name, grace)| {
            let owner = json!({"apiVersion": "v1", "kind": "x", "name": "x", "uid": "x", "controller": true});
            let metadata = json!({"name": name, "namespace": "n", "uid": name, "ownerReferences": [owner]});
            let spec = json!({"terminationGracePeriodSeconds": grace});
            Arc::new(serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap())
        });
        let look = Look::at(
            &pods,
            &[],
            [0, 0],
            basis,
            None,
            (Duration::ZERO, half),
            |_| false,
        );
        let evicted = if first_over { 2 } else { 1 };
        assert_eq!(look.plan.evict.len(), evicted, "{failure:?}");
        assert_eq!(look.plan.evict.last().unwrap().name, "long");
    }
}

/// Only this many nodes can be watched, and what has begun to be emptied has a deadline.
#[test]
fn who_is_being_emptied_is_watched_before_who_is_next() {
    let mut cluster = Cluster::default();
    let (idle, staged) = (State::Idle, State::StagedAndPerformedUpdate);
    for (name, reached, has_marker) in [
        ("a", idle, false),
        ("b", staged, false),
        ("y", staged, true),
        ("z", staged, false),
    ] {
        updating(&mut cluster, name, reached, has_marker);
    }
    let wanted = Drainer::default().wanted(&cluster);
    let wanted = wanted.into_iter().map(|it| (it.what_for, it.shadow));
    assert_eq!(
        wanted.collect::<Vec<_>>(),
        [
            (For::DrainUnwatched, "brs-y"),
            (For::DrainNext, "brs-b"),
            (For::DrainNext, "brs-z"),
            (For::DrainSoon, "brs-a"),
        ]
    );
}

/// A node whose pods are not kept is passed over, and not watched again before it is not passed over any more.
#[test]
fn a_node_whose_pods_were_dropped_is_looked_at_again_in_turn() {
    let mut cluster = Cluster::default();
    updating(&mut cluster, "a", State::StagedAndPerformedUpdate, true);
    let mut drainer = Drainer::default();
    let wanted = |drainer: &Drainer, cluster: &Cluster| drainer.wanted(cluster).len();
    assert_eq!(wanted(&drainer, &cluster), 1);
    let (seen, obstacle) = (Duration::from_secs(7), Obstacle::TooManyPods);
    let dropped = PassedOver::new(obstacle.clone(), seen);
    drainer.passed_over.insert("brs-a".to_owned(), dropped);
    assert_eq!(wanted(&drainer, &cluster), 0);
    let passed_over = &drainer.passed_over["brs-a"];
    assert_eq!(passed_over.obstacle, obstacle);
    let stands = |now| {
        passed_over
            .obstacle(false, now, &mut Wake::default())
            .is_some()
    };
    assert!(stands(seen) && stands(PASSED_OVER) && !stands(seen + PASSED_OVER));
}

/// A look ends with the node at which it has cost enough, and the next one goes on behind it, whatever changes meanwhile.
#[test]
fn each_node_has_its_turn() {
    let known = ["a", "b", "c"].map(|name| (name.to_owned(), 0)).into();
    let order = |last: &str| {
        in_turn(&known, last)
            .map(|(name, _)| name.as_str())
            .collect::<String>()
    };
    assert_eq!(
        ["", "a", "b", "bb", "c", "d"].map(order),
        ["abc", "bca", "cab", "cab", "abc", "abc"]
    );
}

/// The clock stands while another node of the pool is drained, and goes on after a time without a look.
#[test]
fn wait_for_a_budget_ends_after_the_time_of_a_drain() {
    let why = "the PodDisruptionBudget shop/cart allows none".to_owned();
    let mut passed_over = PassedOver::new(Obstacle::Budget { why, waited: false }, Duration::ZERO);
    for (minute, stands, over) in [
        (0, false, false),
        (5, true, false),
        (60, false, false),
        (69, false, false),
        (70, false, true),
    ] {
        let mut wake = Wake::default();
        let now = Duration::from_mins(minute);
        passed_over.wait(stands, Duration::from_mins(15), now, &mut wake);
        let waited = matches!(passed_over.obstacle, Obstacle::Budget { waited: true, .. });
        assert_eq!(
            (waited, wake.0.is_some()),
            (over, !over && !stands),
            "minute {minute}"
        );
        let known = passed_over.obstacle(false, now, &mut wake).is_some();
        assert_eq!(
            (known, passed_over.has_clock()),
            (minute < 5, true),
            "minute {minute}"
        );
        if minute == 69 {
            assert_eq!(wake.0, Some(Duration::from_mins(70)));
        }
    }
}

const CART: &str = "apps/v1/ReplicaSet/shop/cart";
const MAIL: &str = "apps/v1/StatefulSet/shop/mail";

/// A workload that wants three pods and has this number available.
fn scale(available: u32) -> Option<Scale> {
    let object = json!({"metadata": {"name": "cart"}, "spec": {"replicas": 3}, "status": {"availableReplicas": available}});
    Scale::of(Some(&serde_json::from_value(object).unwrap()))
}

fn owners(names: &[&str], before: u32) -> BTreeMap<String, u32> {
    names
        .iter()
        .map(|name| ((*name).to_owned(), before))
        .collect()
}

fn unread(reads: &mut WorkloadReads, owners: &BTreeMap<String, u32>) -> Vec<String> {
    let owners = owners.iter().map(|(owner, before)| (owner, *before));
    let unread = reads.unread("brs-n", owners).into_iter();
    unread.map(|(owner, _)| owner).collect()
}

#[test]
fn workloads_that_are_missing_are_read_again() {
    let owners = owners(&[CART, MAIL, "batch/v1/Job/shop/tidy"], 2);
    let mut reads = WorkloadReads::default();
    assert_eq!(unread(&mut reads, &owners), [CART, MAIL]);
    assert_eq!(reads.due("brs-n"), Some(Duration::ZERO));
    reads.begin("brs-n");
    assert_eq!(reads.due("brs-n"), None, "it is under way");
    assert!(reads.scales("brs-n").is_none());
    let now = Duration::from_mins(1);
    reads.end("brs-n", Scales::from([(CART.to_owned(), scale(2))]), now);
    for seconds in [10, 20, 40, 80, 160, 300, 300] {
        assert_eq!(unread(&mut reads, &owners), [MAIL]);
        assert_eq!(reads.due("brs-n"), Some(now + Duration::from_secs(seconds)));
        reads.begin("brs-n");
        reads.end("brs-n", Scales::from([(MAIL.to_owned(), scale(1))]), now);
    }
    let both = Scales::from([(CART.to_owned(), scale(2)), (MAIL.to_owned(), scale(1))]);
    assert_eq!(reads.scales("brs-n"), Some(&both));
    reads.end("brs-n", Scales::from([(MAIL.to_owned(), scale(2))]), now);
    assert!(unread(&mut reads, &owners).is_empty());
    reads.prune();
    assert!(reads.scales("brs-n").is_some());
    reads.prune();
    let read = reads.scales("brs-n");
    assert!(read.is_none(), "nobody has asked for it since");
}

#[tokio::test]
async fn a_workload_is_read_by_name() {
    let refused = |code: u16| {
        (
            code,
            json!({"kind": "Status", "status": "Failure", "code": code}),
        )
    };
    let list = |items: Value| {
        (
            200,
            json!({"metadata": {"resourceVersion": "9"}, "items": items}),
        )
    };
    let there = json!({"metadata": {"name": "cart", "namespace": "shop", "uid": "u"},
        "spec": {"replicas": 3}, "status": {"availableReplicas": 1}});
    for ((code, body), found) in [
        (list(json!([there])), Some(scale(1))),
        (list(json!([])), Some(None)),
        (refused(403), Some(None)),
        (refused(503), None),
    ] {
        let text = body.to_string();
        let service = tower::service_fn(move |request: Request<Body>| {
            let query = "fieldSelector=metadata.name%3Dcart";
            assert!(
                request
                    .uri()
                    .path()
                    .ends_with("/namespaces/shop/replicasets")
            );
            assert!(request.uri().query().unwrap().contains(query));
            let answer = Response::builder()
                .status(code)
                .body(Full::<Bytes>::from(text.clone()));
            async move { Ok::<_, Infallible>(answer.unwrap()) }
        });
        let cart = vec![(CART.to_owned(), Workload::parse(CART).unwrap())];
        let read = read(Client::new(service, "ns"), cart).await;
        let found = found.map(|scale| (CART.to_owned(), scale));
        assert_eq!(read, found.into_iter().collect(), "{code} {body}");
    }
}

/// Else the workloads of some thirty updated nodes that do not come back would keep all other requests from being sent.
#[tokio::test]
async fn a_workload_that_is_awaited_takes_no_room_of_requests() {
    let (mut reconciler, _writes) = not_leading();
    let owner = "apps/v1/ReplicaSet/shop/cart".to_owned();
    let read = |reconciler: &mut Reconciler, name: &str| {
        let mut wake = Wake::default();
        reconciler.read_workloads(name, [(&owner, 2)].into_iter(), &mut wake);
        (reconciler.leading.under_way.len(), wake.0.is_some())
    };
    assert_eq!(read(&mut reconciler, "brs-a"), (1, false));
    reconciler.leading.under_way.clear();
    let reads = &mut reconciler.leading.drainer.workloads;
    reads.end("brs-a", Scales::new(), Duration::ZERO);
    assert_eq!(read(&mut reconciler, "brs-a"), (0, true), "not due yet");
    while reconciler.has_room_for_conditions() {
        let never = futures::future::pending().boxed();
        reconciler.leading.under_way.push(never);
    }
    let all = reconciler.leading.under_way.len();
    assert_eq!(read(&mut reconciler, "brs-b"), (all, false), "no room");
}
