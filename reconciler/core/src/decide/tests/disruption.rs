//! Tests of the time for which an updated node keeps autoscalers away.

use super::first_pools::{pool, rules};
use super::versions;
use super::world::*;
use crate::facts::is_unavailable;
use crate::rules::GateState;

/// Of a node with both annotations, in service since `kept_since`, or in mid-update.
fn with_annotations(marker: Marker) -> Marker {
    Marker {
        do_not_disrupt: true,
        scale_down_disabled: true,
        ..marker
    }
}

static KEPT: LazyLock<Marker> = LazyLock::new(|| {
    let (shadow_uid, kept_since) = ("brs-a".to_owned(), Some("2026-11-21T03:00:00Z".to_owned()));
    with_annotations(Marker {
        shadow_uid,
        attempt: 1,
        kept_since,
        ..Marker::default()
    })
});

/// Updated, Idle, and kept by this marker.
fn kept(marker: &Marker) -> NodeView<'_> {
    let view: NodeView<'_> = idle();
    view.named("brs-a")
        .with_node(|node| {
            (node.version, node.marker) = (Some(NEW.into()), Some(Ok(marker.clone())));
            annotate(node, [Some(KEPT_FROM_AUTOSCALERS); 2]);
        })
        .with_shadow(|shadow| {
            shadow.status.current_version = Some(NEW.into());
            (shadow.spec.attempt, shadow.status.attempt) = (Some(1), Some(1));
        })
}

/// Whether this write lets autoscalers remove the node.
fn releases(write: &Write<'_>) -> bool {
    let gone = [Field::DoNotDisrupt, Field::ScaleDownDisabled].map(|field| sets(write, field));
    gone.iter().all(|value| *value == Some(Value::Absent))
}

#[test]
fn an_updated_node_comes_back_with_its_annotations() {
    // It runs what it was to run; or it fell back; or it was empty before.
    for (version, emptied, stay) in [(NEW, true, true), (OLD, true, false), (NEW, false, false)] {
        let drained = Marker {
            emptied,
            ..with_annotations(marker(1, true))
        };
        let view = updating(RebootedIntoUpdate, RebootedIntoUpdate)
            .marked_by(&drained)
            .with_node(|node| annotate(node, [Some(KEPT_FROM_AUTOSCALERS); 2]))
            .rebooted(version);
        let back = decide(&fleet(), &view);
        assert_eq!(back.reason.as_str(), "Monitoring");
        assert_eq!(
            sets(write(&back), Field::Unschedulable),
            Some(Value::Absent)
        );
        let rest = marker_of(&back);
        assert_eq!(
            (releases(write(&back)), rest.is_kept()),
            (!stay, stay),
            "{version} {emptied}"
        );
        assert_eq!(rest.kept_since.as_deref(), stay.then_some(fleet().now));
        assert!(!rest.holds_changes() && !rest.evicted_owners.is_empty());
        // It is monitored like any other.
        let view = view.with_node(|node| {
            (node.unschedulable, node.tainted, node.marker) =
                (false, false, Some(Ok(rest.clone())));
        });
        assert!(!is_unavailable(&view));
        if stay {
            let monitored = view.with_shadow(|shadow| {
                shadow.spec.state = MonitoringUpdate;
                shadow.status.current_state = Some(MonitoringUpdate);
            });
            assert_eq!(next_state(&decide(&fleet(), &monitored)), Some(Idle));
        }
    }
}

#[test]
fn a_kept_node_holds_up_nothing() {
    let held = slot("brs-a", "brs-a", 1);
    let over = allocate(
        &FleetFacts {
            slots: &held,
            ..fleet()
        },
        &[kept(&KEPT)],
    );
    assert_eq!(over.freed.len(), 1, "its slot is given back");
    let behind =
        kept(&KEPT).with_shadow(|shadow| shadow.status.target_version = Some("1.21.0".into()));
    assert_eq!(
        allocate(&without_slots(), &[behind]).taken,
        [0],
        "its next update begins"
    );
}

