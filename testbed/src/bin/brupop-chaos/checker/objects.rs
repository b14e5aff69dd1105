//! The objects as they are after each revision, and what the revisions so far have shown.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value as Json;

use super::GRACE;

/// For so long after etcd was restored its clients may go by what is forgotten: until the API server has started, and they
/// have read everything again.
const UNCERTAIN: Duration = Duration::from_secs(30);

/// A Node, and when it was last seen drained.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeState {
    pub(crate) object: Json,
    /// The last revision that wrote the marker.
    pub(crate) marked: u64,
    /// Its marker says that it is drained, since this was written.
    pub(crate) drained: Option<Drained>,
    /// When it was made, or made again, since the checker began.
    pub(crate) made: Duration,
    /// When its last drain began, since the checker began.
    pub(crate) drain_began: Duration,
    /// When it was last cordoned no more, since the checker began.
    pub(crate) uncordoned: Option<Duration>,
}

/// A Node was written to be drained, after a list of its pods had shown that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drained {
    /// The write before: the list came after that, and shows each pod that was bound by then. One that tolerates the cordon
    /// may be bound at any time.
    pub(crate) listed_after: u64,
    pub(crate) attempt: u64,
    /// It was cordoned before that write, and still after it.
    pub(crate) cordoned: bool,
}

/// A pod, and since when it is bound to its node: the revision, and the time since the checker began.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodState {
    pub(crate) object: Json,
    pub(crate) bound: u64,
    pub(crate) bound_at: Duration,
}

/// The right to reboot a host from one boot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Grant {
    pub(crate) node: String,
    pub(crate) boot_id: String,
    pub(crate) shadow_uid: String,
    pub(crate) attempt: u64,
    /// Number of earlier restores of etcd: attempts from before may come again.
    pub(crate) history: u32,
}

/// The cluster after a revision.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects {
    pub(crate) nodes: BTreeMap<String, NodeState>,
    pub(crate) shadows: BTreeMap<String, Json>,
    pub(crate) ledger: Json,
    /// The ledgers that somebody deleted, and when.
    pub(crate) deleted: Vec<(Duration, Json)>,
    /// The time since the checker began.
    pub(crate) now: Duration,
    /// Number of nodes that the leader of this term may update at once.
    pub(crate) limit: usize,
    /// Pods, by namespace and name.
    pub(crate) pods: BTreeMap<String, PodState>,
    /// Budgets, by namespace and name.
    pub(crate) budgets: BTreeMap<String, Json>,
    pub(crate) grants: BTreeSet<Grant>,
    /// All claims so far: node and boot id.
    pub(crate) claims: BTreeSet<(String, String)>,
    /// Revisions that changed more of a shadow than its status.
    pub(crate) beyond_status: BTreeSet<u64>,
    /// Revisions that uncordoned a Node whose marker did not say that we had cordoned it, or cordoned one without saying
    /// so; and how.
    pub(crate) odd_cordons: BTreeMap<u64, String>,
    /// The last revision, and the last of those that an update is made of.
    pub(crate) last: u64,
    pub(crate) last_step: u64,
    /// Number of restores of etcd, and the time until which nothing counts as a violation after the last one.
    pub(crate) history: u32,
    pub(crate) uncertain_until: Duration,
}

impl Objects {
    /// Whether the change is so recent that a leader may not have seen it.
    pub(crate) fn is_recent(&self, at: Duration) -> bool {
        self.now.saturating_sub(at) <= GRACE
    }

    /// etcd was restored from a snapshot, and the objects are those of `then` again. What hosts have done because of what is
    /// forgotten was right nevertheless.
    pub(crate) fn go_back(&mut self, then: Self) {
        let forgotten = std::mem::replace(self, then);
        self.history = forgotten.history + 1;
        self.uncertain_until = self.now + UNCERTAIN;
        self.limit = self.limit.max(forgotten.limit);
        self.grants.extend(forgotten.grants);
        self.claims.extend(forgotten.claims);
        self.beyond_status.extend(forgotten.beyond_status);
        self.odd_cordons.extend(forgotten.odd_cordons);
    }
}
