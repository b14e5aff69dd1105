//! Webhook and metrics in operation: who is served, by which certificate, and what is repaired.

mod caller_token;
mod metrics;
mod provided;
mod repairs;

use anyhow::{Context as _, Result};
use brupop_api::{BottlerocketShadow, names};
use brupop_testbed::kubelet::PodProcess;
use brupop_testbed::operator::{NAMESPACE, binaries, programs};
use brupop_testbed::{ControlPlane, Kubelets, Options, await_until, make_nodes};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{from_value, json};
use std::time::Duration;

const DEADLINE: Duration = Duration::from_mins(1);
const CONFIGURATION: &str = "brupop-webhook";

/// A control plane with one node, on which those of our components run that were asked for.
struct Bed {
    kubelets: Kubelets,
    control_plane: ControlPlane,
}

impl Bed {
    /// `install` applies what there is to apply.
    async fn start(
        options: Options,
        components: &[&str],
        env: &[(&str, &str)],
        install: impl AsyncFnOnce(&ControlPlane) -> Result<()>,
    ) -> Result<Self> {
        // The client calls each refusal by code 500 an error; here they are what is waited for.
        let logs = tracing_subscriber::fmt().with_env_filter("error,kube_client=off").with_test_writer();
        let _ = logs.try_init();
        let binaries = binaries(components)?;
        let control_plane = ControlPlane::start(options).await?;
        install(&control_plane).await?;
        make_nodes(&control_plane.client(), 1).await?;
        let wanted = |command: &str| components.contains(&command.trim_start_matches('/'));
        let programs = programs(&binaries, env).into_iter().filter(|(command, _)| wanted(command));
        let kubelets = Kubelets::start(&control_plane, programs);
        Ok(Self { kubelets, control_plane })
    }

    /// The processes of a component, once there are as many.
    async fn processes(&self, component: &str, count: usize) -> Result<Vec<PodProcess>> {
        let running = await_until(format!("{count} processes of the {component}"), DEADLINE, async || {
            let mut processes = self.kubelets.processes();
            processes.retain(|process| process.component == component);
            (processes.len() == count).then_some(processes)
        });
        Ok(running.await?)
    }

    /// The node's agent, on its own shadow, which is made if there is none.
    async fn agent(&self) -> Result<Agent> {
        let client = self.control_plane.client();
        let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
        let agents = ListParams::default().labels(&format!("{}=agent", names::COMPONENT_LABEL));
        let pod = await_until("the agent's pod on its node", DEADLINE, async || {
            let placed = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
            pods.list(&agents).await.ok()?.items.pop().filter(placed)
        });
        let pod = pod.await?;
        let spec = pod.spec.as_ref().context("spec")?;
        let (node, account) = (spec.node_name.clone(), spec.service_account_name.clone());
        let (node, account) = (node.context("node")?, account.context("account")?);
        let uid = Api::<k8s_openapi::api::core::v1::Node>::all(client.clone()).get(&node).await?.uid();
        let shadow: BottlerocketShadow = from_value(json!({
            "metadata": {
                "name": names::shadow_name(&node),
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}],
            },
            "spec": {"state": "Idle"},
        }))?;
        let shadows = Api::<BottlerocketShadow>::namespaced(client, NAMESPACE);
        match shadows.create(&PostParams::default(), &shadow).await {
            // The reconciler's, where it runs.
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            made => drop(made?),
        }
        let token = self.control_plane.bound_token(NAMESPACE, &account, &pod.name_any()).await?;
        let client = self.control_plane.client_for_token(&token).await?;
        Ok(Agent { shadows: Api::namespaced(client, NAMESPACE), shadow: shadow.name_any() })
    }

    /// Sets a field of the configuration's only entry.
    async fn configure(&self, pointer: &str, value: serde_json::Value) -> Result<()> {
        let patch =
            json!([{"op": "add", "path": format!("/webhooks/0{pointer}"), "value": value}]).to_string();
        let arguments =
            ["patch", "validatingwebhookconfiguration", CONFIGURATION, "--type=json", "-p", patch.as_str()];
        self.control_plane.kubectl(arguments).await?;
        Ok(())
    }

    /// `caBundle` as API servers read it.
    async fn bundle(&self) -> Result<Vec<u8>> {
        let client = self.control_plane.client();
        let configurations = Api::<ValidatingWebhookConfiguration>::all(client);
        let configuration = configurations.get(CONFIGURATION).await?;
        let entry = configuration.webhooks.into_iter().flatten().next().context("no entry")?;
        Ok(entry.client_config.ca_bundle.map(|bundle| bundle.0).unwrap_or_default())
    }
}

/// An agent that reports by its pod's token.
struct Agent {
    shadows: Api<BottlerocketShadow>,
    shadow: String,
}

impl Agent {
    /// What is said to a report; nothing if it got through.
    async fn report(&self, message: &str) -> Option<String> {
        let status = json!({"status": {"current_state": "Idle", "message": message}});
        let patch = Patch::Merge(status);
        let answer = self.shadows.patch_status(&self.shadow, &PatchParams::default(), &patch).await;
        answer.err().map(|error| error.to_string())
    }

    /// Awaits that a report gets through.
    async fn gets_through(&self, what: &str) -> Result<()> {
        let mut last = None;
        let through = await_until(what, DEADLINE, async || {
            last = self.report(what).await;
            last.is_none().then_some(())
        });
        through.await.with_context(|| format!("{last:?}"))
    }

    /// Awaits that a report is refused with these words.
    async fn is_refused(&self, words: &str) -> Result<String> {
        let mut last = None;
        let refused = await_until(format!("a refusal with {words:?}"), DEADLINE, async || {
            last = self.report(words).await;
            last.clone().filter(|said| said.contains(words))
        });
        refused.await.with_context(|| format!("{last:?}"))
    }
}