/// A change of the kept node, or of the fleet.
type Change = fn(&mut NodeView<'_>, &mut FleetFacts<'_>);

#[test]
fn the_annotations_stay_while_pods_of_others_need_room() {
    let unchanged: Change = |_, _| ();
    let paused: Change = |_, fleet| fleet.paused = true;
    let outside: Change = |_, fleet| fleet.default_pool = outside();
    let unlabelled: Change = |view, _| node(view, |node| node.labelled = false);
    let away: Change = |view, _| node(view, |node| node.readiness = None);
    let lost: Change = |view, _| {
        node(view, |node| node.readiness = None);
        view.time.lost = true;
    };
    let for_long: Change = |view, _| view.time.kept_for_long = true;
    let no = BTreeMap::new();
    let slot = Slot {
        version: Some(NEW.to_owned()),
        ..slot("brs-b", "brs-b", 1)["brs-b"].clone()
    };
    let its = BTreeMap::from([("brs-b".to_owned(), slot)]);
    // The state of the only other node, and its slot.
    let waits = idle().named("brs-b");
    let young = waits.with(|view| view.time.young = true);
    let wants_another = |view: NodeView<'static>| {
        view.with_shadow(|it| it.status.target_version = Some("1.21.0".into()))
    };
    let runs = |state| {
        waits.with_shadow(|shadow| {
            shadow.spec.state = state;
            (shadow.spec.attempt, shadow.spec.version) = (Some(1), Some(NEW.into()));
            shadow.spec.baseline_boot_id = Some(FIRST_BOOT.into());
        })
    };
    let is_new = waits
        .with_node(|node| node.version = Some(NEW.into()))
        .with_shadow(|shadow| shadow.status.current_version = Some(NEW.into()));
    for (what, other, slots, change, stay) in rows! {
        "waits", waits, &no, unchanged => true;
        "has its slot", runs(StagedAndPerformedUpdate), &its, unchanged => true;
        "is drained", runs(RebootedIntoUpdate).marked_by(&DRAINED), &its, unchanged => true;
        "has pods that nobody knows", waits.with(unknown_pods), &no, unchanged => true;
        "is monitored", runs(MonitoringUpdate).rebooted(NEW), &its, unchanged => true;
        "is too young", young, &no, unchanged => true;
        "is too young for another version", wants_another(young), &no, unchanged => false;
        "waits for another version", wants_another(waits), &no, unchanged => false;
        "is of another pool", waits.in_pool(0), &no, unchanged => false;
        "is not Ready", waits.not_ready(), &no, unchanged => false;
        "is up to date", is_new, &no, unchanged => false;
        "waits for its window", waits, &no, outside => false;
        "waits, and the kept one is away", waits, &no, away => true;
        "waits for long", waits, &no, for_long => false;
        "has its slot for long", runs(StagedAndPerformedUpdate), &its, for_long => false;
        "has its slot in a pause", runs(StagedAndPerformedUpdate), &its, paused => false;
        "has its slot, the kept one is left out", runs(StagedAndPerformedUpdate), &its, unlabelled => false;
        "has its slot, the kept one is lost", runs(StagedAndPerformedUpdate), &its, lost => false;
    } {
        let open = rules(&json!({}));
        let pools = [pool("other", &open)];
        let mut views = vec![kept(&KEPT), other];
        let mut fleet = FleetFacts {
            slots,
            pools: &pools,
            default_pool: limited(1),
            ..fleet()
        };
        change(&mut views[0], &mut fleet);
        assert_eq!(released(fleet, views), !stay, "the other one {what}");
    }
}

/// Returns what is decided for the first of these nodes.
fn first<'o>(observed: &'o Observed<'_>) -> Decided<'o> {
    Decided::of(
        &observed.fleet,
        &observed.views[0],
        observed.decide().nodes[0],
    )
}

