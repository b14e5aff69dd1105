//! One object that cannot be read costs itself: each kind is listed and watched as the reconciler does it, with objects
//! among them that nobody could have read.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use brupop_api::{BottlerocketShadow, Item};
use brupop_runtime::{list_and_watch, patient};
use futures::{StreamExt as _, stream};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::api::{Api, ListParams};
use kube::client::Body;
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher::Event;
use kube::{Client, Resource};
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use brupop_core::objects::{Budget, LeaseRecord, NodeFacts, PodItem, WatchedFleet};
use brupop_core::workloads::Scale;

/// Objects in a list.
const OBJECTS: usize = 100;
/// A Kubernetes time that no client can represent.
const FAR: &str = "10000-01-01T23:58:59Z";

/// Plays the API server: a list, then the same objects as events of a watch, which then stays silent.
#[derive(Clone)]
struct ApiServer {
    objects: Arc<Vec<Value>>,
    lists: Arc<AtomicUsize>,
    watches: Arc<AtomicUsize>,
}

impl ApiServer {
    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = server.answer(request.uri().query().unwrap_or_default());
            async move { Ok::<_, Infallible>(answer) }
        });
        Client::new(service, "ns")
    }

    fn answer(&self, query: &str) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        let parameter = |name: &str| {
            query
                .split('&')
                .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
                .map(str::to_owned)
        };
        if parameter("watch").is_some() {
            self.watches.fetch_add(1, Ordering::Relaxed);
            let event = |object: &Value| {
                format!("{{\"type\":\"MODIFIED\",\"object\":{object}}}\n").into_bytes()
            };
            let lines: Vec<_> = self.objects.iter().map(event).collect();
            let frames =
                stream::iter(lines).map(|line| Ok::<_, Infallible>(Frame::data(Bytes::from(line))));
            return Response::new(StreamBody::new(frames.chain(stream::pending())).boxed_unsync());
        }
        self.lists.fetch_add(1, Ordering::Relaxed);
        let list = json!({"kind": "List", "apiVersion": "v1", "items": *self.objects,
            "metadata": {"resourceVersion": "9"}});
        Response::new(Full::from(list.to_string()).boxed_unsync())
    }
}

/// A change of an object that leaves its identity as it is, because the API server itself sees to that.
#[derive(Clone, Debug)]
struct Mutation {
    object: usize,
    /// Which of the object's values is changed.
    value: usize,
    to: Value,
}

fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    let nested = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let to = prop_oneof![
        Just(json!(null)),
        Just(json!(FAR)),
        Just(json!("-0001-01-01T00:00:00Z")),
        Just(json!(-1)),
        Just(json!(i64::MIN)),
        Just(json!(u64::MAX)),
        Just(json!(1.5e300)),
        Just(json!("\u{1b}[2J\n")),
        Just(json!("x".repeat(100_000))),
        Just(json!([])),
        Just(json!({})),
        Just(nested),
    ];
    let mutation = (0..OBJECTS, any::<usize>(), to).prop_map(|(object, value, to)| Mutation {
        object,
        value,
        to,
    });
    prop::collection::vec(mutation, 1..60)
}

/// Pointers to all values of an object, without its identity.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    let identity =
        ["name", "namespace", "uid", "resourceVersion"].map(|field| format!("/metadata/{field}"));
    if identity.iter().any(|field| field == at) {
        return;
    }
    if !at.is_empty() && at != "/metadata" {
        found.push(at.to_owned());
    }
    let escaped = |key: &str| key.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Object(fields) => {
            fields
                .iter()
                .for_each(|(key, value)| pointers(value, &format!("{at}/{}", escaped(key)), found));
        }
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(index, value)| pointers(value, &format!("{at}/{index}"), found)),
        _ => {}
    }
}

/// A hundred objects like this one, some of them changed; and the names of those that were not.
fn objects(of: &Value, mutations: &[Mutation]) -> (Vec<Value>, BTreeSet<String>) {
    let mut objects: Vec<Value> = (0..OBJECTS)
        .map(|number| {
            let mut object = of.clone();
            let metadata = json!({"name": format!("o-{number}"), "namespace": "ns", "uid": format!("u-{number}"),
                "resourceVersion": "8", "generation": 2, "creationTimestamp": "2026-11-21T04:00:00Z",
                "managedFields": [{"manager": "m", "operation": "Update", "time": FAR}]});
            let given = object["metadata"].as_object().cloned().unwrap_or_default();
            object["metadata"] = metadata;
            object["metadata"].as_object_mut().unwrap().extend(given);
            object
        })
        .collect();
    for Mutation { object, value, to } in mutations {
        let mut all = vec![];
        pointers(&objects[*object], "", &mut all);
        if let Some(pointer) = all.get(value % all.len()) {
            *objects[*object].pointer_mut(pointer).unwrap() = to.clone();
        }
    }
    let touched: BTreeSet<usize> = mutations.iter().map(|mutation| mutation.object).collect();
    let good = (0..OBJECTS)
        .filter(|number| !touched.contains(number))
        .map(|number| format!("o-{number}"));
    (objects, good.collect())
}

