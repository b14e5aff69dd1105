//! Rows for the reconciler's writes.

use crate::actor::Actor::{Admin, Reconciler};
use crate::ask::Ask;
use crate::row::Verdict::{Allowed, ByPolicy, BySchema, ByWebhook};
use crate::row::{Row, merged};
use crate::situations::{
    at, claimed, claimed_before, conditions, done, explained, granted, idle, known, missing,
    object, rebooting, spec, staged, staging, state, status, through_status,
};
use crate::world::Host::Longest;
use serde_json::{Value, json};

fn owned_by(kind: &str, name: &str) -> Value {
    json!({"metadata": {"ownerReferences": [
        {"apiVersion": "v1", "kind": kind, "name": name, "uid": "00000000-0000-4000-8000-000000000000"}]}})
}

/// A shadow is made Idle, for the Node that owns it.
pub(super) fn creations() -> Vec<Row> {
    let refused = || ByWebhook("reconciler-create");
    let spec = |fields: Value| Ask::Create(json!({"spec": fields}));
    let name = "n".repeat(250);
    let too_long = Ask::Create(merged(
        &owned_by("Node", &name),
        &json!({"metadata": {"name": format!("brs-{name}")}}),
    ));
    let two = json!({"metadata": {"ownerReferences": [
        owned_by("Node", "node-0")["metadata"]["ownerReferences"][0],
        owned_by("Node", "node-1")["metadata"]["ownerReferences"][0]]}});
    rows! {
        "a new shadow": Reconciler, missing(), Ask::Create(json!({})) => Allowed;
        "a new shadow, tried": Reconciler, missing(), Ask::Create(json!({})) => Allowed, dry_run: true;
        "a new shadow at a later attempt": Reconciler, missing(), spec(json!({"attempt": 8, "leader_term": 3})) => Allowed;
        "a new shadow with a status": Reconciler, missing(), Ask::Create(json!({"status": staged()})) => Allowed;
        "a new shadow with labels": Reconciler, missing(), Ask::Create(json!({"metadata": {"labels": {"a": "b"}}})) => Allowed;
        "a new shadow of the longest legal name": Reconciler, missing(), Ask::Create(json!({})) => Allowed, of: Longest;
        "an attempt left out": Reconciler, (done(), at("Idle")), object(json!({"spec": {"attempt": 9}}))
            => ByWebhook("reconciler-attempt");
        "a new shadow on its way": Reconciler, missing(), spec(json!({"state": "StagedAndPerformedUpdate"})) => refused();
        "a new shadow with a grant": Reconciler, missing(), spec(json!({"attempt": 1, "reboot_granted_boot_id": "b1"}))
            => ByWebhook("reconciler-grant");
        "a new shadow of nobody": Reconciler, missing(), Ask::Create(json!({"metadata": {"ownerReferences": null}}))
            => refused();
        "a new shadow of a pod": Reconciler, missing(), Ask::Create(owned_by("Pod", "node-0")) => refused();
        "a new shadow of another Node": Reconciler, missing(), Ask::Create(owned_by("Node", "node-1")) => refused();
        "a new shadow of two Nodes": Reconciler, missing(), Ask::Create(two) => refused();
        "a new shadow named after another Node": Reconciler, missing(),
            Ask::Create(json!({"metadata": {"name": "brs-node-9"}})) => refused();
        "a new shadow named like none": Reconciler, missing(), Ask::Create(json!({"metadata": {"name": "node-0"}}))
            => refused();
        "a new shadow of a Node whose name is too long": Reconciler, missing(), too_long
            => BySchema("must be no more than 253 characters"), alone: Some("reconciler-steer");
        "a new shadow under a generated name": Reconciler, missing(),
            Ask::Create(json!({"metadata": {"name": null, "generateName": "brs-node-0"}})) => refused();
        "a new shadow with a finalizer": Reconciler, missing(),
            Ask::Create(json!({"metadata": {"finalizers": ["a.b/c"]}})) => ByWebhook("reconciler-metadata");
        "a new shadow with an annotation": Reconciler, missing(),
            Ask::Create(json!({"metadata": {"annotations": {"a": "b"}}})) => Allowed;
    }
}

fn others() -> (Value, Value) {
    let state = "StagedAndPerformedUpdate";
    (json!({"state": state}), json!({"current_state": state}))
}

