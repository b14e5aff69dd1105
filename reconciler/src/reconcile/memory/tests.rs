use std::sync::Arc;

use super::*;
use brupop_core::decide::Reason;
use brupop_core::led::KnownDrain;
use in_flight::MaySend;
use serde_json::json;

const NOW: Duration = Duration::from_secs(1);
const WRITTEN: Reply = Reply::Written {
    version: None,
    node: None,
};

fn cluster() -> Cluster {
    let node = json!({"metadata": {"name": "n"}, "spec": {}, "status": {}});
    let mut cluster = Cluster::default();
    cluster.record("brs-n").node = Some(Arc::new(serde_json::from_value(node).unwrap()));
    cluster
}

#[test]
fn three_denials_hold_a_node_for_a_while() {
    let mut memory = Memory::default();
    let held = |memory: &Memory, seconds| {
        let (denied, until) = memory.denied(Duration::from_secs(seconds));
        assert_eq!(denied.is_empty(), until.is_none());
        denied
            .into_values()
            .filter_map(|denied| denied.node)
            .collect::<Vec<_>>()
    };
    for times in 1..=3 {
        assert!(held(&memory, 0).is_empty(), "{times}");
        memory.node("brs-n").node_denials.denied("frozen", NOW);
    }
    assert_eq!(held(&memory, 300), ["frozen"]);
    assert_eq!(held(&memory, 301), [""; 0]);
    memory
        .node("brs-n")
        .node_denials
        .denied("frozen", Duration::from_secs(301));
    assert!(held(&memory, 302).is_empty(), "the others are forgotten");
    memory.node("brs-n").node_denials.resolved();
    memory.node("brs-n").node_denials.denied("frozen", NOW);
    assert!(held(&memory, 2).is_empty(), "one in a row");
}

#[test]
fn a_flapping_label_logs_no_more_than_its_quota() {
    let (mut memory, cluster, object) = (
        Memory::default(),
        cluster(),
        Object::ShadowSpec("brs-n".into()),
    );
    // The shadow goes each time.
    let mut flip = || {
        let logged = memory.may_log(&object, NOW);
        memory.prune(&cluster);
        logged
    };
    let logged = (0..200).filter(|_| flip()).count();
    assert_eq!(logged, 60);
    assert!(memory.may_log(&object, NOW + Duration::from_mins(1)));
    assert!((0..200).all(|_| memory.may_log(&Object::Ledger, NOW)));
}

/// A kubelet has its Node unreadable, and readable again, as often as it likes: by an OS image of 300 bytes.
#[test]
fn a_node_that_is_unreadable_now_and_then_logs_no_more_than_its_quota() {
    let mut memory = Memory::default();
    let told = |_: &i32| {
        let told = memory.leave_alone("brs-n", "its OS image is too long", NOW);
        memory.look_after("brs-n");
        told
    };
    assert_eq!((0..200).filter(told).count(), 60);
}

#[test]
fn denials_are_of_the_node_or_its_shadow() {
    let (of_node, of_shadow) = (Object::Node("n".into()), Object::ShadowSpec("brs-n".into()));
    let denied = || Reply::Denied("frozen".into());
    let node_denied = || Reply::NodeDenied("frozen".into());
    let mut memory = Memory::default();
    let held = |memory: &Memory| {
        memory
            .denied(NOW)
            .0
            .into_values()
            .next()
            .map(|Denied { node, shadow }| (node, shadow))
    };
    let (node, shadow) = (
        || Some("the Node: frozen".to_owned()),
        || Some("the node's shadow: frozen".to_owned()),
    );
    memory.record_reply(&of_node, &denied(), NOW);
    memory.record_reply(&of_shadow, &node_denied(), NOW);
    assert_eq!(held(&memory), None);
    memory.record_reply(&of_shadow, &node_denied(), NOW);
    assert_eq!(held(&memory), Some((node(), None)));
    memory.record_reply(&of_shadow, &WRITTEN, NOW);
    memory.record_reply(&of_shadow, &Reply::Refused(String::new()), NOW);
    assert_eq!(
        held(&memory),
        Some((node(), None)),
        "neither has changed the Node"
    );
    (0..3).for_each(|_| memory.record_reply(&of_shadow, &denied(), NOW));
    assert_eq!(held(&memory), Some((node(), shadow())));
    memory.record_reply(&of_node, &WRITTEN, NOW);
    assert_eq!(held(&memory), Some((None, shadow())));
    memory.record_reply(
        &of_shadow,
        &Reply::Written {
            version: Some(8),
            node: Some(7),
        },
        NOW,
    );
    assert_eq!(held(&memory), None);
}

