//! Which pods came to a node after it was cordoned.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::objects::PodItem;

/// A scheduler may bind pods for so long after the cordon, because it has not seen it.
const SCHEDULER_LAG: Duration = Duration::from_mins(1);
/// A pod that came after the cordon is not evicted for so long, which limits how often its controller makes it again.
const ARRIVAL_PAUSE: Duration = Duration::from_secs(10);

/// The pods (UIDs) of a node that is being drained, and when each was first seen. Times are durations since any fixed moment of a
/// monotonic clock.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    listed: Duration,
    first_seen: BTreeMap<String, Duration>,
}

impl Arrivals {
    /// Records the pods that are on the node now. Without `before`, they are those of the list that follows the cordon.
    pub fn record<'p>(
        before: Option<&Self>,
        pods: impl IntoIterator<Item = &'p PodItem>,
        now: Duration,
    ) -> Self {
        let first_seen = |uid: &str| before.and_then(|before| before.first_seen.get(uid));
        let pods = pods.into_iter().map(PodItem::uid);
        Self {
            listed: before.map_or(now, |before| before.listed),
            first_seen: pods
                .map(|uid| (uid.to_owned(), *first_seen(uid).unwrap_or(&now)))
                .collect(),
        }
    }

    /// Whether the drain does not wait for this pod: it tolerates the cordon, and came so late that another eviction would only
    /// bring the next one.
    pub fn is_left(&self, pod: &PodItem) -> bool {
        let is_late = |seen: &Duration| *seen > self.listed + SCHEDULER_LAG;
        pod.ok().is_some_and(|pod| pod.tolerates_cordon)
            && self.first_seen.get(pod.uid()).is_some_and(is_late)
    }

    /// Returns the pods that came so recently that they are not evicted yet, each with when it may be.
    pub fn recent(&self, now: Duration) -> BTreeMap<&str, Duration> {
        let arrived = self
            .first_seen
            .iter()
            .filter(|(_, seen)| **seen > self.listed);
        arrived
            .map(|(uid, seen)| (uid.as_str(), *seen + ARRIVAL_PAUSE))
            .filter(|(_, due)| *due > now)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tests::world;

    #[test]
    fn late_pods_that_tolerate_the_cordon_are_left() {
        let tolerant = |name: &str| {
            world::pod(
                name,
                json!({"spec": {"tolerations": [{"operator": "Exists"}]}}),
            )
        };
        let (first, early, late) = (tolerant("first"), tolerant("early"), tolerant("late"));
        let (plain, all) = (
            world::pod("plain", json!({})),
            [Duration::ZERO, SCHEDULER_LAG, SCHEDULER_LAG + ARRIVAL_PAUSE],
        );
        let [listed, lag, later] = all.map(|after| Duration::from_secs(7) + after);
        let arrivals = Arrivals::record(None, [&first], listed);
        assert_eq!(arrivals.recent(listed).len(), 0, "all are of the list");
        let arrivals = Arrivals::record(Some(&arrivals), [&first, &early], lag);
        assert_eq!(
            arrivals.recent(lag),
            BTreeMap::from([(early.uid(), lag + ARRIVAL_PAUSE)])
        );
        let pods = [&first, &early, &late, &plain];
        let arrivals = Arrivals::record(Some(&arrivals), pods, later);
        assert!(arrivals.recent(later).keys().eq(&[late.uid(), plain.uid()]));
        assert_eq!(
            pods.map(|pod| arrivals.is_left(pod)),
            [false, false, true, false]
        );
        // The next leader, or the next cordon, has a list of its own.
        assert!(!Arrivals::record(None, pods, later).is_left(&late));
    }
}