/// Terms never fall; an attempt begins from Idle, and keeps its version and the boot that it began in.
pub(super) fn specs() -> Vec<Row> {
    let refused = || ByWebhook("reconciler-attempt");
    let stale = BySchema("no longer leads");
    let failures = json!({"last_failure": {"count": 1, "attempt": 7, "at": "2026-01-01T00:00:00Z", "reason": "FellBack",
        "message": "the host came back"}});
    rows! {
        "the first update": Reconciler, known(), spec(staging()) => Allowed;
        "the next update": Reconciler, (done(), at("Idle")), spec(merged(&staging(), &json!({"attempt": 8, "version": "1.21.0"})))
            => Allowed;
        "a higher term": Reconciler, (staging(), staged()), spec(json!({"leader_term": 3})) => Allowed;
        "its last failure": Reconciler, (staging(), staged()), spec(failures) => Allowed;
        "a slot that is spent": Reconciler, (done(), at("Idle")), spec(json!({"attempt": 8})) => Allowed;
        "an abort, the first boot forgotten": Reconciler, (staging(), staged()),
            spec(json!({"state": "Idle", "baseline_boot_id": null})) => Allowed;
        "an attempt for another operator's update": Reconciler, others(), spec(json!({"attempt": 1, "leader_term": 2}))
            => refused();
        "an update at the attempt before": Reconciler, (done(), at("Idle")), spec(staging()) => refused();
        "an update at no attempt": Reconciler, known(), spec(json!({"state": "StagedAndPerformedUpdate"})) => refused();
        "another attempt on the way": Reconciler, (staging(), staged()), spec(json!({"attempt": 8})) => refused();
        "another attempt with the next step": Reconciler, (staging(), staged()),
            spec(json!({"state": "RebootedIntoUpdate", "attempt": 8})) => refused();
        "another version on the way": Reconciler, (staging(), staged()), spec(json!({"version": "1.21.0"})) => refused();
        "no version any more": Reconciler, (staging(), staged()), spec(json!({"version": null})) => refused();
        "another first boot on the way": Reconciler, (rebooting(), staged()), spec(json!({"baseline_boot_id": "b2"}))
            => refused();
        "a stale term": Reconciler, (staging(), staged()), spec(json!({"leader_term": 1}))
            => stale, alone: Some("reconciler-steer");
        "no term any more": Reconciler, (staging(), staged()), spec(json!({"leader_term": null}))
            => stale, alone: Some("reconciler-steer");
        "a stale term, by a person": Admin, (staging(), staged()), spec(json!({"leader_term": 1}))
            => stale, alone: Some("outsider");
        "an attempt that falls, on the way": Reconciler, (staging(), staged()), spec(json!({"attempt": 6}))
            => BySchema("attempt never falls"), behind: Some(refused());
        "an attempt that falls, while Idle": Reconciler, (done(), at("Idle")), spec(json!({"attempt": 6}))
            => BySchema("attempt never falls"), alone: Some("reconciler-attempt");
        "no attempt any more": Reconciler, (staging(), staged()), spec(json!({"attempt": null}))
            => BySchema("attempt never falls"), behind: Some(refused());
        "a state to reach that is not": Reconciler, (staging(), staged()), spec(json!({"state": "Done"}))
            => BySchema("Unsupported value"), alone: Some("unreadable");
    }
}

/// A reboot is granted with the state that asks for it, while neither it nor the one before is claimed.
pub(super) fn grants() -> Vec<Row> {
    let refused = || ByWebhook("reconciler-grant");
    let grant = |boot: &str| spec(json!({"reboot_granted_boot_id": boot}));
    rows! {
        "the grant with its state": Reconciler, (staging(), staged()), spec(granted()) => Allowed;
        "the grant after its state": Reconciler, (rebooting(), staged()), grant("b1") => Allowed;
        "a grant for another boot": Reconciler, (granted(), staged()), grant("b2") => Allowed;
        "a grant withdrawn": Reconciler, (granted(), staged()), spec(json!({"reboot_granted_boot_id": null})) => Allowed;
        "an abort": Reconciler, (granted(), staged()), spec(json!({"state": "Idle", "reboot_granted_boot_id": null}))
            => Allowed;
        "an abort that leaves the grant": Reconciler, (granted(), staged()), spec(json!({"state": "Idle"})) => Allowed;
        "a grant while staging": Reconciler, (staging(), staged()), grant("b1") => refused();
        "a grant while Idle": Reconciler, (done(), at("Idle")), grant("b1") => refused();
        "a grant at no attempt": Reconciler, others(),
            spec(json!({"state": "RebootedIntoUpdate", "reboot_granted_boot_id": "b1"})) => refused();
        "a grant while one is claimed": Reconciler, (rebooting(), claimed()), grant("b1") => refused();
        "another grant while one is claimed": Reconciler, (granted(), claimed()), grant("b2") => refused();
        "a grant while that of an earlier boot is claimed": Reconciler, (rebooting(), claimed_before()), grant("b1")
            => Allowed;
        "the grant with its state, while that of an earlier boot is claimed": Reconciler, (staging(), claimed_before()),
            spec(granted()) => Allowed;
        "another grant while that of an earlier boot is claimed": Reconciler, (granted(), claimed_before()), grant("b2")
            => Allowed;
        "a grant that stays, while one is claimed": Reconciler, (granted(), claimed()), spec(json!({"leader_term": 3}))
            => Allowed;
    }
}