/// A quota refuses it, so nothing but this tells of the node.
#[test]
fn a_shadow_that_cannot_be_made_is_remembered() {
    let mut memory = Memory::default();
    let object = Object::ShadowSpec("brs-n".into());
    for _ in 0..3 {
        memory.record_reply(&object, &Reply::Denied("exceeded quota".into()), NOW);
        memory.prune(&cluster());
    }
    let (denied, _) = memory.denied(NOW);
    assert_eq!(
        denied["brs-n"].shadow.as_deref(),
        Some("the node's shadow: exceeded quota")
    );
}

#[test]
fn the_same_is_said_once_while_it_lasts() {
    let mut memory = Memory::default();
    assert!(
        memory.leave_alone("brs-n", "?", NOW) && memory.leave_alone("brs-long", "too long", NOW)
    );
    assert!(!memory.leave_alone("brs-n", "?", NOW));
    assert!(
        memory.leave_alone("brs-n", "!", NOW),
        "something else is news"
    );
    memory.look_after("brs-n");
    assert!(memory.leave_alone("brs-n", "!", NOW), "it came back");
    assert!(!memory.leave_alone("brs-long", "too long", NOW));
    memory.prune(&cluster());
    assert!(
        memory.leave_alone("brs-n", "!", NOW),
        "it was left out in between"
    );
}

#[test]
fn only_requests_under_way_outlive_their_node() {
    let mut memory = Memory::default();
    for name in ["brs-n", "brs-gone", "brs-sent"] {
        (0..3).for_each(|_| memory.node(name).node_denials.denied("frozen", NOW));
    }
    memory
        .in_flight(&Object::ShadowSpec("brs-sent".into()))
        .sent();
    memory.prune(&cluster());
    assert_eq!(
        memory.nodes.keys().collect::<Vec<_>>(),
        ["brs-n", "brs-sent"]
    );
    assert!(
        memory.denied(NOW).0.is_empty(),
        "the shadow is gone, and its update with it"
    );
}

#[test]
fn steps_are_told_at_once_and_once_each() {
    let mut explained = Explained::default();
    let wanted = |word| {
        let reason = Reason::of_word(word).unwrap();
        [DesiredCondition::progressing(&reason, "", "")]
    };
    let later = Some(NOW + Duration::from_secs(1));
    let begins = Step::Begins;
    for (word, step, has_slot, waits) in [
        ("LimitReached", Step::Other, false, later),
        ("Staging", begins("Staging"), true, None),
        ("AgentSilent", Step::Other, true, later),
        ("Staging", begins("Staging"), true, later),
        ("Draining", begins("Draining"), true, None),
        ("NoUpdate", Step::Ended, false, None),
        ("Draining", begins("Draining"), true, None),
    ] {
        assert_eq!(
            explained.waits_until(&wanted(word), step, NOW),
            waits,
            "{word}"
        );
        explained.stored(step, has_slot);
    }
}

#[test]
fn a_refusal_is_published_once_a_drain() {
    let mut memory = Memory::default();
    let mut drained = cluster();
    drained.record("brs-n").led.drain = Some(KnownDrain::default());
    let published = ["a", "b", "a", "b"].map(|why| {
        memory.prune(&drained);
        memory.refused("brs-n", why)
    });
    assert_eq!(
        published,
        [true, true, false, false],
        "though two budgets take turns"
    );
    memory.prune(&cluster());
    assert!(memory.refused("brs-n", "a"), "another drain");
}

/// The shadow's watch may bring a grant before the Node's brings that it is drained: the grant must not be taken back for that.
#[test]
fn a_grant_waits_for_what_it_wrote_to_the_node() {
    let mut memory = Memory::default();
    let (version, node) = (Some(9), Some(7));
    let granted = Reply::Written { version, node };
    memory.record_reply(&Object::ShadowSpec("brs-n".into()), &granted, NOW);
    let node = memory.in_flight(&Object::Node("n".into()));
    assert_ne!(node.readiness(Some(6), NOW), MaySend::Ready);
    assert_eq!(node.readiness(Some(7), NOW), MaySend::Ready);
}
