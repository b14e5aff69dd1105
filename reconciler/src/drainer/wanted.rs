//! Which nodes' pods are watched, and what for.

use brupop_api::facts::ShadowFacts;
use brupop_api::{State, names};
use brupop_core::cluster::{Cluster, NodeRecord};
use brupop_core::drain::Obstacle;

use super::Drainer;

/// What the pods of a node are watched for, the most important first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum For {
    /// It is being emptied, and watched already: nobody takes its watch before it is empty.
    Drain,
    /// It is being emptied, and not watched yet.
    DrainUnwatched,
    /// It is about to be emptied.
    DrainNext,
    /// It is the next to start.
    Start,
    /// It will be emptied once its host has staged the update.
    DrainSoon,
    /// It is passed over; a change of its pods may end that.
    Another,
}

impl Drainer {
    /// The nodes whose pods should be watched (name of the shadow, name of the node), the most important first.
    pub(crate) fn wanted<'c>(&self, cluster: &'c Cluster) -> Vec<(For, &'c str, &'c str)> {
        let records = cluster.records.iter().filter_map(|(name, record)| {
            Some((
                self.wanted_for(cluster, name, record)?,
                name.as_str(),
                names::node_of_shadow(name)?,
            ))
        });
        let mut wanted: Vec<_> = records.collect();
        wanted.sort_unstable();
        wanted
    }

    fn wanted_for(&self, cluster: &Cluster, name: &str, record: &NodeRecord) -> Option<For> {
        record.node.as_ref()?;
        if self
            .passed_over
            .get(name)
            .is_some_and(|passed_over| passed_over.obstacle == Obstacle::TooManyPods)
        {
            return None;
        }
        let shadow = ShadowFacts::of(record.shadow()?)?;
        let slot = cluster.ledger().and_then(|status| status.slots.get(name));
        let begins = slot.is_some_and(|slot| Some(slot.attempt) > shadow.spec.attempt);
        let granted = shadow.spec.reboot_granted_boot_id.is_some();
        match shadow.spec.state {
            _ if shadow.is_of_other_operator() => None,
            State::StagedAndPerformedUpdate | State::RebootedIntoUpdate if granted => None,
            State::StagedAndPerformedUpdate | State::RebootedIntoUpdate
                if record.marker().is_some() =>
            {
                Some(if self.pods.watches(name) {
                    For::Drain
                } else {
                    For::DrainUnwatched
                })
            }
            State::StagedAndPerformedUpdate | State::RebootedIntoUpdate if shadow.reached() => {
                Some(For::DrainNext)
            }
            State::StagedAndPerformedUpdate | State::RebootedIntoUpdate => Some(For::DrainSoon),
            State::Idle if begins => Some(For::DrainSoon),
            State::Idle if self.preflight.contains(name) => Some(For::Start),
            // Watched as long as there is room, to see when that changes.
            State::Idle if self.passed_over.contains_key(name) => Some(For::Another),
            State::Idle | State::MonitoringUpdate | State::ErrorReset => None,
        }
    }
}
