//! Fleets of real objects in any state, and what becomes of them when a decision is carried out.

mod random;

use std::collections::BTreeMap;
use std::sync::Arc;

use brupop_api::fleet::BottlerocketFleetStatus;
use brupop_api::{BottlerocketFleet, BottlerocketShadow, Item, Object, Write, names};
use brupop_apply::{Fields, apply};
use jiff::tz::TimeZone;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use super::Decided;
use super::objects::Dice;
use crate::cluster::LedNode;
use crate::cluster::{Cluster, NodeRecord};
use crate::decide::{Step, new_shadow};
use crate::drain::{DrainPlan, Obstacle};
use crate::facts::Observed;
use crate::leader::LeaderState;
use crate::objects::AgentPod;
use crate::observe::observe;
use crate::observe::pools_at;
use crate::pool::Pool;
use crate::rules::GateState;
use crate::rules::Policy;
use crate::tests::world::NOW;
use crate::window::Schedule;
use crate::workloads::{Scale, Scales};
use random::{ledger, place, policy, pools};

pub(super) const TERM: u64 = 4;

/// A node's objects; any of them may be missing.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "independent dice")]
pub(super) struct Place {
    pub(super) node: Option<Node>,
    pub(super) shadow: Option<BottlerocketShadow>,
    agent: Option<AgentPod>,
    plan: Option<DrainPlan>,
    undrainable: bool,
    crowded: bool,
    /// A budget allows nothing now; for how long, if it does.
    blocked: Option<bool>,
    denied: bool,
    shadow_denied: bool,
    /// Whether a workload is missing, if they were looked at.
    missing: Option<bool>,
}

impl Place {
    /// Returns what is known of it besides.
    fn led(&self) -> LedNode {
        let budget = || "a budget".to_owned();
        let never = self.undrainable.then(|| Obstacle::Never(budget()));
        let now = self.blocked.map(|waited| Obstacle::Budget {
            why: budget(),
            waited,
        });
        let denied = |is: bool| is.then(|| "a rule".to_owned());
        LedNode {
            plan: self.plan.clone().map(Arc::new),
            obstacle: self
                .crowded
                .then_some(Obstacle::TooManyPods)
                .or(never)
                .or(now),
            node_denied: denied(self.denied),
            shadow_denied: denied(self.shadow_denied),
            scales: self.missing.map(|missing| {
                let scale = missing.then_some(Scale {
                    is_leaving: false,
                    wanted: 2,
                    available: 0,
                });
                Scales::from([("apps/v1/ReplicaSet/shop/cart".to_owned(), scale)])
            }),
            ..LedNode::default()
        }
    }
}

/// A fleet, and what its reconciler is told to do.
#[derive(Clone, Debug)]
pub(super) struct Fleet {
    pub(super) places: BTreeMap<String, Place>,
    pub(super) ledger: BottlerocketFleet,
    /// The pools, as JSON; perhaps none.
    pub(super) pools: Vec<serde_json::Value>,
    pub(super) policy: Policy,
    pub(super) paused: bool,
    pub(super) enforced: bool,
    pub(super) alone: bool,
}

pub(super) fn never() -> Vec<Schedule> {
    vec![Schedule::new("* * * * * * 2020", TimeZone::UTC, None).unwrap()]
}

impl Fleet {
    /// The fleet that these bytes choose: one row for each node, and one for what holds for all.
    pub(super) fn of(nodes: &[Vec<u8>], all: &[u8]) -> Self {
        let name = |at: usize| format!("n{at}");
        let places: BTreeMap<String, Place> = nodes
            .iter()
            .enumerate()
            .map(|(at, row)| {
                (
                    names::shadow_name(&name(at)),
                    place(&name(at), &mut Dice(row.iter())),
                )
            })
            .collect();
        let dice = &mut Dice(all.iter());
        let states = [(false, true), (false, true), (true, true), (false, false)];
        let (paused, enforced) = dice.one_of(&states);
        Self {
            paused,
            enforced,
            ledger: ledger(&places, dice),
            pools: pools(dice),
            places,
            policy: policy(dice),
            alone: !dice.rarely(6),
        }
    }

