//! Reads the objects for a plan, once.

use std::sync::Arc;

use brupop_api::{BottlerocketShadow, Item, names};
use brupop_runtime::{ClusterConfig, client::ClientError};
use jiff::Timestamp;
use kube::api::{Api, ListParams};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

use super::workloads::DaemonSets;
use super::{Output, PlanArgs, leader, plan, table, workloads};
use crate::leadership::lease::Claim;
use crate::watches::{PAGE, PAGE_OF_FOREIGN};
use brupop_core::cluster::Cluster;
use brupop_core::drain::DrainPlan;
use brupop_core::objects::{Budget, Ledger, PodItem, WatchedNode, is_operator_pod};
use brupop_core::observe::{self, Now};
use brupop_core::policy::Policy;
use brupop_core::{decide, drain};

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
    Policy(String),
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
pub async fn run(policy: Result<Policy, String>, args: &PlanArgs) -> Result<String, PlanError> {
    let policy = policy.map_err(PlanError::Policy)?;
    let config = ClusterConfig::infer("brupop-reconciler-plan").await?;
    let (client, namespace) = (config.client()?, args.namespace.as_deref().unwrap_or(config.namespace()));
    let mut cluster = read(&client, namespace).await?;
    if !policy.durations.workloads.is_zero() {
        workloads::look(&client, &mut cluster).await?;
    }
    let time = Timestamp::now();
    let text = time.to_string();
    let now = Now { time, text: &text };
    let own_node = leaders_node(&client, namespace).await?;
    let mut daemon_sets = DaemonSets::default();
    // A node whose turn it is may be passed over because of its pods; then the next one's pods are needed, too.
    while cluster.entries.values().filter(|entry| entry.drain.is_some()).count() < LOOKED_AT {
        let leader = leader(&cluster, own_node.as_deref());
        let observed = observe::observe(&cluster, &policy, &leader, now);
        let candidates = decide::candidates(&observed.fleet, &observed.views).into_iter();
        let room = usize::try_from(observed.fleet.limit).unwrap_or(LOOKED_AT);
        let first = candidates.take(room.clamp(AT_ONCE, LOOKED_AT));
        let unknown = first.filter(|&index| !observed.views[index].pods.known);
        let next: Vec<String> = unknown.map(|index| observed.views[index].shadow_name.to_owned()).collect();
        if next.is_empty() {
            break;
        }
        look_at_pods(&client, namespace, &mut cluster, &mut daemon_sets, next).await?;
    }
    let leader = leader(&cluster, own_node.as_deref());
    let mut observed = observe::observe(&cluster, &policy, &leader, now);
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
    let leases = Api::<Item<Claim>>::namespaced(client.clone(), namespace);
    let lease = leases.get_opt(names::LEASE).await.map_err(failed)?;
    let Some(holder) = lease.and_then(|lease| lease.ok()?.holder.clone()) else { return Ok(None) };
    let pods = Api::<PodItem>::namespaced(client.clone(), namespace);
    Ok(pods.get_opt(&holder).await.map_err(failed)?.and_then(|pod| pod.ok()?.node.clone()))
}

async fn read(client: &Client, namespace: &str) -> Result<Cluster, PlanError> {
    let any = || ListParams::default().limit(PAGE);
    let nodes: Vec<WatchedNode> = all("the Nodes", &Api::all(client.clone()), any()).await?;
    let shadows: Vec<Item<BottlerocketShadow>> =
        all("the shadows", &Api::namespaced(client.clone(), namespace), any()).await?;
    let fleets: Vec<Item<Ledger>> =
        all("the fleet", &Api::namespaced(client.clone(), namespace), any()).await?;
    let of_agents = any().labels(&format!("{}=agent", names::COMPONENT_LABEL));
    let agents: Vec<PodItem> =
        all("the agents' pods", &Api::namespaced(client.clone(), namespace), of_agents).await?;
    let mut cluster = Cluster::default();
    cluster.replace(nodes);
    cluster.replace(shadows);
    cluster.replace(agents);
    cluster.replace(fleets.into_iter().filter(|fleet| fleet.name() == names::FLEET));
    Ok(cluster)
}

async fn look_at_pods(
    client: &Client,
    namespace: &str,
    cluster: &mut Cluster,
    daemon_sets: &mut DaemonSets,
    shadows: Vec<String>,
) -> Result<(), PlanError> {
    let foreign = || ListParams::default().limit(PAGE_OF_FOREIGN);
    let budgets: Vec<Item<Budget>> =
        all("the PodDisruptionBudgets", &Api::all(client.clone()), foreign()).await?;
    let budgets: Vec<Arc<Item<Budget>>> = budgets.into_iter().map(Arc::new).collect();
    for shadow in shadows {
        let Some(node) = names::node_of_shadow(&shadow) else { continue };
        let of_node = foreign().fields(&format!("spec.nodeName={node}"));
        let pods: Vec<PodItem> = all("the pods", &Api::all(client.clone()), of_node).await?;
        let ours = |pod: &PodItem| is_operator_pod(pod, namespace);
        daemon_sets.look(client, &pods).await?;
        let orphaned = |pod: &PodItem| daemon_sets.orphaned(pod);
        let entry = cluster.entry(&shadow);
        entry.obstacle = drain::obstacle(|| pods.iter(), &budgets, ours, orphaned);
        entry.drain = Some(Arc::new(DrainPlan::of(&pods, ours, orphaned, entry.marker())));
    }
    Ok(())
}

/// All objects, page by page.
async fn all<K>(what: &'static str, api: &Api<K>, mut params: ListParams) -> Result<Vec<K>, PlanError>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut found = Vec::new();
    loop {
        let page = api.list(&params).await;
        let mut page = page.map_err(|source| PlanError::Read { what, source: Box::new(source) })?;
        found.append(&mut page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(found),
        }
    }
}
