//! Which nodes are passed over because of their pods, and for how long.

use std::collections::BTreeMap;
use std::mem::discriminant;
use std::time::Duration;

use brupop_core::cluster::Cluster;
use brupop_core::drain::Obstacle;
use brupop_core::kept::Dropped;
use brupop_core::known::{Known, RulesByOwner};

use super::look::NodeDrain;
use super::{Around, Drainer};
use crate::reconcile::wake::Wake;

/// A node is passed over for this long after its pods were last looked at, if there are too many such nodes, or too many pods,
/// to watch all.
pub(super) const PASSED_OVER: Duration = Duration::from_mins(5);

/// Why a node is passed over, and since when for a reason of this kind.
pub(super) struct PassedOver {
    pub(super) obstacle: Obstacle,
    pub(super) since: Duration,
    /// When its pods were last looked at.
    pub(super) seen: Duration,
    /// Its pods may be watched. If not, there was no room for them, and they are looked at again when it is not passed over any
    /// more.
    pub(super) watched: bool,
}

impl PassedOver {
    /// Does it stand still? Not if the last look at the pods is too long ago.
    pub(super) fn stands(
        &mut self,
        pods_known: bool,
        patience: Duration,
        now: Duration,
        wake: &mut Wake,
    ) -> bool {
        if !pods_known {
            wake.by(self.seen + PASSED_OVER);
            if now >= self.seen + PASSED_OVER {
                return false;
            }
        }
        if let Obstacle::Now { for_long, .. } = &mut self.obstacle {
            *for_long = now >= self.since + patience;
            if !*for_long {
                wake.by(self.since + patience);
            }
        }
        true
    }
}

impl Drainer {
    /// Notes of which nodes no pods are kept any more, because there are too many of them, or because others needed the room.
    pub(super) fn note_dropped(&mut self, dropped: BTreeMap<String, Dropped>, now: Duration) {
        for (name, why) in dropped {
            if why == Dropped::TooMany {
                let obstacle = Obstacle::TooManyPods;
                self.passed_over.insert(name, PassedOver { obstacle, since: now, seen: now, watched: false });
            } else if let Some(passed_over) = self.passed_over.get_mut(&name) {
                passed_over.watched = false;
            }
        }
    }

    /// Notes which nodes are passed over because of their pods. Returns what stands in the way of their drains.
    pub(super) fn obstacles(
        &mut self,
        around: &Around<'_>,
        cluster: &Cluster,
        known: &Known,
        wake: &mut Wake,
    ) -> BTreeMap<String, Obstacle> {
        let now = around.now;
        let Self { node_pods, passed_over, .. } = self;
        for name in known.drains.keys() {
            let Some(NodeDrain { obstacle, .. }) = node_pods.get(name).and_then(|it| it.drain.as_ref())
            else {
                continue;
            };
            let before = passed_over.remove(name);
            if let Some(obstacle) = obstacle.clone() {
                let same = |before: &PassedOver| discriminant(&before.obstacle) == discriminant(&obstacle);
                let since = before.filter(same).map_or(now, |before| before.since);
                passed_over.insert(name.clone(), PassedOver { obstacle, since, seen: now, watched: true });
            }
        }
        let rules = RulesByOwner::new(cluster, around.policy);
        passed_over.retain(|name, passed_over| {
            let patience =
                Duration::try_from(rules.of(known.owner(name)).durations.drain).unwrap_or_default();
            let pods_known = known.drains.contains_key(name);
            cluster.has_shadow(name) && passed_over.stands(pods_known, patience, now, wake)
        });
        passed_over.iter().map(|(name, it)| (name.clone(), it.obstacle.clone())).collect()
    }
}
