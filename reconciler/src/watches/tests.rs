mod unreadable;

use super::*;
use futures::stream;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::client::Body;
use std::sync::Mutex;

fn node(name: &str) -> Node {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    };
    Node {
        metadata,
        ..Node::default()
    }
}

/// A drain must not rest on what a dead connection left behind.
#[tokio::test]
async fn a_refresh_replaces_what_a_silent_watch_knows() {
    // Each list yields another node, and then nothing more, as a dead connection does.
    let begun = Mutex::new(0);
    let watch = move || {
        let mut begun = begun.lock().unwrap();
        *begun += 1;
        let list = Event::InitApply(node(&format!("node-{begun}")));
        let events = [Event::Init, list, Event::InitDone];
        stream::iter(events.map(Ok)).chain(stream::pending())
    };
    let changed = Arc::<Notify>::default();
    let known = Arc::<Mutex<Vec<String>>>::default();
    let kept = Arc::clone(&known);
    let keep = move |event| {
        let mut names = kept.lock().unwrap();
        match event {
            Event::Init => names.clear(),
            Event::InitApply(node) => names.extend(Node::meta(&node).name.clone()),
            other => return matches!(other, Event::InitDone),
        }
        false
    };
    let silent = tower::service_fn(|_: http::Request<Body>| {
        std::future::pending::<Result<http::Response<Body>, std::convert::Infallible>>()
    });
    let all = Watches::start(&Client::new(silent, "ns"), "ns");
    let watched = all.watch("Nodes", watch, keep, &changed);
    let names = || known.lock().unwrap().clone();
    assert!(!watched.synced() && !watched.is_fresh());
    changed.notified().await;
    assert!(watched.synced() && watched.is_fresh());
    assert_eq!(names(), ["node-1"]);
    watched.refresh();
    assert!(watched.synced() && !watched.is_fresh());
    changed.notified().await;
    assert!(watched.is_fresh());
    assert_eq!(names(), ["node-2"]);
    all.rest();
    assert!(!all.is_fresh(), "nothing is watched");
}

#[test]
fn each_node_with_a_slot_and_each_next_one_can_be_watched() {
    let slots = usize::try_from(brupop_api::crds::SLOTS_MAX).unwrap();
    assert_eq!(MAX_POD_WATCHES, slots + brupop_core::decide::MAX_SUCCESSORS);
}
