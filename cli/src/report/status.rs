//! The fleet at a glance.

mod text;
mod view;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use brupop_api::conditions::{
    ADMISSION_ENFORCED, Condition, ConditionStatus, OTHER_OPERATOR, OVERDUE, PROGRESSING,
};
use brupop_api::fleet::Slot;
use brupop_api::{BottlerocketFleetStatus, BottlerocketShadow, Item, State, names};
use brupop_core::decide::{Reason, why_halted};
use brupop_core::pool::Pool;
use jiff::tz::TimeZone;

use super::{
    condition, limit, name, node_of, pool_of, progressing, sentence, sentence_of, slots_in_use,
    time, time_zone, unsaid, version, word,
};
use crate::error::Error;
use crate::gather::Fleet;
use crate::leads::Leads;
use crate::words::variant;
pub(crate) use view::Glance;
use view::{HaltedVersion, Moving, NodeLine, PoolLine, Standing, WaitingNodes};

/// Stands for the reason of a node about which the reconciler has said nothing.
const SILENT: &str = "-";

/// Shows the fleet at a glance, or one pool.
///
/// # Errors
/// There is no such pool.
pub(crate) fn of(fleet: &Fleet, pool: Option<&str>) -> Result<Glance, Error> {
    let status = fleet.object.as_ref().and_then(|it| it.status.as_ref());
    let is_meant = |item: &&Item<_>| {
        pool.is_none_or(|pool| item.ok().is_some_and(|shadow| pool_of(shadow) == pool))
    };
    let shadows: Vec<_> = fleet.shadows.iter().filter(is_meant).collect();
    let mut view = head(fleet, pool, shadows.len())?;
    // Otherwise what objects say may be old.
    let is_known =
        !matches!(fleet.around.leads, Leads::No(_)) && status.is_some_and(reports_arrive);
    let mut waiting = BTreeMap::<(String, String), Vec<String>>::new();
    let mut left = BTreeMap::<(String, String), Vec<String>>::new();
    // Thousands may wait in a pool: its slots are counted once.
    let mut slots = BTreeMap::<&str, String>::new();
    for item in shadows {
        let node = node_of(item.name());
        let Some(shadow) = item.ok() else {
            view.unreadable.push(name(item.name()));
            continue;
        };
        let slot = status.and_then(|status| status.slots.get(item.name()));
        let said = progressing(shadow);
        let moves = said.is_some_and(|said| said.status == ConditionStatus::True);
        let reason = said.map_or(SILENT, |said| &said.reason);
        let standing = if slot.is_some() || shadow.spec.state != State::Idle || moves {
            Standing::Moving
        } else if reason == Reason::NoUpdate.as_str() {
            Standing::UpToDate
        } else {
            Standing::Waiting
        };
        view.each.push(NodeLine {
            node: node.clone(),
            pool: name(pool_of(shadow)),
            version: runs(shadow),
            state: state(shadow),
            reason: word(reason),
            standing,
        });
        if standing == Standing::Moving {
            view.moving.push(moving(node, shadow, slot));
            continue;
        }
        let mut cordoned = fleet.around.cordoned.iter().flatten();
        if reason == Reason::NodeNotReady.as_str() || cordoned.any(|it| *it == node) {
            view.out_of_service.push(node.clone());
        }
        let waits = match said {
            None => (SILENT.to_owned(), unsaid("these nodes")),
            Some(said) if standing == Standing::UpToDate => {
                if let Some((_, asked)) = said.message.split_once("; ") {
                    let asked = (word(&said.reason), sentence(asked));
                    left.entry(asked).or_default().push(node);
                }
                continue;
            }
            Some(said) if said.reason == Reason::LimitReached.as_str() => {
                let pool = pool_of(shadow);
                let in_use = |status| slots_in_use(pool, status, &fleet.pools);
                let in_use = || status.map_or("?".to_owned(), in_use);
                let in_use = slots.entry(pool).or_insert_with(in_use);
                let message = format!("waiting for a free slot: {in_use}");
                (word(&said.reason), message)
            }
            Some(said) => (word(&said.reason), sentence(sentence_of(said))),
        };
        waiting.entry(waits).or_default().push(node);
    }
    let group = |((reason, message), nodes)| WaitingNodes {
        reason,
        nodes,
        message,
    };
    view.waiting = waiting.into_iter().map(group).collect();
    view.waiting.sort_by_key(|it| Reverse(it.nodes.len()));
    view.left_by_people = left.into_iter().map(group).collect();
    if pool.is_none() && fleet.around.cordoned.is_none() {
        let perhaps = "perhaps cordoned ones (you may not list Nodes)";
        view.out_of_service.push(perhaps.to_owned());
    }
    view.updated_nodes = is_known.then(|| view.count(Standing::UpToDate, |_| true));
    Ok(view)
}

fn moving(node: String, shadow: &BottlerocketShadow, slot: Option<&Slot>) -> Moving {
    let said = progressing(shadow);
    // While the spec is Idle, the update that the slot is for has not begun, or has ended.
    let to = match shadow.spec.state {
        State::Idle => slot.and_then(|slot| slot.version.as_deref()),
        _ => shadow.spec.version.as_deref(),
    };
    let overdue = condition(shadow, OVERDUE);
    let to = to.map(version);
    let mut from = runs(shadow);
    if from == to {
        let before = shadow.spec.from_version.as_deref().map(version);
        from = before.or(from);
    }
    Moving {
        node,
        reason: word(said.map_or(SILENT, |said| &said.reason)),
        message: said.map_or(String::new(), |said| sentence(sentence_of(said))),
        since: shadow.spec.state_transition_timestamp.as_deref().map(time),
        updating_since: slot.and_then(|slot| slot.since.as_deref()).map(time),
        from,
        to,
        overdue: overdue.is_some_and(|it| it.status == ConditionStatus::True),
    }
}

