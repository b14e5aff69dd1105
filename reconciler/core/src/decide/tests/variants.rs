//! Hosts of one variant say nothing about those of another: each has its canaries, its budget and its halt.

use brupop_api::crds::VARIANTS_MAX;

use super::versions::{self, acknowledged, failed, failures, over, record};
use super::world::*;

const AWS: Option<&str> = Some("aws-k8s-1.36");
const METAL: Option<&str> = Some("metal-k8s-1.36");

fn named(name: &'static str, variant: Option<&'static str>) -> NodeView<'static> {
    idle().named(name).with_node(|node| node.variant = variant)
}

/// A version that has succeeded so often, and on these variants.
fn proven(succeeded: u64, variants: &[Option<&str>]) -> VersionRecord {
    let proven_variants = variants
        .iter()
        .map(|variant| variant.unwrap().to_owned())
        .collect();
    VersionRecord {
        succeeded,
        proven_variants,
        ..VersionRecord::default()
    }
}

/// The record once a node of this variant has failed.
fn after_failure(known: Option<VersionRecord>, variant: Option<&'static str>) -> VersionRecord {
    let fell_back = failures("FellBack");
    let fleet = fleet();
    let view = over(Some(&fell_back)).with_node(|node| node.variant = variant);
    record(&fleet, known, &[view]).unwrap()
}

