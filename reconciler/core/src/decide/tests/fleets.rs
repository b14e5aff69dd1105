//! Fleets of real objects in any state, and what becomes of them when a decision is carried out.

use std::collections::BTreeMap;
use std::sync::Arc;

use brupop_api::crds::VERSION_RECORDS_MAX;
use brupop_api::fleet::UnpooledNodes;
use brupop_api::fleet::{
    AcknowledgedHalt, BottlerocketFleetStatus, Done, Halt, NodeFailure, Slot, VersionRecord,
};
use brupop_api::{
    BottlerocketFleet, BottlerocketFleetSpec, BottlerocketShadow, Item, Object, State, Write, names,
};
use brupop_apply::{Fields, apply};
use jiff::{SignedDuration, tz::TimeZone};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::json;

use super::objects::{Dice, node, shadow, uid_of};
use super::world::{NEW, OLD};
use crate::cluster::{Cluster, Entry};
use crate::decide::new_shadow;
use crate::decide::{Decision, Effect};
use crate::drain::{DrainPlan, Obstacle, PodKey};
use crate::facts::Observed;
use crate::known::{Known, KnownDrain};
use crate::objects::{AgentPod, Readiness};
use crate::observe::{Leader, Now, observe, pools_at};
use crate::policy::{Durations, Policy};
use crate::pool::Pool;
use crate::rules::{GateState, Limit, Rules, StepDurations};
use crate::window::{Schedule, Starts};

pub(super) const TERM: u64 = 4;
/// The time of every pass.
pub(super) const NOW: &str = "2026-11-21T04:00:00Z";

/// A node's objects; any of them may be missing.
#[derive(Clone, Debug)]
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
    /// Whether a workload is missing, if they were looked at; and if so, whether somebody has changed it.
    missing: Option<(bool, bool)>,
}

/// A fleet, and what its reconciler is told to do.
#[derive(Clone, Debug)]
pub(super) struct Fleet {
    pub(super) places: BTreeMap<String, Place>,
    pub(super) ledger: BottlerocketFleet,
    /// The pools, as JSON; perhaps none.
    pub(super) pools: Vec<serde_json::Value>,
    pub(super) policy: Policy,
    pub(super) starts: Starts<'static>,
    pub(super) alone: bool,
}

fn place(name: &str, dice: &mut Dice<'_>) -> Place {
    let pod = || PodKey { namespace: "shop".into(), name: "cart".into(), uid: "pod".into() };
    let full = DrainPlan {
        evict: vec![pod()],
        owners: vec!["apps/v1/ReplicaSet/shop/cart".into()],
        ..DrainPlan::default()
    };
    let shadow = (!dice.rarely(12)).then(|| shadow(name, dice));
    let readiness = (!dice.rarely(6)).then(|| Readiness { ready: true, since: dice.ago().parse().ok() });
    Place {
        agent: (!dice.rarely(12)).then(|| AgentPod { node: name.to_owned(), readiness }),
        plan: if dice.rarely(4) {
            None
        } else {
            Some(if dice.rarely(2) { full } else { DrainPlan::default() })
        },
        undrainable: dice.rarely(8),
        crowded: dice.rarely(12),
        blocked: dice.rarely(8).then(|| dice.rarely(2)),
        denied: dice.rarely(12),
        missing: dice.one_of(&[Some((false, false)), Some((true, false)), Some((true, true)), None]),
        node: (!dice.rarely(20)).then(|| node(name, shadow.as_ref(), dice)),
        shadow,
    }
}

fn variant(dice: &mut Dice<'_>) -> Option<String> {
    dice.one_of(&[None, Some("aws-k8s-1.36"), Some("metal-k8s-1.36")]).map(str::to_owned)
}

/// Windows that are over.
pub(super) fn never() -> Vec<Schedule> {
    vec![Schedule::new("* * * * * * 2020", TimeZone::UTC, None).unwrap()]
}

