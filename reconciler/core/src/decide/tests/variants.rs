//! Hosts of one variant say nothing about those of another: each has its canaries, its budget and its halt.

use super::versions::{failures, halted, known, over, record, why};
use super::world::*;
use crate::status::halts;

const AWS: &str = "aws-k8s-1.36";
const METAL: &str = "metal-k8s-1.36";

fn named(name: &'static str, variant: &'static str) -> NodeView<'static> {
    idle()
        .named(name)
        .with_node(|node| node.variant = Some(variant.into()))
}

fn of(variant: &str, record: VersionRecord) -> VersionRecord {
    VersionRecord {
        variant: variant.to_owned(),
        ..record
    }
}

#[test]
fn each_variant_has_its_own_canary() {
    let views = [
        named("brs-a", AWS),
        named("brs-b", AWS),
        named("brs-c", METAL),
        named("brs-d", METAL),
    ];
    let proven = VersionRecord {
        succeeded: 1,
        ..of(METAL, known())
    };
    for (versions, begin) in [(vec![], vec![0, 2]), (vec![proven], vec![0, 2, 3])] {
        let fleet = FleetFacts {
            default_pool: limited(500),
            versions: &versions,
            ..without_slots()
        };
        assert_eq!(allocate(&fleet, &views).taken, begin);
    }
}

#[test]
fn a_halt_holds_its_own_variant() {
    let versions = [halted(of(METAL, known()))];
    let fleet = FleetFacts {
        versions: &versions,
        ..fleet()
    };
    for (variant, is_held) in [(AWS, false), (METAL, true), ("unknown", false)] {
        let idle = named("brs-a", variant);
        let held = decide(&fleet, &idle).reason == Reason::VersionHalted(NEW);
        assert_eq!(held, is_held, "{variant}");
        let begun = updating(StagedAndPerformedUpdate, Idle)
            .with_node(|node| node.variant = Some(variant.into()));
        let gives_up = decide(&fleet, &begun).reason.as_str() == "Aborting";
        assert_eq!(gives_up, is_held, "{variant}");
    }
}

/// Whatever the Node shows now, or if it is gone.
#[test]
fn an_outcome_counts_for_the_variant_of_its_slot() {
    let fell_back = failures("FellBack");
    let held = BTreeMap::from([(
        SHADOW.to_owned(),
        Slot {
            variant: Some(METAL.to_owned()),
            ..SLOT[SHADOW].clone()
        },
    )]);
    let fleet = FleetFacts {
        slots: &held,
        ..fleet()
    };
    let failed = over(Some(&fell_back));
    for view in [
        failed,
        NodeView {
            node: None,
            ..failed
        },
    ] {
        let record = record(&fleet, None, &[view]).unwrap();
        assert_eq!((&*record.variant, why(&record).is_some()), (METAL, true));
    }
    let reached = record(&fleet, None, &[over(None).rebooted(NEW)]).unwrap();
    assert_eq!((&*reached.variant, reached.succeeded), (METAL, 1));
}

/// A release that was replaced pages nobody: its record stays, and nobody has to act.
#[test]
fn a_halt_counts_while_a_ready_node_wants_its_version() {
    let versions = [VersionRecord {
        version: NEW.to_owned(),
        variant: idle().node.unwrap().variant().to_owned(),
        halted_at: Some("2026-11-21T02:00:00Z".to_owned()),
        ..VersionRecord::default()
    }];
    let fleet = FleetFacts {
        versions: &versions,
        ..without_slots()
    };
    let of_another = idle().with_node(|node| node.variant = Some("metal-k8s-1.36".to_owned()));
    let of_a_later =
        idle().with_shadow(|shadow| shadow.status.target_version = Some("9.9.9".into()));
    let unlabelled = idle().with_node(|node| node.labelled = false);
    for (view, count) in [
        (idle(), 1),
        (of_another, 0),
        (of_a_later, 0),
        (unlabelled, 0),
        (idle().not_ready(), 0),
    ] {
        let observed = observed(fleet, vec![view]);
        assert_eq!(halts(&observed).len(), count, "{observed:?}");
    }
}
