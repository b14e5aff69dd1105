//! Which pods a budget covers, and whether it lets them go. The rules are those of the API server's eviction.

use std::collections::{BTreeMap, BTreeSet};

use brupop_api::Item;
use kube::core::SelectorExt as _;

use crate::objects::{Budget, BudgetRemedy, Pod};

/// Most keys and values of all selectors of a namespace. Each is compared with each pod of a node in each pass.
pub(super) const REQUIREMENTS_MAX: usize = 4096;
/// How many disruptions each budget (namespace, name) allowed when it was last looked at.
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
pub(super) fn is_shut(budget: &Budget) -> bool {
    budget.allowed <= 0 && budget.observed
}

/// Whether this budget, which covers the pod, lets it go whatever it allows now, because the pod is not Ready.
pub(super) fn spares(budget: &Budget, pod: &Pod) -> bool {
    !pod.is_ready() && (budget.spares_ready_only || budget.enough_healthy)
}

/// Whether this budget covers the pod, allows no disruption now, and does not let it go all the same. None is allowed, either,
/// until its controller has seen its latest version.
pub(super) fn holds(budget: &Budget, pod: &Pod) -> bool {
    let is_shut = is_shut(budget) || !budget.observed;
    is_budgeted(pod) && is_shut && selects(budget, pod) && !spares(budget, pod)
}

/// What to tell people about a budget that allows no disruption now.
pub(super) fn allows_none(item: &Item<Budget>, budget: &Budget) -> String {
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

/// Why the budgets of a pod's namespace never allow its eviction, whatever becomes of their pods; `None` if they may. The
/// rules are those of the API server's eviction.
pub(super) fn forbidden<'b>(
    pod: &Pod,
    budgets: impl Iterator<Item = &'b Item<Budget>>,
) -> Option<String> {
    let (mut unread, mut selecting, mut requirements) = (vec![], vec![], 0);
    for item in budgets {
        match &item.body {
            Err(why) => unread.push((item, why)),
            Ok(budget) => {
                requirements += budget.requirements;
                // Anybody with a namespace can make thousands of budgets.
                if requirements > REQUIREMENTS_MAX {
                    return Some(format!(
                        "the selectors of the PodDisruptionBudgets of namespace {} have more than {REQUIREMENTS_MAX} keys \
                         and values together: delete some, or shorten them",
                        item.namespace()
                    ));
                }
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

pub(super) fn selects(budget: &Budget, pod: &Pod) -> bool {
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

/// How many disruptions this budget allows now.
fn allowed(budget: &Item<Budget>) -> i32 {
    budget.ok().map_or(0, |budget| budget.allowed)
}
