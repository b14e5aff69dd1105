//! Whose pods come back to a node each time that they are evicted. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A workload whose pods came back after they were evicted so often is not evicted again.
const EVICTED_WITHOUT_EFFECT: u8 = 2;
/// A pod that came after another one of its kind was evicted is left alone for so long. The scheduler may have bound it before
/// it saw the cordon; by then it has seen it, and binds no more to this node.
const SCHEDULER_LAG: Duration = Duration::from_secs(10);

/// The drains under way, by name of the shadow.
#[derive(Debug, Default)]
pub struct Returns(BTreeMap<String, Drain>);

/// One drain.
#[derive(Debug, Default)]
struct Drain {
    /// When it began, as its marker says.
    began: String,
    /// The pods that were on the node at the last look, by UID.
    pods: BTreeMap<String, Seen>,
    /// How often pods of these workloads went, for we evicted them.
    went: BTreeMap<String, u8>,
}

/// A pod.
#[derive(Debug)]
struct Seen {
    /// What makes it anew.
    identity: String,
    /// How many evictions of its kind came before it.
    after: u8,
    /// When it was first seen, since any fixed moment of a monotonic clock.
    since: Duration,
    /// Its eviction was begun.
    evicted: bool,
}

/// What a look shows.
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
    /// These pods (UID, and what makes each anew) are on the node now and do not leave. A look before the drain began, or of
    /// another drain, counts for nothing.
    pub fn look(
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
            *drain = Drain { began: began.to_owned(), ..Drain::default() };
        }
        let there: BTreeMap<String, String> = pods.collect();
        let went = |uid: &String, _: &mut Seen| !there.contains_key(uid);
        for (_, pod) in drain.pods.extract_if(.., went).filter(|(_, pod)| pod.evicted) {
            let times = drain.went.entry(pod.identity).or_default();
            *times = (*times).max(pod.after.saturating_add(1));
        }
        for (uid, identity) in there {
            let after = drain.went.get(&identity).copied().unwrap_or(0);
            drain.pods.entry(uid).or_insert(Seen { identity, after, since: now, evicted: false });
        }
        let had_no_effect = drain.pods.values().filter(|pod| pod.after >= EVICTED_WITHOUT_EFFECT);
        let owners: BTreeSet<&String> = had_no_effect.map(|pod| &pod.identity).collect();
        let just_came = |pod: &Seen| pod.after > 0 && now < pod.since + SCHEDULER_LAG;
        let held = drain.pods.iter().filter(|(_, pod)| owners.contains(&pod.identity) || just_came(pod));
        let next =
            drain.pods.values().filter(|pod| just_came(pod)).map(|pod| pod.since + SCHEDULER_LAG).min();
        Returning {
            held: held.map(|(uid, _)| uid.clone()).collect(),
            owners: owners.into_iter().cloned().collect(),
            next,
        }
    }

    /// The eviction of this pod begins.
    pub fn begin(&mut self, uid: &str) {
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
mod tests {
    use super::*;

    /// Looks at these pods, `<owner><number>`, in the drain that began then. Returns who returns, and which pods are held.
    fn look(returns: &mut Returns, began: &str, pods: &[&str], seconds: u64) -> (Vec<String>, Vec<String>) {
        let pods = pods.iter().map(|pod| ((*pod).to_owned(), pod[..1].to_owned()));
        let found = returns.look("brs-n", Some(began), pods, Duration::from_secs(seconds));
        (found.owners, found.held.into_iter().collect())
    }

    const NOBODY: (Vec<String>, Vec<String>) = (vec![], vec![]);

    fn those(owners: &[&str], pods: &[&str]) -> (Vec<String>, Vec<String>) {
        [owners, pods].map(|them| them.iter().map(|it| (*it).to_owned()).collect()).into()
    }

    #[test]
    fn who_comes_back_twice_is_returning() {
        let mut returns = Returns::default();
        assert_eq!(look(&mut returns, "then", &["a1", "a2", "b1"], 0), NOBODY);
        for uid in ["a1", "a2", "b1"] {
            returns.begin(uid);
        }
        assert_eq!(look(&mut returns, "then", &["a2", "a3", "b1"], 1), those(&[], &["a3"]), "the first time");
        assert_eq!(
            look(&mut returns, "then", &["a2", "a3", "b1"], 11),
            NOBODY,
            "the scheduler has seen the cordon"
        );
        returns.begin("a3");
        let found = look(&mut returns, "then", &["a4", "a5", "b1"], 12);
        assert_eq!(found, those(&["a"], &["a4", "a5"]), "a2 and a3 went");
        let found = look(&mut returns, "then", &["b2", "a5"], 13);
        assert_eq!(found, those(&["a"], &["a5", "b2"]), "b only once");
        assert_eq!(look(&mut returns, "later", &["a5", "b2"], 14), NOBODY, "another drain");
    }

    #[test]
    fn pods_that_a_slow_scheduler_bound_are_evicted_and_not_left() {
        let mut returns = Returns::default();
        look(&mut returns, "then", &["a1"], 0);
        returns.begin("a1");
        assert_eq!(look(&mut returns, "then", &["a2"], 0), those(&[], &["a2"]));
        let next =
            returns.look("brs-n", Some("then"), [("a2".into(), "a".into())].into_iter(), Duration::ZERO).next;
        assert_eq!(next, Some(SCHEDULER_LAG));
        assert_eq!(look(&mut returns, "then", &["a2"], 10), NOBODY);
        returns.begin("a2");
        assert_eq!(look(&mut returns, "then", &[], 11), NOBODY);
    }

    #[test]
    fn pods_that_were_not_evicted_count_for_nothing() {
        let mut returns = Returns::default();
        for number in 0..9 {
            let name = format!("a{number}");
            assert_eq!(
                look(&mut returns, "then", &[&name, "b1"], number),
                NOBODY,
                "they crash by themselves"
            );
            returns.begin("b1");
        }
        assert_eq!(returns.look("brs-n", None, [].into_iter(), Duration::ZERO), Returning::default());
        returns.retain(|_| false);
        assert!(returns.0.is_empty());
    }
}
