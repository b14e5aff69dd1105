//! Which nodes keep a pool that goes first from being done with a version.

use super::versions::acknowledged;
use super::world::*;
use crate::facts::{FirstPool, FirstPoolStanding};
use crate::rules::Rules;
use crate::tests::world::{read, with};

const AWS: Option<&str> = Some("aws-k8s-1.36");
const NVIDIA: Option<&str> = Some("aws-k8s-1.36-nvidia");

pub(super) fn rules(spec: &serde_json::Value) -> Rules {
    Rules::of(&read(with(json!({"nodeSelector": {}}), spec))).unwrap()
}

pub(super) fn pool<'a>(name: &'a str, rules: &'a Rules) -> PoolFacts<'a> {
    PoolFacts {
        name,
        nodes: 4,
        limit: 4,
        rules: Some(rules),
        ..PoolFacts::DEFAULT
    }
}

/// Does this write note that the pool `canary` is done with the new version?
fn canaries_are_done(write: Option<&Write<'_>>) -> bool {
    let record = write.and_then(|write| record_of(write, Field::VersionRecord(NEW)));
    record.is_some_and(|record| record.done_pools.contains_key("canary"))
}

/// A node that has this name, in this pool, of a variant.
fn placed(name: &'static str, pool: usize, variant: Option<&'static str>) -> NodeView<'static> {
    idle()
        .named(name)
        .in_pool(pool)
        .with_node(|node| node.variant = variant)
}

/// The same, in service with the new version.
fn updated(name: &'static str, pool: usize, variant: Option<&'static str>) -> NodeView<'static> {
    placed(name, pool, variant)
        .with_node(|node| node.version = Some(NEW))
        .with_shadow(|shadow| shadow.status.current_version = Some(NEW))
}

/// The record of a version with which the canaries have been done for hours.
fn done(halted_for: Option<&[&str]>) -> VersionRecord {
    let halted = halted_for
        .map(|variants| json!({"at": "2026-11-21T02:00:00Z", "reason": "", "variants": variants}));
    serde_json::from_value(json!({
        "succeeded": 1, "halted": halted,
        "provenVariants": ["aws-k8s-1.36", "aws-k8s-1.36-nvidia"],
        "donePools": {"canary": {"since": "2026-11-21T00:00:00Z", "longestSeconds": 0}},
    }))
    .unwrap()
}

