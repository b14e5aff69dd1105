//! What is undone on a Node: what is there, and is ours.

use super::world::*;
use crate::decide::writes::{undo, undo_and_keep_owners};
use crate::objects::Words;

/// A change of a Node: its field, how the marker tells of it, and how the Node shows it.
type Row = (Field<'static>, fn(&mut Marker), fn(&mut NodeFacts<'_>));

const OURS: Option<Words> = Some(Words::Ours);
const ROWS: [Row; 5] = [
    (Field::Unschedulable, |it| it.cordoned_at = Some("then".into()), |it| it.unschedulable = true),
    (Field::ExcludedFromLoadBalancers, |it| it.excluded_at = Some("then".into()), |it| it.excluded = true),
    (Field::UpdatingTaint, |it| it.tainted = true, |it| it.tainted = true),
    (Field::DoNotDisrupt, |it| it.do_not_disrupt = true, |it| it.do_not_disrupt = OURS),
    (Field::ScaleDownDisabled, |it| it.scale_down_disabled = true, |it| it.scale_down_disabled = OURS),
];

fn nothing_done() -> Marker {
    Marker { shadow_uid: UID.into(), attempt: 3, term: 2, ..Marker::default() }
}

#[test]
fn what_is_there_and_ours_is_undone() {
    for (field, tell, show) in ROWS {
        for (ours, there) in [(true, true), (true, false), (false, true), (false, false)] {
            let (mut marker, mut node) = (nothing_done(), idle().node.unwrap());
            if ours {
                tell(&mut marker);
            }
            if there {
                show(&mut node);
            }
            let write = undo(&node, &marker);
            let expected = (ours && there).then_some(Value::Absent);
            assert_eq!(sets(&write, field), expected, "{field:?}, ours: {ours}, there: {there}");
            assert_eq!(sets(&write, Field::Marker), Some(Value::Absent), "{field:?}");
            assert_eq!(write.sets.len(), 1 + usize::from(ours && there), "{field:?}: nothing else");
        }
    }
}

#[test]
fn owners_of_evicted_pods_stay_in_the_marker() {
    let evicted_owners = BTreeMap::from([("apps/v1/ReplicaSet/shop/cart".to_owned(), 3)]);
    let rest = Marker { evicted_owners, ..nothing_done() };
    let marker = Marker { tainted: true, drained_at: Some("then".into()), ..rest.clone() };
    let node = idle().node.unwrap();
    let write = undo_and_keep_owners(&fleet(), &node, &marker, false);
    assert_eq!(sets(&write, Field::Marker), Some(Value::Marker(std::borrow::Cow::Owned(rest))));
}
