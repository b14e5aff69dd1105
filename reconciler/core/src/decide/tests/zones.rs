//! A pool that updates one zone at a time.

use std::collections::BTreeMap;

use brupop_api::fleet::Slot;

use super::world::*;
use super::*;
use crate::decide::{Abort, Reason, node as decide, slots};
use crate::facts::{FleetFacts, NodeView, PodFacts, PoolFacts, Steering};
use State::StagedAndPerformedUpdate;

pub(super) fn pool(name: &'static str) -> PoolFacts<'static> {
    PoolFacts { name, nodes: 4, limit: 3, one_zone_at_a_time: name == "db", ..PoolFacts::DEFAULT }
}

/// A node of the first pool that may begin.
fn in_zone(name: &'static str, zone: Option<&'static str>) -> NodeView<'static> {
    let mut view = idle();
    (view.shadow_name, view.steering) = (name, Steering::Pool(0));
    view.pods = PodFacts { known: true, ..PodFacts::default() };
    shadow(&mut view, |shadow| (shadow.name, shadow.uid) = (name, name));
    node(&mut view, |node| (node.name, node.zone) = (name, zone));
    view
}

/// A download takes hours. A node of another zone fails meanwhile: this one is not cordoned beside it.
#[test]
fn zones_are_looked_at_again_before_the_cordon() {
    let pools = [pool("db")];
    let fleet = FleetFacts { pools: &pools, ..fleet() };
    let mut staged = updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
    staged.steering = Steering::Pool(0);
    assert_eq!(decide(&fleet, &staged).reason, Reason::Cordoning);
    staged.busy_zone = Some("b");
    let decision = decide(&fleet, &staged);
    assert_eq!(decision.reason, Reason::Aborting(Abort::PoolClosed));
    assert_eq!(sets(write(&decision), Field::SpecFailures), None, "it is no failure");
    let cordoned = marker(1, false);
    marked(&mut staged, &cordoned);
    assert_eq!(decide(&fleet, &staged).effect, Some(Effect::Evict), "what is being drained is finished");
}

/// The nodes that get slots, and what the others wait for.
fn chosen(held: &BTreeMap<String, Slot>, views: &[NodeView<'_>]) -> (Vec<String>, Vec<(String, String)>) {
    let pools = [pool("db"), pool("web")];
    let budget = crate::rules::FailureBudget { unproven: None, proven: None };
    let fleet =
        FleetFacts { slots: held, pools: &pools, ceiling: 9, default_pool: limited(9), budget, ..fleet() };
    let chosen = slots(&fleet, views);
    let name = |at: usize| views[at].shadow_name.to_owned();
    let queued = chosen.queued.iter().map(|(at, reason)| match reason {
        Reason::WaitingForZone(zone) => (name(*at), (*zone).to_owned()),
        other => (name(*at), other.as_str().to_owned()),
    });
    (chosen.taken.iter().map(|at| name(*at)).collect(), queued.collect())
}

fn held(name: &str, pool: &str) -> BTreeMap<String, Slot> {
    let slot = Slot { uid: name.to_owned(), attempt: 1, pool: Some(pool.to_owned()), ..Slot::default() };
    BTreeMap::from([(name.to_owned(), slot)])
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(one, other)| ((*one).to_owned(), (*other).to_owned())).collect()
}

#[test]
fn a_zone_is_finished_before_the_next() {
    let (x, y) = (Some("x"), Some("y"));
    let nodes = [in_zone("a", y), in_zone("b", x), in_zone("c", y), in_zone("d", x)];
    let (taken, queued) = chosen(&NO_SLOTS, &nodes);
    assert_eq!(taken, ["b", "d"], "zone by zone, in their order");
    assert_eq!(queued, pairs(&[("a", "x"), ("c", "x")]));
    // One of the zone has a slot already.
    let (taken, queued) = chosen(&held("a", "db"), &nodes);
    assert_eq!((taken, queued), (vec!["c".to_owned()], pairs(&[("b", "y"), ("d", "y")])));
}

#[test]
fn an_unavailable_node_closes_the_other_zones() {
    let mut nodes = [in_zone("a", Some("x")), in_zone("b", Some("y")), in_zone("c", None)];
    node(&mut nodes[1], |node| node.ready = false);
    let (taken, queued) = chosen(&NO_SLOTS, &nodes);
    assert_eq!((taken, queued), (vec![], pairs(&[("c", "y"), ("a", "y")])), "nodes of no zone are one, too");
    node(&mut nodes[1], |node| node.ready = true);
    node(&mut nodes[2], |node| node.ready = false);
    let (taken, queued) = chosen(&NO_SLOTS, &nodes);
    assert_eq!((taken, queued), (vec![], pairs(&[("a", "of no name"), ("b", "of no name")])));
}

#[test]
fn a_node_that_left_the_pool_closes_all_zones() {
    let mut nodes = [in_zone("a", Some("x")), in_zone("b", Some("x"))];
    nodes[0].steering = Steering::Pool(1);
    let (taken, queued) = chosen(&held("a", "db"), &nodes);
    assert_eq!(
        (taken, queued),
        (vec![], pairs(&[("b", "of a node that has left the pool")])),
        "its zone there is not known"
    );
    let (taken, _) = chosen(&held("a", "web"), &nodes);
    assert_eq!(taken, ["b"], "it is another pool's");
}
