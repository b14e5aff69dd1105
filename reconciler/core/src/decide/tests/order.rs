//! Tests of the order in which nodes begin.

use super::world::*;

fn in_zone(name: &'static str, zone: &'static str) -> NodeView<'static> {
    idle().named(name).with(|view| view.zone = Some(zone))
}

fn order(views: &[NodeView<'_>]) -> Vec<String> {
    turns(without_slots(), views)
        .into_iter()
        .map(|index| views[index].shadow_name.to_owned())
        .collect()
}

/// The nodes (by index) in the order in which they get slots, if there are enough.
fn turns(fleet: FleetFacts<'_>, views: &[NodeView<'_>]) -> Vec<usize> {
    let fleet = FleetFacts {
        default_pool: limited(9),
        threshold: MANY,
        ..fleet
    };
    allocate(&fleet, views).taken
}

#[test]
fn zones_take_turns() {
    let nodes = [
        in_zone("a", "x"),
        in_zone("b", "x"),
        in_zone("c", "y"),
        in_zone("d", "z"),
    ];
    assert_eq!(order(&nodes), ["a", "c", "d", "b"]);
    // In one of them something is going on already.
    let slots = slot("a", "a", 1);
    let fleet = FleetFacts {
        slots: &slots,
        ..fleet()
    };
    assert_eq!(turns(fleet, &nodes), [2, 3, 1]);
}

#[test]
fn asked_for_first_failed_and_own_last() {
    let failures = LastFailure {
        count: 1,
        ..LastFailure::default()
    };
    let mut nodes = [
        in_zone("a", "x"),
        in_zone("b", "x"),
        in_zone("c", "x"),
        in_zone("d", "x"),
    ];
    shadow(&mut nodes[0], |shadow| {
        shadow.spec.last_failure = Some(failures);
    });
    nodes[1].runs_this_process = true;
    node(&mut nodes[3], |node| node.update_now = true);
    assert_eq!(order(&nodes), ["d", "c", "b", "a"]);
}

/// It is out of service anyway: only slots count, and neither its own cordon nor other nodes that are away.
#[test]
fn a_node_that_a_person_has_cordoned_goes_first() {
    let cordoned = |name| {
        let node = in_zone(name, "x").with_node(|node| node.unschedulable = true);
        node.with(|view| view.time.cordoned_lately = true)
    };
    let asked_for = in_zone("a", "x").with_node(|node| node.update_now = true);
    let not_ready = in_zone("d", "x").not_ready();
    let nodes = [asked_for, cordoned("b"), cordoned("c"), not_ready];
    for (limit, taken) in [
        (1, vec![1]),
        (2, vec![1, 2]),
        (3, vec![1, 2]),
        (4, vec![1, 2, 0]),
    ] {
        for (of_pool, of_fleet) in [(limit, 9), (9, limit)] {
            let fleet = FleetFacts {
                default_pool: limited(of_pool),
                ceiling: of_fleet,
                threshold: MANY,
                ..without_slots()
            };
            assert_eq!(
                allocate(&fleet, &nodes).taken,
                taken,
                "{of_pool} {of_fleet}"
            );
        }
    }
}

#[test]
fn one_of_the_control_plane_waits_for_the_other() {
    let member = |name| in_zone(name, "x").with_node(|node| node.control_plane = true);
    let fleet = FleetFacts {
        default_pool: limited(3),
        ceiling: 3,
        threshold: MANY,
        ..without_slots()
    };
    let next = allocate(&fleet, &[member("a"), member("b"), in_zone("c", "x")]);
    assert_eq!(next.taken, [0, 2]);
    assert_eq!(next.queued, [(1, Reason::ControlPlaneBusy("a"))]);
}

#[test]
fn who_was_tried_in_vain_comes_later() {
    let mut nodes = [in_zone("a", "x"), in_zone("b", "x"), in_zone("c", "x")];
    shadow(&mut nodes[0], |shadow| {
        shadow.spec.version = Some(NEW.into());
    });
    shadow(&mut nodes[1], |shadow| {
        shadow.spec.version = Some(OLD.into());
    });
    assert_eq!(nodes[1].node.unwrap().version(), Some(OLD));
    assert_eq!(order(&nodes), ["b", "c", "a"]);
}

#[test]
fn no_lie_of_an_agent_jumps_the_queue() {
    let honest = [in_zone("a", "x"), in_zone("b", "x"), in_zone("c", "x")];
    let mut nodes = honest;
    shadow(&mut nodes[2], |shadow| {
        shadow.status.target_version = Some("9.9.9".into());
        shadow.status.current_version = Some("0.0.1".into());
        shadow.status.crash_count = Some(0);
    });
    shadow(&mut nodes[0], |shadow| {
        shadow.status.crash_count = Some(1000);
    });
    assert_eq!(order(&nodes), order(&honest));
}
