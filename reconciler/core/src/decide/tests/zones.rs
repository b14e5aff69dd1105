//! A pool that updates one zone at a time.

use super::first_pools::rules;
use super::world::*;
use crate::rules::Rules;

static ONE_AT_A_TIME: LazyLock<Rules> =
    LazyLock::new(|| rules(&json!({"topology": {"mode": "OneAtATime"}})));

pub(super) fn pool(name: &'static str) -> PoolFacts<'static> {
    PoolFacts {
        name,
        nodes: 4,
        limit: 3,
        rules: (name == "db").then_some(&ONE_AT_A_TIME),
        ..PoolFacts::DEFAULT
    }
}

/// A node of the first pool that may begin.
fn in_zone(name: &'static str, zone: Option<&'static str>) -> NodeView<'static> {
    idle().named(name).in_pool(0).with(|view| view.zone = zone)
}

/// The nodes that get slots, and what the others wait for.
fn chosen(
    held: &BTreeMap<String, Slot>,
    views: &[NodeView<'_>],
) -> (Vec<String>, Vec<(String, String)>) {
    let pools = [pool("db"), pool("web")];
    let fleet = FleetFacts {
        slots: held,
        pools: &pools,
        ceiling: 9,
        default_pool: limited(9),
        threshold: MANY,
        ..fleet()
    };
    let chosen = allocate(&fleet, views);
    let name = |at: usize| views[at].shadow_name.to_owned();
    let queued = chosen.queued.iter().map(|(at, reason)| match reason {
        Reason::WaitingForZone(zone) => (name(*at), (*zone).to_owned()),
        other => (name(*at), other.as_str().to_owned()),
    });
    (
        chosen.taken.iter().map(|at| name(*at)).collect(),
        queued.collect(),
    )
}

fn held(name: &str, pool: &str) -> BTreeMap<String, Slot> {
    let slot = Slot {
        uid: name.to_owned(),
        attempt: 1,
        pool: Some(pool.to_owned()),
        ..Slot::default()
    };
    BTreeMap::from([(name.to_owned(), slot)])
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(one, other)| ((*one).to_owned(), (*other).to_owned()))
        .collect()
}

/// Cases: the slots by pool, the nodes, the nodes that get slots, and the zones that the others wait for.
type Row<'r> = (
    &'static str,
    Option<&'static str>,
    &'r [NodeView<'r>],
    &'r [&'r str],
    &'r [(&'r str, &'r str)],
);

#[test]
fn a_zone_is_finished_before_the_next() {
    let (x, y) = (Some("x"), Some("y"));
    let four = [
        in_zone("a", y),
        in_zone("b", x),
        in_zone("c", y),
        in_zone("d", x),
    ];
    let (in_x, in_y, in_none) = (in_zone("a", x), in_zone("b", y), in_zone("c", None));
    let y_is_away = [in_x, in_y.not_ready(), in_none];
    let none_is_away = [in_x, in_y, in_none.not_ready()];
    let has_left = [in_zone("a", x).in_pool(1), in_zone("b", x)];
    let rows: [Row<'_>; 6] = [
        (
            "zone by zone, in their order",
            None,
            &four,
            &["b", "d"],
            &[("a", "x"), ("c", "x")],
        ),
        (
            "one of the zone has a slot",
            Some("db"),
            &four,
            &["c"],
            &[("b", "y"), ("d", "y")],
        ),
        (
            "nodes of no zone are one, too",
            None,
            &y_is_away,
            &[],
            &[("c", "y"), ("a", "y")],
        ),
        (
            "and may be away",
            None,
            &none_is_away,
            &[],
            &[("a", "of no name"), ("b", "of no name")],
        ),
        (
            "one has left the pool",
            Some("db"),
            &has_left,
            &[],
            &[("b", "of a node that has left the pool")],
        ),
        (
            "one has left for its slot's",
            Some("web"),
            &has_left,
            &["b"],
            &[],
        ),
    ];
    for (what, of_a, nodes, taken, queued) in rows {
        let held = of_a.map_or_else(BTreeMap::new, |pool| held("a", pool));
        let (chosen, waiting) = chosen(&held, nodes);
        assert_eq!(
            (chosen, waiting),
            (
                taken.iter().map(|it| (*it).to_owned()).collect(),
                pairs(queued)
            ),
            "{what}"
        );
    }
}
