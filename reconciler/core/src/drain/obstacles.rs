//! What stands in the way of a drain before it begins: pods that nobody recreates, budgets, pods that do not end.

use std::collections::{BTreeMap, BTreeSet};

use brupop_api::Item;
use jiff::Timestamp;

use super::budgets::{
    REQUIREMENTS_MAX, allows_none, forbidden, holds, is_budgeted, is_shut, selects, spares,
};
use super::{
    DrainAction, Obstacle, asks, asks_for, drain_action, gone_by, is_overdue, overdue, unmanaged,
    unreadable,
};
use crate::objects::{Budget, Pod, PodItem};

/// Most comparisons of the pods of one node with keys and values of selectors: as many as the 110 pods that a kubelet runs,
/// unless it is told otherwise, take in a namespace with this many.
const COMPARED_MAX: usize = 110 * REQUIREMENTS_MAX;
/// Looks at nodes that cost more than this in sum are not made without a pause, but for one. It takes some milliseconds.
pub const LOOKS_AT_ONCE: usize = 200_000;
/// What a pod costs before it is compared with budgets, and a budget whose namespace has no pod here.
const OF_POD: usize = 200;
const OF_BUDGET: usize = 2;

/// What stands in the way of a drain of these pods of one node, if anything does. A drain that `respects` pods that ask not to
/// be disrupted waits for their end.
pub fn obstacle<'p, P: Iterator<Item = &'p PodItem>>(
    pods: impl Fn() -> P,
    budgets: &'p [impl AsRef<Item<Budget>>],
    is_operator_pod: impl Fn(&PodItem) -> bool + Copy,
    respects: bool,
    now: Timestamp,
) -> Option<Obstacle> {
    let here = by_namespace(pods(), budgets);
    if is_incomparable(&here) {
        let most = comparisons(&here).max_by_key(|(_, compared)| *compared);
        return most.map(|(namespace, _)| Obstacle::Never(incomparable(namespace)));
    }
    let asking = || undisturbed(pods(), is_operator_pod).filter(|_| respects);
    undrainable(pods(), &here, is_operator_pod, now)
        .or_else(asking)
        .map(Obstacle::Never)
        .or_else(|| {
            Some(Obstacle::Budget {
                why: blocked(pods(), &here, is_operator_pod)?,
                waited: false,
            })
        })
}

/// The pods (UIDs) of a node whose eviction a budget refuses now.
pub fn blocked_pods<'p, P: Iterator<Item = &'p PodItem>>(
    pods: impl Fn() -> P,
    budgets: &'p [impl AsRef<Item<Budget>>],
    is_operator_pod: impl Fn(&PodItem) -> bool,
) -> BTreeSet<String> {
    let here = by_namespace(pods(), budgets);
    if is_incomparable(&here) {
        return BTreeSet::new();
    }
    let is_blocked = |item: &&PodItem| {
        let budgets = here
            .get(item.namespace())
            .into_iter()
            .flat_map(|(_, budgets)| budgets);
        let mut pairs = budgets.filter_map(|budget| Some((budget.ok()?, item.ok()?)));
        pairs.any(|(budget, pod)| holds(budget, pod))
    };
    evicted(pods(), is_operator_pod)
        .filter(is_blocked)
        .map(|item| item.uid().to_owned())
        .collect()
}

/// The namespaces of pods of one node: how many pods it has there, and their budgets.
type ByNamespace<'n> = BTreeMap<&'n str, (usize, Vec<&'n Item<Budget>>)>;

fn by_namespace<'n>(
    pods: impl IntoIterator<Item = &'n PodItem>,
    budgets: &'n [impl AsRef<Item<Budget>>],
) -> ByNamespace<'n> {
    let mut all = ByNamespace::new();
    for pod in pods {
        all.entry(pod.namespace()).or_default().0 += 1;
    }
    for budget in budgets.iter().map(AsRef::as_ref) {
        if let Some((_, here)) = all.get_mut(budget.namespace()) {
            here.push(budget);
        }
    }
    all
}

/// How many comparisons a look at the pods of each namespace takes.
fn comparisons<'h>(here: &'h ByNamespace<'_>) -> impl Iterator<Item = (&'h str, usize)> {
    let each = |budget: &&Item<Budget>| 1 + budget.ok().map_or(0, |budget| budget.requirements);
    here.iter().map(move |(namespace, (pods, budgets))| {
        (*namespace, pods * budgets.iter().map(each).sum::<usize>())
    })
}

/// Whether the pods of a node and the budgets of their namespaces are too many to be compared.
fn is_incomparable(here: &ByNamespace<'_>) -> bool {
    comparisons(here)
        .map(|(_, compared)| compared)
        .sum::<usize>()
        > COMPARED_MAX
}

