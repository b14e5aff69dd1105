//! Applies answers to requests to the cluster before the watches do, so that the next pass sees its own writes.

use std::time::Duration;

use brupop_api::Object;
use brupop_api::names::shadow_name;
use kube::Resource;

use super::{Cluster, Watched};

/// A watch that is behind an answer for so long may have missed it: the object is read again.
const READ_AGAIN: Duration = Duration::from_secs(5);

/// The state of an object that an answer has brought.
#[derive(Clone, Debug)]
pub(super) struct Ahead {
    /// Its resourceVersion; of an object that was deleted, a later one than its last.
    version: u64,
    since: Duration,
}

impl Cluster {
    /// Puts in an object as its watch brings it. Drops a state that is older than what an answer has brought, or the same.
    /// Returns whether a decision could be another.
    pub fn watched<K: Watched>(&mut self, object: K) -> bool {
        !self.is_behind(&object) && object.put(self)
    }

    /// Removes an object whose watch says that it was deleted. Returns whether a decision could be another.
    pub fn deleted<K: Watched>(&mut self, object: &K) -> bool {
        let is_news = !self.is_behind(object);
        if is_news {
            K::remove(object.name(), self);
        }
        is_news
    }

    /// Puts in an object as the answer to a request has it; `None` if the answer says that it is gone. The request was decided
    /// on version `seen`. Drops the answer if the watch has brought a newer state meanwhile, or the end of the object.
    pub fn answered<K: Watched>(
        &mut self,
        name: &str,
        answer: Option<K>,
        seen: Option<u64>,
        now: Duration,
    ) {
        let Some(object) = K::object(name) else {
            return;
        };
        let known = self.version(&object);
        let version = answer.as_ref().map_or(seen.map(|it| it + 1), version);
        let is_newer = known.is_some() && known < version;
        if known != seen && !is_newer {
            return;
        }
        match answer {
            Some(answer) => drop(answer.put(self)),
            None => K::remove(name, self),
        }
        if let Some(version) = version.filter(|_| known < version) {
            let since = now;
            self.ahead.insert(object, Ahead { version, since });
        } else {
            self.ahead.remove(&object);
        }
    }

    /// Returns the objects that are to be read again, and when the next one will be.
    pub fn overdue(&self, now: Duration) -> (Vec<Object<String>>, Option<Duration>) {
        let due = self
            .ahead
            .iter()
            .map(|(object, it)| (object, it.since + READ_AGAIN));
        let (overdue, later): (Vec<_>, Vec<_>) = due.partition(|(_, due)| *due <= now);
        let overdue = overdue.into_iter().map(|(object, _)| object.clone());
        let next = later.into_iter().map(|(_, due)| due).min();
        (overdue.collect(), next)
    }

    /// Returns the resourceVersion in which an object is known.
    pub fn version(&self, object: &Object<String>) -> Option<u64> {
        match object {
            Object::Ledger | Object::FleetStatus => version(&**self.fleet.as_ref()?),
            Object::ShadowSpec(name) | Object::ShadowStatus(name) => {
                version(&**self.records.get(name)?.shadow.as_ref()?)
            }
            Object::PoolStatus(name) => {
                let version = self.pools.get(name)?.metadata.resource_version.as_ref();
                version?.parse().ok()
            }
            Object::Node(name) => self.records.get(&shadow_name(name))?.node_version,
        }
    }

    pub(super) fn is_ahead<K: Watched>(&self, name: &str) -> bool {
        K::object(name).is_some_and(|object| self.ahead.contains_key(&object))
    }

    /// Whether this state, which a watch has brought, is no newer than what an answer has brought. Forgets the answer once the
    /// watch has caught up.
    fn is_behind<K: Watched>(&mut self, watched: &K) -> bool {
        let Some(object) = K::object(watched.name()) else {
            return false;
        };
        let ahead = self.ahead.get(&object).map(|it| it.version);
        let version = version(watched);
        if ahead <= version {
            self.ahead.remove(&object);
        }
        ahead.is_some() && version <= ahead
    }
}

/// Returns an object's resourceVersion as a number, so that versions can be compared.
pub fn version(object: &impl Resource) -> Option<u64> {
    object.meta().resource_version.as_ref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::NodeFacts;
    use crate::tests::world;
    use brupop_api::Item;
    use serde_json::json;

    const AT: Duration = Duration::from_secs(7);

    fn node(version: u64, cordoned: bool) -> Item<NodeFacts> {
        let metadata = json!({"resourceVersion": version.to_string()});
        world::node(
            "n",
            json!({"metadata": metadata, "spec": {"unschedulable": cordoned}}),
        )
    }

    fn cluster(version: u64) -> Cluster {
        let mut cluster = Cluster::default();
        cluster.watched(node(version, false));
        cluster
    }

    fn state(cluster: &Cluster) -> Option<(u64, bool)> {
        let record = cluster.records.get("brs-n")?;
        Some((record.node_version?, record.node.as_ref()?.unschedulable))
    }

    #[test]
    fn newer_of_answer_and_watch_wins() {
        let mut cluster = cluster(5);
        cluster.answered("n", Some(node(8, true)), Some(5), AT);
        assert_eq!(state(&cluster), Some((8, true)), "at once");
        for (version, matters) in [(7, false), (8, false), (9, true)] {
            assert_eq!(cluster.watched(node(version, false)), matters, "{version}");
        }
        cluster.answered("n", Some(node(8, true)), Some(5), AT);
        assert_eq!(state(&cluster), Some((9, false)), "a late answer");
        assert_eq!(cluster.overdue(AT * 9), (vec![], None));
    }

    #[test]
    fn what_the_watch_deleted_stays_deleted() {
        let mut cluster = cluster(5);
        assert!(cluster.deleted(&node(9, false)));
        cluster.answered("n", Some(node(8, true)), Some(5), AT);
        assert_eq!(state(&cluster), None);
    }

    #[test]
    fn what_was_removed_does_not_come_back_but_is_made_again() {
        let mut cluster = cluster(5);
        cluster.answered::<Item<NodeFacts>>("n", None, Some(5), AT);
        assert!(!cluster.watched(node(5, false)));
        assert_eq!(state(&cluster), None);
        cluster.answered("n", Some(node(8, true)), None, AT);
        assert!(!cluster.deleted(&node(7, false)), "the one before");
        cluster.replace::<Item<NodeFacts>>([]);
        assert_eq!(state(&cluster), Some((8, true)), "a list of before");
        assert!(cluster.deleted(&node(9, true)));
        assert_eq!(state(&cluster), None);
    }

    /// After a restore from a snapshot etcd gives old versions.
    #[test]
    fn a_watch_that_stays_behind_is_believed_after_five_seconds() {
        let mut cluster = cluster(5);
        cluster.answered("n", Some(node(8, true)), Some(5), AT);
        assert!(!cluster.watched(node(6, false)));
        let due = AT + READ_AGAIN;
        assert_eq!(cluster.overdue(AT), (vec![], Some(due)));
        let object = Object::Node("n".to_owned());
        assert_eq!(cluster.overdue(due), (vec![object], None));
        cluster.answered("n", Some(node(6, false)), Some(8), due);
        assert_eq!(state(&cluster), Some((6, false)));
        assert!(cluster.watched(node(6, true)));
    }
}
