//! Agents that report falsely with their own tokens, as far as webhook and policy allow: only their own nodes' updates suffer.

use anyhow::{Context as _, Result, ensure};
use brupop_api::State::{Idle, RebootedIntoUpdate, StagedAndPerformedUpdate};
use brupop_api::fleet::VersionRecord;
use brupop_api::{BottlerocketShadow, BottlerocketShadowSpec, State};
use brupop_testbed::fleet::{NEW, OLD, Records as _};
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::sandbox::Signal;
use brupop_testbed::{Fleet, await_until};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value as Json, json};

/// A release that does not exist.
const NONSENSE: &str = "9.9.9";

/// The claim of a reboot that is never made keeps its slot; the other three are free for anyone who wants them. Deadlines
/// hold for honest nodes, too.
const ENV: [(&str, &str); 7] = [
    ("MAX_CONCURRENT_UPDATE", "4"),
    ("STAGE_DEADLINE_SECONDS", "15"),
    ("REBOOT_DEADLINE_SECONDS", "15"),
    ("SETTLE_DEADLINE_SECONDS", "10"),
    ("BACK_OFF_BASE_SECONDS", "1"),
    ("SOAK_SECONDS", "1"),
    ("CHECK_INTERVAL_SECONDS", "10"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_rogue_agent_harms_only_its_own_update() -> Result<()> {
    let mut fleet = Fleet::quick(6, &ENV).await?;
    let [lies, nonsense, claims, silent] = [
        RogueAgent::replace(&fleet, "node-0").await?,
        RogueAgent::replace(&fleet, "node-1").await?,
        RogueAgent::replace(&fleet, "node-2").await?,
        RogueAgent::replace(&fleet, "node-3").await?,
    ];
    // All four slots go to rogue agents, and are given back, except for one.
    tokio::try_join!(
        says_it_has_rebooted(&lies),
        wants_what_does_not_exist(&nonsense),
        claims_its_reboot(&fleet, &claims),
        never_answers(&silent),
    )?;
    let status = fleet.until_ledger("one slot is kept", |status| {
        status.slots.keys().eq(["brs-node-2"])
    });
    let status = status.await?;
    ensure!(status.versions.iter().all(has_no_outcome), "{status:?}");

    // The rest of the fleet goes on meanwhile.
    for host in &fleet.hosts[4..] {
        host.publish(NEW)?;
    }
    for node in ["node-4", "node-5"] {
        fleet.until_runs(node, NEW).await?;
    }
    let status = fleet.until_ledger("their slots are given back", |status| {
        status.slots.keys().eq(["brs-node-2"])
    });
    ensure!(status.await?.halted_versions.is_none());
    for (node, outcome) in fleet.history().outcomes() {
        let boots = usize::from(["node-4", "node-5"].contains(&node.as_str())) + 1;
        ensure!(outcome.boots == boots, "{node}: {outcome:?}");
    }
    for node in ["node-0", "node-1", "node-3"] {
        let seen = fleet.seen(node)?;
        ensure!(!seen.is_unavailable() && !seen.marked, "{node}: {seen:?}");
    }

    // A person ends an otherwise endless update by deleting the Node; its version is not taken for a success.
    Api::<Node>::all(fleet.client())
        .delete("node-2", &DeleteParams::default())
        .await?;
    let record = fleet.until_no_slot_is_taken().await?.record(NEW);
    ensure!(
        record.succeeded == 2 && record.failures.is_empty() && record.halted_at.is_none(),
        "its node was Ready all the time: {record:?}"
    );
    fleet.check()
}

fn has_no_outcome(record: &VersionRecord) -> bool {
    record.succeeded == 0 && record.failures.is_empty() && record.halted_at.is_none()
}

/// Drained, granted, and then "I run it now" in the old boot. The slot comes free at the deadline of the reboot, and it
/// is no success.
async fn says_it_has_rebooted(rogue: &RogueAgent) -> Result<()> {
    rogue.stage_update(NEW).await?;
    rogue
        .report(json!({"current_state": "RebootedIntoUpdate", "current_version": NEW}))
        .await?;
    rogue.is_given_up().await?;
    // Back to the truth, but for the end of its update.
    rogue
        .report(json!({"current_version": OLD, "target_version": null}))
        .await
}

/// Gets a slot, for nobody but the host knows its releases, and takes nobody along. Taken up and never done: the
/// deadline of staging.
async fn wants_what_does_not_exist(rogue: &RogueAgent) -> Result<()> {
    rogue.report(json!({"target_version": NONSENSE})).await?;
    rogue.wait_for_spec(StagedAndPerformedUpdate).await?;
    rogue.report(json!({"attempt": 1})).await?;
    rogue.is_given_up().await?;
    rogue.report(json!({"target_version": null})).await
}

/// The one that keeps its slot: its machine may be anywhere. It cannot claim another boot than its own.
async fn claims_its_reboot(fleet: &Fleet, rogue: &RogueAgent) -> Result<()> {
    let granted = rogue.stage_update(NEW).await?;
    let another = "11111111-2222-4333-8444-555555555555";
    let refused = rogue
        .report(json!({"reboot_claimed_boot_id": another, "boot_id": another}))
        .await;
    let refused = format!("{:#}", refused.err().context("it was not refused")?);
    ensure!(refused.contains("agent-claim"), "{refused}");
    rogue
        .report(json!({"reboot_claimed_boot_id": granted}))
        .await?;
    fleet
        .until_node("node-2", "is overdue, and out of service", |seen| {
            seen.reason == "RebootOverdue" && seen.cordoned && seen.marked && seen.drained
        })
        .await?;
    fleet
        .wait_for_event("node-2", "RebootOverdue", "look at the machine")
        .await
        .map(drop)
}

/// Never takes its attempt up: the deadline of what should take moments.
async fn never_answers(rogue: &RogueAgent) -> Result<()> {
    rogue.report(json!({"target_version": NEW})).await?;
    rogue.wait_for_spec(StagedAndPerformedUpdate).await?;
    rogue.is_given_up().await?;
    rogue.report(json!({"target_version": null})).await
}

/// Reports what a test wants, with the token of the real agent, which is frozen.
struct RogueAgent {
    shadows: Api<BottlerocketShadow>,
    shadow: String,
}

impl RogueAgent {
    /// Takes the place of the agent on this node; its pod stays Ready.
    async fn replace(fleet: &Fleet, node: &str) -> Result<Self> {
        let shadows = fleet.agents_shadows(node).await?;
        fleet
            .kubelets
            .signal(NAMESPACE, &fleet.agent(node)?.pod, Signal::STOP);
        Ok(Self {
            shadows,
            shadow: format!("brs-{node}"),
        })
    }

    /// Reports this about its own node.
    async fn report(&self, status: Json) -> Result<()> {
        let patch = Patch::Merge(json!({"status": status}));
        let params = PatchParams::default();
        let reported = self
            .shadows
            .patch_status(&self.shadow, &params, &patch)
            .await;
        reported
            .map(drop)
            .with_context(|| format!("{status} of {}", self.shadow))
    }

    /// Waits until its first attempt asks for this.
    async fn wait_for_spec(&self, goal: State) -> Result<BottlerocketShadowSpec> {
        let asked = await_until(format!("{} is asked for {goal}", self.shadow), async || {
            let spec = self.shadows.get(&self.shadow).await.ok()?.spec;
            (spec.state == goal && spec.attempt == Some(1)).then_some(spec)
        });
        asked.await
    }

    async fn is_given_up(&self) -> Result<()> {
        let failure = self.wait_for_spec(Idle).await?.last_failure;
        let reason = failure.map(|failure| failure.reason);
        ensure!(
            reason.as_deref() == Some("DeadlineExceeded"),
            "{}: {reason:?}",
            self.shadow
        );
        Ok(())
    }

    /// Waits for an update to this version, and reports it as staged; returns the boot from which a reboot is granted then.
    async fn stage_update(&self, version: &str) -> Result<String> {
        self.report(json!({"target_version": version})).await?;
        self.wait_for_spec(StagedAndPerformedUpdate).await?;
        self.report(json!({"attempt": 1, "current_state": "StagedAndPerformedUpdate"}))
            .await?;
        let granted = self.wait_for_spec(RebootedIntoUpdate).await?;
        granted.reboot_granted_boot_id.context("no grant")
    }
}
