//! Nodes and shadows in any state, consistent or not, as the API server has them.

use brupop_api::{BottlerocketShadow, Marker, Problem, State, names};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::Resource as _;
use serde_json::{Value, json};

use super::fleets::TERM;
use super::world::{FIRST_BOOT, NEW, OLD, SECOND_BOOT};
use crate::tests::world::NOW;

/// Age of something, in seconds: usually past every pause and before every deadline.
const AGES: [i64; 7] = [400, 100_000, 1000, 200, 45, 5, 0];

/// Choices, one byte each; zero is what is usual.
pub(super) struct Dice<'d>(pub(super) std::slice::Iter<'d, u8>);

impl Dice<'_> {
    pub(super) fn roll(&mut self) -> usize {
        usize::from(self.0.next().copied().unwrap_or(0))
    }

    pub(super) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.roll() % all.len()]
    }

    /// True in one of this many.
    pub(super) fn rarely(&mut self, one_in: usize) -> bool {
        self.roll() % one_in == one_in - 1
    }

    pub(super) fn ago(&mut self) -> String {
        let now: Timestamp = NOW.parse().unwrap();
        (now - SignedDuration::from_secs(self.one_of(&AGES))).to_string()
    }

    pub(super) fn ago_or_never(&mut self) -> Option<String> {
        let ago = self.ago();
        self.rarely(2).then_some(ago)
    }

    pub(super) fn boot(&mut self) -> Option<&'static str> {
        self.one_of(&[
            Some(FIRST_BOOT),
            Some(FIRST_BOOT),
            Some(FIRST_BOOT),
            Some(SECOND_BOOT),
            None,
        ])
    }
}

pub(super) fn uid_of(name: &str) -> String {
    format!("uid-{name}")
}

/// The node of this name, as it may be with this shadow.
pub(super) fn node(name: &str, shadow: Option<&BottlerocketShadow>, dice: &mut Dice<'_>) -> Node {
    let spec = shadow.map(|shadow| &shadow.spec);
    let watched = spec.is_some_and(|spec| spec.state == State::MonitoringUpdate);
    let attempt = spec.and_then(|spec| spec.attempt).unwrap_or(1);
    let mut labels = json!({"topology.kubernetes.io/zone": dice.one_of(&["a", "b"])});
    if !dice.rarely(8) {
        labels[names::UPDATER_INTERFACE_LABEL] = names::UPDATER_INTERFACE_VERSION.into();
    }
    if dice.rarely(10) {
        labels[names::EXCLUDE_FROM_LB_LABEL] = names::EXCLUDE_FROM_LB_VALUE.into();
    }
    if dice.rarely(3) {
        labels[names::CONTROL_PLANE_LABEL] = "".into();
    }
    let mut annotations = json!({});
    for (annotation, one_in) in [
        (names::PAUSE_ANNOTATION, 10),
        (names::UPDATE_NOW_ANNOTATION, 6),
    ] {
        if dice.rarely(one_in) {
            annotations[annotation] = "true".into();
        }
    }
    if dice.rarely(24) {
        annotations
            .as_object_mut()
            .unwrap()
            .extend((0..1_001).map(|it| (it.to_string(), "".into())));
    }
    let running = spec.is_some_and(|spec| spec.state != State::Idle);
    if dice.rarely(3) != running {
        annotations[names::MARKER_ANNOTATION] =
            marker(name, attempt, watched, dice).render().into();
    }
    for annotation in [
        names::DO_NOT_DISRUPT_ANNOTATION,
        names::SCALE_DOWN_DISABLED_ANNOTATION,
    ] {
        if dice.rarely(4) {
            annotations[annotation] = "true".into();
        }
    }
    let mut taints = vec![];
    for (key, one_in) in [(names::UPDATING_TAINT, 3), (names::LEAVING_TAINTS[0], 16)] {
        if dice.rarely(one_in) {
            taints.push(json!({"key": key, "effect": "PreferNoSchedule"}));
        }
    }
    let ready = if dice.rarely(7) { "False" } else { "True" };
    let version = dice.one_of(&if watched {
        [NEW, NEW, OLD]
    } else {
        [OLD, OLD, NEW]
    });
    let variant = dice.one_of(&["aws-k8s-1.36", "aws-k8s-1.36", "metal-k8s-1.36"]);
    let os_image = if dice.rarely(16) {
        "another OS"
    } else {
        "Bottlerocket OS"
    };
    let json = json!({
        "metadata": {"name": name, "uid": format!("node-{name}"), "labels": labels, "annotations": annotations,
            "creationTimestamp": dice.ago()},
        "spec": {"unschedulable": dice.rarely(3), "taints": taints},
        "status": {
            // Usual on every other node: few are empty and wait for nothing else.
            "volumesInUse": if dice.rarely(2) == name.ends_with('1') { vec![] } else { vec!["a"] },
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": dice.ago()}],
            "nodeInfo": {"bootID": dice.one_of(&[FIRST_BOOT, FIRST_BOOT, SECOND_BOOT]),
                "osImage": format!("{os_image} {version} ({variant})"),
                "architecture": "", "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
                "kubeletVersion": "", "machineID": "", "operatingSystem": "", "systemUUID": ""},
        },
    });
    serde_json::from_value(json).unwrap()
}

