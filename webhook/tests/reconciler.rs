//! Whatever the reconciler decides to write to a shadow, the webhook allows: the reconciler's own decisions, on facts of
//! every kind, held against the verdict.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

use brupop_api::facts::ShadowFacts;
use brupop_api::fleet::Slot;
use brupop_api::{
    BottlerocketShadow, BottlerocketShadowSpec, BottlerocketShadowStatus, Field, Marker, Object,
    State, Value,
};
use brupop_apply::apply;
use brupop_core::decide::{Effect, decide};
use brupop_core::facts::{FleetFacts, NodeView, PodFacts, TimeFacts};
use brupop_core::objects::{NodeFacts, Readiness};
use brupop_webhook::verdict::{Change, ShadowRequest, verdict};
use kube::Resource as _;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;
use std::cell::RefCell;
use std::collections::BTreeMap;

const NAME: &str = "brs-n";
const UID: &str = "shadow-uid";
const NOW: &str = "2026-11-21T04:00:00Z";
const FIRST_BOOT: &str = "b1";

type Text = Option<&'static str>;

/// One node with its shadow, as facts: consistent or not.
#[derive(Clone, Debug)]
struct Odd {
    /// State, attempt, first boot, grant.
    spec: (State, Option<u64>, Text, Text),
    /// State, attempt, boot, claim.
    status: (Option<State>, Option<u64>, Text, Text),
    /// Labelled, Ready, cordoned, and which boot and version it is in.
    node: (bool, bool, bool, &'static str, &'static str),
    /// Attempt of the marker, and whether it says that the node is drained.
    marker: Option<(u64, bool)>,
    /// Backing off, step overdue, drain overdue.
    time: (bool, bool, bool),
    pods_gone: bool,
    slot: Option<u64>,
}

fn boot() -> impl Strategy<Value = Text> {
    prop::option::of(prop::sample::select(vec!["b0", FIRST_BOOT, "b2"]))
}

/// Mostly the same one, as in an update that goes well.
fn attempt() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![8 => Just(Some(1)), 1 => Just(Some(2)), 1 => Just(None)]
}

fn odd() -> impl Strategy<Value = Odd> {
    let goal = prop::sample::select(vec![
        State::Idle,
        State::StagedAndPerformedUpdate,
        State::RebootedIntoUpdate,
        State::MonitoringUpdate,
    ]);
    let reached = prop_oneof![
        1 => Just(Some(State::StagedAndPerformedUpdate)),
        1 => prop::option::weighted(0.9, prop::sample::select(&State::ALL[..])),
    ];
    let baseline = prop_oneof![4 => Just(Some(FIRST_BOOT)), 1 => boot()];
    let booted = prop_oneof![4 => Just(FIRST_BOOT), 1 => Just("b2")];
    let version = prop_oneof![4 => Just("1.19.4"), 1 => Just("1.20.0")];
    let (mostly, rarely) = (|| prop::bool::weighted(0.8), || prop::bool::weighted(0.1));
    (
        (goal, attempt(), baseline, boot()),
        (reached, attempt(), boot(), boot()),
        ((mostly(), mostly(), any::<bool>()), booted, version),
        (attempt(), mostly()).prop_map(|(attempt, drained)| Some((attempt?, drained))),
        (rarely(), rarely(), rarely()),
        mostly(),
        attempt(),
    )
        .prop_map(
            |(spec, status, (flags, boot, version), marker, time, pods_gone, slot)| {
                let node = (flags.0, flags.1, flags.2, boot, version);
                Odd {
                    spec,
                    status,
                    node,
                    marker,
                    time,
                    pods_gone,
                    slot,
                }
            },
        )
}

fn shadow(odd: &Odd) -> BottlerocketShadow {
    let owned = |text: Text| text.map(str::to_owned);
    let ((state, attempt, baseline, grant), (reached, echoed, boot, claim)) =
        (odd.spec, odd.status);
    let spec = BottlerocketShadowSpec {
        state,
        attempt,
        version: owned(Some("1.20.0")),
        leader_term: Some(4),
        baseline_boot_id: owned(baseline),
        reboot_granted_boot_id: owned(grant),
        ..BottlerocketShadowSpec::default()
    };
    let mut shadow = BottlerocketShadow::new(NAME, spec);
    (shadow.metadata.uid, shadow.metadata.generation) = (owned(Some(UID)), Some(7));
    shadow.status = Some(BottlerocketShadowStatus {
        current_version: owned(Some("1.19.4")),
        target_version: owned(Some("1.20.0")),
        current_state: reached,
        attempt: echoed,
        boot_id: owned(boot),
        reboot_claimed_boot_id: owned(claim),
        ..BottlerocketShadowStatus::default()
    });
    shadow
}

fn marker((attempt, drained): (u64, bool)) -> Marker {
    let then = || Some("2026-11-21T03:00:00Z".to_owned());
    Marker {
        shadow_uid: UID.to_owned(),
        attempt,
        term: 4,
        cordoned_at: then(),
        drain_started_at: then(),
        tainted: true,
        drained_at: then().filter(|_| drained),
        ..Marker::default()
    }
}

