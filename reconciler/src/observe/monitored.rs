//! Whose pods were evicted from the nodes that are watched after their update.

use std::collections::BTreeMap;

use brupop_api::State;

use super::Snapshot;
use crate::facts::Evicted;

impl Snapshot {
    /// The owners of pods that have to be available again, by name of the shadow.
    pub fn monitored(&self) -> BTreeMap<String, Vec<String>> {
        let owners = self.nodes.iter().filter_map(|(name, node)| {
            let marker = node.marker().ok()??;
            let watched = self.shadow(name)?.spec.state == State::MonitoringUpdate;
            watched.then(|| (name.clone(), marker.evicted_owners.clone()))
        });
        owners.collect()
    }

    /// Notes how the workloads are whose pods were evicted from the node of this shadow.
    pub fn note_evicted(&mut self, shadow: &str, evicted: Evicted<'_>) {
        let missing = match evicted {
            Evicted::Unknown => return,
            Evicted::Back => None,
            Evicted::Missing(owner) => Some(owner.to_owned()),
        };
        self.evicted.insert(shadow.to_owned(), missing);
    }
}
