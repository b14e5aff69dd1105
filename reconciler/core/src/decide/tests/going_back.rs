//! Hosts that choose an older version than their nodes run: they are locked to it, or a release was withdrawn.

use super::first_pools::{pool, rules};
use super::versions::{halted, known};
use super::world::*;
use crate::facts::FirstPool;
use crate::rules::GateState;
use crate::status::going_back;

/// Runs the newer version, and its host chooses the older one.
fn chooses_older(name: &'static str) -> NodeView<'static> {
    idle()
        .named(name)
        .in_pool(0)
        .with_node(|node| node.version = Some(NEW.into()))
        .with_shadow(|shadow| {
            (shadow.status.current_version, shadow.status.target_version) =
                (Some(NEW.into()), Some(OLD.into()));
        })
}

#[test]
fn a_downgrade_waits_neither_for_order_nor_for_age() {
    let first = FirstPool::NotDone("canary");
    for (what, spec, forth) in rows! {
        "order", json!({"dependsOn": [{"pool": "canary"}]}) => Reason::WaitingForPool(first);
        "age", json!({"versions": {"minAge": "72h"}}) => Reason::VersionTooYoung(Until::Unknown);
    } {
        let rules = rules(&spec);
        let pools = [pool("web", &rules)];
        let fleet = FleetFacts {
            pools: &pools,
            ..without_slots()
        };
        let (back, newer) = (chooses_older("brs-a"), idle().named("brs-b").in_pool(0));
        assert_eq!(decide(&fleet, &newer).reason, forth, "{what}");
        assert_eq!(allocate(&fleet, &[back, newer]).taken, [0], "{what}");
    }
}

#[test]
fn a_downgrade_waits_for_everything_else() {
    let any = rules(&json!({}));
    let least = rules(&json!({"versions": {"atLeast": NEW}}));
    let free = pool("web", &any);
    let halted = [VersionRecord {
        version: OLD.to_owned(),
        ..halted(known())
    }];
    let outside = Starts::OutsideWindow(Until::Unknown);
    for (what, pool, versions, reason) in rows! {
        "atLeast", PoolFacts { rules: Some(&least), ..free.clone() }, &[][..] => Reason::VersionNotAllowed(OLD);
        "windows", PoolFacts { starts: outside, ..free.clone() }, &[][..] => Reason::OutsideWindow(Until::Unknown);
        "gates", PoolFacts { gate: Some((GateState::Closed, "g")), ..free.clone() }, &[][..]
            => Reason::GateClosed("g");
        "limits", PoolFacts { limit: 0, ..free.clone() }, &[][..] => Reason::LimitReached;
        "halts", free.clone(), &halted => Reason::VersionHalted(OLD);
    } {
        let pools = [pool];
        let fleet = FleetFacts {
            pools: &pools,
            versions,
            ..without_slots()
        };
        let view = chooses_older("brs-a");
        assert_eq!(decide(&fleet, &view).reason, reason, "{what}");
        assert_eq!(allocate(&fleet, &[view]).taken, [0_usize; 0], "{what}");
    }
    let pools = [free];
    let fleet = FleetFacts {
        pools: &pools,
        ..without_slots()
    };
    assert_eq!(
        allocate(&fleet, &[chooses_older("brs-a"), chooses_older("brs-b")]).taken,
        [0],
        "one is a canary"
    );
}

#[test]
fn a_downgrade_is_told() {
    let told = "its host chooses 1.19.4, which is older than the 1.20.0 that it runs, so spec.dependsOn and \
                spec.versions.minAge of its pool do not apply";
    assert_eq!(going_back(&chooses_older("brs-a")).as_deref(), Some(told));
    let begun = staged().with_node(|node| node.version = Some("1.21.0".into()));
    assert!(going_back(&begun).is_some(), "also while it is under way");
    assert_eq!(going_back(&idle()), None);
    assert_eq!(going_back(&watched()), None);
}