/// The settings.
fn policy(dice: &mut Dice<'_>) -> Policy {
    let seconds = SignedDuration::from_secs;
    let limit = dice.one_of(&[Limit::Nodes(2), Limit::Percent(40), Limit::Nodes(1), Limit::Unlimited]);
    let windows = if dice.rarely(5) { never() } else { vec![] };
    let steps = StepDurations {
        exclusion: seconds(dice.one_of(&[0, 30])),
        drain: seconds(900),
        soak: seconds(60),
        workloads: seconds(dice.one_of(&[600, 0])),
    };
    Policy {
        default_pool: Rules::of_settings(limit, windows, steps, false),
        durations: Durations {
            stage: seconds(3600),
            reboot: seconds(1800),
            settle: seconds(600),
            back_off_base: seconds(120),
            min_node_age: seconds(dice.one_of(&[0, 300])),
            pause: seconds(dice.one_of(&[0, 60])),
            ..Durations::default()
        },
        force: dice.rarely(4),
        ..Policy::default()
    }
}

fn ledger(places: &BTreeMap<String, Place>, dice: &mut Dice<'_>) -> BottlerocketFleet {
    let mut slots = BTreeMap::new();
    for (shadow, place) in places {
        let name = names::node_of_shadow(shadow).unwrap();
        let spec = place.shadow.as_ref().map(|shadow| &shadow.spec).filter(|spec| spec.state != State::Idle);
        // Mostly those have slots that run.
        if dice.rarely(4) != spec.is_some() {
            let uid = if dice.rarely(8) { "an earlier shadow".to_owned() } else { uid_of(name) };
            let own = spec.and_then(|spec| spec.attempt).unwrap_or(1);
            let attempt = dice.one_of(&[own, own, 1, 2, 3]);
            let version =
                spec.and_then(|spec| spec.version.clone()).or_else(|| dice.rarely(2).then(|| NEW.to_owned()));
            let since = (!dice.rarely(4)).then(|| dice.ago());
            let counted = dice.rarely(6);
            slots.insert(
                shadow.clone(),
                Slot { uid, attempt, since, version, lost: dice.rarely(8), counted, ..Slot::default() },
            );
        }
    }
    for slot in slots.values_mut() {
        slot.pool = dice.one_of(&[None, None, Some("p0"), Some("p1"), Some("gone")]).map(str::to_owned);
    }
    let failed = |dice: &mut Dice<'_>| {
        let node = dice.one_of(&["n0", "n1", "elsewhere"]).to_owned();
        NodeFailure { node, at: dice.ago(), reason: "FellBack".to_owned(), variant: variant(dice) }
    };
    let record = VersionRecord {
        failures: if dice.rarely(2) { vec![failed(dice)] } else { vec![] },
        succeeded: dice.one_of(&[0, 1]),
        proven_variants: variant(dice).into_iter().collect(),
        halted: dice.rarely(3).then(|| Halt {
            at: dice.ago(),
            reason: String::new(),
            variants: variant(dice).into_iter().collect(),
        }),
        acknowledged_at: dice.ago_or_never(),
        done_pools: if dice.rarely(3) {
            let done = Done { since: dice.ago_or_never(), longest_seconds: dice.one_of(&[0, 7200]) };
            BTreeMap::from([(dice.one_of(&["p0", "p1", "gone"]).to_owned(), done)])
        } else {
            BTreeMap::new()
        },
        ..VersionRecord::default()
    };
    let halted = || VersionRecord { halted: Some(Halt::default()), ..VersionRecord::default() };
    let mut versions: BTreeMap<String, VersionRecord> = if dice.rarely(16) {
        (0..VERSION_RECORDS_MAX).map(|nth| (format!("1.0.{nth}"), halted())).collect()
    } else {
        BTreeMap::new()
    };
    if dice.rarely(2) && versions.is_empty() {
        versions.insert(NEW.to_owned(), record);
    }
    let mut fleet = BottlerocketFleet::new("fleet", BottlerocketFleetSpec::default());
    fleet.spec.acknowledged_halts = if dice.rarely(4) {
        vec![AcknowledgedHalt { version: NEW.to_owned(), halted_at: dice.ago() }]
    } else {
        vec![]
    };
    fleet.spec.max_unavailable = dice.rarely(4).then_some(IntOrString::Int(2));
    fleet.spec.unpooled_nodes = if dice.rarely(3) { UnpooledNodes::Hold } else { UnpooledNodes::DefaultPool };
    let seen = if dice.rarely(2) { BTreeMap::from([(NEW.to_owned(), dice.ago())]) } else { BTreeMap::new() };
    let in_pool = || {
        (
            format!("{}/{NEW}", "p0"),
            VersionRecord {
                halted: Some(Halt { at: NOW.to_owned(), reason: String::new(), ..Halt::default() }),
                ..VersionRecord::default()
            },
        )
    };
    fleet.status = Some(BottlerocketFleetStatus {
        term: Some(TERM),
        pool_versions: if dice.rarely(6) { [in_pool()].into() } else { BTreeMap::new() },
        slots,
        versions,
        seen,
        last_finished: dice.ago_or_never(),
        ..BottlerocketFleetStatus::default()
    });
    fleet
}

