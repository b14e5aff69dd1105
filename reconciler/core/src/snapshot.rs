//! The objects at one moment, and plain questions about them. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use brupop_api::fleet::BottlerocketFleetStatus;
use brupop_api::{BottlerocketShadow, Item, State, names};

use crate::drain::DrainPlan;
use crate::facts::Evicted;
use crate::objects::{AgentPod, Ledger, PodItem, WatchedNode};

/// The objects at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// All Nodes, by the name that their shadow has or would have.
    pub nodes: BTreeMap<String, Arc<WatchedNode>>,
    /// The shadows, by name, including those that cannot be read.
    pub shadows: BTreeMap<String, Arc<Item<BottlerocketShadow>>>,
    /// The agents' pods, by the name that their node's shadow has or would have.
    pub agents: BTreeMap<String, AgentPod>,
    /// How many agents' pods cannot be read.
    pub unreadable_agents: usize,
    /// The ledger, if there is one.
    pub ledger: Option<Arc<Item<Ledger>>>,
    /// What a drain has to do, by name of the shadow. Only nodes whose pods are watched and known are in here.
    pub drains: BTreeMap<String, DrainPlan>,
    /// Nodes that no drain could empty, and why, by name of the shadow. Nodes whose pods are no longer watched stay
    /// here for a while.
    pub undrainable: BTreeMap<String, String>,
    /// Nodes of whose pods a budget allows no disruption now: which, and whether for as long as a drain may take.
    pub blocked: BTreeMap<String, (String, bool)>,
    /// Nodes of which the API server takes no change now, and why not, by name of the shadow.
    pub denied: BTreeMap<String, String>,
    /// The first workload that is not available again, if there is one, by name of the shadow. Only nodes all of whose
    /// workloads were looked at are in here.
    pub evicted: BTreeMap<String, Option<String>>,
}

impl Snapshot {
    /// The snapshot of these objects. Whatever follows from pods is not known yet.
    pub fn of(
        nodes: impl IntoIterator<Item = Arc<WatchedNode>>,
        shadows: impl IntoIterator<Item = Arc<Item<BottlerocketShadow>>>,
        agents: &[impl AsRef<PodItem>],
        ledger: Option<Arc<Item<Ledger>>>,
    ) -> Self {
        let nodes = nodes.into_iter().map(|node| (names::shadow_name(node.name()), node));
        let shadows = shadows.into_iter().map(|shadow| (shadow.name().to_owned(), shadow));
        let agents = || agents.iter().map(AsRef::as_ref);
        Self {
            nodes: nodes.collect(),
            shadows: shadows.collect(),
            agents: AgentPod::by_shadow(agents()),
            unreadable_agents: agents().filter(|pod| pod.body.is_err()).count(),
            ledger,
            ..Self::default()
        }
    }

    /// The ledger, if there is one that can be read.
    pub fn ledger(&self) -> Option<&Ledger> {
        self.ledger.as_ref()?.ok()
    }

    /// The ledger's status.
    pub fn status(&self) -> Option<&BottlerocketFleetStatus> {
        self.ledger()?.fleet.status.as_ref()
    }

    /// The shadow of this name, if there is one that can be read.
    pub fn shadow(&self, name: &str) -> Option<&BottlerocketShadow> {
        self.shadows.get(name)?.ok()
    }

    /// The names of Nodes that the API server lets us patch as far as we know, and that have a shadow of which the same is
    /// true.
    pub fn normal_nodes(&self) -> Vec<&str> {
        let normal = self.nodes.iter().filter(|(name, node)| {
            self.shadow(name).is_some() && node.marker().is_ok() && !node.is_overgrown()
        });
        normal.map(|(_, node)| node.name()).collect()
    }

    /// The owners of evicted pods that have to become available again, by name of the shadow: those of nodes that are
    /// being monitored.
    pub fn monitored(&self) -> BTreeMap<String, Vec<String>> {
        let owners = self.nodes.iter().filter_map(|(name, node)| {
            let marker = node.marker().ok()??;
            let watched = self.shadow(name)?.spec.state == State::MonitoringUpdate;
            watched.then(|| (name.clone(), marker.evicted_owners.clone()))
        });
        owners.collect()
    }

    /// Notes the state of the workloads whose pods were evicted from the node of this shadow.
    pub fn note_evicted(&mut self, shadow: &str, evicted: Evicted<'_>) {
        let missing = match evicted {
            Evicted::Unknown => return,
            Evicted::Back => None,
            Evicted::Missing(owner) => Some(owner.to_owned()),
        };
        self.evicted.insert(shadow.to_owned(), missing);
    }
}
