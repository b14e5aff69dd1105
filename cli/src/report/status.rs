//! The fleet at a glance.

mod text;
mod view;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use brupop_api::conditions::{
    ADMISSION_ENFORCED, Condition, ConditionStatus, OTHER_OPERATOR, OVERDUE, PROGRESSING,
};
use brupop_api::facts::ShadowFacts;
use brupop_api::fleet::Slot;
use brupop_api::{BottlerocketFleetStatus, BottlerocketShadow, Item, State};
use brupop_core::decide::{Reason, Turn, why_halted};
use brupop_core::pool::Pool;

use super::{
    condition, limit, name, node_of, pool_of, progressing, said_of, sentence, slots_in_use, time,
    version, word,
};
use crate::gather::Fleet;
use crate::words::variant;
use view::{Count, Glance, HaltedVersion, LeftByPeople, Moving, PoolLine, WaitingNodes};

/// Stands for the reason of a node about which the reconciler has said nothing.
const SILENT: &str = "-";

/// The fleet at a glance.
pub(crate) fn of(fleet: &Fleet) -> Glance {
    let status = fleet
        .object
        .as_ref()
        .and_then(|fleet| fleet.status.as_ref());
    let counts = status.map(|status| status.counts).unwrap_or_default();
    let without_shadow = usize::try_from(counts.nodes)
        .unwrap_or(0)
        .saturating_sub(fleet.shadows.len());
    let mut view = Glance {
        namespace: name(&fleet.namespace),
        paused: fleet.object.as_ref().is_some_and(|fleet| fleet.spec.paused),
        unavailable_limit: status.and_then(limit),
        updating_nodes: status.map_or(0, |status| status.slots.len()),
        nodes: fleet.shadows.len() + without_shadow,
        obstacles: fleet
            .leads
            .warning()
            .into_iter()
            .chain(obstacles(status))
            .collect(),
        halted: halted(status),
        pools: fleet.pools.iter().map(pool).collect(),
        not_opted_in_nodes: status.map_or(0, |status| status.not_opted_in_nodes),
        without_shadow,
        ..Glance::default()
    };
    let mut counts = BTreeMap::<_, usize>::new();
    let mut waiting = BTreeMap::<(String, String), Vec<String>>::new();
    let mut left = BTreeMap::<String, Vec<String>>::new();
    // Thousands may wait in a pool: its slots are counted once.
    let mut told = BTreeMap::<&str, String>::new();
    let mut slots_of = |pool| {
        let told = |status| {
            told.entry(pool)
                .or_insert_with(|| slots_in_use(pool, status, &fleet.pools))
                .clone()
        };
        status.map(told)
    };
    for item in &fleet.shadows {
        let Some(shadow) = item.ok() else {
            view.unreadable.push(name(item.name()));
            continue;
        };
        *counts.entry((state(shadow), runs(shadow))).or_default() += 1;
        let slot = status.and_then(|status| status.slots.get(item.name()));
        match standing(shadow, slot) {
            Progress::UpToDate => {
                view.updated_nodes += 1;
                let said =
                    progressing(shadow).filter(|said| said.reason == Reason::NoUpdate.as_str());
                if let Some((_, asked)) = said.and_then(|said| said.message.split_once("; ")) {
                    left.entry(sentence(asked))
                        .or_default()
                        .push(node_of(item.name()));
                }
            }
            Progress::Moves => view.moving.push(moving(item, shadow, slot)),
            Progress::Waits => {
                waiting
                    .entry(waits_for(shadow, &mut slots_of))
                    .or_default()
                    .push(node_of(item.name()));
            }
        }
    }
    view.states = counts
        .into_iter()
        .map(|((state, version), nodes)| Count {
            state,
            version,
            nodes,
        })
        .collect();
    view.states.sort_by_key(|count| Reverse(count.nodes));
    let groups = waiting
        .into_iter()
        .map(|((reason, message), nodes)| WaitingNodes {
            reason,
            nodes,
            message,
        });
    view.waiting = groups.collect();
    view.waiting
        .sort_by_key(|waiting| Reverse(waiting.nodes.len()));
    view.left_by_people = left
        .into_iter()
        .map(|(message, nodes)| LeftByPeople { message, nodes })
        .collect();
    view
}

enum Progress {
    UpToDate,
    Moves,
    Waits,
}

/// Where the node is, as ledger, versions and reconciler say.
fn standing(shadow: &BottlerocketShadow, slot: Option<&Slot>) -> Progress {
    let said = progressing(shadow);
    let moves = said.is_some_and(|said| said.status == ConditionStatus::True);
    if slot.is_some() || shadow.spec.state != State::Idle || moves {
        Progress::Moves
    } else if says_no_update(shadow) && !knows_an_update(shadow) {
        Progress::UpToDate
    } else {
        Progress::Waits
    }
}

fn says_no_update(shadow: &BottlerocketShadow) -> bool {
    progressing(shadow).is_some_and(|said| said.reason == Reason::NoUpdate.as_str())
}

