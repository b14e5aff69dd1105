use std::convert::Infallible;

use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Bytes;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

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

fn unread(reads: &mut WorkloadReads, key: &ReadKey, owners: &BTreeMap<String, u32>) -> Vec<String> {
    let owners = owners.iter().map(|(owner, before)| (owner, *before));
    let unread = reads.unread(key, owners).into_iter();
    unread.map(|(owner, _)| owner).collect()
}

#[test]
fn workloads_that_are_missing_are_read_again() {
    let key = (ReadFor::Finish, "brs-n".to_owned());
    let owners = owners(&[CART, MAIL, "batch/v1/Job/shop/tidy"], 2);
    let mut reads = WorkloadReads::default();
    assert_eq!(unread(&mut reads, &key, &owners), [CART, MAIL]);
    assert_eq!(reads.begin(&key), Some(Duration::ZERO));
    assert_eq!(reads.begin(&key), None, "it is under way");
    reads.end(&key, Scales::from([(CART.to_owned(), scale(2))]));
    assert_eq!(reads.evicted("brs-n", &owners), Evicted::Unknown);
    for seconds in [10, 20, 40, 80, 160, 300, 300] {
        assert_eq!(unread(&mut reads, &key, &owners), [MAIL]);
        assert_eq!(reads.begin(&key), Some(Duration::from_secs(seconds)));
        reads.end(&key, Scales::from([(MAIL.to_owned(), scale(1))]));
        assert_eq!(reads.evicted("brs-n", &owners), Evicted::Missing(MAIL));
    }
    reads.end(&key, Scales::from([(MAIL.to_owned(), scale(2))]));
    assert!(unread(&mut reads, &key, &owners).is_empty());
    assert_eq!(reads.evicted("brs-n", &owners), Evicted::Back);
    reads.prune();
    assert!(reads.contains(&key));
    reads.prune();
    assert!(!reads.contains(&key), "nobody has asked for it since");
    assert_eq!(reads.evicted("brs-n", &owners), Evicted::Unknown);
}

#[test]
fn some_workloads_are_read_for_a_cordon() {
    let (mut reads, key) = (
        WorkloadReads::default(),
        (ReadFor::Cordon, "brs-n".to_owned()),
    );
    let many: Vec<_> = (10..40)
        .map(|nth| format!("apps/v1/ReplicaSet/shop/{nth}"))
        .collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let first = unread(&mut reads, &key, &owners(&many, 0));
    assert_eq!(first.len(), EVICTED_OWNERS_MAX);
    assert!(unread(&mut reads, &key, &owners(&["v1/Pod/shop/a"], 0)).is_empty());
    let cart = owners(&[CART], 0);
    assert_eq!(unread(&mut reads, &key, &cart), [CART]);
    reads.end(
        &key,
        Scales::from([(CART.to_owned(), scale(0)), (MAIL.to_owned(), None)]),
    );
    assert!(
        unread(&mut reads, &key, &cart).is_empty(),
        "however few there are"
    );
    assert_eq!(
        reads.available(),
        BTreeMap::from([("brs-n".to_owned(), cart)])
    );
    assert_eq!(
        reads.begin(&key),
        Some(Duration::ZERO),
        "another may have come"
    );
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
    for (why, (code, body), found) in [
        (ReadFor::Finish, list(json!([there])), Some(scale(1))),
        (ReadFor::Finish, list(json!([])), Some(None)),
        (ReadFor::Finish, refused(403), Some(None)),
        (ReadFor::Finish, refused(503), None),
        (ReadFor::Cordon, refused(503), Some(None)),
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
        let read = read(Client::new(service, "ns"), why, Duration::ZERO, cart).await;
        let found = found.map(|scale| (CART.to_owned(), scale));
        assert_eq!(read, found.into_iter().collect(), "{why:?} {code} {body}");
    }
}
