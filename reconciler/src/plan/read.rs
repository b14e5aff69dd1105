//! Reads what a plan rests on, once.

use std::collections::BTreeMap;
use std::sync::Arc;

use brupop_api::{BottlerocketShadow, names};
use brupop_runtime::{Cluster, client::ClientError};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ListParams};
use kube::core::DeserializeGuard;
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use super::{Output, PlanArgs, circumstances, plan, table};
use crate::apply::is_ours;
use crate::drain::Plan as Drain;
use crate::objects::{AgentPod, Ledger, WatchedNode};
use crate::observe::{self, Snapshot};
use crate::settings::Settings;
use crate::{budgets, decide};

/// Objects read in one answer.
const PAGE: u32 = 500;
/// Nodes, in the order of their turns, whose pods are looked at.
const LOOKED_AT: usize = 32;

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// No way to the API server.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The schedule makes no sense.
    #[error("{0}")]
    Schedule(String),
    /// Something cannot be read.
    #[error("cannot read {what}")]
    Read {
        /// What.
        what: &'static str,
        /// What the API server said.
        #[source]
        source: Box<kube::Error>,
    },
    /// The plan cannot be printed.
    #[error("cannot print the plan as JSON")]
    Json(#[from] serde_json::Error),
}

/// Makes a plan of the cluster and returns it as text.
///
/// # Errors
/// The cluster cannot be read, or the settings make no sense.
pub async fn run(settings: &Settings, args: &PlanArgs) -> Result<String, PlanError> {
    let schedule = settings.schedule().map_err(PlanError::Schedule)?;
    let cluster = Cluster::infer("brupop-reconciler-plan").await?;
    let (client, namespace) = (cluster.client()?, args.namespace.as_deref().unwrap_or(cluster.namespace()));
    let mut snapshot = snapshot(&client, namespace).await?;
    let (now, durations) = (Timestamp::now(), settings.durations());
    let text = now.to_string();
    // Once to find whose turn it is, and once more with their pods.
    for last in [false, true] {
        let circumstances = circumstances(&snapshot, settings, &schedule, &durations, now, &text);
        let observed = observe::observe(&snapshot, &circumstances);
        if last {
            let plan = plan(&observed);
            return Ok(match args.output {
                Output::Table => table::of(&plan),
                Output::Json => serde_json::to_string_pretty(&plan)? + "\n",
            });
        }
        let turns = decide::turns(&observed.fleet, &observed.situations);
        let next = turns.into_iter().take(LOOKED_AT).map(|index| observed.situations[index].shadow_name);
        let next: Vec<String> = next.map(str::to_owned).collect();
        look_at_pods(&client, namespace, &mut snapshot, next).await?;
    }
    Ok(String::new())
}

async fn snapshot(client: &Client, namespace: &str) -> Result<Snapshot, PlanError> {
    let mut nodes: Vec<WatchedNode> = all("the Nodes", Api::all(client.clone())).await?;
    nodes.iter_mut().for_each(WatchedNode::trim);
    let shadows: Vec<DeserializeGuard<BottlerocketShadow>> =
        all("the shadows", Api::namespaced(client.clone(), namespace)).await?;
    let fleets: Vec<DeserializeGuard<Ledger>> =
        all("the fleet", Api::namespaced(client.clone(), namespace)).await?;
    let agents = ListParams::default().labels(&format!("{}=agent", names::COMPONENT_LABEL));
    let agents = Api::<Pod>::namespaced(client.clone(), namespace).list(&agents).await;
    let agents =
        agents.map_err(|source| PlanError::Read { what: "the agents' pods", source: Box::new(source) })?;
    let named = |metadata: &ObjectMeta| metadata.name.clone().unwrap_or_default();
    let fleets = fleets.into_iter().map(Arc::new);
    Ok(Snapshot {
        nodes: nodes
            .into_iter()
            .map(|node| (names::shadow_name(&named(node.meta())), Arc::new(node)))
            .collect(),
        shadows: shadows.into_iter().map(|shadow| (named(shadow.meta()), Arc::new(shadow))).collect(),
        agents: agents
            .iter()
            .filter_map(AgentPod::of)
            .map(|agent| (names::shadow_name(&agent.node), agent))
            .collect(),
        ledger: fleets.into_iter().find(|fleet| fleet.name_any() == names::FLEET),
        drains: BTreeMap::new(),
        hopeless: BTreeMap::new(),
    })
}

async fn look_at_pods(
    client: &Client,
    namespace: &str,
    snapshot: &mut Snapshot,
    shadows: Vec<String>,
) -> Result<(), PlanError> {
    let budgets: Vec<Arc<PodDisruptionBudget>> =
        all("the PodDisruptionBudgets", Api::all(client.clone())).await?.into_iter().map(Arc::new).collect();
    for shadow in shadows {
        let Some(node) = names::node_of_shadow(&shadow) else { continue };
        let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let pods = Api::<Pod>::all(client.clone()).list(&params).await;
        let pods = pods.map_err(|source| PlanError::Read { what: "the pods", source: Box::new(source) })?;
        let ours = |pod: &Pod| is_ours(pod, namespace);
        if let Some(why) = budgets::hopeless(&pods.items, &budgets, ours) {
            snapshot.hopeless.insert(shadow.clone(), why);
        }
        snapshot.drains.insert(shadow, Drain::of(&pods.items, ours, false));
    }
    Ok(())
}

async fn all<K>(what: &'static str, api: Api<K>) -> Result<Vec<K>, PlanError>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut found = Vec::new();
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = api.list(&params).await;
        let page = page.map_err(|source| PlanError::Read { what, source: Box::new(source) })?;
        found.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(found),
        }
    }
}