/// Lists and watches these objects. All are seen twice, the good ones can be read, and the API server is asked for
/// nothing a second time.
async fn check<K>(
    resource: K::DynamicType,
    readable: fn(&K) -> bool,
    of: &Value,
    mutations: &[Mutation],
) where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
    K::DynamicType: Clone,
{
    let (objects, good) = objects(of, mutations);
    let server = ApiServer {
        objects: Arc::new(objects),
        lists: Arc::default(),
        watches: Arc::default(),
    };
    let api = Api::<K>::all_with(server.client(), &resource);
    let mut events = std::pin::pin!(patient(list_and_watch(api, ListParams::default())));
    let (mut listed, mut watched) = (BTreeMap::new(), BTreeMap::new());
    while watched.len() < OBJECTS {
        let next = tokio::time::timeout(Duration::from_secs(20), events.next()).await;
        let event = next.expect("an event").expect("the watch does not end");
        let (seen, object) = match event.expect("no failure") {
            Event::Init | Event::InitDone => continue,
            Event::InitApply(object) => (&mut listed, object),
            Event::Apply(object) => (&mut watched, object),
            Event::Delete(_) => panic!("nothing was deleted"),
        };
        seen.insert(
            object.meta().name.clone().expect("a name"),
            readable(&object),
        );
    }
    for seen in [listed, watched] {
        let unread = good.iter().find(|name| seen.get(*name) != Some(&true));
        assert_eq!(
            (seen.len(), unread),
            (OBJECTS, None),
            "{}",
            K::kind(&resource)
        );
    }
    let asked = (
        server.lists.load(Ordering::Relaxed),
        server.watches.load(Ordering::Relaxed),
    );
    assert_eq!(asked, (1, 1), "{}", K::kind(&resource));
}

async fn check_all(mutations: &[Mutation]) {
    let conditions =
        json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T04:00:00Z"}]);
    let controller = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true}]);
    let node = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {"unschedulable": true, "taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {"conditions": conditions, "nodeInfo": {"bootID": "b", "osImage": "Bottlerocket OS 1.0.0"}}});
    check::<Item<NodeFacts>>(
        (),
        |node| NodeFacts::from(node.clone()).marker.is_none(),
        &node,
        mutations,
    )
    .await;
    let pod = json!({"metadata": {"labels": {"a": "b"}, "ownerReferences": controller},
        "spec": {"nodeName": "n", "containers": [{"env": [{"name": "PASSWORD", "value": "hunter2"}]}]},
        "status": {"phase": "Running", "conditions": conditions}});
    check::<PodItem>((), |pod| pod.body.is_ok(), &pod, mutations).await;
    let budget = json!({"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}},
        "status": {"observedGeneration": 2, "disruptionsAllowed": 1, "expectedPods": 2, "desiredHealthy": 1}});
    check::<Item<Budget>>((), |budget| budget.body.is_ok(), &budget, mutations).await;
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]);
    let shadow = json!({"metadata": {"ownerReferences": owner}, "spec": {"state": "Idle", "attempt": 3},
        "status": {"current_version": "1.0.0", "current_state": "Idle", "crash_count": 1, "problem": "StepFailed",
            "conditions": [{"type": "Progressing", "status": "True", "reason": "R", "message": "m",
                "lastTransitionTime": FAR}]}});
    check::<Item<BottlerocketShadow>>((), |shadow| shadow.body.is_ok(), &shadow, mutations).await;
    let fleet = json!({"spec": {"paused": true},
        "status": {"term": 3, "slots": {"brs-n": {"uid": "u", "attempt": 1}}, "lastFinished": FAR}});
    check::<Item<WatchedFleet>>((), |fleet| fleet.body.is_ok(), &fleet, mutations).await;
    let lease = json!({"spec": {"holderIdentity": "h", "leaseDurationSeconds": 15, "renewTime": FAR,
        "acquireTime": FAR, "leaseTransitions": 2}});
    check::<Item<LeaseRecord>>((), |lease| lease.body.is_ok(), &lease, mutations).await;
    let workload = json!({"spec": {"replicas": 2}, "status": {"observedGeneration": 2, "availableReplicas": 2}});
    let replica_sets = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "ReplicaSet"));
    check::<Item<Scale>>(
        replica_sets,
        |workload| workload.body.is_ok(),
        &workload,
        mutations,
    )
    .await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn one_bad_object_costs_itself(mutations in mutations()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(check_all(&mutations));
    }
}
