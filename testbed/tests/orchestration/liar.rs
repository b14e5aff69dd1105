//! An agent that says what a test wants it to say: with the token of the real one, which is frozen.

use anyhow::{Context as _, Result};
use brupop_api::{BottlerocketShadow, BottlerocketShadowSpec, State};
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::sandbox::Signal;
use brupop_testbed::{Fleet, await_until};
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value as Json, json};

use crate::DEADLINE;

pub(crate) struct Liar {
    shadows: Api<BottlerocketShadow>,
    shadow: String,
}

/// Stops the process of this node's agent; its pod stays Ready.
pub(crate) fn freeze(fleet: &Fleet, node: &str) -> Result<()> {
    let mut agents = fleet.processes("agent").into_iter();
    let agent = agents.find(|agent| agent.node == node).with_context(|| format!("no agent on {node}"))?;
    fleet.kubelets.signal(NAMESPACE, &agent.pod, Signal::STOP);
    Ok(())
}

impl Liar {
    /// Takes the place of the agent on this node.
    pub(crate) async fn on(fleet: &Fleet, node: &str) -> Result<Self> {
        let token = fleet.agents_token(node).await?;
        freeze(fleet, node)?;
        let client = fleet.control_plane.client_for_token(&token).await?;
        Ok(Self { shadows: Api::namespaced(client, NAMESPACE), shadow: format!("brs-{node}") })
    }

    /// Says this of its own node; webhook and policy let it.
    pub(crate) async fn says(&self, status: Json) -> Result<()> {
        let patch = Patch::Merge(json!({"status": status}));
        let said = self.shadows.patch_status(&self.shadow, &PatchParams::default(), &patch).await;
        said.map(drop).with_context(|| format!("{} of {}", patch_text(&patch), self.shadow))
    }

    /// Says this, and is refused.
    pub(crate) async fn is_refused(&self, status: Json, rule: &str) -> Result<()> {
        let refused = self.says(status).await.err().context("it was not refused")?;
        anyhow::ensure!(format!("{refused:#}").contains(rule), "{refused:#}");
        Ok(())
    }

    /// Awaits that this is asked of it.
    pub(crate) async fn is_asked(&self, goal: State, attempt: u64) -> Result<BottlerocketShadowSpec> {
        let what = format!("{} is asked for {goal} at attempt {attempt}", self.shadow);
        let asked = await_until(what, DEADLINE, async || {
            let spec = self.shadows.get(&self.shadow).await.ok()?.spec;
            (spec.state == goal && spec.attempt == Some(attempt)).then_some(spec)
        });
        Ok(asked.await?)
    }

    /// Awaits an update to this version and says that it is staged; returns the boot from which a reboot is granted then.
    pub(crate) async fn stages(&self, version: &str) -> Result<String> {
        self.says(json!({"target_version": version})).await?;
        self.is_asked(State::StagedAndPerformedUpdate, 1).await?;
        self.says(json!({"attempt": 1, "current_state": "StagedAndPerformedUpdate"})).await?;
        let granted = self.is_asked(State::RebootedIntoUpdate, 1).await?;
        granted.reboot_from_boot_id.context("no grant")
    }
}

fn patch_text(patch: &Patch<Json>) -> String {
    if let Patch::Merge(json) = patch { json.to_string() } else { String::new() }
}
