//! Which nodes keep a pool that goes first from being done with a version.

use std::collections::BTreeMap;

use brupop_api::Problem;
use brupop_api::fleet::{Slot, VersionRecord};
use serde_json::json;

use super::pool_halts::{placed, pool, rules, updated};
use super::world::*;
use super::*;
use crate::decide::{Reason, fleet as decide, slots};
use crate::facts::{FirstPool, FirstPoolStanding, FleetFacts, NodeView, Observed};

const AWS: Option<&str> = Some("aws-k8s-1.36");
const NVIDIA: Option<&str> = Some("aws-k8s-1.36-nvidia");

/// A canary that cannot look for updates.
fn canary(variant: Option<&'static str>) -> NodeView<'static> {
    let mut view = placed("brs-b", 0, variant);
    shadow(&mut view, |shadow| {
        (shadow.status.target_version, shadow.status.problem) = (None, Some(Problem::RefreshFailed));
    });
    view
}

type Change = fn(&mut NodeView<'static>);

fn runs(view: &mut NodeView<'static>, version: &'static str) {
    node(view, |node| node.version = Some(version));
    shadow(view, |shadow| shadow.status.current_version = Some(version));
}

fn wants(view: &mut NodeView<'static>, version: &'static str) {
    shadow(view, |shadow| shadow.status.target_version = Some(version));
}

#[test]
fn a_node_that_runs_an_older_version_keeps_its_pool_from_being_done() {
    let (first, follows) = (rules(&json!({})), rules(&json!({"after": [{"pool": "canary"}]})));
    let pools = [pool("canary", &first), pool("web", &follows)];
    let record = |halted: Option<&[&str]>| -> VersionRecord {
        let halted =
            halted.map(|variants| json!({"at": "2026-11-21T02:00:00Z", "reason": "", "variants": variants}));
        serde_json::from_value(json!({"succeeded": 1, "halted": halted})).unwrap()
    };
    let (none, nvidia) = (&record(None), &record(Some(&["aws-k8s-1.36-nvidia"])));
    let held = slot("brs-b", "brs-b", 2).into_iter();
    let its: BTreeMap<String, Slot> =
        held.map(|(name, slot)| (name, Slot { version: Some(NEW.to_owned()), ..slot })).collect();
    let (no, its): (&BTreeMap<String, Slot>, _) = (&NO_SLOTS, &its);
    let (runs_it, wants_it) = (Some(updated("brs-d", 1, NVIDIA)), Some(placed("brs-d", 1, NVIDIA)));
    let (runs_it, wants_it, alone) = (&runs_it, &wants_it, &None);
    let unchanged: Change = |_| ();
    let leaving: Change = |view| node(view, |node| node.leaving = true);
    let leaving_behind: Change = |view| {
        wants(view, NEW);
        node(view, |node| node.leaving = true);
    };
    let away: Change = |view| node(view, |node| node.ready = false);
    let unlabelled: Change = |view| node(view, |node| node.labelled = false);
    let locked: Change = |view| shadow(view, |it| it.status.problem = Some(Problem::NoUpdateChosen));
    // The canary, a node of another pool, the record, the slots; is the pool done, and who is named?
    for (what, variant, change, other, record, slots, done, behind) in [
        ("its refresh fails", AWS, unchanged, alone, none, no, false, Some("b")),
        ("it is not Ready, either", AWS, away, alone, none, no, false, Some("b")),
        ("it wants another version", AWS, |it| wants(it, "1.21.0"), alone, none, no, false, Some("b")),
        ("it wants it", AWS, |it| wants(it, NEW), alone, none, no, false, None),
        ("it is on its way", AWS, unchanged, alone, none, its, false, None),
        ("it runs it", AWS, |it| runs(it, NEW), alone, none, no, true, None),
        ("it runs a later one", AWS, |it| runs(it, "1.21.0"), alone, none, no, true, None),
        ("nobody knows what it runs", AWS, |it| runs(it, "next"), alone, none, no, true, None),
        ("it is not opted in", AWS, unlabelled, alone, none, no, true, None),
        ("it leaves", AWS, leaving, alone, none, no, true, None),
        ("it leaves, and wants it", AWS, leaving_behind, alone, none, no, true, None),
        ("it is locked", AWS, locked, alone, none, no, true, None),
        ("the version is not for its variant", NVIDIA, unchanged, alone, none, no, true, None),
        ("one of its variant runs it", NVIDIA, unchanged, runs_it, none, no, false, Some("b")),
        ("one of its variant wants it", NVIDIA, unchanged, wants_it, none, no, false, Some("b")),
        ("its variant is halted", NVIDIA, unchanged, runs_it, nvidia, no, true, None),
        ("another variant is halted", AWS, unchanged, alone, nvidia, no, false, Some("b")),
    ] {
        let mut b = canary(variant);
        change(&mut b);
        let versions = BTreeMap::from([(NEW.to_owned(), record.clone())]);
        let fleet =
            FleetFacts { slots, versions: &versions, pools: &pools, default_pool: limited(0), ..fleet() };
        let views =
            [updated("brs-a", 0, AWS), b, placed("brs-c", 1, AWS)].into_iter().chain(*other).collect();
        let (unreadable, too_long) = (BTreeMap::new(), vec![]);
        let observed = Observed { fleet, views, unreadable, too_long, not_opted_in: 0, next: None };
        let decided = decide(&observed);
        let noted = decided.slots.write.and_then(|write| sets(&write, Field::VersionRecord(NEW)));
        let is_done =
            matches!(noted, Some(Value::VersionRecord(noted)) if noted.done_pools.contains_key("canary"));
        assert_eq!(is_done, done, "{what}");
        let standing = behind.map_or(FirstPoolStanding::NotDone, FirstPoolStanding::Behind);
        let first = FirstPool { pool: "canary", standing };
        assert_eq!(decided.nodes[2].reason, Reason::WaitingForPool(first), "{what}");
    }
    let told =
        |standing| Reason::WaitingForPool(FirstPool { pool: "canary", standing }).message().into_owned();
    let until = "2026-11-21T11:19:00Z".parse().unwrap();
    for (standing, said) in [
        (FirstPoolStanding::NotDone, ": it is not done with this version"),
        (
            FirstPoolStanding::Behind("b"),
            ": it is not done with this version: its node b runs an older version and does not want this one",
        ),
        (
            FirstPoolStanding::Soaking(until),
            ": it is done with this version, and soaks until 2026-11-21T11:19:00Z",
        ),
        (FirstPoolStanding::Missing, ", and there is no BottlerocketPool of this name"),
    ] {
        assert_eq!(told(standing), format!("the pool canary goes first (spec.after){said}"));
    }
}

#[test]
fn a_pool_is_done_once_one_of_its_nodes_runs_the_version_in_service() {
    let (first, follows) = (rules(&json!({})), rules(&json!({"after": [{"pool": "canary"}]})));
    let pools = [pool("canary", &first), pool("web", &follows)];
    let being_updated = marker(1, true);
    let [in_service, mut away, mut marked, mut unlabelled] = [updated("brs-a", 0, AWS); 4];
    node(&mut away, |node| node.ready = false);
    node(&mut marked, |node| node.marker = Some(&being_updated));
    node(&mut unlabelled, |node| node.labelled = false);
    let other_pool = updated("brs-a", 1, AWS);
    for (what, a, done) in [
        ("it is", in_service, true),
        ("it is not Ready", away, false),
        ("it is being updated", marked, false),
        ("it is not opted in", unlabelled, false),
        ("it is of another pool", other_pool, false),
    ] {
        let versions =
            BTreeMap::from([(NEW.to_owned(), VersionRecord { succeeded: 1, ..VersionRecord::default() })]);
        let fleet = FleetFacts {
            slots: &NO_SLOTS,
            versions: &versions,
            pools: &pools,
            default_pool: limited(0),
            ..fleet()
        };
        let noted = slots(&fleet, &[a]).write.and_then(|write| sets(&write, Field::VersionRecord(NEW)));
        let is_done =
            matches!(noted, Some(Value::VersionRecord(noted)) if noted.done_pools.contains_key("canary"));
        assert_eq!(is_done, done, "{what}");
    }
}
