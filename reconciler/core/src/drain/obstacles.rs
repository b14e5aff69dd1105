//! Finds obstacles to a drain before it begins: pods that nobody recreates, budgets, pods that do not end. Which pods a
//! budget covers, and whether it lets them go, is as in the API server's eviction.

use std::collections::{BTreeMap, BTreeSet};

use brupop_api::Item;
use jiff::Timestamp;
use kube::core::SelectorExt as _;

use super::{DrainAction, Obstacle, Stuck, asks_for, drain_action, gone_by, is_overdue, overdue};
use crate::objects::{Budget, BudgetRemedy, Pod, PodItem};

/// Most comparisons of the pods of one node with keys and values of selectors: as many as the 110 pods that a kubelet runs,
/// unless it is told otherwise, take in a namespace with 4096 of them. Anybody with a namespace can make thousands of budgets.
const COMPARED_MAX: usize = 110 * 4096;
/// Looks at nodes that cost more than this in sum are not made without a pause, but for one. It takes some milliseconds.
pub const LOOKS_AT_ONCE: usize = 200_000;
/// Comparisons that a pod costs before it is compared with budgets, and a budget whose namespace has no pod here.
const OF_POD: usize = 200;
const OF_BUDGET: usize = 2;

/// Returns what stands in the way of a drain of these pods of one node, if anything does. A drain that `respects` pods that ask
/// not to be disrupted waits for their end.
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

/// Returns how many comparisons a look at the pods of each namespace takes.
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

/// Returns how much a look at these pods of a node takes, in comparisons of a pod with a key of a selector: see
/// [`LOOKS_AT_ONCE`].
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

/// Returns what to tell people about a namespace whose budgets are too many for its pods on a node.
fn incomparable(namespace: &str) -> String {
    format!(
        "the PodDisruptionBudgets of namespace {namespace} have too many keys and values to compare them with each of its \
         pods on this node: delete some, or shorten their selectors"
    )
}

/// Returns why the pods of one node can never all be evicted; `None` if they can. Either a pod has no controller, or two
/// budgets, or a pod or a budget of its namespace cannot be read, or a pod should have ended by now. The operator's own pods
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
            DrainAction::Stuck(stuck) => why.push(stuck.told_of(namespace, item.name())),
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

/// Returns why a budget allows no disruption now, although one of these pods of a node needs one; `None` if each allows one. A
/// pod that is not Ready, and that its budget [`spares`], may be well once it is elsewhere, and the budget may allow one then,
/// so a budget that spares one of them is set aside.
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

/// Returns which of these pods of a node asks not to be disrupted, if one does that would have to be evicted.
fn undisturbed<'p>(
    pods: impl IntoIterator<Item = &'p PodItem>,
    is_operator_pod: impl Fn(&PodItem) -> bool,
) -> Option<String> {
    let asking = evicted(pods, is_operator_pod).filter_map(|item| {
        let stuck = Stuck::Undisturbed(item.ok().and_then(asks_for)?);
        Some(stuck.told_of(item.namespace(), item.name()))
    });
    let told = asking.min()?;
    Some(format!("{told}; the node waits until that pod has ended"))
}

/// Number of disruptions that each budget (namespace, name) allowed when it was last looked at.
#[derive(Debug, Default)]
pub struct Budgets {
    allowed: BTreeMap<(String, String), i32>,
}

impl Budgets {
    /// Looks at all budgets. Returns the namespaces in which a budget allows more than before, or was deleted.
    pub fn relaxed<'b>(
        &mut self,
        budgets: impl Iterator<Item = &'b Item<Budget>>,
    ) -> BTreeSet<String> {
        let now: BTreeMap<(String, String), i32> = budgets
            .map(|budget| {
                (
                    (budget.namespace().to_owned(), budget.name().to_owned()),
                    allowed(budget),
                )
            })
            .collect();
        let more = |(key, before): (&(String, String), &i32)| {
            now.get(key)
                .is_none_or(|now| now > before)
                .then(|| key.0.clone())
        };
        let relaxed = self.allowed.iter().filter_map(more).collect();
        self.allowed = now;
        relaxed
    }
}

