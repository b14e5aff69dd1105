//! Tests of the nodes that keep a first pool from finishing a version.

use brupop_api::crds::DONE_VERSIONS_MAX;
use brupop_api::fleet::DonePool;

use super::versions::{halted, known, resuming};
use super::world::*;
use crate::facts::FirstPool;
use crate::rules::Rules;
use crate::tests::world::{read, with};

const AWS: &str = "aws-k8s-1.36";
const NVIDIA: &str = "aws-k8s-1.36-nvidia";

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

/// The pool `canary`, and the pool `web` that comes after it.
fn canary_first() -> [PoolFacts<'static>; 2] {
    static RULES: LazyLock<[Rules; 2]> = LazyLock::new(|| {
        [json!({}), json!({"dependsOn": [{"pool": "canary"}]})].map(|it| rules(&it))
    });
    let [first, follows] = &*RULES;
    [pool("canary", first), pool("web", follows)]
}

/// Whether this write records that the pool `canary` has finished the new version.
fn canaries_are_done(write: Option<&Write<'_>>) -> bool {
    let done = write.and_then(done_pools).unwrap_or_default();
    done.iter()
        .any(|done| done.pool == "canary" && done.version == NEW)
}

/// Returns the pools and versions that the write records as done, if it sets them.
fn done_pools(write: &Write<'_>) -> Option<Vec<DonePool>> {
    match sets(write, Field::DonePools)? {
        Value::DonePools(done) => Some(done.into_owned()),
        _ => None,
    }
}

/// The pool `canary` has been done with the new version for hours.
fn done_before() -> DonePool {
    DonePool {
        pool: "canary".to_owned(),
        version: NEW.to_owned(),
        since: "2026-11-21T00:00:00Z".to_owned(),
    }
}

/// A node that has this name, in this pool, of a variant.
fn placed(name: &'static str, pool: usize, variant: &'static str) -> NodeView<'static> {
    idle()
        .named(name)
        .in_pool(pool)
        .with_node(|node| node.variant = Some(variant.into()))
}

/// The same, in service with the new version.
fn updated(name: &'static str, pool: usize, variant: &'static str) -> NodeView<'static> {
    placed(name, pool, variant)
        .with_node(|node| node.version = Some(NEW.into()))
        .with_shadow(|shadow| shadow.status.current_version = Some(NEW.into()))
}

/// The new version's record for this variant, halted or not.
fn known_for(variant: &str, is_halted: bool) -> VersionRecord {
    let record = VersionRecord {
        variant: variant.to_owned(),
        succeeded: 1,
        ..known()
    };
    if is_halted { halted(record) } else { record }
}

