use std::convert::Infallible;

use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Bytes;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::process::tests::not_leading;
use futures::FutureExt as _;

const CART: &str = "apps/v1/ReplicaSet/shop/cart";
const MAIL: &str = "apps/v1/StatefulSet/shop/mail";

/// A workload that wants three pods, of which so many are available.
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
