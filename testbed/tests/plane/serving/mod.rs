//! Webhook and metrics in operation: who is served, and by which certificate.

mod caller_token;
mod metrics;
mod provided;

use anyhow::{Context as _, Result};
use brupop_api::{BottlerocketShadow, names};
use brupop_testbed::kubelet::PodProcess;
use brupop_testbed::operator::{NAMESPACE, apply_overlay, only};
use brupop_testbed::{ControlPlane, Kubelets, Options, agents, await_until, make_nodes};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

const CONFIGURATION: &str = "brupop-webhook";

/// A control plane with nodes, on which those of our components run that were asked for.
pub struct Bed {
    pub kubelets: Kubelets,
    pub control_plane: ControlPlane,
    pub nodes: Vec<Node>,
}

impl Bed {
    /// `install` applies what there is to apply.
    pub async fn start(
        options: Options,
        nodes: usize,
        components: &[&str],
        env: &[(&str, &str)],
        install: impl AsyncFnOnce(&ControlPlane) -> Result<()>,
    ) -> Result<Self> {
        // The client calls each refusal by code 500 an error; here they are what is waited for.
        let logs = tracing_subscriber::fmt()
            .with_env_filter("error,kube_client=off")
            .with_test_writer();
        let _ = logs.try_init();
        let control_plane = ControlPlane::start(options).await?;
        install(&control_plane).await?;
        let nodes = make_nodes(&control_plane.client(), nodes).await?;
        let kubelets = Kubelets::start(&control_plane, only(components, env)?, None);
        Ok(Self {
            kubelets,
            control_plane,
            nodes,
        })
    }

    /// The webhook of the default overlay.
    pub async fn webhook(options: Options, nodes: usize, env: &[(&str, &str)]) -> Result<Self> {
        let install = async |plane: &ControlPlane| apply_overlay(plane, "default").await.map(drop);
        Self::start(options, nodes, &["brupop-webhook"], env, install).await
    }

    /// The processes of a component, once there are as many.
    async fn processes(&self, component: &str, count: usize) -> Result<Vec<PodProcess>> {
        let running = await_until(
            format!("{count} processes of the {component}"),
            async || {
                let mut processes = self.kubelets.processes();
                processes.retain(|process| process.component == component);
                (processes.len() == count).then_some(processes)
            },
        );
        running.await
    }

    /// The node's agent, on its own shadow, which is made if there is none.
    async fn agent(&self) -> Result<Agent> {
        match agents::idle_shadow(&self.control_plane, &self.nodes[0]).await {
            // The reconciler's, where it runs.
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            made => drop(made?),
        }
        let token = agents::token(&self.control_plane, "node-0").await?;
        let client = self.control_plane.client_for_token(&token).await?;
        Ok(Agent {
            shadows: Api::namespaced(client, NAMESPACE),
            shadow: names::shadow_name("node-0"),
        })
    }

    /// Sets a field of the configuration's only entry.
    async fn configure(&self, pointer: &str, value: serde_json::Value) -> Result<()> {
        let patch = json!([{"op": "add", "path": format!("/webhooks/0{pointer}"), "value": value}])
            .to_string();
        let arguments = [
            "patch",
            "validatingwebhookconfiguration",
            CONFIGURATION,
            "--type=json",
            "-p",
            patch.as_str(),
        ];
        self.control_plane.kubectl(arguments).await?;
        Ok(())
    }

    /// `caBundle` as API servers read it.
    pub async fn bundle(&self) -> Result<Vec<u8>> {
        let client = self.control_plane.client();
        let configurations = Api::<ValidatingWebhookConfiguration>::all(client);
        let configuration = configurations.get(CONFIGURATION).await?;
        let entry = configuration
            .webhooks
            .into_iter()
            .flatten()
            .next()
            .context("no entry")?;
        Ok(entry
            .client_config
            .ca_bundle
            .map(|bundle| bundle.0)
            .unwrap_or_default())
    }
}

/// An agent that reports by its pod's token.
struct Agent {
    shadows: Api<BottlerocketShadow>,
    shadow: String,
}

impl Agent {
    /// Returns what is said to a report; nothing if it got through.
    async fn report(&self, message: &str) -> Option<String> {
        let status = json!({"status": {"current_state": "Idle", "message": message}});
        let patch = Patch::Merge(status);
        let answer = self
            .shadows
            .patch_status(&self.shadow, &PatchParams::default(), &patch)
            .await;
        answer.err().map(|error| error.to_string())
    }

    /// Awaits that a report gets through.
    async fn gets_through(&self, what: &str) -> Result<()> {
        let mut last = None;
        let through = await_until(what, async || {
            last = self.report(what).await;
            last.is_none().then_some(())
        });
        through.await.with_context(|| format!("{last:?}"))
    }

    /// Awaits that a report is refused with these words.
    async fn is_refused(&self, words: &str) -> Result<String> {
        let mut last = None;
        let refused = await_until(format!("a refusal with {words:?}"), async || {
            last = self.report(words).await;
            last.clone().filter(|said| said.contains(words))
        });
        refused.await.with_context(|| format!("{last:?}"))
    }
}
