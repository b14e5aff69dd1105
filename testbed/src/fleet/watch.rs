//! Watches a fleet, and keeps its history.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use brupop_api::{BottlerocketFleet, BottlerocketShadow};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::history::History;
use crate::host::lock;
use crate::mended::Mended;
use crate::operator::{INFRASTRUCTURE, NAMESPACE};

/// Keeps a history from now on, of the nodes that are updated. The watches last until the set is dropped.
pub fn start(client: &Client, history: &Arc<Mutex<History>>) -> JoinSet<()> {
    let mut watching = JoinSet::new();
    let ledgers = Api::<Mended<BottlerocketFleet>>::namespaced(client.clone(), NAMESPACE);
    // The maximum of its memory stays.
    let (seen, gone) = (
        |history: &mut History, _, ledger: &_| history.ledger(ledger),
        |_: &mut History, _, _: &str| (),
    );
    watching.spawn(keep(ledgers, Arc::clone(history), seen, gone));
    let shadows = Api::<Mended<BottlerocketShadow>>::namespaced(client.clone(), NAMESPACE);
    watching.spawn(keep(
        shadows,
        Arc::clone(history),
        History::shadow,
        History::no_shadow,
    ));
    watching.spawn(keep(
        Api::<Mended<Node>>::all(client.clone()),
        Arc::clone(history),
        History::node,
        History::no_node,
    ));
    watching
}

/// Notes each object that is there, and each that is there no more; also those that went while the watch was broken.
async fn keep<K>(
    api: Api<Mended<K>>,
    history: Arc<Mutex<History>>,
    seen: impl Fn(&mut History, Instant, &K),
    gone: impl Fn(&mut History, Instant, &str),
) where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let of_the_fleet = watcher::Config::default().labels(&format!("!{INFRASTRUCTURE}"));
    let mut events = watcher::watcher(api, of_the_fleet)
        .default_backoff()
        .boxed();
    let (mut known, mut listed) = (BTreeSet::new(), BTreeSet::new());
    while let Some(event) = events.next().await {
        let mut history = lock(&history);
        let at = Instant::now();
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => {
                listed.insert(object.name_any());
                seen(&mut history, at, &object.0);
            }
            Ok(Event::InitDone) => {
                known
                    .difference(&listed)
                    .for_each(|name: &String| gone(&mut history, at, name));
                known.clone_from(&listed);
            }
            Ok(Event::Apply(object)) => {
                known.insert(object.name_any());
                seen(&mut history, at, &object.0);
            }
            Ok(Event::Delete(object)) => {
                known.remove(&object.name_any());
                gone(&mut history, at, &object.name_any());
            }
            // It is begun again.
            Err(_) => {}
        }
    }
}
