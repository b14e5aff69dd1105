//! One node, with its shadow, its pods and its times, as decisions see it.

use brupop_api::facts::ShadowFacts;
use brupop_api::fleet::Slot;
use brupop_api::{BottlerocketShadow, Marker};
use kube::ResourceExt as _;

use crate::cluster::NodeRecord;
use crate::deadlines::{Clock, NodeTimes};
use crate::drain::Obstacle;
use crate::facts::{NodeView, Owner, PodFacts, PoolFacts};
use crate::leader::RulesByOwner;
use crate::led::{KnownDrain, LedNode};
use crate::objects::{AgentPod, NodeFacts};
use crate::policy::Durations;
use crate::workloads::{self, Evicted, Scales};

/// Makes the views one after the other.
pub(super) struct Observer<'a> {
    pub(super) durations: &'a Durations,
    pub(super) rules: RulesByOwner<'a>,
    /// For each pool.
    pub(super) topology_keys: Vec<Option<&'a str>>,
    pub(super) pools: &'a [PoolFacts<'a>],
    /// Whether this reconciler may delete pods.
    pub(super) may_force: bool,
    /// There are more pools than are read.
    pub(super) pool_left_out: bool,
    pub(super) clock: Clock<'a>,
}

impl<'a> Observer<'a> {
    /// The view of this name, and of the slot of this name if there is one; and why it cannot be interpreted if so.
    pub(super) fn view(
        &mut self,
        name: &'a str,
        record: &'a NodeRecord,
        slot: Option<&'a Slot>,
    ) -> (NodeView<'a>, Option<String>) {
        // No other pool may go on with the update of a pool that is not read any more.
        let its_pool = slot.and_then(|slot| slot.pool.as_deref());
        let is_unread = self.pool_left_out
            && its_pool.is_some_and(|name| self.pools.iter().all(|pool| pool.name != name));
        let led = &record.led;
        let known_owner = led.owner.filter(|_| !is_unread);
        let owner = match known_owner {
            None if self.pools.is_empty() => Owner::DefaultPool,
            owner => owner.unwrap_or(Owner::Unknown),
        };
        let pool = if let Owner::Pool(index) = owner {
            Some(index)
        } else {
            None
        };
        let node = record.node.as_deref();
        let mut unreadable = node.and_then(|node| node.marker.as_ref()?.as_ref().err().cloned());
        let zone = match pool.and_then(|pool| *self.topology_keys.get(pool)?) {
            None => node.and_then(|node| node.zone.as_deref()),
            Some(key) => node
                .and_then(|node| node.all_labels.get(key))
                .map(String::as_str),
        };
        let shadow = match record.shadow.as_ref().map(|item| &item.body) {
            Some(Ok(shadow)) => ShadowFacts::of(shadow),
            Some(Err(error)) => {
                unreadable = Some(format!("the shadow cannot be read: {error}"));
                None
            }
            None => None,
        };
        let marker = node.and_then(NodeFacts::marker);
        let rules = self.rules.of(known_owner);
        let steps = &rules.durations;
        let times = NodeTimes {
            durations: self.durations,
            steps,
            record,
            marker,
            shadow: shadow.as_ref(),
            slot,
            pool: pool.and_then(|pool| self.pools.get(pool)),
        };
        let time = self.clock.facts(&times);
        let watched = marker.filter(|_| !steps.workloads.is_zero());
        let view = NodeView {
            shadow_name: name,
            owner,
            node,
            zone,
            agent_ready: record.agent().is_some_and(AgentPod::is_ready),
            runs_this_process: false,
            shadow,
            unreadable: unreadable.is_some(),
            owner_uid: shadow.and(record.shadow()).and_then(owner_uid),
            pods: pods(led),
            force: self.may_force && rules.wants_force,
            denied: led.denied.node.as_deref(),
            shadow_denied: led.denied.shadow.as_deref(),
            evicted: evicted(led, watched),
            busy_zone: None,
            busy_control_plane: None,
            time,
        };
        (view, unreadable)
    }
}

/// The workloads whose pods were evicted, if this marker is there to name them.
fn evicted<'a>(led: &'a LedNode, marker: Option<&'a Marker>) -> Evicted<'a> {
    static NONE: Scales = Scales::new();
    let scales = led.scales.as_ref().unwrap_or(&NONE);
    marker.map_or(Evicted::Back, |marker| {
        workloads::evicted(&marker.evicted_owners, scales)
    })
}

fn pods(led: &LedNode) -> PodFacts<'_> {
    let pods = match &led.drain {
        Some(KnownDrain {
            plan, held_up_by, ..
        }) => PodFacts {
            known: true,
            drained: plan.is_done(),
            scales: led.scales.as_ref(),
            left: &plan.left,
            has_claims: plan.has_claims,
            first_left: plan.first_left,
            is_blocked: plan.is_blocked,
            held_up_by: held_up_by.as_deref(),
            overlooked: plan.overlooked,
            operator_pods: &plan.operator_pods,
            ..PodFacts::default()
        },
        None => PodFacts::default(),
    };
    match &led.obstacle {
        Some(Obstacle::Never(why)) => PodFacts {
            undrainable: Some(why),
            ..pods
        },
        Some(Obstacle::TooManyPods) => PodFacts {
            too_many: true,
            ..pods
        },
        Some(Obstacle::Budget { why, waited }) => PodFacts {
            blocked: Some(why),
            waited: *waited,
            ..pods
        },
        None => pods,
    }
}

fn owner_uid(shadow: &BottlerocketShadow) -> Option<&str> {
    shadow
        .owner_references()
        .iter()
        .find(|owner| owner.kind == "Node")
        .map(|owner| owner.uid.as_str())
}