/// Whether budgets hold up the eviction of this pod. They do not hold up one that has ended, or has not begun.
pub(super) fn is_budgeted(pod: &Pod) -> bool {
    !pod.finished && !pod.pending
}

/// Whether this budget allows no disruption now.
fn is_shut(budget: &Budget) -> bool {
    budget.allowed <= 0 && budget.observed
}

/// Whether this budget, which covers the pod, lets it go whatever it allows now, because the pod is not Ready.
fn spares(budget: &Budget, pod: &Pod) -> bool {
    !pod.is_ready() && (budget.spares_ready_only || budget.enough_healthy)
}

/// Whether this budget covers the pod, allows no disruption now, and does not let it go all the same. None is allowed, either,
/// until its controller has seen its latest version.
fn holds(budget: &Budget, pod: &Pod) -> bool {
    let is_shut = is_shut(budget) || !budget.observed;
    is_budgeted(pod) && is_shut && selects(budget, pod) && !spares(budget, pod)
}

/// Returns what to tell people about a budget that allows no disruption now.
fn allows_none(item: &Item<Budget>, budget: &Budget) -> String {
    let remedy = match budget.remedy {
        BudgetRemedy::Change => "it never does, however many pods there are, so change the budget",
        BudgetRemedy::AddPod => {
            "it wants all of its pods healthy, so add a pod or change the budget"
        }
        BudgetRemedy::Repair => {
            "Kubernetes cannot compute it (SyncFailed): kubectl describe pdb says why"
        }
        BudgetRemedy::Wait => "it waits for more of its pods to be healthy",
    };
    format!(
        "the PodDisruptionBudget {}/{} allows no disruption of a pod on the node now ({remedy})",
        item.namespace(),
        item.name()
    )
}

/// Returns why the budgets of a pod's namespace never allow its eviction, whatever becomes of their pods; `None` if they may.
/// The rules are those of the API server's eviction.
fn forbidden<'b>(pod: &Pod, budgets: impl Iterator<Item = &'b Item<Budget>>) -> Option<String> {
    let (mut unread, mut selecting) = (vec![], vec![]);
    for item in budgets {
        match &item.body {
            Err(why) => unread.push((item, why)),
            Ok(budget) => {
                if selects(budget, pod) {
                    selecting.push(item);
                }
            }
        }
    }
    if let Some((item, why)) = unread.first() {
        return Some(format!(
            "the PodDisruptionBudget {}/{} cannot be read, for {why}, and might cover any pod of its namespace: repair \
             or delete it",
            item.namespace(),
            item.name()
        ));
    }
    if !is_budgeted(pod) {
        return None;
    }
    match &selecting[..] {
        [] | [_] => None,
        [first, second, ..] => Some(format!(
            "the PodDisruptionBudgets {}/{} and {} select the same pods, and Kubernetes evicts no pod of two budgets",
            first.namespace(),
            first.name(),
            second.name()
        )),
    }
}

fn selects(budget: &Budget, pod: &Pod) -> bool {
    budget
        .selector
        .as_ref()
        .is_some_and(|selector| selector.matches(&pod.labels))
}

/// Whether this budget changed in a way that matters to a drain.
pub fn matters(old: &Item<Budget>, new: &Item<Budget>) -> bool {
    let shape = |item: &Item<Budget>| {
        item.body.clone().map(|budget| Budget {
            allowed: 0,
            ..budget
        })
    };
    allowed(old) < allowed(new) || shape(old) != shape(new)
}

/// Returns how many disruptions this budget allows now.
fn allowed(budget: &Item<Budget>) -> i32 {
    budget.ok().map_or(0, |budget| budget.allowed)
}

#[cfg(test)]
mod tests;
