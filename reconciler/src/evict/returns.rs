//! Whose pods come back to a node each time that they are evicted. Pure.

use std::collections::BTreeMap;

/// A workload whose pods came back after they were evicted so often is not evicted again.
const EVICTED_IN_VAIN: u8 = 2;

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
    /// Its eviction was begun.
    evicted: bool,
}

impl Returns {
    /// These pods (UID, and what makes each anew) are on the node now and do not leave. Returns the workloads whose pods
    /// have come back each time, sorted. A look before the drain began, or of another drain, counts for nothing.
    pub fn look(
        &mut self,
        shadow: &str,
        began: Option<&str>,
        pods: impl Iterator<Item = (String, String)>,
    ) -> Vec<String> {
        let Some(began) = began else {
            self.0.remove(shadow);
            return vec![];
        };
        let drain = self.0.entry(shadow.to_owned()).or_default();
        if drain.began != began {
            *drain = Drain { began: began.to_owned(), ..Drain::default() };
        }
        let now: BTreeMap<String, String> = pods.collect();
        let went = |uid: &String, _: &mut Seen| !now.contains_key(uid);
        for (_, pod) in drain.pods.extract_if(.., went).filter(|(_, pod)| pod.evicted) {
            let times = drain.went.entry(pod.identity).or_default();
            *times = (*times).max(pod.after.saturating_add(1));
        }
        for (uid, identity) in now {
            let after = drain.went.get(&identity).copied().unwrap_or(0);
            drain.pods.entry(uid).or_insert(Seen { identity, after, evicted: false });
        }
        let in_vain = drain.pods.values().filter(|pod| pod.after >= EVICTED_IN_VAIN);
        let mut returning: Vec<String> = in_vain.map(|pod| pod.identity.clone()).collect();
        returning.sort_unstable();
        returning.dedup();
        returning
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

    /// Looks at these pods, `<owner><number>`, in the drain that began then.
    fn look(returns: &mut Returns, began: &str, pods: &[&str]) -> Vec<String> {
        let pods = pods.iter().map(|pod| ((*pod).to_owned(), pod[..1].to_owned()));
        returns.look("brs-n", Some(began), pods)
    }

    #[test]
    fn who_comes_back_twice_is_returning() {
        let mut returns = Returns::default();
        assert!(look(&mut returns, "then", &["a1", "a2", "b1"]).is_empty());
        for uid in ["a1", "a2", "b1"] {
            returns.begin(uid);
        }
        assert!(look(&mut returns, "then", &["a2", "a3", "b1"]).is_empty(), "the first time");
        returns.begin("a3");
        assert!(look(&mut returns, "then", &["a4", "a5", "b1"]).contains(&"a".to_owned()), "a2 and a3 went");
        assert_eq!(look(&mut returns, "then", &["b2", "a5"]), ["a"], "b only once");
        assert!(look(&mut returns, "later", &["a5", "b2"]).is_empty(), "another drain");
    }

    #[test]
    fn pods_that_were_not_evicted_count_for_nothing() {
        let mut returns = Returns::default();
        for number in 0..9 {
            let name = format!("a{number}");
            assert!(look(&mut returns, "then", &[&name, "b1"]).is_empty(), "they crash by themselves");
            returns.begin("b1");
        }
        assert!(returns.look("brs-n", None, [].into_iter()).is_empty());
        returns.retain(|_| false);
        assert!(returns.0.is_empty());
    }
}
