//! Watches of the pods of some nodes, and of all budgets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brupop_api::Item;
use kube::runtime::watcher;
use kube::{Api, Client};

use super::{Watched, Watches, foreign};
use brupop_core::drain::{self, Budgets};
use brupop_core::objects::{Budget, PodItem};

/// The pods of at most so many nodes are watched at once. Further nodes are drained later.
const MAX_POD_WATCHES: usize = 256;

/// Watches of the pods of some nodes, and of all budgets. Nothing is watched while no node is drained, about to be, or
/// passed over.
#[derive(Default)]
pub struct PodWatches {
    watches: BTreeMap<String, Watched<PodItem>>,
    budgets: Option<(Watched<Item<Budget>>, Budgets)>,
}

impl PodWatches {
    /// Watches the pods of these nodes (name of the shadow, name of the node), the most important first, and no others.
    pub fn want<'a>(
        &mut self,
        client: &Client,
        Watches { changed, pods_changed, failures, .. }: &Watches,
        wanted: impl Iterator<Item = (&'a str, &'a str)>,
    ) {
        let wanted: BTreeMap<&str, &str> = wanted.take(MAX_POD_WATCHES).collect();
        self.watches.retain(|shadow, _| wanted.contains_key(shadow.as_str()));
        if wanted.is_empty() {
            self.budgets = None;
        } else if self.budgets.is_none() {
            let api = Api::all(client.clone());
            let budgets = move || watcher(api.clone(), foreign());
            let signals = (Arc::clone(changed), Arc::clone(failures));
            self.budgets =
                Some((Watched::start("budgets", budgets, drain::matters, signals), Budgets::default()));
        }
        for (shadow, node) in wanted {
            self.watches.entry(shadow.to_owned()).or_insert_with(|| {
                let (api, config) = (Api::<PodItem>::all(client.clone()), on_node(node));
                let pods = move || watcher(api.clone(), config.clone());
                let signals = (Arc::clone(pods_changed), Arc::clone(failures));
                Watched::start("the pods of a node", pods, |_, _| true, signals)
            });
        }
    }

    /// The namespaces in which a budget allows more than at the last call.
    pub fn relaxed(&mut self) -> BTreeSet<String> {
        let Some((watched, budgets)) = &mut self.budgets else { return BTreeSet::new() };
        let found = watched.store.state();
        budgets.relaxed(found.iter().map(AsRef::as_ref))
    }

    /// How many budgets cannot be read.
    pub fn unreadable_budgets(&self) -> usize {
        let Some((watched, _)) = &self.budgets else { return 0 };
        watched.store.state().iter().filter(|budget| budget.body.is_err()).count()
    }

    /// The nodes whose pods are known, by name of the shadow, each with a number that rises when its pods change.
    pub fn known(&self) -> impl Iterator<Item = (&str, u64)> {
        let synced = self.watches.iter().filter(|(_, watched)| watched.synced());
        synced.map(|(shadow, watched)| (shadow.as_str(), watched.revision()))
    }

    /// A number that rises when budgets change; `None` as long as they are not known.
    pub fn budgets_revision(&self) -> Option<u64> {
        let (budgets, _) = self.budgets.as_ref()?;
        budgets.synced().then(|| budgets.revision())
    }

    /// All budgets.
    pub fn budgets(&self) -> Vec<Arc<Item<Budget>>> {
        self.budgets.as_ref().map_or_else(Vec::new, |(budgets, _)| budgets.store.state())
    }

    /// The pods of the node of this shadow.
    pub fn pods(&self, shadow: &str) -> Vec<Arc<PodItem>> {
        self.watches.get(shadow).map_or_else(Vec::new, |watched| watched.store.state())
    }
}

/// The pods of one node.
fn on_node(node: &str) -> watcher::Config {
    foreign().fields(&format!("spec.nodeName={node}"))
}