/// Says what keeps all updates from starting.
fn obstacles(status: Option<&BottlerocketFleetStatus>) -> Vec<String> {
    // The API server's defaults of a new fleet have no term.
    let Some(status) = status.filter(|status| status.term.is_some()) else {
        return vec!["no reconciler has written the fleet's status yet".to_owned()];
    };
    let obstacle = |condition: &Condition| {
        let is = condition.status == ConditionStatus::True;
        let said = format!(
            "{}: {}",
            word(&condition.type_),
            sentence(&condition.message)
        );
        match &*condition.type_ {
            OTHER_OPERATOR if is => Some(said),
            // Agents' reports pass the webhook; where it cannot be reached, there are none.
            ADMISSION_ENFORCED if !is => {
                let since = time(&condition.last_transition_time);
                Some(format!(
                    "{said}; since {since} agents' reports may be missing"
                ))
            }
            _ => None,
        }
    };
    status.conditions.iter().filter_map(obstacle).collect()
}

/// Whether agents' reports pass the webhook, for all that the reconciler knows.
fn reports_arrive(status: &BottlerocketFleetStatus) -> bool {
    let mut conditions = status.conditions.iter();
    let enforced = conditions.find(|it| it.type_ == ADMISSION_ENFORCED);
    status.term.is_some() && enforced.is_none_or(|it| it.status == ConditionStatus::True)
}

fn halted(status: Option<&BottlerocketFleetStatus>, fleet: &Fleet) -> Vec<HaltedVersion> {
    let versions = status.into_iter().flat_map(|status| &status.versions);
    // Those that no node wants any more are history.
    let shadows = fleet.shadows.iter().filter_map(Item::ok);
    let statuses = shadows.filter_map(|shadow| shadow.status.as_ref());
    let wanted: BTreeSet<_> = statuses
        .filter_map(|it| it.target_version.as_ref())
        .collect();
    let wanted = versions.filter(|it| wanted.contains(&it.version));
    let halted = wanted.filter_map(|record| {
        Some(HaltedVersion {
            version: version(&record.version),
            variant: variant(&record.variant),
            at: time(record.halted_at.as_deref()?),
            why: sentence(&why_halted(record)),
        })
    });
    halted.collect()
}

/// Returns what is told of the fleet as a whole, which has this number of shadows.
fn head(fleet: &Fleet, pool: Option<&str>, shadows: usize) -> Result<Glance, Error> {
    let object = fleet.object.as_ref();
    let status = object.and_then(|fleet| fleet.status.as_ref());
    let pools = fleet.pools.iter().map(pool_line);
    let pools = pools.filter(|line| pool.is_none_or(|pool| line.pool == pool));
    let pools: Vec<_> = pools.collect();
    let mut limit = status.and_then(limit);
    if let Some(pool) = pool.filter(|pool| *pool != names::DEFAULT_POOL) {
        let what = format!("pool {} in the namespace {}", name(pool), fleet.namespace);
        let line = pools.first().ok_or(Error::Missing(what))?;
        limit = Some(line.unavailable_limit);
    }
    let of_fleet = status.filter(|_| pool.is_none());
    let opted_in = of_fleet.map_or(0, |status| status.counts.nodes);
    let opted_in = usize::try_from(opted_in).unwrap_or(0);
    let slots = status.iter().flat_map(|status| status.slots.values());
    let slots = slots.map(|slot| slot.pool.as_deref().unwrap_or(names::DEFAULT_POOL));
    let slots = slots.filter(|its| pool.is_none_or(|pool| *its == pool));
    let warning = fleet.around.leads.warning().into_iter();
    Ok(Glance {
        namespace: name(&fleet.namespace),
        paused: object.is_some_and(|fleet| fleet.spec.paused),
        unavailable_limit: limit,
        updating_nodes: slots.count(),
        nodes: shadows.max(opted_in),
        obstacles: warning.chain(obstacles(status)).collect(),
        not_started: fleet.around.not_started.clone(),
        zone: zone(&fleet.pools),
        halted: halted(status, fleet),
        pools,
        not_opted_in_nodes: of_fleet.map_or(0, |status| status.not_opted_in_nodes),
        without_shadow: opted_in.saturating_sub(shadows),
        ..Glance::default()
    })
}

/// Returns the time zone of these pools' windows, if they all have the same.
fn zone(pools: &[Item<Pool>]) -> Option<TimeZone> {
    let mut zones = pools.iter().filter_map(time_zone);
    let first = zones.next()?;
    zones.all(|zone| zone == first).then(|| first.clone())
}

fn pool_line(item: &Item<Pool>) -> PoolLine {
    let pool = item.ok();
    let stored = pool.map(|pool| pool.stored.clone()).unwrap_or_default();
    let said = stored.conditions.iter().find(|it| it.type_ == PROGRESSING);
    PoolLine {
        pool: name(item.name()),
        paused: pool.is_some_and(|pool| pool.paused),
        unavailable_limit: stored.counts.unavailable_limit,
        reason: word(said.map_or(SILENT, |said| &said.reason)),
        message: said.map_or_else(|| unsaid("this pool"), |said| sentence(&said.message)),
    }
}

fn state(shadow: &BottlerocketShadow) -> Option<&'static str> {
    Some(shadow.status.as_ref()?.current_state?.as_str())
}

fn runs(shadow: &BottlerocketShadow) -> Option<String> {
    Some(version(shadow.status.as_ref()?.current_version.as_deref()?))
}
