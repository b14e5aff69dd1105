//! Whose pods come back to the node each time that they are evicted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A workload whose pods came back after they were evicted so often is not evicted again.
const EVICTED_WITHOUT_EFFECT: u8 = 2;
/// A pod that came after another one of its kind was evicted is left alone for so long. The scheduler may have bound it before
/// it saw the cordon; by then it has seen it, and binds no more to this node.
const SCHEDULER_LAG: Duration = Duration::from_secs(10);

/// The drains under way, by name of the shadow.
#[derive(Debug, Default)]
pub struct Returns(BTreeMap<String, DrainHistory>);

/// One drain.
#[derive(Debug, Default)]
struct DrainHistory {
    /// When it began, as its marker says.
    began: String,
    /// The pods that were on the node last time, by UID.
    pods: BTreeMap<String, SeenPod>,
    /// How often pods of these workloads went, for we evicted them.
    went: BTreeMap<String, u8>,
}

/// A pod.
#[derive(Debug)]
struct SeenPod {
    /// What makes it again.
    identity: String,
    /// How many evictions of its kind came before it.
    after: u8,
    /// When it was first seen, since any fixed moment of a monotonic clock.
    since: Duration,
    /// Its eviction was begun.
    evicted: bool,
}

/// What was seen of the pods of a drain.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Returning {
    /// The workloads whose pods have come back each time, sorted.
    pub owners: Vec<String>,
    /// UIDs of pods that are not to be evicted now: those of these workloads, and those that came just now.
    pub held: BTreeSet<String>,
    /// When the first of the latter may be evicted.
    pub next: Option<Duration>,
}

impl Returns {
    /// These pods (UID, and what makes each again) are on the node now and do not leave. What was seen before the drain
    /// began, or in another drain, counts for nothing.
    pub fn observe(
        &mut self,
        shadow: &str,
        began: Option<&str>,
        pods: impl Iterator<Item = (String, String)>,
        now: Duration,
    ) -> Returning {
        let Some(began) = began else {
            self.0.remove(shadow);
            return Returning::default();
        };
        let drain = self.0.entry(shadow.to_owned()).or_default();
        if drain.began != began {
            *drain = DrainHistory {
                began: began.to_owned(),
                ..DrainHistory::default()
            };
        }
        let there: BTreeMap<String, String> = pods.collect();
        let went = |uid: &String, _: &mut SeenPod| !there.contains_key(uid);
        for (_, pod) in drain
            .pods
            .extract_if(.., went)
            .filter(|(_, pod)| pod.evicted)
        {
            let times = drain.went.entry(pod.identity).or_default();
            *times = (*times).max(pod.after.saturating_add(1));
        }
        for (uid, identity) in there {
            let after = drain.went.get(&identity).copied().unwrap_or(0);
            drain.pods.entry(uid).or_insert(SeenPod {
                identity,
                after,
                since: now,
                evicted: false,
            });
        }
        let had_no_effect = drain
            .pods
            .values()
            .filter(|pod| pod.after >= EVICTED_WITHOUT_EFFECT);
        let owners: BTreeSet<&String> = had_no_effect.map(|pod| &pod.identity).collect();
        let just_came = |pod: &SeenPod| pod.after > 0 && now < pod.since + SCHEDULER_LAG;
        let held = drain
            .pods
            .iter()
            .filter(|(_, pod)| owners.contains(&pod.identity) || just_came(pod));
        let next = drain
            .pods
            .values()
            .filter(|pod| just_came(pod))
            .map(|pod| pod.since + SCHEDULER_LAG)
            .min();
        Returning {
            held: held.map(|(uid, _)| uid.clone()).collect(),
            owners: owners.into_iter().cloned().collect(),
            next,
        }
    }

    /// The eviction of this pod begins.
    pub fn eviction_begins(&mut self, uid: &str) {
        for drain in self.0.values_mut() {
            if let Some(pod) = drain.pods.get_mut(uid) {
                pod.evicted = true;
            }
        }
    }

    /// Forgets the drains of other nodes.
    pub fn retain(&mut self, is_watched: impl Fn(&str) -> bool) {
        self.0.retain(|shadow, _| is_watched(shadow));
    }
}

#[cfg(test)]
mod tests;
