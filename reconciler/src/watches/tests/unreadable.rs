//! One object that cannot be read costs itself: each kind is read as lists and watches do, object by object, with some among
//! them that nobody could have read.

use std::collections::{BTreeMap, BTreeSet};

use brupop_api::{BottlerocketShadow, Item};
use kube::Resource;
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use brupop_core::objects::{Budget, LeaseRecord, NodeFacts, PodItem, WatchedFleet};
use brupop_core::workloads::Scale;

const OBJECTS: usize = 100;
/// A Kubernetes time that no client can represent.
const FAR: &str = "10000-01-01T23:58:59Z";

/// A change of an object that leaves its identity as it is, because the API server itself sees to that.
#[derive(Clone, Debug)]
struct Mutation {
    object: usize,
    /// The object's value that is changed.
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

/// Reads these objects as lists and watches do, one by one. All are seen, and the good ones can be read.
fn check<K>(readable: fn(&K) -> bool, of: &Value, mutations: &[Mutation])
where
    K: Resource + DeserializeOwned,
{
    let (objects, good) = objects(of, mutations);
    let seen = objects.iter().map(|object| {
        let object: K = serde_json::from_str(&object.to_string()).expect("it is read");
        let name = object.meta().name.clone().expect("a name");
        (name, readable(&object))
    });
    let seen: BTreeMap<_, _> = seen.collect();
    let unread = good.iter().find(|name| seen.get(*name) != Some(&true));
    assert_eq!((seen.len(), unread), (OBJECTS, None), "{of}");
}

fn check_all(mutations: &[Mutation]) {
    let conditions =
        json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T04:00:00Z"}]);
    let controller = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true}]);
    let node = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {"unschedulable": true, "taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {"conditions": conditions, "nodeInfo": {"bootID": "b", "osImage": "Bottlerocket OS 1.0.0"}}});
    check::<Item<NodeFacts>>(
        |node| NodeFacts::from(node.clone()).marker.is_none(),
        &node,
        mutations,
    );
    let pod = json!({"metadata": {"labels": {"a": "b"}, "ownerReferences": controller},
        "spec": {"nodeName": "n", "containers": [{"env": [{"name": "PASSWORD", "value": "hunter2"}]}]},
        "status": {"phase": "Running", "conditions": conditions}});
    check::<PodItem>(|pod| pod.body.is_ok(), &pod, mutations);
    let budget = json!({"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}},
        "status": {"observedGeneration": 2, "disruptionsAllowed": 1, "expectedPods": 2, "desiredHealthy": 1}});
    check::<Item<Budget>>(|budget| budget.body.is_ok(), &budget, mutations);
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]);
    let shadow = json!({"metadata": {"ownerReferences": owner}, "spec": {"state": "Idle", "attempt": 3},
        "status": {"current_version": "1.0.0", "current_state": "Idle", "crash_count": 1, "problem": "StepFailed",
            "conditions": [{"type": "Progressing", "status": "True", "reason": "R", "message": "m",
                "lastTransitionTime": FAR}]}});
    check::<Item<BottlerocketShadow>>(|shadow| shadow.body.is_ok(), &shadow, mutations);
    let fleet = json!({"spec": {"paused": true},
        "status": {"term": 3, "slots": {"brs-n": {"uid": "u", "attempt": 1}}, "lastFinished": FAR}});
    check::<Item<WatchedFleet>>(|fleet| fleet.body.is_ok(), &fleet, mutations);
    let lease = json!({"spec": {"holderIdentity": "h", "leaseDurationSeconds": 15, "renewTime": FAR,
        "acquireTime": FAR, "leaseTransitions": 2}});
    check::<Item<LeaseRecord>>(|lease| lease.body.is_ok(), &lease, mutations);
    let workload = json!({"spec": {"replicas": 2}, "status": {"observedGeneration": 2, "availableReplicas": 2}});
    check::<Item<Scale>>(|workload| workload.body.is_ok(), &workload, mutations);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn one_bad_object_costs_itself(mutations in mutations()) {
        check_all(&mutations);
    }
}
