//! Which step an agent may report, at which attempt, and which reboot it may claim.

use super::*;

fn row(says: Says, spec: Json, before: Json, change: Change, verdict: Verdict) -> Row {
    (says, Agent, spec, before, change, verdict)
}

pub fn states() -> Vec<Row> {
    vec![
        row("staged, as asked for", staging(), at("Idle"), state("StagedAndPerformedUpdate"), Allowed),
        row("failed to stage", staging(), at("Idle"), state("ErrorReset"), Allowed),
        row(
            "rebooted, before it is asked for",
            staging(),
            at("Idle"),
            state("RebootedIntoUpdate"),
            ByWebhook("agent-transition"),
        ),
        row(
            "done, before it is asked for",
            rebooting(),
            staged(),
            state("MonitoringUpdate"),
            ByWebhook("agent-transition"),
        ),
        row(
            "in the update by a reboot of its own",
            rebooting(),
            staged(),
            state("RebootedIntoUpdate"),
            Allowed,
        ),
        row(
            "watched, as asked for",
            monitoring(),
            at("RebootedIntoUpdate"),
            state("MonitoringUpdate"),
            Allowed,
        ),
        row("back to Idle, unasked", staging(), staged(), state("Idle"), ByWebhook("agent-transition")),
        row(
            "staged, unasked",
            idle(),
            at("Idle"),
            state("StagedAndPerformedUpdate"),
            ByWebhook("agent-transition"),
        ),
        row("a failure of nothing", idle(), at("Idle"), state("ErrorReset"), ByWebhook("agent-transition")),
        row(
            "a state that is not",
            staging(),
            at("Idle"),
            state("Done"),
            BySchema("status.current_state: Unsupported value"),
        ),
    ]
}

pub fn attempts() -> Vec<Row> {
    vec![
        row(
            "the echo of the next attempt",
            merged(&staging(), &json!({"attempt": 8})),
            at("Idle"),
            status(json!({"attempt": 8})),
            Allowed,
        ),
        row(
            "an attempt ahead of the spec",
            staging(),
            at("Idle"),
            status(json!({"attempt": 8})),
            ByWebhook("agent-attempt"),
        ),
        row(
            "an attempt that falls",
            staging(),
            at("Idle"),
            status(json!({"attempt": 6})),
            ByWebhook("agent-attempt"),
        ),
        row(
            "an attempt forgotten",
            staging(),
            at("Idle"),
            status(json!({"attempt": null})),
            ByWebhook("agent-attempt"),
        ),
        row(
            "a step of a stale attempt",
            merged(&staging(), &json!({"attempt": 8})),
            at("Idle"),
            state("StagedAndPerformedUpdate"),
            ByWebhook("agent-attempt"),
        ),
    ]
}

pub fn claims() -> Vec<Row> {
    let claim = |boot: &str| status(json!({"reboot_requested": boot}));
    vec![
        row("a claim without a grant", rebooting(), staged(), claim("b1"), ByWebhook("agent-claim")),
        row("a claim while staging", staging(), staged(), claim("b1"), ByWebhook("agent-claim")),
        row("the claim of the granted boot", granted(), staged(), claim("b1"), Allowed),
        row("the claim of another boot", granted(), staged(), claim("b2"), ByWebhook("agent-claim")),
        row(
            "the granted boot, claimed from another",
            granted(),
            merged(&staged(), &json!({"boot_id": "b2"})),
            claim("b1"),
            ByWebhook("agent-claim"),
        ),
        row(
            "a claim withdrawn",
            granted(),
            claimed(),
            status(json!({"reboot_requested": null})),
            ByWebhook("agent-claim"),
        ),
        row(
            "a claim withdrawn with a failure",
            granted(),
            claimed(),
            status(json!({"reboot_requested": null, "current_state": "ErrorReset"})),
            Allowed,
        ),
        row(
            "the new boot said",
            granted(),
            claimed(),
            status(json!({"boot_id": "b2", "current_state": "RebootedIntoUpdate"})),
            Allowed,
        ),
    ]
}
