//! What a plan is made of, read once: the cluster, pods of the nodes whose turn comes first, their workloads, gates.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use brupop_api::{BottlerocketShadow, Item, State, names};
use brupop_core::cluster::{Cluster, Entry, Watched};
use brupop_core::drain::{self, DrainPlan, Obstacle};
use brupop_core::gates::answer::GateAnswer;
use brupop_core::gates::{self, QUERIES_MAX};
use brupop_core::kept::{KeptBudgets, KeptPods};
use brupop_core::known::{Known, KnownDrain, RulesByOwner};
use brupop_core::objects::{
    Budget, LeaseRecord, PodItem, WatchedFleet, WatchedNode, is_operator_pod,
};
use brupop_core::policy::Policy;
use brupop_core::pool::Pool;
use brupop_core::rules::{GateQuery, GateState};
use brupop_core::workloads::Workload;
use brupop_runtime::Listing;
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use kube::api::{Api, ListParams};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

use super::PlanError;
use crate::gates::Sources;
use crate::watches::on_node;
use crate::workloads;

/// The node of the reconciler that leads. Its turn comes last.
pub(super) async fn leaders_node(
    client: &Client,
    namespace: &str,
) -> Result<Option<String>, PlanError> {
    let failed = |source| PlanError::Read {
        what: "the Lease and its holder",
        source: Box::new(source),
    };
    let leases = Api::<Item<LeaseRecord>>::namespaced(client.clone(), namespace);
    let lease = leases.get_opt(names::LEASE).await.map_err(failed)?;
    let holder = lease.and_then(|lease| lease.ok()?.holder.clone());
    let Some(holder) = holder.filter(|holder| names::is_object_name(holder)) else {
        return Ok(None);
    };
    let pods = Api::<PodItem>::namespaced(client.clone(), namespace);
    Ok(pods
        .get_opt(&holder)
        .await
        .map_err(failed)?
        .and_then(|pod| pod.ok()?.node.clone()))
}

/// The objects that the reconciler watches.
pub(super) async fn cluster(client: &Client, namespace: &str) -> Result<Cluster, PlanError> {
    let any = ListParams::default;
    let nodes: Vec<WatchedNode> = all("the Nodes", &Api::all(client.clone()), any()).await?;
    let shadows: Vec<Item<BottlerocketShadow>> = all(
        "the shadows",
        &Api::namespaced(client.clone(), namespace),
        any(),
    )
    .await?;
    let fleets: Vec<Item<WatchedFleet>> = all(
        "the fleet",
        &Api::namespaced(client.clone(), namespace),
        any(),
    )
    .await?;
    let of_agents = any().labels(&format!("{}=agent", names::COMPONENT_LABEL));
    let pools: Vec<Item<Pool>> = all(
        "the pools",
        &Api::namespaced(client.clone(), namespace),
        any(),
    )
    .await?;
    let agents: Vec<PodItem> = all(
        "the agents' pods",
        &Api::namespaced(client.clone(), namespace),
        of_agents,
    )
    .await?;
    let mut cluster = Cluster::default();
    cluster.replace(nodes);
    cluster.replace(shadows);
    cluster.replace(agents);
    cluster.replace(pools);
    cluster.replace(
        fleets
            .into_iter()
            .filter(|fleet| fleet.name() == names::FLEET),
    );
    Ok(cluster)
}

/// What a look at the pods of nodes needs to know beside the cluster.
pub(super) struct PodLook<'p> {
    pub client: &'p Client,
    pub namespace: &'p str,
    pub policy: &'p Policy,
    pub time: Timestamp,
}

