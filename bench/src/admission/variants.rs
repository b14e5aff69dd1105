//! A cluster in which each variant has a namespace of its own, so that they can be measured in turn without changing
//! anything in between.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use brupop_testbed::kubelet::PodProcess;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::{ControlPlane, Program, await_until};
use futures::future::try_join_all;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value as Json, from_value, json};

use super::PARALLEL;
use super::agent::{ACCOUNT, Agent};
use crate::webhook::Cluster;

/// Label of the namespaces that our policies are asked about.
const POLICIES: &str = "bench/policies";
/// Label of the namespaces whose webhook this is.
const WEBHOOK: &str = "bench/webhook";
/// The shipped configuration, its entry, and what the entry of the other one is called.
const OURS: (&str, &str) = ("brupop-webhook", "shadows.brupop.bottlerocket.aws");
const OTHER: &str = "do-nothing.bench.local";
/// The name of the webhook that does nothing.
const DO_NOTHING: &str = "do-nothing";
/// How often the API server has asked a webhook.
const REVIEWS: &str = "apiserver_admission_webhook_admission_duration_seconds_count";

/// What stands between an agent's patch and etcd, beside authentication, RBAC and schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variant {
    /// Nothing.
    Bare,
    /// A webhook that does nothing.
    DoNothing,
    /// Our webhook.
    Webhook,
    /// Our webhook and our policies, as shipped.
    Both,
}

impl Variant {
    pub const ALL: [Self; 4] = [Self::Bare, Self::DoNothing, Self::Webhook, Self::Both];

    fn namespace(self) -> &'static str {
        match self {
            Self::Bare => "bench-bare",
            Self::DoNothing => "bench-do-nothing",
            Self::Webhook => "bench-webhook",
            Self::Both => "bench-both",
        }
    }

    fn labels(self) -> BTreeMap<&'static str, &'static str> {
        let labels: &[(&str, &str)] = match self {
            Self::Bare => &[],
            Self::DoNothing => &[(WEBHOOK, DO_NOTHING)],
            Self::Webhook => &[(WEBHOOK, OURS.0)],
            Self::Both => &[(WEBHOOK, OURS.0), (POLICIES, "yes")],
        };
        labels.iter().copied().collect()
    }
}

/// The cluster, and the agents of each variant.
pub struct Variants {
    cluster: Cluster,
    agents: BTreeMap<Variant, Vec<Agent>>,
}

impl Variants {
    /// Starts everything, and returns when each variant's gates are seen to be as they should.
    pub async fn start() -> Result<Self> {
        let mut bundle = String::new();
        let do_nothing = |control_plane: &ControlPlane| {
            let (program, certificate) = do_nothing(control_plane)?;
            bundle = certificate;
            Ok(Some(program))
        };
        let cluster = Cluster::start(PARALLEL, do_nothing).await?;
        let client = cluster.client();
        select(&client).await?;
        install_do_nothing(&client, bundle).await?;
        let nodes = Api::<Node>::all(client).list(&ListParams::default()).await?.items;
        let mut agents = BTreeMap::new();
        for variant in Variant::ALL {
            agents.insert(variant, make_agents(&cluster.control_plane, variant, &nodes).await?);
        }
        let variants = Self { cluster, agents };
        for variant in Variant::ALL {
            variants.await_gates(variant).await?;
        }
        Ok(variants)
    }

    /// The agents of a variant, each on a node of its own.
    pub fn agents(&self, variant: Variant) -> &[Agent] {
        self.agents.get(&variant).map_or(&[], Vec::as_slice)
    }

    /// The control plane.
    pub fn control_plane(&self) -> &ControlPlane {
        &self.cluster.control_plane
    }

    /// The replicas of our webhook.
    pub fn webhooks(&self) -> Vec<PodProcess> {
        let mut processes = self.cluster.kubelets.processes();
        processes.retain(|process| process.component == "webhook");
        processes
    }

