use super::*;
use crate::drain::PodKey;

#[test]
fn earlier_updates_evictions_are_forgotten() {
    let mut known = Known::default();
    let owners = BTreeMap::from([("apps/v1/ReplicaSet/shop/cart".to_owned(), 1)]);
    let monitored = BTreeMap::from([("brs-n".to_owned(), owners)]);
    let seen = |known: &Known| known.evicted.get("brs-n").cloned();
    known.note_evicted(&monitored, |_| Evicted::Back);
    assert_eq!(seen(&known), Some(None));
    known.note_evicted(&monitored, |_| Evicted::Unknown);
    assert_eq!(seen(&known), None, "nobody knows now");
    known.note_evicted(&monitored, |owners| Evicted::Missing(owners.keys().next().unwrap()));
    assert_eq!(seen(&known), Some(Some("apps/v1/ReplicaSet/shop/cart".to_owned())));
    known.note_evicted(&BTreeMap::new(), |_| Evicted::Back);
    assert_eq!(seen(&known), None, "it is monitored no more");
}

#[test]
fn an_empty_node_knows_since_when() {
    let full = DrainPlan {
        evict: vec![PodKey { namespace: "shop".into(), name: "a".into(), uid: "u".into() }],
        ..DrainPlan::default()
    };
    let at = |second: i64| Timestamp::from_second(second).unwrap();
    let mut known = Known::default();
    for (second, plan, since) in [
        (1, Some(full.clone()), None),
        (2, Some(DrainPlan::default()), Some(2)),
        (3, Some(DrainPlan::default()), Some(2)),
        (4, Some(full), None),
        (5, Some(DrainPlan::default()), Some(5)),
        (6, None, None),
    ] {
        let plans = plan.map(|plan| ("brs-n".to_owned(), Arc::new(plan), None));
        known.note_drains(plans.into_iter(), at(second));
        let empty_since = known.drains.get("brs-n").and_then(|drain| drain.empty_since);
        assert_eq!(empty_since, since.map(at), "at {second}");
    }
}