impl PodLook<'_> {
    /// Looks at the pods of these nodes, and notes what drains have to do there.
    pub(super) async fn look(
        &mut self,
        cluster: &Cluster,
        known: &mut Known,
        shadows: Vec<String>,
    ) -> Result<(), PlanError> {
        let Self {
            client,
            namespace,
            policy,
            time,
        } = *self;
        let mut budgets = KeptBudgets::default();
        budgets.list_begins();
        let every = Api::<Item<Budget>>::all(client.clone());
        each(
            "the PodDisruptionBudgets",
            &every,
            ListParams::default(),
            |budget| {
                budgets.listed(budget);
                true
            },
        )
        .await?;
        budgets.list_ends();
        let (all_budgets, rules) = (budgets.all(), RulesByOwner::new(cluster, policy));
        for shadow in shadows {
            let Some(node) = names::node_of_shadow(&shadow) else {
                continue;
            };
            let mut kept = KeptPods::default();
            kept.want([shadow.as_str()]);
            kept.list_begins(&shadow);
            each(
                "the pods",
                &Api::<PodItem>::all(client.clone()),
                on_node(node),
                |pod| {
                    kept.listed(&shadow, pod);
                    !kept.has_dropped()
                },
            )
            .await?;
            kept.list_ends(&shadow);
            if kept.has_dropped() {
                known.obstacles.insert(shadow, Obstacle::TooManyPods);
                continue;
            }
            let pods = kept.of(&shadow);
            let pods = || pods.iter().map(AsRef::as_ref);
            let ours = |pod: &PodItem| is_operator_pod(pod, namespace);
            let Some(entry) = cluster.entries.get(&shadow) else {
                continue;
            };
            let respects = rules.of(known.owner(&shadow)).respect_do_not_disrupt;
            let obstacle = drain::obstacle(pods, &all_budgets, ours, respects, time);
            known
                .obstacles
                .extend(obstacle.map(|obstacle| (shadow.clone(), obstacle)));
            let plan = Arc::new(DrainPlan::of(pods(), ours, entry.marker(), None));
            known.drains.insert(
                shadow,
                KnownDrain {
                    plan,
                    ..KnownDrain::default()
                },
            );
        }
        Ok(())
    }
}

/// Lists all, within the bound of their kind.
async fn all<K>(what: &'static str, api: &Api<K>, params: ListParams) -> Result<Vec<K>, PlanError>
where
    K: Watched + Resource + Clone + DeserializeOwned,
{
    let mut all = vec![];
    each(what, api, params, |object| {
        all.push(object);
        K::bound(&mut all);
        true
    })
    .await?;
    Ok(all)
}

/// Lists them, one by one, as long as `go_on` says so.
async fn each<K>(
    what: &'static str,
    api: &Api<K>,
    params: ListParams,
    mut go_on: impl FnMut(K) -> bool,
) -> Result<(), PlanError>
where
    K: Resource + Clone + DeserializeOwned,
{
    let failed = |source| PlanError::Read {
        what,
        source: Box::new(source),
    };
    let mut listing = Listing::begin(api, &params).await.map_err(failed)?;
    while let Some(object) = listing.next().await.map_err(failed)? {
        if !go_on(object) {
            break;
        }
    }
    Ok(())
}

/// Reads the workloads that the leader would wait for.
pub(super) async fn look_at_workloads(client: &Client, cluster: &Cluster, known: &mut Known) {
    let is_monitored = |entry: &Entry| {
        entry
            .shadow()
            .is_some_and(|shadow| shadow.spec.state == State::MonitoringUpdate)
    };
    let monitored = cluster.entries.iter();
    for (name, entry) in monitored.filter(|(_, entry)| is_monitored(entry)) {
        let owners = entry.marker().into_iter();
        let owners = owners.flat_map(|marker| marker.evicted_owners.keys());
        let workloads = owners.filter_map(|owner| Some((owner.clone(), Workload::parse(owner)?)));
        let scales = workloads::read(client.clone(), Duration::ZERO, workloads.collect()).await;
        known.scales.insert(name.clone(), scales);
    }
}

/// Asks each gate once, and takes one good answer for as many as open a gate. What the leader was told is nowhere to be read;
/// where there are no sources, as on the machine of a person, nobody knows.
pub(super) async fn look_at_gates(sources: &Sources, cluster: &Cluster, known: &mut Known) {
    let queries = cluster
        .gate_queries()
        .into_iter()
        .take(QUERIES_MAX)
        .cloned();
    let asked = stream::iter(queries).map(|query| async move {
        let state = match sources.ask(&query).await {
            Ok(GateAnswer::Good) => GateState::Open,
            Ok(GateAnswer::Bad) => GateState::Closed,
            Ok(GateAnswer::Unknown) | Err(_) => GateState::Unknown,
        };
        (query, state)
    });
    let states: BTreeMap<GateQuery, GateState> =
        asked.buffer_unordered(gates::AT_ONCE).collect().await;
    known.note_gates(cluster, |query| {
        states.get(query).copied().unwrap_or_default()
    });
}