/// Pools whose selectors overlap, more often than not.
fn pools(dice: &mut Dice<'_>) -> Vec<serde_json::Value> {
    let count = dice.one_of(&[0, 0, 1, 2]);
    let zone = |zone: &str| json!({"matchLabels": {"topology.kubernetes.io/zone": zone}});
    (0..count)
        .map(|nth| {
            let selector = [json!({}), zone("a"), zone("b")][dice.one_of(&[0, 1, 2])].clone();
            let limit = [json!(1), json!("50%"), json!(3)][dice.one_of(&[0, 1, 2])].clone();
            // NOW is a Saturday.
            let schedule = dice.one_of(&["0 3 * * *", "0 3 * * *", "0 3 * * SUN", "not at all"]);
            let window = json!({"schedule": schedule, "duration": "2h"});
            let freeze = json!({"name": "now", "start": "2026-11-21T00:00:00Z", "end": "2026-11-22T00:00:00Z"});
            let soak = dice.one_of(&["0s", "1h"]);
            let below = if dice.rarely(6) { OLD } else { "9.0.0" };
            // What a gate asks for is how it is.
            let gate = |state: &str| json!({"name": state.to_lowercase(), "type": "Prometheus",
                "prometheus": {"source": "main", "query": state}});
            let spec = json!({
                "nodeSelector": selector, "priority": dice.one_of(&[0, 0, 1]), "paused": dice.rarely(8),
                "maxUnavailable": limit, "windows": if dice.rarely(2) { vec![window] } else { vec![] },
                "freezes": if dice.rarely(6) { vec![freeze] } else { vec![] },
                "versions": {"below": below, "minAge": dice.one_of(&["0s", "0s", "1h"])},
                "topology": {"mode": dice.one_of(&["OneAtATime", "Spread"])},
                "drain": {"timeout": dice.one_of(&["15m", "1s"]), "loadBalancerDelay": dice.one_of(&["0s", "1h"])},
                "soak": {"readyFor": dice.one_of(&["1m", "2h"]), "workloadsTimeout": dice.one_of(&["15m", "0s"])},
                "after": if dice.rarely(4) { vec![json!({"pool": format!("p{}", 1 - nth), "soak": soak})] } else { vec![] },
                "gates": dice.one_of(&[&[][..], &[], &[], &[], &["Open"], &["Open", "Closed"], &["Unknown"]])
                    .iter().map(|state| gate(state)).collect::<Vec<_>>(),
            });
            json!({"metadata": {"name": format!("p{nth}"), "uid": format!("pool-{nth}"), "generation": 1}, "spec": spec})
        })
        .collect()
}

impl Fleet {
    /// The fleet that these bytes choose: one row for each node, and one for what holds for all.
    pub(super) fn of(nodes: &[Vec<u8>], all: &[u8]) -> Self {
        let name = |at: usize| format!("n{at}");
        let places: BTreeMap<String, Place> = nodes
            .iter()
            .enumerate()
            .map(|(at, row)| (names::shadow_name(&name(at)), place(&name(at), &mut Dice(row.iter()))))
            .collect();
        let dice = &mut Dice(all.iter());
        Self {
            ledger: ledger(&places, dice),
            pools: pools(dice),
            places,
            policy: policy(dice),
            starts: dice.one_of(&[Starts::Open, Starts::Open, Starts::Paused, Starts::AdmissionNotEnforced]),
            alone: !dice.rarely(6),
        }
    }

