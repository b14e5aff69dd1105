//! An agent that reports what a test wants, with the token of the real agent, which is frozen.

use anyhow::{Context as _, Result};
use brupop_api::{BottlerocketShadow, BottlerocketShadowSpec, State};
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::sandbox::Signal;
use brupop_testbed::{Fleet, await_until};
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value as Json, json};

pub(crate) struct RogueAgent {
    shadows: Api<BottlerocketShadow>,
    shadow: String,
}

/// Stops the process of this node's agent; its pod stays Ready.
pub(crate) fn freeze(fleet: &Fleet, node: &str) -> Result<()> {
    fleet
        .kubelets
        .signal(NAMESPACE, &fleet.agent(node)?.pod, Signal::STOP);
    Ok(())
}

impl RogueAgent {
    /// Takes the place of the agent on this node.
    pub(crate) async fn replace(fleet: &Fleet, node: &str) -> Result<Self> {
        let shadows = fleet.agents_shadows(node).await?;
        freeze(fleet, node)?;
        Ok(Self {
            shadows,
            shadow: format!("brs-{node}"),
        })
    }

    /// Reports this about its own node; webhook and policy allow it.
    pub(crate) async fn report(&self, status: Json) -> Result<()> {
        let patch = Patch::Merge(json!({"status": status}));
        let reported = self
            .shadows
            .patch_status(&self.shadow, &PatchParams::default(), &patch)
            .await;
        reported
            .map(drop)
            .with_context(|| format!("{} of {}", patch_text(&patch), self.shadow))
    }

    /// Reports this, which is refused by this rule.
    pub(crate) async fn assert_refused(&self, status: Json, rule: &str) -> Result<()> {
        let refused = self
            .report(status)
            .await
            .err()
            .context("it was not refused")?;
        anyhow::ensure!(format!("{refused:#}").contains(rule), "{refused:#}");
        Ok(())
    }

    /// Waits until the spec asks for this.
    pub(crate) async fn wait_for_spec(
        &self,
        goal: State,
        attempt: u64,
    ) -> Result<BottlerocketShadowSpec> {
        let what = format!("{} is asked for {goal} at attempt {attempt}", self.shadow);
        let asked = await_until(what, async || {
            let spec = self.shadows.get(&self.shadow).await.ok()?.spec;
            (spec.state == goal && spec.attempt == Some(attempt)).then_some(spec)
        });
        asked.await
    }

    /// Waits for an update to this version, and reports it as staged; returns the boot from which a reboot is granted then.
    pub(crate) async fn stage_update(&self, version: &str) -> Result<String> {
        self.report(json!({"target_version": version})).await?;
        self.wait_for_spec(State::StagedAndPerformedUpdate, 1)
            .await?;
        self.report(json!({"attempt": 1, "current_state": "StagedAndPerformedUpdate"}))
            .await?;
        let granted = self.wait_for_spec(State::RebootedIntoUpdate, 1).await?;
        granted.reboot_granted_boot_id.context("no grant")
    }
}

fn patch_text(patch: &Patch<Json>) -> String {
    if let Patch::Merge(json) = patch {
        json.to_string()
    } else {
        String::new()
    }
}
