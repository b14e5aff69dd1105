//! Which step of the protocol a change of an object is, as a watch shows it. Pure, but for the watches.

use std::collections::BTreeMap;
use std::fmt::Debug;

use anyhow::{Context as _, Result};
use brupop_api::Marker;
use brupop_api::State::{Idle, MonitoringUpdate, RebootedIntoUpdate, StagedAndPerformedUpdate};
use brupop_api::fleet::BottlerocketFleetStatus;
use brupop_api::names::MARKER_ANNOTATION;
use brupop_api::shadow::BottlerocketShadowSpec;
use brupop_testbed::Fleet;
use futures::stream::{BoxStream, SelectAll, select_all};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

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

/// What is written, as it is seen; nothing, where a watch has begun and all that is there already is known.
type Seen = watcher::Result<Option<Vec<Written>>>;

/// What is written, as it is seen.
pub struct Writes(SelectAll<BoxStream<'static, Seen>>);

impl Writes {
    /// Watches from now on; returns when all that is there already is known. It is not a write.
    pub async fn of(fleet: &Fleet) -> Result<Self> {
        let client = fleet.client();
        let marker = |node: Node| {
            let text = node.annotations().get(MARKER_ANNOTATION);
            text.and_then(|text| Marker::parse(text).ok())
                .unwrap_or_default()
        };
        let leaves = |pod: Pod| pod.metadata.deletion_timestamp.is_some();
        let mut seen = select_all([
            changes(
                fleet.ledger(),
                |ledger| ledger.status.unwrap_or_default(),
                of_ledger,
            ),
            changes(fleet.shadows(), |shadow| shadow.spec, of_shadow),
            changes(Api::<Node>::all(client.clone()), marker, of_node),
            changes(
                Api::<Pod>::namespaced(client, "shop"),
                leaves,
                |before, after| which([(!before && *after, Written::Evicted)]),
            ),
        ]);
        for _ in 0..4 {
            while seen
                .try_next()
                .await?
                .context("a watch has ended")?
                .is_some()
            {}
        }
        Ok(Self(seen))
    }

    /// Awaits the next write of this kind; returns it after those of other kinds that were seen before it.
    pub async fn next(&mut self, wanted: Written) -> Result<Vec<Written>> {
        let mut written = vec![];
        while !written.contains(&wanted) {
            written.extend(
                self.0
                    .try_next()
                    .await?
                    .context("a watch has ended")?
                    .unwrap_or_default(),
            );
        }
        Ok(written)
    }
}

/// What the changes of these objects were written for, by the part of each that says so, before and after.
fn changes<K, T>(
    api: Api<K>,
    part: fn(K) -> T,
    of: fn(&T, &T) -> Vec<Written>,
) -> BoxStream<'static, Seen>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    T: Send + 'static,
{
    let mut known = BTreeMap::new();
    let events = watcher(api, watcher::Config::default()).default_backoff();
    let seen = events.map_ok(move |event| match event {
        Event::InitDone => None,
        Event::InitApply(object) | Event::Apply(object) => {
            let (name, after) = (object.name_any(), part(object));
            let written = known.get(&name).map(|before| of(before, &after));
            known.insert(name, after);
            Some(written.unwrap_or_default())
        }
        Event::Init | Event::Delete(_) => Some(vec![]),
    });
    seen.boxed()
}

fn which<const N: usize>(rows: [(bool, Written); N]) -> Vec<Written> {
    rows.into_iter()
        .filter_map(|(is, written)| is.then_some(written))
        .collect()
}

fn of_ledger(before: &BottlerocketFleetStatus, after: &BottlerocketFleetStatus) -> Vec<Written> {
    let more = |than: &BottlerocketFleetStatus, these: &BottlerocketFleetStatus| {
        these
            .slots
            .iter()
            .any(|(shadow, slot)| than.slots.get(shadow) != Some(slot))
    };
    which([
        (before.term != after.term, Written::Term),
        (more(before, after), Written::SlotTaken),
        (more(after, before), Written::SlotFreed),
    ])
}

fn of_shadow(before: &BottlerocketShadowSpec, after: &BottlerocketShadowSpec) -> Vec<Written> {
    let moves = |to| before.state != to && after.state == to;
    let granted = before.reboot_granted_boot_id.is_none() && after.reboot_granted_boot_id.is_some();
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
        (
            before.holds_changes() && !after.holds_changes(),
            Written::Undone,
        ),
    ])
}