/// Why a node of this variant does not begin; `None` = it begins.
fn refusal(record: &VersionRecord, variant: Option<&'static str>) -> Option<&'static str> {
    let versions = BTreeMap::from([(NEW.to_owned(), record.clone())]);
    let view = idle().with_node(|node| node.variant = variant);
    let fleet = FleetFacts {
        versions: &versions,
        ..without_slots()
    };
    let takes = slots(&fleet, &[view]).taken == [0];
    (!takes).then(|| decide(&fleet, &view).reason.as_str())
}

#[test]
fn each_variant_has_its_own_canary() {
    let views = [
        named("brs-a", AWS),
        named("brs-b", AWS),
        named("brs-c", METAL),
        named("brs-d", METAL),
    ];
    for (record, begin) in [
        (None, vec![0, 2]),
        (Some(proven(1, &[METAL])), vec![0, 2, 3]),
    ] {
        let versions = record
            .into_iter()
            .map(|record| (NEW.to_owned(), record))
            .collect();
        let fleet = FleetFacts {
            default_pool: limited(500),
            versions: &versions,
            ..without_slots()
        };
        assert_eq!(slots(&fleet, &views).taken, begin);
    }
}

#[test]
fn a_failure_halts_its_own_variant() {
    let (halted, goes_on) = (Some("VersionHalted"), None);
    for (failed, of_aws, of_metal, of_unknown) in [
        (AWS, halted, goes_on, halted),
        // Nobody can say any more which variant the node had.
        (None, halted, halted, halted),
    ] {
        let record = after_failure(None, failed);
        let refusals = [AWS, METAL, None].map(|variant| refusal(&record, variant));
        assert_eq!(
            refusals,
            [of_aws, of_metal, of_unknown],
            "{failed:?} failed"
        );
    }
    let reason = after_failure(None, AWS).halted.unwrap().reason;
    assert_eq!(reason, "it failed on nodes of aws-k8s-1.36: n (FellBack)");
    let of_all = versions::halted(VersionRecord::default());
    assert_eq!(
        after_failure(Some(of_all), AWS).halted.unwrap().variants,
        [""; 0],
        "it stays one of all"
    );
}

#[test]
fn a_second_variant_joins_the_halt_and_one_word_lifts_both() {
    let mut first = after_failure(None, METAL);
    "elsewhere".clone_into(&mut first.failures[0].node);
    let both = after_failure(Some(first.clone()), AWS);
    let (fell_back, known) = (
        failures("FellBack"),
        BTreeMap::from([(NEW.to_owned(), first.clone())]),
    );
    let of_aws = over(Some(&fell_back)).with_node(|node| node.variant = AWS);
    let told = slots(
        &FleetFacts {
            versions: &known,
            ..fleet()
        },
        &[of_aws],
    )
    .halted;
    assert!(
        told.iter().any(|halted| halted.why.contains(AWS.unwrap())),
        "that is told: {told:?}"
    );
    let (before, after) = (first.halted.unwrap(), both.halted.clone().unwrap());
    assert_eq!(after.variants, ["aws-k8s-1.36", "metal-k8s-1.36"]);
    assert!(
        after.at > before.at,
        "a halt that nobody has seen yet is a later one"
    );
    let said = acknowledged(&both);
    let fleet = FleetFacts {
        acknowledged: &said,
        now: "2026-11-21T05:00:00Z",
        ..fleet()
    };
    let lifted = record(&fleet, Some(both), &[]).unwrap();
    assert_eq!(
        (refusal(&lifted, AWS), refusal(&lifted, METAL)),
        (None, None)
    );
}

#[test]
fn what_one_variant_has_proven_is_proven_for_no_other() {
    let of_metal = proven(3, &[METAL]);
    assert!(
        after_failure(Some(of_metal.clone()), METAL)
            .halted
            .is_none(),
        "two may fail"
    );
    assert_eq!(
        after_failure(Some(of_metal), AWS).halted.unwrap().variants,
        [AWS.unwrap()]
    );
    // A failure of an unknown variant counts in every one.
    let with_one = VersionRecord {
        failures: failed(&["x"]).failures,
        ..proven(3, &[AWS])
    };
    assert_eq!(
        after_failure(Some(with_one), AWS).halted.unwrap().variants,
        [""; 0]
    );
}

#[test]
fn who_succeeds_proves_the_variant_once() {
    let view = over(None).with_node(|node| (node.version, node.variant) = (Some(NEW), AWS));
    let fleet = fleet();
    let first = record(&fleet, None, &[view]).unwrap();
    assert_eq!(
        (first.succeeded, &first.proven_variants[..]),
        (1, &["aws-k8s-1.36".to_owned()][..])
    );
    let second = record(&fleet, Some(first), &[view]).unwrap();
    assert_eq!((second.succeeded, second.proven_variants.len()), (2, 1));
}

#[test]
fn more_variants_than_a_halt_can_name_are_all() {
    let mut record = None;
    for number in 0..=VARIANTS_MAX {
        let variant: &'static str = Box::leak(format!("v{number}").into_boxed_str());
        let mut next = after_failure(record, Some(variant));
        next.failures.last_mut().unwrap().node = variant.to_owned();
        let named = next.halted.as_ref().unwrap().variants.len();
        assert_eq!(named, if number < VARIANTS_MAX { number + 1 } else { 0 });
        record = Some(next);
    }
    assert_eq!(refusal(&record.unwrap(), AWS), Some("VersionHalted"));
}

#[test]
fn an_update_goes_on_when_another_variant_is_halted() {
    let halted = after_failure(None, METAL);
    let versions = BTreeMap::from([(NEW.to_owned(), halted)]);
    let fleet = FleetFacts {
        versions: &versions,
        ..fleet()
    };
    let begun =
        |variant| updating(StagedAndPerformedUpdate, Idle).with_node(|node| node.variant = variant);
    let gives_up = |variant| decide(&fleet, &begun(variant)).reason.as_str() == "Aborting";
    assert!(gives_up(METAL) && !gives_up(AWS));
}

/// The record once nodes of these variants have failed one after the other, each `n0`, `n1` and so on, as long as nothing is
/// halted for the variant.
fn in_turn(
    mut record: VersionRecord,
    threshold: FailureThreshold,
    variants: impl IntoIterator<Item = Option<&'static str>>,
) -> VersionRecord {
    let fell_back = failures("FellBack");
    let fleet = FleetFacts {
        threshold,
        now: "2026-11-21T05:00:00Z",
        ..fleet()
    };
    for (nth, variant) in variants.into_iter().enumerate() {
        let view =
            over(Some(&fell_back)).with_node(|node| (node.name, node.variant) = ("n", variant));
        record = versions::record(&fleet, Some(record), &[view]).unwrap();
        record.failures.last_mut().unwrap().node = format!("n{nth}");
    }
    record
}

#[test]
fn variants_that_fail_in_turn_are_halted_before_a_failure_is_lost() {
    let both = || proven(1, &[AWS, METAL]);
    let acknowledged = VersionRecord {
        acknowledged_at: Some("2026-11-21T04:59:59Z".to_owned()),
        failures: failed(&["x", "y", "z"]).failures,
        ..both()
    };
    let turns = |count: usize| [AWS, METAL].into_iter().cycle().take(count);
    let (aws, metal) = ("aws-k8s-1.36", "metal-k8s-1.36");
    for (what, record, failing, halted) in [
        ("MANY find room", both(), turns(8).collect::<Vec<_>>(), None),
        (
            "the ninth does not",
            both(),
            turns(9).collect(),
            Some(&[aws, metal][..]),
        ),
        ("those of one variant", both(), vec![AWS; 8], Some(&[aws])),
        (
            "what was acknowledged goes first",
            acknowledged.clone(),
            turns(8).collect(),
            None,
        ),
        (
            "and then nothing may",
            acknowledged,
            turns(9).collect(),
            Some(&[aws, metal]),
        ),
        (
            "an unknown variant may be any",
            both(),
            turns(8).chain([None]).collect(),
            Some(&[]),
        ),
    ] {
        let record = in_turn(record, MANY, failing);
        assert_eq!(
            record.halted.map(|halt| halt.variants),
            halted.map(strings),
            "{what}"
        );
        assert!(record.failures.len() <= 8, "{what}");
    }
    // Failures of a variant that is halted make room for those of others, which may still be needed.
    let one = in_turn(both(), MANY, [METAL].into_iter().chain([AWS; 20]));
    assert_eq!(one.halted.unwrap().variants, [aws]);
    assert_eq!(one.failures[0].variant.as_deref(), METAL);
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}