    /// The objects, as they are watched.
    pub(super) fn cluster(&self) -> Cluster {
        let mut cluster = Cluster::default();
        cluster.fleet = Some(Arc::new(serde_json::from_value(json!(self.ledger)).unwrap()));
        for (name, place) in &self.places {
            let read = |object: &serde_json::Value| serde_json::from_value(object.clone()).unwrap();
            let entry = Entry {
                node: place.node.as_ref().map(|node| Arc::new(serde_json::from_value(json!(node)).unwrap())),
                shadow: place.shadow.as_ref().map(|shadow| Arc::new(read(&json!(shadow)))),
                agents: place.agent.clone().map(|agent| ("agent".to_owned(), agent)).into_iter().collect(),
            };
            cluster.entries.insert(name.clone(), entry);
        }
        cluster.replace(
            self.pools.iter().map(|pool| serde_json::from_value::<Item<Pool>>(pool.clone()).unwrap()),
        );
        cluster
    }

    /// What is known besides.
    fn known(&self, cluster: &Cluster) -> Known {
        let mut known = Known::default();
        while !known.prepare_pools(cluster, NOW.parse().unwrap(), &self.policy) {}
        known.note_gates(cluster, |query| {
            GateState::ALL.into_iter().find(|state| state.as_str() == query.expression).unwrap()
        });
        for (name, place) in &self.places {
            let plan = place.plan.clone().map(Arc::new);
            known
                .drains
                .extend(plan.map(|plan| (name.clone(), KnownDrain { plan, ..KnownDrain::default() })));
            let budget = || "a budget".to_owned();
            let never = place.undrainable.then(|| Obstacle::Never(budget()));
            let now = place.blocked.map(|for_long| Obstacle::Now { budget: budget(), for_long });
            let obstacle = place.crowded.then_some(Obstacle::TooManyPods).or(never).or(now);
            known.obstacles.extend(obstacle.map(|obstacle| (name.clone(), obstacle)));
            known.denied.extend(place.denied.then(|| (name.clone(), "a rule".to_owned())));
            known.evicted.extend(place.missing.map(|(missing, changed)| {
                (name.clone(), missing.then(|| ("apps/v1/ReplicaSet/shop/cart".to_owned(), changed)))
            }));
        }
        known
    }

    /// What is seen in the objects.
    pub(super) fn observe<'a>(&'a self, cluster: &'a Cluster) -> Observed<'a> {
        let leader = Leader {
            term: TERM,
            enforced: self.starts != Starts::AdmissionNotEnforced,
            alone: self.alone,
            own_node: Some("n0"),
        };
        let time = NOW.parse().unwrap();
        // Facts borrow from it, and tests are short.
        let known = Box::leak(Box::new(self.known(cluster)));
        let pools = Box::leak(Box::new(pools_at(cluster, known, &self.policy, time)));
        let mut observed = observe(cluster, known, pools, &self.policy, &leader, Now { time, text: NOW });
        observed.fleet.starts = self.starts;
        observed
    }

    /// The ledger's status.
    pub(super) fn status(&self) -> &BottlerocketFleetStatus {
        self.ledger.status.as_ref().unwrap()
    }

    /// Carries out a write of the ledger.
    pub(super) fn write_ledger(&mut self, write: &Write<'_>) {
        changes(write, &mut self.ledger);
    }

    /// Carries out what was decided for a node; true if that is something that the reconciler does by itself.
    pub(super) fn carry_out(&mut self, name: &str, decision: &Decision<'_>) -> bool {
        let place = self.places.get_mut(name).unwrap();
        if let Some(Effect::Grant { confirm, .. }) = &decision.effect {
            // It may have been confirmed at this very time.
            assert_eq!(apply(confirm, place.node.as_mut().unwrap()), Ok(()), "{confirm:?}");
        }
        match &decision.effect {
            Some(Effect::Write(write) | Effect::Correct(write) | Effect::Grant { grant: write, .. }) => {
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
            Some(Effect::CreateShadow { attempt }) => {
                let node = place.node.as_ref().unwrap();
                let (node, uid) =
                    (node.metadata.name.as_deref().unwrap(), node.metadata.uid.as_deref().unwrap());
                let mut made = new_shadow(node, uid, *attempt, TERM, NOW);
                (made.metadata.uid, made.metadata.generation) = (Some("uid-made-again".to_owned()), Some(1));
                assert!(place.shadow.replace(made).is_none(), "a shadow is made where there is one");
            }
            Some(Effect::DeleteShadow { uid }) => {
                let gone = place.shadow.take().unwrap();
                assert_eq!(gone.metadata.uid.as_deref(), Some(*uid));
            }
            Some(Effect::Evict | Effect::Delete) | None => return false,
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
