//! A cluster in which each variant has a namespace of its own, so that they can be measured in turn without changing
//! anything in between.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::{ControlPlane, await_until};
use futures::future::try_join_all;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{Namespace, Node, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{from_value, json};

use super::PARALLEL;
use super::agent::{ACCOUNT, Agent};
use crate::webhook::Cluster;

/// Label of the namespaces that our webhook and our policies are asked about.
const REVIEWED: &str = "bench/reviewed";
const WEBHOOK: &str = "brupop-webhook";

/// What stands between an agent's patch and etcd, beside authentication, RBAC and schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variant {
    /// Nothing.
    Bare,
    /// Our webhook and our policies, as shipped.
    Shipped,
}

impl Variant {
    pub const ALL: [Self; 2] = [Self::Bare, Self::Shipped];

    fn namespace(self) -> &'static str {
        match self {
            Self::Bare => "bench-bare",
            Self::Shipped => "bench-shipped",
        }
    }
}

/// The cluster, and the agents of each variant.
pub struct Variants {
    agents: BTreeMap<Variant, Vec<Agent>>,
    _cluster: Cluster,
}

impl Variants {
    /// Starts everything, and returns when each variant's gates are seen to be as they should.
    pub async fn start() -> Result<Self> {
        let cluster = Cluster::start(PARALLEL).await?;
        select(&cluster.control_plane).await?;
        let nodes = Api::<Node>::all(cluster.client()).list(&ListParams::default()).await?.items;
        let mut agents = BTreeMap::new();
        for variant in Variant::ALL {
            agents.insert(variant, make_agents(&cluster.control_plane, variant, &nodes).await?);
        }
        let variants = Self { agents, _cluster: cluster };
        for variant in Variant::ALL {
            variants.await_gates(variant).await?;
        }
        Ok(variants)
    }

    /// The agents of a variant, each on a node of its own.
    pub fn agents(&self, variant: Variant) -> &[Agent] {
        self.agents.get(&variant).map_or(&[], Vec::as_slice)
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
            let so = match variant {
                Variant::Bare => others.is_none() && claim.is_none(),
                Variant::Shipped => {
                    has(&others, "ValidatingAdmissionPolicy") && has(&claim, "denied the request: agent-")
                }
            };
            last = Some((others, claim));
            so.then_some(())
        });
        so.await.with_context(|| format!("{last:?}"))
    }
}

/// Our webhook and our policies are asked about one of the namespaces only.
async fn select(control_plane: &ControlPlane) -> Result<()> {
    let (client, params) = (control_plane.client(), PatchParams::default());
    let reviewed = json!({"matchLabels": {REVIEWED: "true"}});
    let hook = json!([{"op": "add", "path": "/webhooks/0/namespaceSelector", "value": reviewed}]);
    let hooks = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    hooks.patch(WEBHOOK, &params, &Patch::<()>::Json(from_value(hook)?)).await?;
    let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(client);
    let selected = json!({"spec": {"matchResources": {"namespaceSelector": reviewed}}});
    for binding in bindings.list(&ListParams::default()).await? {
        bindings.patch(&binding.name_any(), &params, &Patch::Merge(&selected)).await?;
    }
    Ok(())
}

/// The namespace of a variant, with accounts and rights as in the operator's own, and an agent on each node.
async fn make_agents(control_plane: &ControlPlane, variant: Variant, nodes: &[Node]) -> Result<Vec<Agent>> {
    let (client, namespace, params) = (control_plane.client(), variant.namespace(), PostParams::default());
    let reviewed = (variant == Variant::Shipped).to_string();
    let made: Namespace =
        from_value(json!({"metadata": {"name": namespace, "labels": {REVIEWED: reviewed}}}))?;
    Api::all(client.clone()).create(&params, &made).await?;
    let account: ServiceAccount = from_value(json!({"metadata": {"name": ACCOUNT}}))?;
    Api::namespaced(client.clone(), namespace).create(&params, &account).await?;
    let shipped = Api::<Role>::namespaced(client.clone(), NAMESPACE).get(ACCOUNT).await?;
    let mut role = Role { rules: shipped.rules, ..Role::default() };
    role.metadata.name = Some(ACCOUNT.to_owned());
    Api::namespaced(client.clone(), namespace).create(&params, &role).await?;
    let binding: RoleBinding = from_value(json!({
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}],
    }))?;
    Api::namespaced(client, namespace).create(&params, &binding).await?;
    try_join_all(nodes.iter().map(|node| Agent::make(control_plane, namespace, node))).await
}
