use super::*;
use serde_json::json;

fn found(pools: &Pools, slots: usize, since: &str) -> Vec<&'static str> {
    let slot = json!({"pool": "web", "version": "2.0.0", "since": since});
    let all: Json = (0..slots)
        .map(|number| (format!("brs-{number}"), slot.clone()))
        .collect::<serde_json::Map<_, _>>()
        .into();
    pools
        .slot("brs-0", &slot, &json!({"status": {"slots": all}}))
        .iter()
        .map(|it| it.rule)
        .collect()
}

fn rules(pools: &Pools, slots: usize) -> Vec<&'static str> {
    found(pools, slots, "")
}

fn with(spec: &Json) -> Pools {
    let mut pools = Pools::default();
    pools.pool("web", Some(&json!({"spec": spec})));
    pools.now = Duration::from_secs(100);
    pools
}

#[test]
fn slots_keep_to_what_was_said_long_enough_ago() {
    let spec =
        |limit: u64, paused: bool| json!({"spec": {"maxUnavailable": limit, "paused": paused}});
    assert_eq!(rules(&Pools::default(), 9), [""; 0], "there are no pools");
    let mut pools = with(&spec(2, false)["spec"]);
    assert_eq!((rules(&pools, 2), rules(&pools, 3)), (vec![], vec!["pool"]));
    pools.pool("web", Some(&spec(1, true)));
    assert_eq!(rules(&pools, 2), [""; 0], "nobody may have seen that yet");
    assert_eq!(rules(&pools, 3), ["pool"]);
    pools.now = Duration::from_secs(121);
    assert_eq!(
        (rules(&pools, 1), rules(&pools, 2)),
        (vec!["pool"], vec!["pool", "pool"])
    );
    pools.pool("web", None);
    assert_eq!(rules(&pools, 1), ["pool"], "it was paused and is gone");
    pools.now = Duration::from_secs(142);
    assert_eq!(rules(&pools, 1), ["pool"], "it is gone");
    pools.pool("web", Some(&spec(1, false)));
    assert_eq!(rules(&pools, 1), [""; 0], "it is back");
}

#[test]
fn what_was_said_for_a_moment_counts_for_as_long_as_the_rest() {
    let mut pools = with(&json!({"maxUnavailable": 1}));
    pools.pool("web", Some(&json!({"spec": {"maxUnavailable": 3}})));
    pools.now = Duration::from_secs(102);
    pools.pool("web", Some(&json!({"spec": {"maxUnavailable": 2}})));
    pools.now = Duration::from_secs(121);
    assert_eq!((rules(&pools, 3), rules(&pools, 4)), (vec![], vec!["pool"]));
    pools.now = Duration::from_secs(123);
    assert_eq!(rules(&pools, 3), ["pool"]);
}

#[test]
fn a_freeze_holds_all_but_those_that_people_asked_for() {
    let mut pools = with(&json!({"maxUnavailable": 2}));
    pools.pool(
        "web",
        Some(&json!({"spec": {"maxUnavailable": 2, "freezes": [{"name": "now"}]}})),
    );
    assert_eq!(rules(&pools, 1), [""; 0], "nobody may have seen that yet");
    pools.now = Duration::from_secs(121);
    assert_eq!(rules(&pools, 1), ["pool"]);
    let annotations = json!({"brupop.bottlerocket.aws/update-now": "true"});
    pools.node(
        "0",
        Some(&json!({"metadata": {"name": "0", "annotations": annotations}})),
    );
    assert_eq!(rules(&pools, 1), [""; 0]);
}

#[test]
fn a_canary_in_service_goes_first() {
    let mut pools = with(&json!({"maxUnavailable": 2, "dependsOn": [{"pool": "canary"}]}));
    assert_eq!(rules(&pools, 1), ["order"]);
    let node = |tier: &str, ready: &str| {
        json!({"metadata": {"labels": {"tier": tier}}, "status": {"conditions": [{"type": "Ready", "status": ready}],
                "nodeInfo": {"osImage": "Bottlerocket OS 2.0.0 (x)"}}})
    };
    for (tier, ready, expected) in [
        ("db", "True", vec!["order"]),
        ("canary", "False", vec!["order"]),
        ("canary", "True", vec![]),
    ] {
        pools.node("9", Some(&node(tier, ready)));
        assert_eq!(rules(&pools, 1), expected, "{tier} {ready}");
    }
}

#[test]
fn a_window_is_open_at_its_time() {
    for (schedule, at, expected) in [
        ("0 7 * * *", "2026-01-01T07:59:00Z", 0),
        ("0 7 * * *", "2026-01-01T08:00:00Z", 1),
        ("*/2 * * * *", "2026-01-01T08:58:59Z", 0),
        ("*/2 * * * *", "2026-01-01T08:59:00Z", 1),
    ] {
        let windows = json!([{"schedule": schedule, "duration": "1h"}]);
        let mut pools = with(&json!({"maxUnavailable": 2, "windows": windows}));
        let mut node = json!({"metadata": {"name": "0", "labels": {"tier": "web"}}});
        pools.node("0", Some(&node));
        let slot = json!({"pool": "web", "version": "2.0.0"});
        let both = |pools: &Pools, node: &Json| {
            let marks = [
                json!({"cordoned_at": at}),
                json!({"excluded_at": at, "cordoned_at": ""}),
            ];
            let [one, other] =
                marks.map(|marker| usize::from(pools.marked(node, &marker, &slot).is_some()));
            assert_eq!(one, other);
            (found(pools, 1, at).len(), one)
        };
        assert_eq!(
            both(&pools, &node),
            (expected, 0),
            "it may have been another pool's a moment ago"
        );
        pools.now = Duration::from_secs(121);
        assert_eq!(both(&pools, &node), (expected, expected), "{schedule} {at}");
        pools.pool("db", Some(&json!({"spec": {"nodeSelector": {}}})));
        assert_eq!(
            both(&pools, &node),
            (expected, 0),
            "it may be the Node's pool now"
        );
        node["metadata"]["annotations"] = json!({"brupop.bottlerocket.aws/update-now": "true"});
        pools.node("0", Some(&node));
        assert_eq!(both(&pools, &node), (0, 0), "somebody asked for it");
        pools.pool("db", None);
        pools.pool("web", None);
        pools.now = Duration::from_secs(200);
        assert_eq!(
            both(&pools, &node),
            (1, 0),
            "anyone who owns the Node then may let it go on"
        );
        pools.pool("web", Some(&json!({"spec": {"paused": true}})));
        assert_eq!(both(&pools, &node), (1, 0), "it was gone a moment ago");
    }
}
