//! Which nodes are passed over because of their pods, and for how long.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use brupop_core::cluster::Cluster;
use brupop_core::drain::Obstacle;

use super::look::NodeDrain;
use super::{Around, Drainer};
use crate::pass::Wake;

/// A node is passed over for this long after its pods were last looked at, if there are too many such nodes, or too many pods,
/// to watch all.
pub(crate) const PASSED_OVER: Duration = Duration::from_mins(5);

/// Why a node is passed over.
pub(crate) struct PassedOver {
    pub(crate) obstacle: Obstacle,
    /// For how long it has waited for budgets, while no other node of its pool was drained.
    pub(crate) waited: Duration,
    /// Since when it does so, if it does now.
    pub(crate) waits_since: Option<Duration>,
    /// When its pods were last looked at.
    pub(crate) seen: Duration,
}

impl PassedOver {
    pub(crate) fn new(obstacle: Obstacle, seen: Duration) -> Self {
        Self {
            obstacle,
            waited: Duration::ZERO,
            waits_since: None,
            seen,
        }
    }

    /// What stands in the way of the drain. Nothing is known of that if the last look at the pods is too long ago.
    pub(crate) fn obstacle(
        &self,
        pods_known: bool,
        now: Duration,
        wake: &mut Wake,
    ) -> Option<&Obstacle> {
        if !pods_known {
            if now >= self.seen + PASSED_OVER {
                return None;
            }
            wake.by(self.seen + PASSED_OVER);
        }
        Some(&self.obstacle)
    }

    /// Whether it is kept although nothing is known of the pods any more: the clock of the wait for budgets goes on from look to
    /// look, also if it stands meanwhile.
    pub(crate) fn has_clock(&self) -> bool {
        matches!(self.obstacle, Obstacle::Budget { .. })
    }

    /// Goes on with the clock of the wait for budgets, up to `patience`. It stands while another node of the pool is drained.
    pub(crate) fn wait(
        &mut self,
        stands: bool,
        patience: Duration,
        now: Duration,
        wake: &mut Wake,
    ) {
        let Obstacle::Budget { waited, .. } = &mut self.obstacle else {
            self.waits_since = None;
            return;
        };
        self.waited += self
            .waits_since
            .map_or(Duration::ZERO, |since| now.saturating_sub(since));
        self.waits_since = (!stands).then_some(now);
        *waited = self.waited >= patience;
        if !stands && !*waited {
            wake.by(now + patience.saturating_sub(self.waited));
        }
    }
}

impl Drainer {
    /// Notes of which nodes no pods are kept any more, because there are too many of them.
    pub(crate) fn note_dropped(&mut self, dropped: BTreeSet<String>, now: Duration) {
        let too_many = || PassedOver::new(Obstacle::TooManyPods, now);
        self.passed_over
            .extend(dropped.into_iter().map(|name| (name, too_many())));
    }

    /// Notes which nodes are passed over because of their pods. Returns what stands in the way of their drains.
    pub(crate) fn obstacles(
        &mut self,
        around: &Around<'_>,
        cluster: &Cluster,
        wake: &mut Wake,
    ) -> BTreeMap<String, Obstacle> {
        let now = around.now;
        let Self {
            node_pods,
            passed_over,
            ..
        } = self;
        node_pods.retain(|name, _| cluster.records.contains_key(name));
        for (name, found) in &*node_pods {
            let NodeDrain { obstacle, .. } = &found.drain;
            let Some(obstacle) = obstacle.clone() else {
                passed_over.remove(name);
                continue;
            };
            let new = PassedOver::new(Obstacle::TooManyPods, now);
            let passed_over = passed_over.entry(name.clone()).or_insert(new);
            (passed_over.obstacle, passed_over.seen) = (obstacle, now);
        }
        let drained = cluster
            .records
            .iter()
            .filter(|(_, record)| record.is_being_drained());
        let drained: BTreeSet<_> = drained.map(|(name, _)| cluster.owner(name)).collect();
        let mut obstacles = BTreeMap::new();
        passed_over.retain(|name, passed_over| {
            let owner = cluster.owner(name);
            let patience = Duration::try_from(cluster.rules(owner, around.policy).durations.drain)
                .unwrap_or_default();
            passed_over.wait(drained.contains(&owner), patience, now, wake);
            let obstacle = passed_over
                .obstacle(node_pods.contains_key(name), now, wake)
                .cloned();
            let stands = obstacle.is_some();
            obstacles.extend(obstacle.map(|obstacle| (name.clone(), obstacle)));
            cluster.has_shadow(name) && (stands || passed_over.has_clock())
        });
        obstacles
    }
}