fn marker(name: &str, attempt: u64, watched: bool, dice: &mut Dice<'_>) -> Marker {
    let marker = Marker {
        shadow_uid: if dice.rarely(8) {
            "an earlier shadow".to_owned()
        } else {
            uid_of(name)
        },
        attempt: dice.one_of(&[attempt, attempt, 1, 2]),
        term: TERM - 1,
        evicted_owners: (!dice.rarely(2))
            .then(|| ("apps/v1/ReplicaSet/shop/cart".to_owned(), 2))
            .into_iter()
            .collect(),
        ..Marker::default()
    };
    if dice.rarely(3) != watched {
        // All was undone; it tells whose pods were evicted.
        return marker;
    }
    Marker {
        excluded_at: dice.ago_or_never(),
        drain_started_at: dice.ago_or_never(),
        cordoned_at: dice.ago_or_never(),
        drained_at: dice.ago_or_never(),
        tainted: dice.rarely(2),
        ..marker
    }
}

pub(super) fn shadow(name: &str, dice: &mut Dice<'_>) -> BottlerocketShadow {
    let failures = json!({"count": dice.one_of(&[1, 3]), "attempt": dice.one_of(&[1, 2]), "at": dice.ago(),
        "reason": dice.one_of(&["FellBack", "StepFailed", "NotReady"])});
    let states = State::ALL;
    let state = dice.one_of(&[states[0], states[0], states[1], states[2], states[3]]);
    // Mostly what the spec asks for, or what comes before it.
    let reached = dice.one_of(&[
        state,
        state,
        state,
        State::Idle,
        states[4],
        states[1],
        states[2],
    ]);
    let attempt = dice.one_of(&[Some(1), Some(2), Some(1), None]);
    let echoed = if dice.rarely(5) {
        dice.one_of(&[Some(1), None])
    } else {
        attempt
    };
    let problems = [None; Problem::ALL.len()]
        .into_iter()
        .chain(Problem::ALL.map(Some));
    let problems: Vec<Option<Problem>> = problems.collect();
    let mut reported = json!({
        "current_version": dice.one_of(&[OLD, OLD, NEW]), "problem": dice.one_of(&problems),
        "problem_since": "2026-11-21T03:55:00Z",
        "message": dice.one_of(&[None, Some("no route")]), "target_version": dice.one_of(&[Some(NEW), Some(NEW), Some(NEW), Some("1.21.0"), None]),
        "current_state": reached, "attempt": echoed, "boot_id": dice.boot(), "reboot_claimed_boot_id": null,
    });
    if dice.rarely(4) {
        reported["reboot_claimed_boot_id"] = json!(dice.boot());
    }
    let owner = if dice.rarely(12) {
        "an earlier node".to_owned()
    } else {
        format!("node-{name}")
    };
    let json = json!({
        "apiVersion": BottlerocketShadow::api_version(&()), "kind": "BottlerocketShadow",
        "metadata": {"name": names::shadow_name(name), "namespace": "ns", "uid": uid_of(name), "generation": 3,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": owner}]},
        "spec": {"state": state, "state_transition_timestamp": dice.ago(), "attempt": attempt,
            "version": if dice.rarely(10) { None } else { Some(NEW) }, "leader_term": dice.one_of(&[Some(TERM - 1), None]),
            "baseline_boot_id": dice.boot(), "reboot_granted_boot_id": dice.boot(),
            "last_failure": if dice.rarely(3) { failures } else { Value::Null }},
        "status": if dice.rarely(10) { Value::Null } else { reported },
    });
    serde_json::from_value(json).unwrap()
}
