//! Which step of the protocol a change of an object is, as a watch shows it. Pure, but for the watches.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use brupop_api::State::{Idle, MonitoringUpdate, RebootedIntoUpdate, StagedAndPerformedUpdate};
use brupop_api::fleet::BottlerocketFleetStatus;
use brupop_api::names::MARKER_ANNOTATION;
use brupop_api::shadow::BottlerocketShadowSpec;
use brupop_api::{BottlerocketFleet, BottlerocketShadow, Marker};
use brupop_testbed::Fleet;
use brupop_testbed::operator::NAMESPACE;
use futures::stream::{BoxStream, SelectAll};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::api::Api;
use kube::runtime::{WatchStreamExt as _, watcher};

/// A write of the reconciler, by what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    Term,
    SlotTaken,
    Staging,
    Excluded,
    Cordoned,
    Evicted,
    Drained,
    Granted,
    Undone,
    Monitoring,
    Idle,
    SlotFreed,
}

impl Written {
    /// All of them, in the order of one update.
    pub const ALL: [Self; 12] = [
        Self::Term,
        Self::SlotTaken,
        Self::Staging,
        Self::Excluded,
        Self::Cordoned,
        Self::Evicted,
        Self::Drained,
        Self::Granted,
        Self::Undone,
        Self::Monitoring,
        Self::Idle,
        Self::SlotFreed,
    ];
}

/// A version of an object that was seen.
enum Seen {
    Ledger(Box<BottlerocketFleetStatus>),
    Shadow(String, Box<BottlerocketShadowSpec>),
    Node(String, Box<Marker>),
    Leaving(String),
}

/// What is written, as it is seen.
pub struct Writes {
    seen: SelectAll<BoxStream<'static, watcher::Result<Seen>>>,
    ledger: Option<BottlerocketFleetStatus>,
    shadows: BTreeMap<String, BottlerocketShadowSpec>,
    nodes: BTreeMap<String, Marker>,
    leaving: Vec<String>,
}

impl Writes {
    /// Watches from now on; returns when all that is there already is known. It is not a write.
    pub async fn of(fleet: &Fleet) -> Result<Self> {
        let (client, any) = (fleet.client(), watcher::Config::default);
        let ledgers = watcher(Api::<BottlerocketFleet>::namespaced(client.clone(), NAMESPACE), any());
        let shadows = watcher(Api::<BottlerocketShadow>::namespaced(client.clone(), NAMESPACE), any());
        let nodes = watcher(Api::<Node>::all(client.clone()), any());
        let pods = watcher(Api::<Pod>::namespaced(client, "shop"), any());
        let marker = |node: &Node| {
            node.annotations()
                .get(MARKER_ANNOTATION)
                .and_then(|text| Marker::parse(text).ok())
                .unwrap_or_default()
        };
        let seen = [
            ledgers
                .default_backoff()
                .applied_objects()
                .map_ok(|ledger| Seen::Ledger(Box::new(ledger.status.unwrap_or_default())))
                .boxed(),
            shadows
                .default_backoff()
                .applied_objects()
                .map_ok(|shadow| Seen::Shadow(shadow.name_any(), Box::new(shadow.spec)))
                .boxed(),
            nodes
                .default_backoff()
                .applied_objects()
                .map_ok(move |node| Seen::Node(node.name_any(), Box::new(marker(&node))))
                .boxed(),
            pods.default_backoff()
                .applied_objects()
                .try_filter(|pod| std::future::ready(pod.metadata.deletion_timestamp.is_some()))
                .map_ok(|pod| Seen::Leaving(pod.name_any()))
                .boxed(),
        ];
        let mut writes = Self {
            seen: futures::stream::select_all(seen),
            ledger: None,
            shadows: BTreeMap::new(),
            nodes: BTreeMap::new(),
            leaving: Vec::new(),
        };
        let nodes = fleet.hosts.len();
        while writes.ledger.is_none() || writes.shadows.len() < nodes || writes.nodes.len() < nodes {
            let seen = writes.seen.try_next().await?.context("a watch has ended")?;
            writes.take(seen);
        }
        Ok(writes)
    }

    /// Awaits the next write of this kind; returns it after those of other kinds that were seen before it.
    pub async fn next(&mut self, wanted: Written) -> Result<Vec<Written>> {
        let mut written = vec![];
        while !written.contains(&wanted) {
            let seen = self.seen.try_next().await?.context("a watch has ended")?;
            written.extend(self.take(seen));
        }
        Ok(written)
    }

    /// What an object's new version was written for.
    fn take(&mut self, seen: Seen) -> Vec<Written> {
        match seen {
            Seen::Ledger(after) => {
                let before = self.ledger.replace((*after).clone());
                before.map(|before| of_ledger(&before, &after)).unwrap_or_default()
            }
            Seen::Shadow(name, after) => {
                let before = self.shadows.insert(name, (*after).clone());
                before.map(|before| of_shadow(&before, &after)).unwrap_or_default()
            }
            Seen::Node(name, after) => {
                let before = self.nodes.insert(name, (*after).clone());
                before.map(|before| of_node(&before, &after)).unwrap_or_default()
            }
            Seen::Leaving(name) if !self.leaving.contains(&name) => {
                self.leaving.push(name);
                vec![Written::Evicted]
            }
            Seen::Leaving(_) => vec![],
        }
    }
}

fn which<const N: usize>(rows: [(bool, Written); N]) -> Vec<Written> {
    rows.into_iter().filter_map(|(is, written)| is.then_some(written)).collect()
}

fn of_ledger(before: &BottlerocketFleetStatus, after: &BottlerocketFleetStatus) -> Vec<Written> {
    let more = |than: &BottlerocketFleetStatus, these: &BottlerocketFleetStatus| {
        these.slots.iter().any(|(shadow, slot)| than.slots.get(shadow) != Some(slot))
    };
    which([
        (before.term != after.term, Written::Term),
        (more(before, after), Written::SlotTaken),
        (more(after, before), Written::SlotFreed),
    ])
}

fn of_shadow(before: &BottlerocketShadowSpec, after: &BottlerocketShadowSpec) -> Vec<Written> {
    let moves = |to| before.state != to && after.state == to;
    let granted = before.reboot_from_boot_id.is_none() && after.reboot_from_boot_id.is_some();
    which([
        (moves(StagedAndPerformedUpdate), Written::Staging),
        (moves(RebootedIntoUpdate) && granted, Written::Granted),
        (moves(MonitoringUpdate), Written::Monitoring),
        (moves(Idle), Written::Idle),
    ])
}

fn of_node(before: &Marker, after: &Marker) -> Vec<Written> {
    let begins = |at: fn(&Marker) -> &Option<String>| at(before).is_none() && at(after).is_some();
    which([
        (begins(|marker| &marker.excluded_at), Written::Excluded),
        (begins(|marker| &marker.cordoned_at), Written::Cordoned),
        (begins(|marker| &marker.drained_at), Written::Drained),
        (before.holds_changes() && !after.holds_changes(), Written::Undone),
    ])
}