/// A canary that cannot look for updates.
fn canary(variant: Option<&'static str>) -> NodeView<'static> {
    placed("brs-b", 0, variant).with_shadow(|shadow| {
        (shadow.status.target_version, shadow.status.problem) =
            (None, Some(Problem::RefreshFailed));
    })
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
    let (first, follows) = (
        rules(&json!({})),
        rules(&json!({"dependsOn": [{"pool": "canary"}]})),
    );
    let pools = [pool("canary", &first), pool("web", &follows)];
    let record = |halted: Option<&[&str]>| -> VersionRecord {
        let halted = halted.map(
            |variants| json!({"at": "2026-11-21T02:00:00Z", "reason": "", "variants": variants}),
        );
        serde_json::from_value(json!({"succeeded": 1, "halted": halted})).unwrap()
    };
    let (none, nvidia) = (&record(None), &record(Some(&["aws-k8s-1.36-nvidia"])));
    let its = Slot {
        version: Some(NEW.to_owned()),
        ..slot("brs-b", "brs-b", 2)["brs-b"].clone()
    };
    let its = BTreeMap::from([("brs-b".to_owned(), its)]);
    let (no, its): (&BTreeMap<String, Slot>, _) = (&NO_SLOTS, &its);
    let (runs_it, wants_it) = (
        Some(updated("brs-d", 1, NVIDIA)),
        Some(placed("brs-d", 1, NVIDIA)),
    );
    let (runs_it, wants_it, alone) = (&runs_it, &wants_it, &None);
    let unchanged: Change = |_| ();
    let leaving: Change = |view| node(view, |node| node.leaving = true);
    let leaving_behind: Change = |view| {
        wants(view, NEW);
        node(view, |node| node.leaving = true);
    };
    let away: Change = |view| node(view, |node| node.ready = false);
    let unlabelled: Change = |view| node(view, |node| node.labelled = false);
    let locked: Change =
        |view| shadow(view, |it| it.status.problem = Some(Problem::NoUpdateChosen));
    // The canary, a node of another pool, the record, the slots; is the pool done, and who is named?
    for (what, variant, change, other, record, slots, done, behind) in [
        (
            "its refresh fails",
            AWS,
            unchanged,
            alone,
            none,
            no,
            false,
            Some("b"),
        ),
        (
            "it is not Ready, either",
            AWS,
            away,
            alone,
            none,
            no,
            false,
            Some("b"),
        ),
        (
            "it wants another version",
            AWS,
            |it| wants(it, "1.21.0"),
            alone,
            none,
            no,
            false,
            Some("b"),
        ),
        (
            "it wants it",
            AWS,
            |it| wants(it, NEW),
            alone,
            none,
            no,
            false,
            None,
        ),
        (
            "it is on its way",
            AWS,
            unchanged,
            alone,
            none,
            its,
            false,
            None,
        ),
        (
            "it runs it",
            AWS,
            |it| runs(it, NEW),
            alone,
            none,
            no,
            true,
            None,
        ),
        (
            "it runs a later one",
            AWS,
            |it| runs(it, "1.21.0"),
            alone,
            none,
            no,
            true,
            None,
        ),
        (
            "nobody knows what it runs",
            AWS,
            |it| runs(it, "next"),
            alone,
            none,
            no,
            true,
            None,
        ),
        (
            "it is not opted in",
            AWS,
            unlabelled,
            alone,
            none,
            no,
            true,
            None,
        ),
        ("it leaves", AWS, leaving, alone, none, no, true, None),
        (
            "it leaves, and wants it",
            AWS,
            leaving_behind,
            alone,
            none,
            no,
            true,
            None,
        ),
        ("it is locked", AWS, locked, alone, none, no, true, None),
        (
            "the version is not for its variant",
            NVIDIA,
            unchanged,
            alone,
            none,
            no,
            true,
            None,
        ),
        (
            "one of its variant runs it",
            NVIDIA,
            unchanged,
            runs_it,
            none,
            no,
            false,
            Some("b"),
        ),
        (
            "one of its variant wants it",
            NVIDIA,
            unchanged,
            wants_it,
            none,
            no,
            false,
            Some("b"),
        ),
        (
            "its variant is halted",
            NVIDIA,
            unchanged,
            runs_it,
            nvidia,
            no,
            true,
            None,
        ),
        (
            "another variant is halted",
            AWS,
            unchanged,
            alone,
            nvidia,
            no,
            false,
            Some("b"),
        ),
    ] {
        let b = canary(variant).with(change);
        let versions = BTreeMap::from([(NEW.to_owned(), record.clone())]);
        let fleet = FleetFacts {
            slots,
            versions: &versions,
            pools: &pools,
            default_pool: limited(0),
            ..fleet()
        };
        let views = [updated("brs-a", 0, AWS), b, placed("brs-c", 1, AWS)]
            .into_iter()
            .chain(*other)
            .collect();
        let observed = observed(fleet, views);
        let decided = decide_all(&observed);
        let is_done = canaries_are_done(decided.slots.write.as_ref());
        assert_eq!(is_done, done, "{what}");
        let standing = behind.map_or(FirstPoolStanding::NotDone, FirstPoolStanding::Behind);
        let first = FirstPool {
            pool: "canary",
            standing,
        };
        assert_eq!(
            decided.nodes[2].reason,
            Reason::WaitingForPool(first),
            "{what}"
        );
    }
}

#[test]
fn who_waits_for_a_pool_is_told_for_what() {
    let until = "2026-11-21T11:19:00Z".parse().unwrap();
    let behind = "not done with this version: its node b runs an older version and does not want this one; its wave may \
        not have come (settings.updates.ignore-waves)";
    for (standing, said) in [
        (
            FirstPoolStanding::NotDone,
            ": it is not done with this version",
        ),
        (FirstPoolStanding::Behind("b"), &format!(": it is {behind}")),
        (
            FirstPoolStanding::Soaking(until),
            ": it is done with this version, and soaks until 2026-11-21T11:19:00Z",
        ),
        (
            FirstPoolStanding::Missing,
            ", and there is no BottlerocketPool of this name",
        ),
    ] {
        let reason = Reason::WaitingForPool(FirstPool {
            pool: "canary",
            standing,
        });
        assert_eq!(
            reason.message(),
            format!("the pool canary goes first (spec.dependsOn){said}")
        );
    }
}

#[test]
fn a_pool_is_done_once_one_of_its_nodes_runs_the_version_in_service() {
    let (first, follows) = (
        rules(&json!({})),
        rules(&json!({"dependsOn": [{"pool": "canary"}]})),
    );
    let pools = [pool("canary", &first), pool("web", &follows)];
    let versions = BTreeMap::from([(
        NEW.to_owned(),
        VersionRecord {
            succeeded: 1,
            ..VersionRecord::default()
        },
    )]);
    let nobody = limited(0);
    let fleet = FleetFacts {
        versions: &versions,
        pools: &pools,
        default_pool: nobody,
        ..without_slots()
    };
    let a = updated("brs-a", 0, AWS);
    for (what, a, done) in [
        ("it is", a, true),
        ("it is not Ready", a.not_ready(), false),
        (
            "it is being updated",
            a.with_node(|node| node.marker = Some(&*DRAINED)),
            false,
        ),
        (
            "it is not opted in",
            a.with_node(|node| node.labelled = false),
            false,
        ),
        ("it is of another pool", a.in_pool(1), false),
    ] {
        assert_eq!(
            canaries_are_done(slots(&fleet, &[a]).write.as_ref()),
            done,
            "{what}"
        );
    }
}

#[test]
fn a_halt_of_one_variant_holds_no_other_behind_a_pool() {
    let (canary, follows) = (
        rules(&json!({})),
        rules(&json!({"dependsOn": [{"pool": "canary"}]})),
    );
    let pools = [pool("canary", &canary), pool("web", &follows)];
    let (nvidia, aws): (&[&str], &[&str]) = (&["aws-k8s-1.36-nvidia"], &["aws-k8s-1.36"]);
    let (mixed, of_aws) = (
        vec![updated("brs-a", 0, AWS), placed("brs-b", 0, NVIDIA)],
        vec![updated("brs-a", 0, AWS)],
    );
    let since = |views: &[NodeView<'_>], record: &VersionRecord, lifts: bool| {
        let known = BTreeMap::from([(NEW.to_owned(), record.clone())]);
        let said = if lifts {
            acknowledged(record).to_vec()
        } else {
            vec![]
        };
        // Nobody begins: only what is noted matters here.
        let pools = [
            PoolFacts {
                limit: 0,
                ..pools[0].clone()
            },
            pools[1].clone(),
        ];
        let fleet = FleetFacts {
            versions: &known,
            acknowledged: &said,
            pools: &pools,
            ..without_slots()
        };
        let noted = slots(&fleet, views)
            .write
            .and_then(|it| record_of(&it, Field::VersionRecord(NEW)));
        let done_pools = noted.unwrap_or_else(|| record.clone()).done_pools;
        done_pools.get("canary").and_then(|done| done.since.clone())
    };
    let undone = |record: VersionRecord| VersionRecord {
        done_pools: BTreeMap::new(),
        ..record
    };
    let (before, now) = (
        Some("2026-11-21T00:00:00Z".to_owned()),
        Some(fleet().now.to_owned()),
    );
    for (what, views, record, lifts, expected) in [
        (
            "one without nodes of the variant stays done",
            &of_aws,
            done(Some(nvidia)),
            false,
            before.clone(),
        ),
        (
            "so does one with such nodes",
            &mixed,
            done(Some(nvidia)),
            false,
            before.clone(),
        ),
        (
            "one becomes done without them",
            &mixed,
            undone(done(Some(nvidia))),
            false,
            now.clone(),
        ),
        (
            "they count if nothing is halted",
            &mixed,
            undone(done(None)),
            false,
            None,
        ),
        (
            "a halt of all is another matter",
            &of_aws,
            done(Some(&[])),
            false,
            None,
        ),
        (
            "once it is lifted, they have to be done, too",
            &mixed,
            done(Some(nvidia)),
            true,
            None,
        ),
        (
            "and pools of others go on",
            &of_aws,
            done(Some(nvidia)),
            true,
            before,
        ),
        (
            "once that of their own is lifted, they begin again",
            &of_aws,
            done(Some(aws)),
            true,
            now,
        ),
    ] {
        assert_eq!(since(views, &record, lifts), expected, "{what}");
    }
}
