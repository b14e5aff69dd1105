use super::*;
use crate::drain::PodKey;
use crate::tests::world::cluster;
use serde_json::json;

#[test]
fn an_empty_node_knows_since_when_no_volume_went() {
    let full = DrainPlan {
        evict: vec![PodKey {
            namespace: "shop".into(),
            name: "a".into(),
            uid: "u".into(),
        }],
        ..DrainPlan::default()
    };
    let at = |second: i64| Timestamp::from_second(second).unwrap();
    let mut known = Known::default();
    let empty = || Some(DrainPlan::default());
    for (second, plan, volumes, since) in [
        (1, Some(full.clone()), 3, None),
        (2, empty(), 3, Some(2)),
        (3, empty(), 3, Some(2)),
        (4, Some(full), 3, None),
        (5, empty(), 3, Some(5)),
        (6, empty(), 2, Some(6)),
        (7, empty(), 2, Some(6)),
        (8, empty(), 3, Some(6)),
        (9, empty(), 2, Some(6)),
        (10, empty(), 0, Some(10)),
        (11, None, 0, None),
    ] {
        let node = json!({"status": {"volumesInUse": vec!["kubernetes.io/csi/ebs^vol"; volumes]}});
        let cluster = cluster([("n", node)], []);
        let plans = plan.map(|plan| ("brs-n".to_owned(), Arc::new(plan), None));
        known.note_drains(plans.into_iter(), &cluster, at(second));
        let empty = known.drains.get("brs-n").and_then(|drain| drain.empty);
        assert_eq!(empty.map(|empty| empty.since), since.map(at), "at {second}");
    }
}