/// How much a look at these pods of a node takes, in comparisons of a pod with a key of a selector: see [`LOOKS_AT_ONCE`].
pub fn cost<'p>(
    pods: impl ExactSizeIterator<Item = &'p PodItem>,
    budgets: &'p [impl AsRef<Item<Budget>>],
) -> usize {
    let each = OF_POD * pods.len() + OF_BUDGET * budgets.len();
    let compared: usize = comparisons(&by_namespace(pods, budgets))
        .map(|(_, compared)| compared)
        .sum();
    each + if compared > COMPARED_MAX { 0 } else { compared }
}

/// What to tell people about a namespace whose budgets are too many for its pods on a node.
fn incomparable(namespace: &str) -> String {
    format!(
        "the PodDisruptionBudgets of namespace {namespace} have too many keys and values to compare them with each of its \
         pods on this node: delete some, or shorten their selectors"
    )
}

/// Why the pods of one node can never all be evicted; `None` if they can. Either a pod has no controller, or two budgets, or
/// a pod or a budget of its namespace cannot be read, or a pod should have ended by now. The operator's own pods
/// (`is_operator_pod`) are exempt.
fn undrainable<'p>(
    pods: impl IntoIterator<Item = &'p PodItem>,
    budgets: &ByNamespace<'_>,
    is_operator_pod: impl Fn(&PodItem) -> bool,
    time: Timestamp,
) -> Option<String> {
    let mut why: Vec<String> = vec![];
    for item in pods {
        if is_operator_pod(item) {
            continue;
        }
        let namespace = item.namespace();
        match drain_action(item) {
            DrainAction::Unmanaged => why.push(unmanaged(namespace, item.name())),
            DrainAction::Unreadable(problem) => {
                why.push(unreadable(namespace, item.name(), problem));
            }
            DrainAction::Evicted => {
                let here = budgets.get(namespace).map_or(&[][..], |(_, here)| here);
                why.extend(
                    item.ok()
                        .and_then(|pod| forbidden(pod, here.iter().copied())),
                );
            }
            DrainAction::Leaving if is_overdue(item, time) => {
                why.push(overdue(namespace, item.name(), gone_by(item)));
            }
            DrainAction::Stays | DrainAction::Leaving => {}
        }
    }
    // The smallest one, so that the answer changes as rarely as possible.
    why.into_iter().min()
}

/// Why a budget allows no disruption now, although one of these pods of a node needs one; `None` if each allows one. A pod
/// that is not Ready, and that its budget [`spares`], may be well once it is elsewhere, and the budget may allow one
/// then, so a budget that spares one of them is set aside.
fn blocked<'p>(
    pods: impl IntoIterator<Item = &'p PodItem>,
    budgets: &ByNamespace<'_>,
    is_operator_pod: impl Fn(&PodItem) -> bool,
) -> Option<String> {
    let mut evicted_from: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for item in evicted(pods, is_operator_pod) {
        if let Some(pod) = item.ok().filter(|pod| is_budgeted(pod)) {
            evicted_from.entry(item.namespace()).or_default().push(pod);
        }
    }
    let there = evicted_from
        .iter()
        .filter_map(|(namespace, pods)| Some((pods, &budgets.get(namespace)?.1)));
    let pairs = there.flat_map(|(pods, budgets)| budgets.iter().map(move |budget| (pods, *budget)));
    let why = pairs.filter_map(|(pods, item)| {
        let budget = item.ok().filter(|budget| is_shut(budget))?;
        let (mut any, mut all_held) = (false, true);
        for pod in pods.iter().filter(|pod| selects(budget, pod)) {
            (any, all_held) = (true, all_held && !spares(budget, pod));
        }
        (any && all_held).then(|| allows_none(item, budget))
    });
    why.min()
}

/// The pods of a node that a drain would evict, the operator's own aside.
fn evicted<'p>(
    pods: impl IntoIterator<Item = &'p PodItem>,
    is_operator_pod: impl Fn(&PodItem) -> bool,
) -> impl Iterator<Item = &'p PodItem> {
    let stays =
        move |item: &PodItem| is_operator_pod(item) || drain_action(item) != DrainAction::Evicted;
    pods.into_iter().filter(move |item| !stays(item))
}

/// Which of these pods of a node asks not to be disrupted, if one does that would have to be evicted.
fn undisturbed<'p>(
    pods: impl IntoIterator<Item = &'p PodItem>,
    is_operator_pod: impl Fn(&PodItem) -> bool,
) -> Option<String> {
    evicted(pods, is_operator_pod)
        .filter_map(|item| {
            Some(asks(
                item.namespace(),
                item.name(),
                item.ok().and_then(asks_for)?,
            ))
        })
        .min()
        .map(|asks| format!("{asks} allows no disruption; the node waits until that pod has ended"))
}

#[cfg(test)]
mod tests;
