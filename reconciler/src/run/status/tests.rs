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

#[tokio::test]
async fn an_unreadable_node_is_told_once_while_it_lasts() {
    let (mut reconciler, _writes) = not_leading();
    let (cluster, view) = (cluster(), NodeView::nothing("brs-n"));
    let mut tell = |reason: Reason<'_>| {
        let wanted = status::progressing(&reason, &reason.message(), "");
        reconciler.log_reason(&cluster, &view, &reason, &wanted);
        reconciler.events.len()
    };
    let unreadable = Reason::NotUnderstood("?");
    assert_eq!([tell(unreadable), tell(unreadable)], [1, 1]);
    assert_eq!(
        [tell(Reason::NoUpdate), tell(unreadable)],
        [1, 2],
        "it came back"
    );
}

#[test]
fn a_node_that_is_gone_is_forgotten() {
    let mut told = Told::default();
    for name in ["brs-n", "brs-gone"] {
        told.node(name);
    }
    told.prune(&cluster());
    assert!(told.nodes.keys().eq(["brs-n"]));
}
