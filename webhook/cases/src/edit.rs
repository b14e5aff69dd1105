//! Reviews that no row has: those of the table, with something in them changed. For tests that make up what to change.

use crate::schema::SCHEMA;
use crate::world::World;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// Places of a request that decide on something, as JSON pointers.
static OF_THE_REQUEST: LazyLock<Vec<&str>> = LazyLock::new(|| {
    "/kind/group /kind/version /kind/kind /resource/group /resource/version /resource/resource /subResource /name \
     /namespace /operation /dryRun /userInfo/username /userInfo/groups /userInfo/extra \
     /userInfo/extra/authentication.kubernetes.io~1node-name /userInfo/extra/authentication.kubernetes.io~1node-uid \
     /userInfo/extra/authentication.kubernetes.io~1pod-name /userInfo/extra/authentication.kubernetes.io~1pod-uid \
     /userInfo/extra/unheard-of /object /oldObject"
        .split(' ')
        .collect()
});

/// Places outside of spec and status.
const OF_METADATA: &str = "/apiVersion /kind /metadata /metadata/name /metadata/namespace /metadata/uid \
    /metadata/generation /metadata/resourceVersion /metadata/creationTimestamp /metadata/deletionTimestamp \
    /metadata/generateName /metadata/labels /metadata/annotations /metadata/finalizers /metadata/managedFields \
    /metadata/unheard-of /metadata/ownerReferences /metadata/ownerReferences/0 /metadata/ownerReferences/0/apiVersion \
    /metadata/ownerReferences/0/kind /metadata/ownerReferences/0/name /metadata/ownerReferences/0/uid \
    /metadata/ownerReferences/0/controller /metadata/ownerReferences/0/unheard-of /unheard-of";

/// Places of an object, as JSON pointers: of spec and status, whatever the schema knows.
pub static OF_AN_OBJECT: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let mut places: Vec<String> = OF_METADATA.split(' ').map(str::to_owned).collect();
    for half in ["spec", "status"] {
        places_of(&SCHEMA["properties"][half], format!("/{half}"), &mut places);
    }
    places.into_iter().map(|place| &*place.leak()).collect()
});

/// The place itself, those below it, and one that no schema knows.
fn places_of(schema: &Value, place: String, places: &mut Vec<String>) {
    if let Some(members) = schema["properties"].as_object() {
        for (name, member) in members {
            places_of(member, format!("{place}/{name}"), places);
        }
        places.push(format!("{place}/unheard-of"));
    } else if schema["items"].is_object() {
        places_of(&schema["items"], format!("{place}/0"), places);
    }
    places.push(place);
}

/// Where a change happens: an index into what there is, modulo its number, so that any will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(pub u8);

/// In which of the two objects, if it is a place of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The new one.
    New,
    /// The old one.
    Old,
    /// Both, alike: this is no change then, but another situation.
    Both,
}

/// What happens there.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    /// It is taken away.
    Remove,
    /// This stands there.
    Set(Value),
    /// What another review has there stands there.
    AsIn(Value),
    /// The new object is as the old one there; on a place of the request: it is taken away.
    Undo,
}

/// Applies the edit to a review.
pub fn apply(review: &mut Value, place: Place, side: Side, edit: &Edit) {
    let request = &mut review["request"];
    let index = usize::from(place.0) % (OF_THE_REQUEST.len() + OF_AN_OBJECT.len());
    if let Some(pointer) = OF_THE_REQUEST.get(index) {
        return put(request, pointer, edit, pointer);
    }
    let pointer = OF_AN_OBJECT[index - OF_THE_REQUEST.len()];
    if *edit == Edit::Undo {
        let before = request["oldObject"].pointer(pointer).cloned();
        return put(
            &mut request["object"],
            pointer,
            &before.map_or(Edit::Remove, Edit::Set),
            "",
        );
    }
    for (object, there) in [
        ("object", side != Side::Old),
        ("oldObject", side != Side::New),
    ] {
        if there && request[object].is_object() {
            put(
                &mut request[object],
                pointer,
                edit,
                &format!("/{object}{pointer}"),
            );
        }
    }
}

fn put(root: &mut Value, pointer: &str, edit: &Edit, in_the_request: &str) {
    match edit {
        Edit::Set(value) => set(root, pointer, Some(value.clone())),
        Edit::AsIn(other) => set(
            root,
            pointer,
            other["request"].pointer(in_the_request).cloned(),
        ),
        Edit::Remove | Edit::Undo => set(root, pointer, None),
    }
}

fn set(root: &mut Value, pointer: &str, value: Option<Value>) {
    let steps: Vec<String> = pointer
        .split('/')
        .skip(1)
        .map(|step| step.replace("~1", "/"))
        .collect();
    set_at(root, &steps, value);
}

/// Members on the way are made if they are missing; items of lists are not.
fn set_at(here: &mut Value, steps: &[String], value: Option<Value>) {
    let Some((step, rest)) = steps.split_first() else {
        return;
    };
    if here.is_null() {
        *here = Map::new().into();
    }
    match (here, value) {
        (Value::Array(items), value) => match (step.parse::<usize>(), value) {
            (Ok(item), _) if item >= items.len() => {}
            (Ok(item), None) if rest.is_empty() => {
                items.remove(item);
            }
            (Ok(item), Some(value)) if rest.is_empty() => items[item] = value,
            (Ok(item), value) => set_at(&mut items[item], rest, value),
            (Err(_), _) => {}
        },
        (Value::Object(members), None) if rest.is_empty() => {
            members.remove(step);
        }
        (Value::Object(members), Some(value)) if rest.is_empty() => {
            members.insert(step.clone(), value);
        }
        (Value::Object(members), value) => {
            set_at(
                members.entry(step.clone()).or_insert(Value::Null),
                rest,
                value,
            );
        }
        _ => {}
    }
}