/// Whether the annotations of the first of these nodes are removed now.
fn released(fleet: FleetFacts<'_>, views: Vec<NodeView<'_>>) -> bool {
    let observed = observed(fleet, views);
    let decision = first(&observed);
    decision.step.is_some() && releases(write(&decision))
}

#[test]
fn a_pause_or_a_halt_gives_the_annotations_back() {
    let open = rules(&json!({}));
    let halted = [versions::halted(versions::known())];
    let its = slot("brs-a", "brs-a", 1);
    for (gate, versions, gone) in [
        (Starts::Open, &[][..], false),
        (Starts::Paused, &[], true),
        (Starts::Open, &halted, true),
    ] {
        let pools = [PoolFacts {
            starts: gate,
            ..pool("web", &open)
        }];
        let fleet = FleetFacts {
            slots: &its,
            pools: &pools,
            versions,
            ..fleet()
        };
        // It is still watched.
        let view = kept(&KEPT)
            .in_pool(0)
            .with(|view| view.time.verified = false)
            .with_shadow(|shadow| {
                (shadow.spec.state, shadow.spec.version) = (MonitoringUpdate, Some(NEW.into()));
            });
        assert_eq!(released(fleet, vec![view]), gone, "{gate:?} {versions:?}");
    }
}

#[test]
fn the_release_is_one_write_that_leaves_no_marker() {
    let owners = Marker {
        evicted_owners: [("apps/v1/ReplicaSet/shop/cart".to_owned(), 1)].into(),
        ..KEPT.clone()
    };
    let of = |view| observed(without_slots(), vec![view]);
    let seen = of(kept(&owners));
    let decided = first(&seen);
    let release = write(&decided);
    assert!(releases(release));
    assert_eq!(
        sets(release, Field::Marker),
        Some(Value::Absent),
        "nobody watches the owners any more"
    );
    // A leader whose term is not in the ledger writes nothing.
    let deposed = FleetFacts {
        ledger_term: Some(5),
        ..without_slots()
    };
    assert!(!released(deposed, vec![kept(&owners)]));
    // A later write of somebody else stays.
    let seen = of(kept(&owners).with_node(|node| annotate(node, [Some("theirs"), None])));
    assert_eq!(sets(write(&first(&seen)), Field::DoNotDisrupt), None);
}

/// The other node's update begins once this is over, which ends by itself: the emptied node is needed then.
#[test]
fn what_ends_by_itself_releases_nothing() {
    type Hindrance = (&'static str, Change, Option<(GateState, &'static str)>);
    let hindrances: [Hindrance; 7] = [
        (
            "rules not tried out by a new leader",
            |_, fleet| fleet.enforced = false,
            None,
        ),
        (
            "other operator not looked for by a new leader",
            |_, fleet| fleet.alone = false,
            None,
        ),
        (
            "budget",
            |view, _| {
                let (why, waited) = ("shop/cart".to_owned(), false);
                led(view, |led| {
                    led.obstacle = Some(Obstacle::Budget { why, waited });
                });
            },
            None,
        ),
        (
            "control plane",
            |view, _| view.busy_control_plane = Some("c"),
            None,
        ),
        ("agent restarts", |view, _| view.agent_ready = false, None),
        (
            "gate not asked by a new leader",
            |_, _| (),
            Some((GateState::Awaited, "quiet")),
        ),
        ("gate", |_, _| (), Some((GateState::Closed, "quiet"))),
    ];
    let (none, open) = (BTreeMap::new(), rules(&json!({})));
    for (what, change, gate) in hindrances {
        let (mut a, mut b) = (kept(&KEPT).in_pool(0), idle().named("brs-b").in_pool(0));
        let pools = [PoolFacts {
            gate,
            ..pool("web", &open)
        }];
        let mut fleet = FleetFacts {
            slots: &none,
            pools: &pools,
            default_pool: limited(1),
            ..fleet()
        };
        change(&mut b, &mut fleet);
        assert!(!released(fleet, vec![a, b]), "{what}");
        a.time.kept_for_long = true;
        assert!(released(fleet, vec![a, b]), "{what}, for long");
    }
}
