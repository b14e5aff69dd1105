//! Complaints that were logged: each is said once, and again if it comes back. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::requests::Key;
use brupop_core::cluster::Cluster;
use brupop_core::observe::Observed;

/// What a complaint is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    /// The `BottlerocketFleet` cannot be read.
    Fleet,
    /// The node of the shadow of this name is left alone.
    Node(String),
    /// Nodes cannot be opted in.
    OptIn,
    /// A call fails.
    Call(Key),
    /// A write changes nothing.
    IdleWrite(Key),
    /// Evictions from the node of this shadow (first) are refused in these words (second).
    Drain(String, String),
}

/// The last complaint about each subject.
#[derive(Debug, Default)]
pub(super) struct Complaints(BTreeMap<Subject, String>);

impl Complaints {
    /// Is this complaint another than the last one about the subject? It is the last one from now on.
    pub(super) fn is_new(&mut self, subject: Subject, complaint: &str) -> bool {
        if self.0.get(&subject).is_some_and(|before| before == complaint) {
            return false;
        }
        self.0.insert(subject, complaint.to_owned());
        true
    }

    /// Nothing is wrong with the subject any more: the next complaint is new.
    pub(super) fn resolved(&mut self, subject: &Subject) {
        self.0.remove(subject);
    }

    /// Forgets complaints about nodes that are understood again, drains that are over, and objects that are gone.
    pub(super) fn prune(&mut self, cluster: &Cluster, observed: &Observed<'_>) {
        let unreadable =
            observed.unreadable.keys().filter_map(|&index| Some(observed.views.get(index)?.shadow_name));
        let alone: BTreeSet<&str> = unreadable.chain(observed.too_long.iter().copied()).collect();
        self.0.retain(|subject, _| match subject {
            Subject::Fleet | Subject::OptIn => true,
            Subject::Node(name) => alone.contains(name.as_str()),
            Subject::Call(key) | Subject::IdleWrite(key) => key.exists_in(cluster),
            Subject::Drain(name, _) => cluster.drain(name).is_some(),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use brupop_core::facts::{FleetFacts, NodeView};
    use serde_json::json;

    fn drain(why: &str) -> Subject {
        Subject::Drain("brs-n".into(), why.into())
    }

    fn node(name: &str) -> Subject {
        Subject::Node(name.into())
    }

    /// What is observed of this node: it is not understood, or it is.
    fn prune(complaints: &mut Complaints, cluster: &Cluster, unreadable: bool) {
        let observed = Observed {
            fleet: FleetFacts::EXAMPLE,
            views: vec![NodeView::nothing("brs-n")],
            unreadable: unreadable.then(|| (0, "?".to_owned())).into_iter().collect(),
            too_long: vec!["brs-long"],
            next: None,
        };
        complaints.prune(cluster, &observed);
    }

    fn cluster() -> Cluster {
        let node = json!({"metadata": {"name": "n"}, "spec": {}, "status": {}});
        let mut cluster = Cluster::default();
        cluster.entry("brs-n").node = Some(Arc::new(serde_json::from_value(node).unwrap()));
        cluster
    }

    #[test]
    fn the_same_is_said_once_and_something_else_is_news() {
        let mut complaints = Complaints::default();
        assert!(complaints.is_new(Subject::Fleet, "a"));
        assert!(!complaints.is_new(Subject::Fleet, "a"));
        assert!(complaints.is_new(Subject::Fleet, "b"));
        assert!(complaints.is_new(node("brs-n"), "b"), "of something else");
        complaints.resolved(&Subject::Fleet);
        assert!(complaints.is_new(Subject::Fleet, "b"), "it came back");
    }

    #[test]
    fn a_node_that_is_understood_again_is_news_when_it_is_not() {
        let mut complaints = Complaints::default();
        assert!(complaints.is_new(node("brs-n"), "?") && complaints.is_new(node("brs-long"), "too long"));
        prune(&mut complaints, &cluster(), true);
        assert!(!complaints.is_new(node("brs-n"), "?"), "still the same");
        prune(&mut complaints, &cluster(), false);
        assert!(complaints.is_new(node("brs-n"), "?"));
        assert!(!complaints.is_new(node("brs-long"), "too long"));
    }

    #[test]
    fn nothing_is_kept_of_what_is_gone() {
        let mut complaints = Complaints::default();
        let call = |name: &str| Subject::Call(Key::Node(name.into()));
        for subject in [call("brs-n"), call("brs-gone"), Subject::Call(Key::Ledger), node("brs-gone")] {
            complaints.is_new(subject, "x");
        }
        prune(&mut complaints, &cluster(), false);
        assert_eq!(complaints.0.into_keys().collect::<Vec<_>>(), [Subject::Call(Key::Ledger), call("brs-n")]);
    }

    #[test]
    fn a_refusal_is_said_once_a_drain_though_two_budgets_take_turns() {
        let mut complaints = Complaints::default();
        let mut cluster = cluster();
        cluster.entry("brs-n").drain = Some(Arc::new(brupop_core::drain::DrainPlan::default()));
        let said = ["a", "b", "a", "b"].map(|why| {
            prune(&mut complaints, &cluster, false);
            complaints.is_new(drain(why), why)
        });
        assert_eq!(said, [true, true, false, false]);
        cluster.entry("brs-n").drain = None;
        prune(&mut complaints, &cluster, false);
        assert!(complaints.is_new(drain("a"), "a"), "another drain");
    }
}
