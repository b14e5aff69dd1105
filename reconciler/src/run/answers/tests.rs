use super::*;
use serde_json::json;
use std::sync::Arc;

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn one_request_of_an_object_is_under_way() {
    let mut sent = Sent::default();
    assert_eq!(sent.due(Some(5)), Some(s(0)));
    sent.begin();
    assert_eq!(sent.due(Some(9)), None);
    assert!(!sent.changed("", s(1)));
    assert_eq!(sent.due(Some(9)), Some(s(1)));
}

#[test]
fn a_refusal_waits_for_another_version_or_longer() {
    let mut sent = Sent::default();
    assert_eq!(sent.wait_for_change(Some(5), s(0)), 1);
    assert_eq!(sent.due(Some(5)), Some(s(4)));
    assert_eq!(sent.due(Some(6)), Some(s(0)));
    for times in 2..=8 {
        assert_eq!(sent.wait_for_change(Some(5), s(0)), times);
    }
    assert_eq!(sent.due(Some(5)), Some(s(60)));
    sent.failed(s(0));
    assert_eq!(sent.wait_for_change(Some(5), s(0)), 9, "a failure between");
    sent.changed("", s(0));
    assert_eq!(sent.wait_for_change(Some(9), s(0)), 1, "a success ends it");
}

#[test]
fn writes_that_somebody_undoes_slow_down() {
    let mut sent = Sent::default();
    let mut write = |reason| (sent.changed(reason, s(0)), sent.due(Some(2)).unwrap());
    for _ in 0..16 {
        assert_eq!(write("Draining"), (false, s(0)));
    }
    assert_eq!(write("Draining"), (true, s(1)));
    assert_eq!(write("Draining"), (false, s(2)));
    assert_eq!(write("Rebooting"), (false, s(0)));
    for _ in 0..40 {
        assert_eq!(write(""), (false, s(0)), "many nodes write it");
    }
}

#[test]
fn a_failure_waits_longer_whatever_the_version() {
    let mut sent = Sent::default();
    for wait in [1, 2, 4, 8, 16, 32, 60, 60] {
        sent.begin();
        sent.failed(s(100));
        assert_eq!(sent.due(Some(wait)), Some(s(100 + wait)));
    }
}

#[test]
fn what_changed_nothing_waits_for_a_change() {
    let mut sent = Sent::default();
    for (nth, wait) in [(1, 4), (2, 4), (3, 4), (4, 8), (5, 16)] {
        assert_eq!(sent.wait_for_change(Some(5), s(0)), nth);
        assert_eq!(sent.due(Some(5)), Some(s(wait)), "though its patch differs");
        assert_eq!(sent.due(Some(6)), Some(s(0)));
    }
}

/// Denies a change of an object at this second.
fn deny(requests: &mut Requests, object: &Object<String>, second: u64) {
    requests.of(object).denied("frozen".into(), s(second));
}

fn denied(requests: &Requests, second: u64) -> Option<(Option<String>, Option<String>)> {
    let (mut cluster, mut wake) = (Cluster::default(), Wake::default());
    cluster.record("brs-n");
    requests.record_denials(&mut cluster, s(second), &mut wake);
    let led = &cluster.records["brs-n"].led;
    let denied = (led.node_denied.clone(), led.shadow_denied.clone());
    wake.0.map(|_| denied)
}

#[test]
fn a_minute_of_denials_holds_a_node_for_a_while() {
    let (mut requests, node) = (Requests::default(), Object::Node("n".to_owned()));
    let held = Some((Some("the Node: frozen".to_owned()), None));
    for second in [1, 30, 60] {
        deny(&mut requests, &node, second);
        assert_eq!(denied(&requests, second), None);
    }
    deny(&mut requests, &node, 61);
    assert_eq!(denied(&requests, 360), held);
    assert_eq!(denied(&requests, 361), None);
    deny(&mut requests, &node, 361);
    assert_eq!(denied(&requests, 362), None, "the others are forgotten");
    deny(&mut requests, &node, 421);
    requests.of(&node).wait_for_change(None, s(422));
    assert_eq!(denied(&requests, 422), held, "it has not changed the Node");
    requests.of(&node).changed("", s(422));
    assert_eq!(denied(&requests, 422), None);
    let shadow = Object::ShadowSpec("brs-n".to_owned());
    deny(&mut requests, &shadow, 422);
    deny(&mut requests, &shadow, 482);
    let held = Some((None, Some("the node's shadow: frozen".to_owned())));
    assert_eq!(denied(&requests, 482), held);
}

/// A quota refuses its shadow, so nothing but this tells of the node.
#[test]
fn only_requests_under_way_outlive_their_node() {
    let node = json!({"metadata": {"name": "n"}, "spec": {}, "status": {}});
    let mut cluster = Cluster::default();
    cluster.record("brs-n").node = Some(Arc::new(serde_json::from_value(node).unwrap()));
    let mut requests = Requests::default();
    let gone = (0..10).map(|nth| format!("brs-gone-{nth}"));
    for name in gone.chain(["brs-n".to_owned(), "brs-sent".to_owned()]) {
        deny(&mut requests, &Object::ShadowSpec(name), 0);
    }
    let [kept, sent] = ["brs-n", "brs-sent"].map(|name| Object::ShadowSpec(name.to_owned()));
    requests.of(&sent).begin();
    requests.prune(&cluster);
    let left: Vec<_> = requests.objects.keys().collect();
    assert_eq!(left, [&kept, &sent]);
}
