use brupop_api::BottlerocketShadow;
use kube::Resource as _;
use serde_json::json;

use super::*;

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
    let wanted = wanted
        .into_iter()
        .map(|it| (it.what_for, it.shadow, it.node));
    assert_eq!(
        wanted.collect::<Vec<_>>(),
        [
            (For::DrainUnwatched, "brs-y", "y"),
            (For::DrainNext, "brs-b", "b"),
            (For::DrainNext, "brs-z", "z"),
            (For::DrainSoon, "brs-a", "a"),
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
