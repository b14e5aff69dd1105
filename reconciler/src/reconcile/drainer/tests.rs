use brupop_api::BottlerocketShadow;
use serde_json::json;

use super::*;

/// A node in mid-update, whose agent has reached this state.
fn updating(cluster: &mut Cluster, name: &str, reached: State, has_marker: bool) {
    let marker = Marker { shadow_uid: "u".into(), attempt: 1, ..Marker::default() };
    let annotations = if has_marker { json!({names::MARKER_ANNOTATION: marker.render()}) } else { json!({}) };
    let node = json!({"metadata": {"name": name, "annotations": annotations}, "spec": {}, "status": {}});
    let shadow: Item<BottlerocketShadow> = serde_json::from_value(json!({
        "apiVersion": "brupop.bottlerocket.aws/v2", "kind": "BottlerocketShadow",
        "metadata": {"name": format!("brs-{name}"), "uid": "u", "generation": 1},
        "spec": {"state": "StagedAndPerformedUpdate", "attempt": 1, "version": "1.20.0"},
        "status": {"current_state": reached, "attempt": 1},
    }))
    .unwrap();
    let entry = cluster.entry(&format!("brs-{name}"));
    entry.node = Some(Arc::new(serde_json::from_value(node).unwrap()));
    entry.shadow = Some(Arc::new(shadow));
}

/// Only so many nodes can be watched, and what has begun to be emptied has a deadline.
#[test]
fn who_is_being_emptied_is_watched_before_who_is_next() {
    let mut cluster = Cluster::default();
    let (idle, staged) = (State::Idle, State::StagedAndPerformedUpdate);
    for (name, reached, has_marker) in
        [("a", idle, false), ("b", staged, false), ("y", staged, true), ("z", staged, false)]
    {
        updating(&mut cluster, name, reached, has_marker);
    }
    assert_eq!(
        Drainer::default().wanted(&cluster),
        [
            (For::DrainAnew, "brs-y", "y"),
            (For::DrainNext, "brs-b", "b"),
            (For::DrainNext, "brs-z", "z"),
            (For::DrainSoon, "brs-a", "a"),
        ]
    );
}