/// Values that decide on something somewhere: names and UIDs of the table's world, states, counts, lists.
pub fn telling_values() -> Vec<Value> {
    let world = World::on_paper();
    let accounts = [
        "brupop-agent",
        "a-brupop-agent-2",
        "brupop-reconciler",
        "brupop-webhook",
        "default",
    ];
    let words = " status scale CREATE UPDATE DELETE CONNECT v1 v2 b1 b2 1.20.0 1.21.0 Idle StagedAndPerformedUpdate \
        RebootedIntoUpdate MonitoringUpdate ErrorReset RefreshFailed StepFailed Unheard 2026-01-01T00:00:00Z \
        2026-01-01T00:00:00.000Z brs- kubernetes-admin brupop-agent system:serviceaccount:elsewhere:brupop-agent \
        system:node:node-0";
    let mut values: Vec<Value> = words.split(' ').map(Value::from).collect();
    for node in &world.nodes {
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid});
        values.extend([
            json!(node.name),
            json!(node.uid),
            json!(format!("brs-{}", node.name)),
            json!([node.name]),
            json!([node.uid]),
            json!([owner]),
            json!([owner, owner]),
        ]);
    }
    for account in accounts {
        values.push(json!(format!(
            "system:serviceaccount:{}:{account}",
            world.namespace
        )));
        values.push(json!(format!(
            "system:serviceaccount:{}:{account}:{account}",
            world.namespace
        )));
    }
    let condition = json!({"type": "Progressing", "status": "True", "reason": "Draining", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let managers: Vec<_> = (0..17).map(|n| json!({"manager": n.to_string()})).collect();
    values.extend([
        json!(null),
        json!(false),
        json!(true),
        json!(-1),
        json!(0),
        json!(1),
        json!(6),
        json!(7),
        json!(7.0),
        json!(8),
        json!(9_007_199_254_740_991_u64),
        json!(u64::MAX),
        json!({}),
        json!([]),
        json!([""]),
        json!(["node-0", "node-1"]),
        json!(["p"]),
        json!({"a": "b"}),
        json!({"Idle": null}),
        json!("x".repeat(65)),
        json!("é".repeat(1025)),
        json!("\u{1b}[2J\nallowed\u{9b}"),
        json!("\u{202e}\u{2028}\u{feff}"),
        json!(["\u{1b}[2J\n".repeat(300)]),
        json!({"\u{1b}[2J\n\u{202e}": "\u{7f}"}),
        json!([condition]),
        json!(managers[..16]),
        json!(managers),
        json!({"version": "1.20.0", "at": "t"}),
        json!({"version": "1.20.0"}),
        json!(["1.20.0", "t"]),
        json!({"count": 1, "attempt": 7, "at": "2026-01-01T00:00:00Z", "reason": "FellBack"}),
        json!([1, 7, "2026-01-01T00:00:00Z", "FellBack"]),
    ]);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(pointer: &str) -> Place {
        let index = OF_THE_REQUEST
            .iter()
            .chain(&*OF_AN_OBJECT)
            .position(|other| *other == pointer);
        Place(u8::try_from(index.expect("a place of the list")).expect("a short list"))
    }

    #[test]
    fn an_edit_changes_its_place_and_nothing_else() {
        let owner = json!({"uid": "u"});
        let before = json!({"request": {"name": "a", "object": {"metadata": {"ownerReferences": [owner]}, "spec": {"attempt": 7}},
            "oldObject": {"metadata": {"ownerReferences": [owner]}, "spec": {"attempt": 6}}}});
        for (pointer, side, edit, at, expected) in [
            (
                "/name",
                Side::New,
                Edit::Set(json!("b")),
                "/request/name",
                json!("b"),
            ),
            (
                "/spec/attempt",
                Side::New,
                Edit::Set(json!(8)),
                "/request/object/spec/attempt",
                json!(8),
            ),
            (
                "/spec/attempt",
                Side::New,
                Edit::Undo,
                "/request/object/spec/attempt",
                json!(6),
            ),
            (
                "/spec/attempt",
                Side::Old,
                Edit::Remove,
                "/request/oldObject/spec",
                json!({}),
            ),
            (
                "/metadata/ownerReferences/0/uid",
                Side::Old,
                Edit::Set(json!("v")),
                "/request/oldObject/metadata/ownerReferences/0",
                json!({"uid": "v"}),
            ),
            (
                "/status/staged/version",
                Side::New,
                Edit::Set(json!("1")),
                "/request/object/status",
                json!({"staged": {"version": "1"}}),
            ),
        ] {
            let mut after = before.clone();
            apply(&mut after, place(pointer), side, &edit);
            assert_eq!(after.pointer(at), Some(&expected), "{pointer}, {edit:?}");
            let changed = json_patch::diff(&before, &after);
            assert_eq!(changed.0.len(), 1, "{pointer}, {edit:?}: {changed}");
        }
        let (other, mut after) = (
            json!({"request": {"oldObject": {"spec": {"attempt": 3}}}}),
            before.clone(),
        );
        apply(
            &mut after,
            place("/spec/attempt"),
            Side::Both,
            &Edit::AsIn(other),
        );
        assert_eq!(after["request"]["oldObject"]["spec"]["attempt"], 3);
        assert_eq!(
            after["request"]["object"]["spec"],
            json!({}),
            "the other review has no new object"
        );
    }
}