    /// The objects, as they are watched.
    pub(super) fn cluster(&self) -> Cluster {
        let mut cluster = Cluster::default();
        cluster.fleet = Some(Arc::new(
            serde_json::from_value(json!(self.ledger)).unwrap(),
        ));
        for (name, place) in &self.places {
            let record = NodeRecord {
                node: place
                    .node
                    .as_ref()
                    .map(|it| Arc::new(serde_json::from_value(json!(it)).unwrap())),
                shadow: place
                    .shadow
                    .as_ref()
                    .map(|it| Arc::new(serde_json::from_value(json!(it)).unwrap())),
                agents: place
                    .agent
                    .clone()
                    .map(|agent| ("agent".to_owned(), agent))
                    .into_iter()
                    .collect(),
                ..NodeRecord::default()
            };
            cluster.records.insert(name.clone(), record);
        }
        cluster.replace(
            self.pools
                .iter()
                .map(|pool| serde_json::from_value::<Item<Pool>>(pool.clone()).unwrap()),
        );
        cluster
    }

    /// Returns what is seen in the objects.
    pub(super) fn observe<'a>(&'a self, cluster: &Cluster) -> Observed<'a> {
        // Facts borrow from these, and tests are short.
        let cluster = Box::leak(Box::new(cluster.clone()));
        let leader = Box::leak(Box::new(LeaderState {
            term: TERM,
            enforced: self.enforced,
            alone: self.alone,
            own_node: Some("n0".to_owned()),
            may_force: true,
            ..LeaderState::default()
        }));
        let time = NOW.parse().unwrap();
        leader.prepare(cluster, time, &self.policy);
        leader.record_gates(cluster, |query| {
            GateState::ALL
                .into_iter()
                .find(|state| state.as_str() == query.query)
                .unwrap()
        });
        for (name, place) in &self.places {
            let led = &mut cluster.record(name).led;
            *led = LedNode {
                owner: led.owner,
                ..place.led()
            };
        }
        let pools = Box::leak(Box::new(pools_at(cluster, leader, &self.policy, time)));
        let mut observed = observe(cluster, leader, pools, &self.policy, NOW);
        observed.fleet.paused = self.paused;
        observed
    }

    pub(super) fn status(&self) -> &BottlerocketFleetStatus {
        self.ledger.status.as_ref().unwrap()
    }

    /// Carries out a write of the ledger.
    pub(super) fn write_ledger(&mut self, write: &Write<'_>) {
        changes(write, &mut self.ledger);
    }

    /// Carries out what was decided for a node; true if that is something that the reconciler does by itself.
    pub(super) fn carry_out(&mut self, name: &str, decision: &Decided<'_>) -> bool {
        let place = self.places.get_mut(name).unwrap();
        if let Some(confirm) = &decision.confirm {
            // It may have been confirmed at this very time.
            assert_eq!(
                apply(confirm, place.node.as_mut().unwrap()),
                Ok(()),
                "{confirm:?}"
            );
        }
        if let Some(write) = &decision.write {
            match write.object {
                Object::ShadowSpec(_) => {
                    let shadow = place.shadow.as_mut().unwrap();
                    changes(write, shadow);
                    shadow.metadata.generation =
                        shadow.metadata.generation.map(|generation| generation + 1);
                }
                Object::Node(_) => changes(write, place.node.as_mut().unwrap()),
                other => panic!("a node's decision writes {other:?}"),
            }
        }
        match decision.step {
            Some(Step::CreateShadow { attempt }) => {
                let node = place.node.as_ref().unwrap();
                let (node, uid) = (
                    node.metadata.name.as_deref().unwrap(),
                    node.metadata.uid.as_deref().unwrap(),
                );
                let mut made = new_shadow(node, uid, attempt, TERM, NOW);
                (made.metadata.uid, made.metadata.generation) =
                    (Some("uid-made-again".to_owned()), Some(1));
                assert!(
                    place.shadow.replace(made).is_none(),
                    "a shadow is made where there is one"
                );
            }
            Some(Step::DeleteShadow) => drop(place.shadow.take().unwrap()),
            Some(Step::Evict | Step::DeletePods) | None => return false,
            Some(_) => {}
        }
        true
    }
}

/// A write that was decided on this very object is taken, and changes it.
fn changes<T: Fields + Clone + PartialEq + std::fmt::Debug>(write: &Write<'_>, object: &mut T) {
    let before = object.clone();
    assert_eq!(apply(write, object), Ok(()), "{write:?}");
    assert_ne!(*object, before, "{write:?} changes nothing");
}
