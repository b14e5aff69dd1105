//! An agent acts at the attempt that is asked for, and claims the reboot that is granted.

use crate::actor::Actor::Agent;
use crate::row::Verdict::{Allowed, ByWebhook};
use crate::row::{Row, merged};
use crate::situations::{
    at, claimed, done, granted, idle, known, monitoring, rebooting, staged, staging, staging_known,
    state, status,
};
use serde_json::{Value, json};

/// Staging at attempt `number`, while the status is Idle at 7.
fn later(number: u64) -> (Value, Value) {
    (merged(&staging(), &json!({"attempt": number})), at("Idle"))
}

/// The echo of the attempt: never ahead of the spec, never back.
pub(super) fn attempts() -> Vec<Row> {
    let none = || json!({"current_state": "Idle"});
    let ahead = || (staging(), merged(&at("Idle"), &json!({"attempt": 99})));
    let forgotten =
        json!({"attempt": null, "current_state": null, "current_version": null, "boot_id": null});
    let stale = || ByWebhook("agent-attempt");
    rows! {
        "the echo of the next attempt": Agent, later(8), status(json!({"attempt": 8})) => Allowed;
        "the echo of the first attempt": Agent, (staging(), none()), status(json!({"attempt": 7})) => Allowed;
        "an attempt that was missed, late": Agent, later(9), status(json!({"attempt": 8})) => Allowed;
        "echo and step at once": Agent, later(8),
            status(json!({"attempt": 8, "current_state": "StagedAndPerformedUpdate"})) => Allowed;
        "an attempt ahead of the spec": Agent, staging_known(), status(json!({"attempt": 8})) => stale();
        "an attempt where there was none": Agent, (idle(), none()), status(json!({"attempt": 1})) => stale();
        "an attempt ahead of the spec falls back to the spec's": Agent, ahead(), status(json!({"attempt": 7})) => Allowed;
        "it falls back beside a step": Agent, ahead(),
            status(json!({"attempt": 7, "current_state": "StagedAndPerformedUpdate"})) => Allowed;
        "an attempt ahead of the spec goes further ahead": Agent, ahead(), status(json!({"attempt": 100})) => stale();
        "an attempt ahead of the spec comes nearer": Agent, ahead(), status(json!({"attempt": 8})) => stale();
        "an attempt ahead of the spec falls below it": Agent, ahead(), status(json!({"attempt": 6})) => stale();
        "an attempt that falls": Agent, staging_known(), status(json!({"attempt": 6})) => stale();
        "an attempt forgotten": Agent, staging_known(), status(json!({"attempt": null})) => stale();
        "an attempt forgotten with all else": Agent, staging_known(), status(forgotten) => stale();
        "a step of a stale attempt": Agent, later(8), state("StagedAndPerformedUpdate") => stale();
        "a failure of a stale attempt": Agent, later(8), state("ErrorReset") => stale();
        "back to Idle of an attempt it never saw": Agent, (merged(&done(), &json!({"attempt": 9})), staged()), state("Idle")
            => Allowed;
        "staged, as asked for, with the image":
            Agent, staging_known(), status(json!({"current_state": "StagedAndPerformedUpdate",
                "staged": {"version": "1.20.0", "at": "2026-01-01T00:00:00Z"}})) => Allowed;
    }
}

fn claim(boot: &str) -> crate::ask::Ask {
    status(json!({"reboot_claimed_boot_id": boot}))
}

/// The reboot of the granted boot, and no other.
pub(super) fn claims() -> Vec<Row> {
    let staged_with = |fields: Value| merged(&staged(), &fields);
    let from_another = || (granted(), staged_with(json!({"boot_id": "b2"})));
    let unclaimed = || ByWebhook("agent-claim");
    rows! {
        "the claim of the granted boot": Agent, (granted(), staged()), claim("b1") => Allowed;
        "the claim of the granted boot, tried": Agent, (granted(), staged()), claim("b1") => Allowed, dry_run: true;
        "the claim, said again": Agent, (granted(), claimed()), claim("b1") => Allowed, stores_nothing: true;
        "a claim without a grant": Agent, (rebooting(), staged()), claim("b1") => unclaimed();
        "a claim while staging": Agent, (staging(), staged()), claim("b1") => unclaimed();
        "a claim while Idle": Agent, known(), claim("b1") => unclaimed();
        "a claim after the update": Agent, (monitoring(), at("RebootedIntoUpdate")), claim("b1") => unclaimed();
        "a claim of a grant left over from an abort":
            Agent, (merged(&granted(), &json!({"state": "Idle"})), staged()), claim("b1") => unclaimed();
        "a claim of another boot than was granted": Agent, (granted(), staged()), claim("b2") => unclaimed();
        "a claim of the boot that it is in, which was not granted": Agent, from_another(), claim("b2") => unclaimed();
        "a claim of the granted boot, from another": Agent, from_another(), claim("b1") => unclaimed();
        "a claim of the granted boot, from a boot not said":
            Agent, (granted(), staged_with(json!({"boot_id": null}))), claim("b1") => unclaimed();
        "a claim at a stale attempt":
            Agent, (granted(), staged_with(json!({"attempt": 6}))), claim("b1") => unclaimed();
        "a claim at no attempt":
            Agent, (granted(), json!({"current_state": "StagedAndPerformedUpdate", "boot_id": "b1"})), claim("b1")
            => unclaimed();
        "a claim with the attempt, at once":
            Agent, (granted(), staged_with(json!({"attempt": 6}))),
            status(json!({"attempt": 7, "reboot_claimed_boot_id": "b1"})) => Allowed;
    }
}

/// A claim is taken back when no reboot can come of it any more.
pub(super) fn withdrawals() -> Vec<Row> {
    let back = || status(json!({"reboot_claimed_boot_id": null}));
    let from_b2 = || merged(&claimed(), &json!({"boot_id": "b2"}));
    rows! {
        "a claim withdrawn while the reboot may still come": Agent, (granted(), claimed()), back()
            => ByWebhook("agent-claim");
        "a claim withdrawn from a boot not said": Agent, (granted(), claimed()),
            status(json!({"boot_id": null, "reboot_claimed_boot_id": null})) => ByWebhook("agent-claim");
        "a claim withdrawn with a failure": Agent, (granted(), claimed()),
            status(json!({"reboot_claimed_boot_id": null, "current_state": "ErrorReset"})) => Allowed;
        "a claim withdrawn from another boot": Agent, (granted(), from_b2()), back() => Allowed;
        "a claim withdrawn, the new boot said at once": Agent, (granted(), claimed()),
            status(json!({"boot_id": "b2", "reboot_claimed_boot_id": null, "current_state": "RebootedIntoUpdate"})) => Allowed;
        "a claim cleared once Idle": Agent, (done(), claimed()),
            status(json!({"reboot_claimed_boot_id": null, "current_state": "Idle"})) => Allowed;
        "a claim cleared by the next attempt": Agent, (merged(&staging(), &json!({"attempt": 8})), claimed()),
            status(json!({"reboot_claimed_boot_id": null, "attempt": 8})) => Allowed;
        "a claim of a later grant": Agent, (merged(&granted(), &json!({"reboot_granted_boot_id": "b2"})), from_b2()),
            claim("b2") => Allowed;
        "a claim kept, the new boot said": Agent, (granted(), claimed()),
            status(json!({"boot_id": "b2", "current_state": "RebootedIntoUpdate", "current_version": "1.20.0"}))
            => Allowed;
        "a claim kept, fallen back": Agent, (granted(), claimed()),
            status(json!({"boot_id": "b2", "current_state": "ErrorReset", "crash_count": 1})) => Allowed;
    }
}