/// After a release it takes a while until conditions of thousands of nodes are written; versions are there before.
fn knows_an_update(shadow: &BottlerocketShadow) -> bool {
    ShadowFacts::of(shadow).is_some_and(|facts| facts.update().is_some())
}

fn moving(
    item: &Item<BottlerocketShadow>,
    shadow: &BottlerocketShadow,
    slot: Option<&Slot>,
) -> Moving {
    let said = progressing(shadow);
    // While the spec is Idle, the update that the slot is for has not begun, or has ended.
    let to = match shadow.spec.state {
        State::Idle => slot.and_then(|slot| slot.version.as_deref()),
        _ => shadow.spec.version.as_deref(),
    };
    Moving {
        node: node_of(item.name()),
        state: state(shadow),
        goal: shadow.spec.state.as_str(),
        reason: word(said.map_or(SILENT, |said| &said.reason)),
        message: said
            .map(|said| sentence(said_of(said).0))
            .unwrap_or_default(),
        since: shadow.spec.state_transition_timestamp.as_deref().map(time),
        updating_since: slot.and_then(|slot| slot.since.as_deref()).map(time),
        runs: runs(shadow),
        to: to.map(version),
        overdue: condition(shadow, OVERDUE).is_some_and(|it| it.status == ConditionStatus::True),
    }
}

/// The reason that the node waits for, and its sentence; `slots_of` says who has the slots of a pool.
fn waits_for<'s>(
    shadow: &'s BottlerocketShadow,
    slots_of: impl FnOnce(&'s str) -> Option<String>,
) -> (String, String) {
    let silent = |why: &str| (SILENT.to_owned(), why.to_owned());
    match progressing(shadow) {
        None => {
            silent("the reconciler has said nothing about these nodes yet: see whether one leads")
        }
        Some(_) if says_no_update(shadow) => silent(
            "their hosts know of an update; the reconciler has not said yet what they wait for",
        ),
        Some(said) => {
            let waits_for_slot = said.reason == Reason::LimitReached(Turn::NoSlot).as_str();
            let slots = if waits_for_slot {
                slots_of(pool_of(shadow))
            } else {
                None
            };
            let message = slots.map(|slots| format!("waiting for a free slot: {slots}"));
            (
                word(&said.reason),
                message.unwrap_or_else(|| sentence(said_of(said).0)),
            )
        }
    }
}

/// What keeps all updates from starting.
fn obstacles(status: Option<&BottlerocketFleetStatus>) -> Vec<String> {
    // What the API server puts into a new fleet has no term.
    let Some(status) = status.filter(|status| status.term.is_some()) else {
        return vec!["no reconciler has written the fleet's status yet".to_owned()];
    };
    let wrong = |condition: &&Condition| match condition.type_.as_str() {
        ADMISSION_ENFORCED => condition.status != ConditionStatus::True,
        OTHER_OPERATOR => condition.status == ConditionStatus::True,
        _ => false,
    };
    let said = |condition: &Condition| {
        let said = format!(
            "{}: {}",
            word(&condition.type_),
            sentence(&condition.message)
        );
        // Agents' reports pass the webhook; where it cannot be reached, there are none.
        let missing = (condition.type_ == ADMISSION_ENFORCED).then(|| {
            format!(
                "; since {} agents' reports may be missing",
                time(&condition.last_transition_time)
            )
        });
        said + &missing.unwrap_or_default()
    };
    status.conditions.iter().filter(wrong).map(said).collect()
}

fn halted(status: Option<&BottlerocketFleetStatus>) -> Vec<HaltedVersion> {
    let versions = status.into_iter().flat_map(|status| &status.versions);
    let halted = versions.filter_map(|record| {
        Some(HaltedVersion {
            version: version(&record.version),
            variant: variant(&record.variant),
            at: time(record.halted_at.as_deref()?),
            why: sentence(&why_halted(record)),
        })
    });
    halted.collect()
}

fn pool(item: &Item<Pool>) -> PoolLine {
    let status = item.ok().map(|pool| &pool.stored);
    let said =
        status.and_then(|status| status.conditions.iter().find(|it| it.type_ == PROGRESSING));
    let unsaid =
        || "the reconciler has said nothing about this pool yet: see whether one leads".to_owned();
    PoolLine {
        pool: name(item.name()),
        paused: item.ok().is_some_and(|pool| pool.paused),
        counts: status.map(|status| status.counts).unwrap_or_default(),
        reason: word(said.map_or(SILENT, |said| &said.reason)),
        message: said.map_or_else(unsaid, |said| sentence(&said.message)),
    }
}

fn state(shadow: &BottlerocketShadow) -> Option<&'static str> {
    Some(shadow.status.as_ref()?.current_state?.as_str())
}

fn runs(shadow: &BottlerocketShadow) -> Option<String> {
    Some(version(shadow.status.as_ref()?.current_version.as_deref()?))
}
