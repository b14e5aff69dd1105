mod unreadable;

use super::*;
use futures::stream;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::sync::Mutex;

fn node(name: &str) -> Node {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    Node { metadata, ..Node::default() }
}

/// What is worked out from a store is made anew after every change, also after one that is worth no pass.
#[tokio::test]
async fn a_change_that_wakes_nobody_is_counted() {
    let (store, writer) = reflector::store();
    let revision = Arc::<AtomicU64>::default();
    let mut kept = InStore { store, writer, matters: |_, _| false, revision: Arc::clone(&revision) };
    let mut after = |event| (kept.take(event), revision.load(Ordering::Relaxed));
    assert_eq!(after(watcher::Event::Init), (false, 0));
    assert_eq!(after(watcher::Event::InitApply(node("a"))), (false, 0));
    assert_eq!(after(watcher::Event::InitDone), (true, 1));
    assert_eq!(after(watcher::Event::Apply(node("a"))), (false, 2));
    assert_eq!(after(watcher::Event::Delete(node("a"))), (true, 3));
}

/// A new leader must not act on what a dead connection left behind.
#[tokio::test]
async fn a_refresh_replaces_what_a_silent_watch_knows() {
    // Each list yields another node, and then nothing more, as a dead connection does.
    let begun = Mutex::new(0);
    let watch = move || {
        let mut begun = begun.lock().unwrap();
        *begun += 1;
        let list = watcher::Event::InitApply(node(&format!("node-{begun}")));
        let events = [watcher::Event::Init, list, watcher::Event::InitDone];
        stream::iter(events.map(Ok)).chain(stream::pending())
    };
    let changed = Arc::<Notify>::default();
    let signals = (Arc::clone(&changed), Arc::<AtomicU64>::default());
    let watched = Watched::start("Nodes", watch, |_, _| true, signals);
    let names = || watched.store.state().iter().map(|node| node.metadata.name.clone()).collect::<Vec<_>>();
    assert!(!watched.synced() && !watched.watch.is_fresh());
    changed.notified().await;
    assert!(watched.synced() && watched.watch.is_fresh());
    assert_eq!(names(), [Some("node-1".to_owned())]);
    watched.watch.refresh();
    assert!(watched.synced() && !watched.watch.is_fresh());
    changed.notified().await;
    assert!(watched.watch.is_fresh());
    assert_eq!(names(), [Some("node-2".to_owned())]);
}