/// A canary that cannot look for updates.
fn canary(variant: &'static str) -> NodeView<'static> {
    placed("brs-b", 0, variant).with_shadow(|shadow| {
        (shadow.status.target_version, shadow.status.problem) =
            (None, Some(Problem::RefreshFailed));
    })
}

type Change = fn(&mut NodeView<'static>);

fn runs(view: &mut NodeView<'static>, version: &'static str) {
    node(view, |node| node.version = Some(version.into()));
    shadow(view, |shadow| {
        shadow.status.current_version = Some(version.into());
    });
}

fn wants(view: &mut NodeView<'static>, version: &'static str) {
    shadow(view, |shadow| {
        shadow.status.target_version = Some(version.into());
    });
}

#[test]
fn a_node_that_runs_an_older_version_keeps_its_pool_from_being_done() {
    let pools = canary_first();
    let (none, nvidia) = (
        &vec![known_for(AWS, false)],
        &vec![known_for(AWS, false), known_for(NVIDIA, true)],
    );
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
    let (runs_it, wants_it) = (&runs_it, &wants_it);
    let unchanged: Change = |_| ();
    let leaving: Change = |view| node(view, |node| node.leaving = true);
    let leaving_behind: Change = |view| {
        wants(view, NEW);
        node(view, |node| node.leaving = true);
    };
    let away: Change = |view| node(view, |node| node.readiness = None);
    let unlabelled: Change = |view| node(view, |node| node.labelled = false);
    let locked: Change =
        |view| shadow(view, |it| it.status.problem = Some(Problem::NoUpdateChosen));
    // Whether the pool has finished, and which node is named.
    let (done, waits, behind) = ((true, None), (false, None), (false, Some("b")));
    let check =
        |what, canary, other: &Option<_>, versions, slots, (is_done, named): (_, Option<_>)| {
            let fleet = FleetFacts {
                slots,
                versions,
                pools: &pools,
                default_pool: limited(0),
                ..fleet()
            };
            let views = [updated("brs-a", 0, AWS), canary, placed("brs-c", 1, AWS)];
            let observed = observed(fleet, views.into_iter().chain(*other).collect());
            let decided = observed.decide();
            let noted = canaries_are_done(decided.write.as_ref());
            assert_eq!(noted, is_done, "{what}");
            let not_done = FirstPool::NotDone("canary");
            let first = named.map_or(not_done, |node| FirstPool::Behind("canary", node));
            assert_eq!(
                decided.nodes[2].reason,
                Reason::WaitingForPool(first),
                "{what}"
            );
        };
    let alone: [(_, Change, _); 11] = [
        ("its refresh fails", unchanged, behind),
        ("it is not Ready, either", away, behind),
        ("it wants another one", |it| wants(it, "1.21.0"), behind),
        ("it wants it", |it| wants(it, NEW), waits),
        ("it runs it", |it| runs(it, NEW), done),
        ("it runs a later one", |it| runs(it, "1.21.0"), done),
        ("nobody knows what it runs", |it| runs(it, "next"), done),
        ("it is not opted in", unlabelled, done),
        ("it leaves", leaving, done),
        ("it leaves, and wants it", leaving_behind, done),
        ("it is locked", locked, done),
    ];
    for (what, change, outcome) in alone {
        check(what, canary(AWS).with(change), &None, none, no, outcome);
    }
    check("it is on its way", canary(AWS), &None, none, its, waits);
    for (what, variant, other, versions, outcome) in [
        ("not for its variant", NVIDIA, &None, none, done),
        ("one of its variant runs it", NVIDIA, runs_it, none, behind),
        ("one of them wants it", NVIDIA, wants_it, none, behind),
        ("its variant is halted", NVIDIA, runs_it, nvidia, done),
        ("another variant is halted", AWS, &None, nvidia, behind),
    ] {
        check(what, canary(variant), other, versions, no, outcome);
    }
}

#[test]
fn a_pool_is_done_once_one_of_its_nodes_runs_the_version_in_service() {
    let pools = canary_first();
    let versions = [known_for(AWS, false)];
    let nobody = limited(0);
    let fleet = FleetFacts {
        versions: &versions,
        pools: &pools,
        default_pool: nobody,
        ..without_slots()
    };
    let a = updated("brs-a", 0, AWS);
    for (what, a, done) in rows! {
        "it is", a => true;
        "it is not Ready", a.not_ready() => false;
        "it is being updated", a.with_node(|node| node.marker = Some(Ok(DRAINED.clone()))) => false;
        "it is not opted in", a.with_node(|node| node.labelled = false) => false;
        "it is of another pool", a.in_pool(1) => false;
    } {
        assert_eq!(
            canaries_are_done(allocate(&fleet, &[a]).write.as_ref()),
            done,
            "{what}"
        );
    }
    let write = allocate(&fleet, &[a]).write.unwrap();
    let Some(Value::Versions(noted)) = sets(&write, Field::Versions) else {
        panic!("{write:?}")
    };
    assert_eq!(noted[0].reported_at.as_deref(), Some(fleet.now));
}

/// A stolen agent may name one version after the other, each of which gets a record.
#[test]
fn a_pool_stays_done_whatever_versions_a_host_makes_up() {
    let pools = canary_first();
    let made_up = (0..DONE_VERSIONS_MAX).map(|nth| VersionRecord {
        version: format!("0.0.{nth}"),
        ..known_for(AWS, false)
    });
    let another = VersionRecord {
        version: "9.0.0".to_owned(),
        ..known_for(AWS, false)
    };
    let known = [another, known_for(AWS, false)].into_iter();
    let versions: Vec<_> = known.chain(made_up).collect();
    let fleet = FleetFacts {
        versions: &versions,
        pools: &pools,
        ..without_slots()
    };
    let write = allocate(&fleet, &[updated("brs-a", 0, AWS)]).write;
    assert!(canaries_are_done(write.as_ref()));
    let done = done_pools(&write.unwrap()).unwrap();
    let of_version = |nth| DonePool {
        version: format!("0.0.{nth}"),
        ..done[0].clone()
    };
    let others = (1..DONE_VERSIONS_MAX).map(of_version);
    let full: Vec<_> = done.iter().cloned().chain(others).collect();
    let fleet = FleetFacts {
        done_pools: &full,
        ..fleet
    };
    let mut later = updated("brs-a", 0, AWS);
    runs(&mut later, "9.0.0");
    wants(&mut later, "9.0.0");
    let write = allocate(&fleet, &[later]).write.unwrap();
    let done = done_pools(&write).unwrap();
    assert_eq!(done[0].version, "9.0.0");
    let most = DONE_VERSIONS_MAX - 1;
    assert_eq!(done[1..], full[..most], "the last has no room");
}

/// Its soak does not begin again, and nodes that have joined it with an older version hold nobody up.
#[test]
fn a_pool_stays_done_while_no_other_depends_on_it() {
    let [canary, mut web] = canary_first();
    web.rules = None;
    let done = [done_before()];
    let joined = placed("brs-b", 0, AWS);
    for (pools, stays) in [(&[canary, web.clone()][..], true), (&[web], false)] {
        let fleet = FleetFacts {
            done_pools: &done,
            pools,
            ..without_slots()
        };
        let write = allocate(&fleet, &[joined]).write.unwrap();
        let noted = done_pools(&write).unwrap();
        assert_eq!(noted.contains(&done[0]), stays, "{noted:?}");
    }
}

#[test]
fn a_halt_of_one_variant_holds_no_other_behind_a_pool() {
    // Nobody begins: only what is noted matters here.
    let mut pools = canary_first();
    pools[0].limit = 0;
    let (mixed, of_aws) = (
        &[updated("brs-a", 0, AWS), placed("brs-b", 0, NVIDIA)][..],
        &[updated("brs-a", 0, AWS)][..],
    );
    let since = |views: &[NodeView<'_>], halt: Option<&str>, was_done: bool, resumes: bool| {
        let versions = [AWS, NVIDIA].map(|variant| known_for(variant, halt == Some(variant)));
        let resumed: Vec<_> = versions
            .iter()
            .filter(|record| resumes && record.halted_at.is_some())
            .flat_map(resuming)
            .collect();
        let before: Vec<_> = was_done.then(done_before).into_iter().collect();
        let fleet = FleetFacts {
            versions: &versions,
            done_pools: &before,
            resumed: &resumed,
            pools: &pools,
            ..without_slots()
        };
        let write = allocate(&fleet, views).write;
        let noted = write.as_ref().and_then(done_pools);
        let noted = noted.unwrap_or_else(|| before.clone());
        let mut noted = noted.iter();
        let noted = noted.find(|done| done.version == NEW);
        noted.map(|done| done.since.clone())
    };
    let (before, now) = (
        Some("2026-11-21T00:00:00Z".to_owned()),
        Some(fleet().now.to_owned()),
    );
    for (what, views, halt, was_done, resumes, expected) in rows! {
        "one without nodes of the variant stays done", of_aws, Some(NVIDIA), true, false => &before;
        "so does one with such nodes", mixed, Some(NVIDIA), true, false => &before;
        "one becomes done without them", mixed, Some(NVIDIA), false, false => &now;
        "they count if nothing is halted", mixed, None, false, false => &None;
        "a halt of all its nodes clears it", of_aws, Some(AWS), true, false => &None;
        "once the version is resumed, they have to be done, too", mixed, Some(NVIDIA), true, true => &None;
        "and pools of others go on", of_aws, Some(NVIDIA), true, true => &before;
        "one that joins, and wants it, changes nothing", mixed, None, true, false => &before;
        "nor does it if none runs it", &mixed[1..], None, true, false => &before;
        "nor if it is halted for others", &[placed("brs-a", 0, AWS)], Some(NVIDIA), true, false => &before;
        "once that of their own is resumed, they begin again", of_aws, Some(AWS), true, true => &now;
    } {
        assert_eq!(since(views, halt, was_done, resumes), *expected, "{what}");
    }
}