/// Of a shadow that exists, the spec only.
pub(super) fn metadata() -> Vec<Row> {
    let refused = || ByWebhook("reconciler-metadata");
    let label = || json!({"labels": {"a": "b"}});
    rows! {
        "nothing, by the reconciler": Reconciler, known(), object(json!({})) => Allowed, stores_nothing: true;
        "a label": Reconciler, known(), object(json!({"metadata": label()})) => Allowed;
        "an annotation": Reconciler, known(), object(json!({"metadata": {"annotations": {"a": "b"}}})) => Allowed;
        "a finalizer": Reconciler, known(), object(json!({"metadata": {"finalizers": ["a.b/c"]}})) => refused();
        "a label beside a step": Reconciler, known(), object(json!({"metadata": label(), "spec": staging()})) => Allowed;
        "a label taken away": Reconciler, known(), object(json!({"metadata": {"labels": null}}))
            => Allowed, metadata: label();
        "a label, by a person": Admin, known(), object(json!({"metadata": label()})) => Allowed;
        "another owner": Reconciler, known(), object(owned_by("Node", "node-0")) => ByWebhook("reconciler-owner");
        "no owner any more": Reconciler, known(), object(json!({"metadata": {"ownerReferences": null}}))
            => ByWebhook("reconciler-owner");
        "a status through the object": Reconciler, known(), object(json!({"status": {"message": "m"}}))
            => Allowed, stores_nothing: true;
    }
}

/// Pool and conditions, and no other part of a status.
pub(super) fn statuses() -> Vec<Row> {
    let refused = || ByPolicy("reconciler-own-fields");
    let before = || (idle(), explained());
    rows! {
        "a condition": Reconciler, known(), status(conditions("NoUpdate")) => Allowed;
        "a condition before any report": Reconciler, (idle(), Value::Null), status(conditions("AgentSilent")) => Allowed;
        "a condition changed": Reconciler, before(), status(conditions("Draining")) => Allowed;
        "conditions removed": Reconciler, before(), status(json!({"conditions": null})) => Allowed;
        "a pool beside a condition": Reconciler, known(),
            status(merged(&conditions("NoUpdate"), &json!({"pool": "web"}))) => Allowed;
        "a pool of no name that pools have": Reconciler, known(), status(json!({"pool": "a b"}))
            => BySchema("status.pool");
        "a state in the agent's place": Reconciler, (staging(), at("Idle")), state("StagedAndPerformedUpdate") => refused();
        "a claim in the agent's place": Reconciler, (granted(), staged()), status(json!({"reboot_claimed_boot_id": "b1"}))
            => refused();
        "a claim taken away": Reconciler, (granted(), claimed()), status(json!({"reboot_claimed_boot_id": null})) => refused();
        "an attempt in the agent's place": Reconciler, (staging(), json!({"current_state": "Idle"})),
            status(json!({"attempt": 7})) => refused();
        "a problem in the agent's place": Reconciler, known(), status(json!({"problem": "RefreshFailed"})) => refused();
        "a problem taken away": Reconciler, (idle(), merged(&at("Idle"), &json!({"problem": "RefreshFailed"}))),
            status(json!({"problem": null})) => refused();
        "a condition beside a message": Reconciler, known(),
            status(merged(&conditions("NoUpdate"), &json!({"message": "m"}))) => refused();
        "the check": Reconciler, known(), status(json!({})) => ByWebhook("reconciler-check"), dry_run: true;
        "the check before any report": Reconciler, (idle(), Value::Null), status(json!({}))
            => ByWebhook("reconciler-check"), dry_run: true;
        "the status removed": Reconciler, known(), through_status(json!({"status": null})) => refused();
        "a spec in the same patch as conditions": Reconciler, known(),
            through_status(json!({"spec": {"attempt": 9}, "status": {}})) => Allowed, stores_nothing: true;
        "a finalizer in the same patch as conditions": Reconciler, known(),
            through_status(json!({"metadata": {"finalizers": ["a.b/c"]}})) => Allowed, stores_nothing: true;
    }
}
