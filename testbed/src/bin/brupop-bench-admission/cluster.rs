//! A cluster in which each variant has a namespace of its own, so that they can be measured in turn without changing
//! anything in between.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use brupop_testbed::kubelet::PodProcess;
use brupop_testbed::operator::{NAMESPACE, apply_overlay, binaries, programs};
use brupop_testbed::{ControlPlane, Kubelets, NewNode, Options, Program, await_until};
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

use crate::reports::{ACCOUNT, Agent};
use crate::variants::{DEADLINE, DO_NOTHING, Hook, PARALLEL, Variant};
use crate::waits::{self, Wait};

/// Label of the namespaces that our policies are asked about.
const POLICIES: &str = "bench/policies";
/// Label of the namespaces whose webhook this is.
const WEBHOOK: &str = "bench/webhook";
/// The shipped configuration, its entry, and what the entry of the other one is called.
const OURS: (&str, &str) = ("brupop-webhook", "shadows.brupop.bottlerocket.aws");
const OTHER: &str = "do-nothing.bench.local";

/// The cluster, and the agents of each variant.
pub struct Cluster {
    /// They end before what their processes talk to.
    kubelets: Kubelets,
    control_plane: ControlPlane,
    agents: BTreeMap<Variant, Vec<Agent>>,
}

impl Cluster {
    /// Starts everything, and returns when each variant's gates are seen to be as they should.
    ///
    /// # Errors
    /// Something does not start, or the gates are not so in time.
    pub async fn start() -> Result<Self> {
        let binaries = binaries(&["brupop-webhook"])?;
        let control_plane = ControlPlane::start(Options::CLUSTER).await?;
        let client = control_plane.client();
        apply_overlay(&control_plane, "default").await?;
        // It has nothing to do here, and is not run.
        control_plane
            .kubectl(["-n", NAMESPACE, "scale", "deployment", "brupop-reconciler", "--replicas=0"])
            .await?;
        let nodes = try_join_all((0..PARALLEL).map(async |number| {
            let mut node = NewNode::numbered(number)?;
            // Not opted in, so that no agents' pods come for them.
            node.labels.retain(|label, _| !label.contains("bottlerocket"));
            node.create(&client).await
        }))
        .await?;
        let (do_nothing, bundle) = do_nothing(&control_plane)?;
        let ours = programs(&binaries, &[]).into_iter().filter(|(command, _)| command == "/brupop-webhook");
        let kubelets = Kubelets::start(&control_plane, ours.chain([do_nothing]));

        select(&client).await?;
        install_do_nothing(&client, bundle).await?;
        let mut agents = BTreeMap::new();
        for variant in Variant::ALL {
            agents.insert(variant, make_agents(&control_plane, variant, &nodes).await?);
        }
        let cluster = Self { kubelets, control_plane, agents };
        for variant in Variant::ALL {
            cluster.await_gates(variant).await?;
        }
        Ok(cluster)
    }

    /// The agents of a variant, each on a node of its own.
    pub fn agents(&self, variant: Variant) -> &[Agent] {
        self.agents.get(&variant).map_or(&[], Vec::as_slice)
    }

    /// The control plane.
    pub fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// The replicas of our webhook.
    pub fn webhooks(&self) -> Vec<PodProcess> {
        let mut processes = self.kubelets.processes();
        processes.retain(|process| process.component == "webhook");
        processes
    }

    /// The authorities by which our webhook is known, as API servers read them.
    ///
    /// # Errors
    /// There are none.
    pub async fn bundle(&self) -> Result<Vec<u8>> {
        let configurations = Api::<ValidatingWebhookConfiguration>::all(self.control_plane.client());
        let configuration = configurations.get(OURS.0).await?;
        let entry = configuration.webhooks.into_iter().flatten().next().context("no webhook")?;
        Ok(entry.client_config.ca_bundle.context("no bundle")?.0)
    }

    /// What only some of the gates refuse tells them apart.
    async fn await_gates(&self, variant: Variant) -> Result<()> {
        let [first, second, ..] = self.agents(variant) else { anyhow::bail!("{variant:?} has no agents") };
        let (hook, policies) = variant.gates();
        let by_webhook = |message: &Option<String>| {
            message.as_ref().is_some_and(|message| message.contains("denied the request: agent-"))
        };
        let by_policy = |message: &Option<String>| {
            message.as_ref().is_some_and(|message| message.contains("ValidatingAdmissionPolicy"))
        };
        let mut last = None;
        let so = await_until(format!("the gates of {variant:?}"), DEADLINE, async || {
            // Both gates refuse this one, and the policies are first to say so; of this one only the webhook knows.
            let others = first.try_out(second, &json!({"message": "not mine"})).await.ok()?;
            let claim = first.try_out(first, &json!({"reboot_requested": "x"})).await.ok()?;
            let ours = hook == Some(Hook::Ours);
            let open = hook.is_none() || self.waits().await.ok()?.values().any(|wait| wait.reviews > 0);
            let so = by_policy(&others) == policies
                && by_webhook(&others) == (ours && !policies)
                && others.is_some() == (ours || policies)
                && by_webhook(&claim) == ours
                && claim.is_none() != ours;
            last = Some((others, claim));
            (so && (ours || open)).then_some(())
        });
        so.await.with_context(|| format!("{last:?}"))
    }

    /// The API server's own clock on the webhooks.
    ///
    /// # Errors
    /// Its metrics cannot be read.
    pub async fn waits(&self) -> Result<BTreeMap<Hook, Wait>> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let text = self.control_plane.client().request_text(request).await?;
        let of = |(hook, name)| anyhow::Ok((hook, waits::wait(&text, name)?));
        [(Hook::DoNothing, OTHER), (Hook::Ours, OURS.1)].into_iter().map(of).collect()
    }
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
    Ok((("/brupop-bench-admission".to_owned(), program), issued.cert.pem()))
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
        "name": DO_NOTHING, "image": "none", "command": ["/brupop-bench-admission", "do-nothing"],
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
    webhook.namespace_selector = Some(from_value(selector(WEBHOOK, Hook::DoNothing.label()))?);
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
        "value": selector(WEBHOOK, Hook::Ours.label()),
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
    let (hook, policies) = variant.gates();
    let mut labels = BTreeMap::new();
    labels.extend(hook.map(|hook| (WEBHOOK, hook.label())));
    labels.extend(policies.then_some((POLICIES, "yes")));
    let metadata = json!({"name": namespace, "labels": labels});
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
