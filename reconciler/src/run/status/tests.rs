use std::sync::Arc;

use super::*;
use crate::process::tests::not_leading;
use serde_json::json;

const NOW: Duration = Duration::from_secs(1);

fn cluster() -> Cluster {
    let node = json!({"metadata": {"name": "n"}, "spec": {}, "status": {}});
    let mut cluster = Cluster::default();
    cluster.record("brs-n").node = Some(Arc::new(serde_json::from_value(node).unwrap()));
    cluster
}

#[tokio::test]
async fn a_flapping_label_logs_no_more_than_its_quota() {
    let (mut reconciler, _writes) = not_leading();
    let object = Object::ShadowSpec("brs-n".into());
    // The shadow goes each time.
    let mut flip = || {
        let logged = reconciler.may_log(&object, NOW);
        reconciler.leading.told.prune(&cluster());
        logged
    };
    let logged = (0..200).filter(|_| flip()).count();
    assert_eq!(logged, 60);
    assert!(reconciler.may_log(&object, NOW + Duration::from_mins(1)));
    assert!((0..200).all(|_| reconciler.may_log(&Object::Ledger, NOW)));
}

#[test]
fn the_same_is_said_once_while_it_lasts() {
    let mut told = Told::default();
    assert!(told.leave_alone("brs-n", "?", NOW) && told.leave_alone("brs-long", "too long", NOW));
    assert!(!told.leave_alone("brs-n", "?", NOW));
    assert!(
        told.leave_alone("brs-n", "!", NOW),
        "something else is news"
    );
    told.look_after("brs-n");
    assert!(told.leave_alone("brs-n", "!", NOW), "it came back");
    assert!(!told.leave_alone("brs-long", "too long", NOW));
    told.prune(&cluster());
    assert!(told.nodes.keys().eq(["brs-n"]), "the other is gone");
}

#[test]
fn steps_are_told_at_once_and_once_each() {
    let mut told = ToldOfNode::default();
    let wanted = |word| {
        let reason = Reason::of_word(word).unwrap();
        [status::progressing(&reason, "", "")]
    };
    let second = Some(NOW + Duration::from_secs(1));
    for (word, begins, has_slot, waits) in [
        ("LimitReached", false, false, second),
        ("Staging", true, true, None),
        ("AgentSilent", false, true, second),
        ("Staging", true, true, second),
        ("Draining", true, true, None),
        ("NoUpdate", false, false, None),
        ("Draining", true, true, None),
    ] {
        let (step, has_ended) = (begins.then_some(word), word == "NoUpdate");
        let later = told.waits_until(&wanted(word), step, has_ended, NOW);
        assert_eq!(later, waits, "{word}");
        told.stored(step, has_slot);
    }
}