fn node(odd: &Odd, marker: Option<&Marker>) -> NodeFacts {
    let (labelled, ready, cordoned, boot_id, version) = odd.node;
    NodeFacts {
        uid: "node-uid".to_owned(),
        labelled,
        readiness: Some(Readiness { ready, since: None }),
        boot_id: boot_id.to_owned(),
        version: Some(version.to_owned()),
        unschedulable: cordoned || marker.is_some(),
        tainted: marker.is_some(),
        marker: marker.cloned().map(Ok),
        ..NodeFacts::example()
    }
}

fn view<'a>(odd: &Odd, shadow: &'a BottlerocketShadow, node: &'a NodeFacts) -> NodeView<'a> {
    let (backing_off, step_overdue, drain_overdue) = odd.time;
    NodeView {
        node: Some(node),
        agent_ready: true,
        shadow: ShadowFacts::of(shadow),
        owner_uid: Some("node-uid"),
        pods: PodFacts {
            known: true,
            drained: odd.pods_gone,
            ..PodFacts::default()
        },
        time: TimeFacts {
            exclusion_over: true,
            verified: true,
            backing_off,
            step_overdue,
            drain_overdue,
            ..TimeFacts::default()
        },
        ..NodeView::nothing(NAME)
    }
}

fn fleet(slots: &BTreeMap<String, Slot>) -> FleetFacts<'_> {
    FleetFacts {
        now: NOW,
        slots,
        ..FleetFacts::EXAMPLE
    }
}

/// The review of this change of the spec.
fn review(old: &BottlerocketShadow, new: &BottlerocketShadow) -> ShadowRequest {
    let request = json!({
        "uid": "u",
        "kind": {"group": "brupop.bottlerocket.aws", "version": BottlerocketShadow::version(&()), "kind": "BottlerocketShadow"},
        "resource": {"group": "brupop.bottlerocket.aws", "version": BottlerocketShadow::version(&()), "resource": "bottlerocketshadows"},
        "name": NAME,
        "namespace": "ns",
        "operation": "UPDATE",
        "userInfo": {"username": "system:serviceaccount:ns:brupop-reconciler"},
        "object": new,
        "oldObject": old,
    });
    serde_json::from_value(request).unwrap()
}

/// What was tried, so that the test can tell that it tried something.
#[derive(Default)]
struct Tried {
    writes: u32,
    /// Grants, and those among them while the claim of an earlier boot stands.
    grants: u32,
    beside_spent_claims: u32,
}

#[test]
fn the_reconcilers_shadow_writes_are_allowed() {
    // All of it can be read.
    static NONE: BTreeMap<usize, String> = BTreeMap::new();
    let tried = RefCell::new(Tried::default());
    let config = Config {
        cases: 10_000,
        failure_persistence: None,
        ..Config::default()
    };
    let run = TestRunner::new(config).run(&odd(), |odd| {
        // The webhook lets an agent claim only what is granted, and a grant that is claimed is not taken back.
        let ((.., granted), (.., claimed)) = (odd.spec, odd.status);
        if claimed == Some(odd.node.3) && claimed != granted {
            return Ok(());
        }
        let (old, marker) = (shadow(&odd), odd.marker.map(marker));
        let taken = |attempt| Slot {
            uid: UID.to_owned(),
            attempt,
            ..Slot::default()
        };
        let slots: BTreeMap<_, _> = odd
            .slot
            .map(taken)
            .into_iter()
            .map(|slot| (NAME.to_owned(), slot))
            .collect();
        let node = node(&odd, marker.as_ref());
        let (fleet, view) = (fleet(&slots), view(&odd, &old, &node));
        let decisions = decide(&fleet, &[view], &NONE);
        let effect = decisions.nodes[0]
            .step
            .and_then(|step| step.effect(&fleet, &view));
        let Some(Effect::Write(write) | Effect::Grant { grant: write, .. }) = effect else {
            return Ok(());
        };
        let Object::ShadowSpec(_) = write.object else {
            return Ok(());
        };
        let mut new = old.clone();
        prop_assert!(
            apply(&write, &mut new).is_ok(),
            "decided on other facts: {:?}",
            write
        );
        let request = review(&old, &new);
        let verdict = verdict(&request, &Change::of(&request));
        prop_assert!(
            verdict.outcome.is_ok(),
            "{:?}: {:?}",
            verdict.outcome,
            write
        );
        let mut tried = tried.borrow_mut();
        tried.writes += 1;
        let granted = write.sets.iter().any(|(field, value)| {
            *field == Field::SpecRebootGrantedBootId && *value != Value::Absent
        });
        tried.grants += u32::from(granted);
        tried.beside_spent_claims += u32::from(granted && odd.status.3.is_some());
        Ok(())
    });
    run.unwrap_or_else(|failure| panic!("{failure}"));
    let Tried {
        writes,
        grants,
        beside_spent_claims,
    } = tried.into_inner();
    println!(
        "{writes} writes, {grants} grants, {beside_spent_claims} of them beside the claim of an earlier boot"
    );
    assert!(
        writes > 1_000 && beside_spent_claims > 10,
        "it tries nothing"
    );
}