    /// The authorities by which our webhook is known, as API servers read them.
    pub async fn bundle(&self) -> Result<Vec<u8>> {
        let configurations = Api::<ValidatingWebhookConfiguration>::all(self.cluster.client());
        let configuration = configurations.get(OURS.0).await?;
        let entry = configuration.webhooks.into_iter().flatten().next().context("no webhook")?;
        Ok(entry.client_config.ca_bundle.context("no bundle")?.0)
    }

    /// How often the API server has asked the webhook that does nothing, and ours.
    pub async fn reviews(&self) -> Result<[f64; 2]> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let text = self.cluster.client().request_text(request).await?;
        Ok([OTHER, OURS.1].map(|webhook| reviews(&text, webhook)))
    }

    /// What only some of the gates refuse tells them apart.
    async fn await_gates(&self, variant: Variant) -> Result<()> {
        let [first, second, ..] = self.agents(variant) else { bail!("{variant:?} has no agents") };
        let has = |message: &Option<String>, text: &str| {
            message.as_ref().is_some_and(|message| message.contains(text))
        };
        let mut last = None;
        let so = await_until(format!("the gates of {variant:?}"), async || {
            // Both gates refuse this one, and the policies are first to say so; of this one only the webhook knows.
            let others = first.try_out(second, &json!({"message": "not mine"})).await.ok()?;
            let claim = first.try_out(first, &json!({"reboot_requested": "x"})).await.ok()?;
            let by_webhook = |message| has(message, "denied the request: agent-");
            let so = match variant {
                Variant::Bare => others.is_none() && claim.is_none(),
                Variant::DoNothing => {
                    others.is_none() && claim.is_none() && self.reviews().await.ok()?[0] > 0.0
                }
                Variant::Webhook => by_webhook(&others) && by_webhook(&claim),
                Variant::Both => has(&others, "ValidatingAdmissionPolicy") && by_webhook(&claim),
            };
            last = Some((others, claim));
            so.then_some(())
        });
        so.await.with_context(|| format!("{last:?}"))
    }
}

/// The sum of what these metrics count of a webhook.
fn reviews(metrics: &str, webhook: &str) -> f64 {
    let name = format!(r#"name="{webhook}""#);
    let lines = metrics.lines().filter(|line| line.starts_with(REVIEWS) && line.contains(&name));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// The program behind the pods of the webhook that does nothing, and the bundle it is known by.
fn do_nothing(control_plane: &ControlPlane) -> Result<((String, Program), String)> {
    let issued = rcgen::generate_simple_self_signed([format!("{DO_NOTHING}.{DO_NOTHING}.svc")])?;
    let (certificate, key) =
        (control_plane.dir().join("do-nothing.crt"), control_plane.dir().join("do-nothing.key"));
    std::fs::write(&certificate, issued.cert.pem())?;
    std::fs::write(&key, issued.signing_key.serialize_pem())?;
    let env = [("CERTIFICATE", certificate), ("CERTIFICATE_KEY", key)];
    let program = Program {
        binary: std::env::current_exe()?,
        env: env.map(|(name, path)| (name.to_owned(), path.display().to_string())).into(),
        ports: vec![("admission".to_owned(), "ADMISSION_ADDRESS".to_owned())],
    };
    Ok((("/brupop-bench".to_owned(), program), issued.cert.pem()))
}

/// The same number of replicas behind a Service of the same kind, and the same configuration but for the Service.
async fn install_do_nothing(client: &Client, bundle: String) -> Result<()> {
    let labels = json!({brupop_api::names::COMPONENT_LABEL: DO_NOTHING});
    let metadata = json!({"name": DO_NOTHING, "namespace": DO_NOTHING});
    create(client, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": DO_NOTHING}}))
        .await?;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata,
        "spec": {"selector": labels, "ports": [{"name": "admission", "port": 443, "targetPort": "admission"}]},
    });
    create(client, service).await?;
    let container = json!({
        "name": DO_NOTHING, "image": "none", "command": ["/brupop-bench", "do-nothing"],
        "ports": [{"name": "admission", "containerPort": 8443}],
    });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
        "spec": {
            "replicas": 2, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    });
    create(client, deployment).await?;

    let configurations = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    let ours = configurations.get(OURS.0).await?;
    // The one that is asked about shadows; there is one about pools, too.
    let mut of_shadows = ours.webhooks.into_iter().flatten().filter(|webhook| webhook.name == OURS.1);
    let mut webhook = of_shadows.next().context("no webhook")?;
    OTHER.clone_into(&mut webhook.name);
    webhook.namespace_selector = Some(from_value(selector(WEBHOOK, DO_NOTHING))?);
    let service = webhook.client_config.service.as_mut().context("no service")?;
    (service.name, service.namespace) = (DO_NOTHING.to_owned(), DO_NOTHING.to_owned());
    webhook.client_config.ca_bundle = Some(ByteString(bundle.into_bytes()));
    let mut configuration =
        ValidatingWebhookConfiguration { webhooks: Some(vec![webhook]), ..Default::default() };
    configuration.metadata.name = Some(DO_NOTHING.to_owned());
    configurations.create(&PostParams::default(), &configuration).await?;
    Ok(())
}

