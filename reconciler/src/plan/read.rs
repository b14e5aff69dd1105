//! Reads the objects for a plan, once.

use std::sync::Arc;

use brupop_api::{BottlerocketShadow, names};
use brupop_runtime::{Cluster, client::ClientError};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, ListParams};
use kube::core::DeserializeGuard;
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use super::{Output, PlanArgs, leader, plan, table, workloads};
use crate::drain::DrainPlan;
use crate::objects::{AgentPod, Ledger, WatchedNode, is_operator_pod, trim_pod};
use crate::observe;
use crate::settings::Settings;
use crate::snapshot::Snapshot;
use crate::{budgets, decide, watches};

/// Objects per page of a list.
const PAGE: u32 = 500;
/// The pods of at most so many nodes, in the order of their turns, are looked at: as many as the leader watches at
/// once.
const LOOKED_AT: usize = 256;
/// At least so many nodes are looked at in one round.
const AT_ONCE: usize = 16;

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// No way to the API server.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The schedule cannot be understood.
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
/// The cluster cannot be read, or the settings cannot be understood.
pub async fn run(settings: &Settings, args: &PlanArgs) -> Result<String, PlanError> {
    let schedule = settings.schedule().map_err(PlanError::Schedule)?;
    let cluster = Cluster::infer("brupop-reconciler-plan").await?;
    let (client, namespace) = (cluster.client()?, args.namespace.as_deref().unwrap_or(cluster.namespace()));
    let mut snapshot = snapshot(&client, namespace).await?;
    if settings.workloads_deadline_seconds > 0 {
        workloads::look(&client, &mut snapshot).await?;
    }
    let now = Timestamp::now();
    let text = now.to_string();
    let own_node = leaders_node(&client, namespace).await?;
    // A node whose turn it is may be passed over because of its pods; then the next one's pods are needed, too.
    while snapshot.drains.len() < LOOKED_AT {
        let leader = leader(&snapshot, settings, &schedule, own_node.as_deref(), now);
        let circumstances = settings.circumstances(&snapshot, leader, now, &text);
        let observed = observe::observe(&snapshot, &circumstances);
        let turns = decide::turns(&observed.fleet, &observed.situations).into_iter();
        let room = observed.fleet.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(LOOKED_AT);
        let first = turns.take(room.clamp(AT_ONCE, LOOKED_AT));
        let unknown = first.filter(|&index| !observed.situations[index].pods.known);
        let next: Vec<String> =
            unknown.map(|index| observed.situations[index].shadow_name.to_owned()).collect();
        if next.is_empty() {
            break;
        }
        look_at_pods(&client, namespace, &mut snapshot, next).await?;
    }
    let leader = leader(&snapshot, settings, &schedule, own_node.as_deref(), now);
    let circumstances = settings.circumstances(&snapshot, leader, now, &text);
    let mut observed = observe::observe(&snapshot, &circumstances);
    // Decide as if this process led, even if none has led yet.
    observed.fleet.ledger_term = Some(observed.fleet.term);
    let plan = plan(&observed);
    Ok(match args.output {
        Output::Table => table::of(&plan),
        Output::Json => serde_json::to_string_pretty(&plan)? + "\n",
    })
}

/// The node of the reconciler that leads. Its turn comes last.
async fn leaders_node(client: &Client, namespace: &str) -> Result<Option<String>, PlanError> {
    let failed = |source| PlanError::Read { what: "the Lease and its holder", source: Box::new(source) };
    let leases = Api::<Lease>::namespaced(client.clone(), namespace);
    let holder =
        leases.get_opt(names::LEASE).await.map_err(failed)?.and_then(|lease| lease.spec?.holder_identity);
    let Some(holder) = holder.filter(|holder| !holder.is_empty()) else { return Ok(None) };
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    Ok(pods.get_opt(&holder).await.map_err(failed)?.and_then(|pod| pod.spec?.node_name))
}

async fn snapshot(client: &Client, namespace: &str) -> Result<Snapshot, PlanError> {
    let any = ListParams::default;
    let nodes = all("the Nodes", &Api::all(client.clone()), any(), WatchedNode::trim).await?;
    let shadows: Vec<DeserializeGuard<BottlerocketShadow>> =
        all("the shadows", &Api::namespaced(client.clone(), namespace), any(), watches::strip).await?;
    let fleets: Vec<DeserializeGuard<Ledger>> =
        all("the fleet", &Api::namespaced(client.clone(), namespace), any(), |_| ()).await?;
    let agents = any().labels(&format!("{}=agent", names::COMPONENT_LABEL));
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let agents = all("the agents' pods", &pods, agents, trim_pod).await?;
    let ledger = fleets.into_iter().find(|fleet| fleet.name_any() == names::FLEET);
    Ok(Snapshot::of(
        nodes.into_iter().map(Arc::new),
        shadows.into_iter().map(Arc::new),
        AgentPod::by_shadow(agents.iter()),
        ledger.map(Arc::new),
    ))
}

async fn look_at_pods(
    client: &Client,
    namespace: &str,
    snapshot: &mut Snapshot,
    shadows: Vec<String>,
) -> Result<(), PlanError> {
    let budgets: Vec<PodDisruptionBudget> =
        all("the PodDisruptionBudgets", &Api::all(client.clone()), ListParams::default(), watches::strip)
            .await?;
    let budgets: Vec<Arc<PodDisruptionBudget>> = budgets.into_iter().map(Arc::new).collect();
    for shadow in shadows {
        let Some(node) = names::node_of_shadow(&shadow) else { continue };
        let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let pods = Api::<Pod>::all(client.clone()).list(&params).await;
        let pods = pods.map_err(|source| PlanError::Read { what: "the pods", source: Box::new(source) })?;
        let ours = |pod: &Pod| is_operator_pod(pod, namespace);
        // The plan does not check whether a DaemonSet is gone: who runs it may have fewer rights than the reconciler.
        let there = |_: &Pod| false;
        if let Some(why) = budgets::undrainable(&pods.items, &budgets, ours, there) {
            snapshot.undrainable.insert(shadow.clone(), why);
        }
        snapshot.drains.insert(shadow, DrainPlan::of(&pods.items, ours, there, false));
    }
    Ok(())
}

/// All objects, page by page, each trimmed at once.
async fn all<K>(
    what: &'static str,
    api: &Api<K>,
    params: ListParams,
    trim: impl Fn(&mut K),
) -> Result<Vec<K>, PlanError>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut found = Vec::new();
    let mut params = params.limit(PAGE);
    loop {
        let page = api.list(&params).await;
        let mut page = page.map_err(|source| PlanError::Read { what, source: Box::new(source) })?;
        page.items.iter_mut().for_each(&trim);
        found.append(&mut page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(found),
        }
    }
}