/// Our webhook and our policies are asked about some of the namespaces only.
async fn select(client: &Client) -> Result<()> {
    let params = PatchParams::default();
    let ours = json!([{
        "op": "add", "path": "/webhooks/0/namespaceSelector",
        "value": selector(WEBHOOK, OURS.0),
    }]);
    let ours = Patch::<()>::Json(from_value(ours)?);
    Api::<ValidatingWebhookConfiguration>::all(client.clone()).patch(OURS.0, &params, &ours).await?;
    let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(client.clone());
    let selected = json!({"spec": {"matchResources": {"namespaceSelector": selector(POLICIES, "yes")}}});
    for binding in bindings.list(&ListParams::default()).await? {
        bindings.patch(&binding.name_any(), &params, &Patch::Merge(&selected)).await?;
    }
    Ok(())
}

fn selector(label: &str, value: &str) -> Json {
    json!({"matchLabels": {label: value}})
}

/// The namespace of a variant, with accounts and rights as in the operator's own, and an agent on each node.
async fn make_agents(control_plane: &ControlPlane, variant: Variant, nodes: &[Node]) -> Result<Vec<Agent>> {
    let (client, namespace) = (control_plane.client(), variant.namespace());
    let metadata = json!({"name": namespace, "labels": variant.labels()});
    create(&client, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})).await?;
    let account = json!({"name": ACCOUNT, "namespace": namespace});
    create(&client, json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})).await?;
    let shipped = Api::<Role>::namespaced(client.clone(), NAMESPACE).get(ACCOUNT).await?;
    let mut role = Role { rules: shipped.rules, ..Role::default() };
    role.metadata.name = Some(ACCOUNT.to_owned());
    Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &role).await?;
    let binding: RoleBinding = from_value(json!({
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}],
    }))?;
    Api::namespaced(client, namespace).create(&PostParams::default(), &binding).await?;
    try_join_all(nodes.iter().map(|node| Agent::make(control_plane, namespace, node))).await
}

async fn create(client: &Client, object: Json) -> Result<()> {
    let object: DynamicObject = from_value(object)?;
    let types = object.types.as_ref().context("types")?;
    let kind = kube::core::GroupVersionKind::try_from(types)?;
    let (resource, _) = kube::discovery::pinned_kind(client, &kind).await?;
    let namespace = object.namespace();
    let api = match &namespace {
        Some(namespace) => Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    api.create(&PostParams::default(), &object).await.with_context(|| object.name_any())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reviews_are_summed_over_a_webhooks_operations() {
        let line = |name: &str, operation: &str, count: u8| {
            format!(r#"{REVIEWS}{{name="{name}",operation="{operation}"}} {count}"#)
        };
        let metrics = [line("w", "UPDATE", 3), line("w", "CREATE", 4), line("other", "UPDATE", 9)].join("\n");
        assert!((reviews(&metrics, "w") - 7.0).abs() < 1e-9);
    }
}
