//! Budgets: which allow more than before, so that evictions they refused are tried again at once; and
//! which can never allow what a drain needs. Pure.

use std::collections::{BTreeMap, BTreeSet};

use brupop_api::Item;
use kube::core::SelectorExt as _;

use crate::drain::{DrainAction, drain_action, unmanaged, unreadable};
use crate::objects::{Budget, Pod, PodItem};

/// Most keys and values of all selectors of a namespace. Each is compared with each pod of a node in each pass.
const REQUIREMENTS_MAX: usize = 4096;

/// How many disruptions each budget (namespace, name) allowed when it was last looked at.
#[derive(Debug, Default)]
pub struct Budgets {
    allowed: BTreeMap<(String, String), i32>,
}

impl Budgets {
    /// Looks at all budgets. Returns the namespaces in which a budget allows more than before, or was deleted.
    pub fn relaxed<'b>(&mut self, budgets: impl Iterator<Item = &'b Item<Budget>>) -> BTreeSet<String> {
        let now: BTreeMap<(String, String), i32> = budgets
            .map(|budget| ((budget.namespace().to_owned(), budget.name().to_owned()), allowed(budget)))
            .collect();
        let more = |(key, before): (&(String, String), &i32)| {
            now.get(key).is_none_or(|now| now > before).then(|| key.0.clone())
        };
        let relaxed = self.allowed.iter().filter_map(more).collect();
        self.allowed = now;
        relaxed
    }
}

/// What stands in the way of a drain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// No drain could empty the node. Holds why.
    Never(String),
    /// A budget allows no disruption now.
    Now {
        /// Which.
        budget: String,
        /// One has not done so for as long as a drain may take.
        for_long: bool,
    },
}

/// What stands in the way of a drain of these pods of one node, if anything does.
pub fn obstacle<'p, P: Iterator<Item = &'p PodItem>>(
    pods: impl Fn() -> P,
    budgets: &[impl AsRef<Item<Budget>>],
    is_operator_pod: impl Fn(&PodItem) -> bool + Copy,
    orphaned: impl Fn(&PodItem) -> bool,
) -> Option<Obstacle> {
    let never = undrainable(pods(), budgets, is_operator_pod, orphaned).map(Obstacle::Never);
    let now = || blocked(pods(), budgets, is_operator_pod);
    never.or_else(|| now().map(|budget| Obstacle::Now { budget, for_long: false }))
}

/// Why the pods of one node can never all be evicted, as pods and budgets are now; `None` if they can. Either a pod has
/// no controller, or its budgets allow no disruption with as many pods as there are, or a pod or a budget of its
/// namespace cannot be read. The operator's own pods (`is_operator_pod`) are exempt. `orphaned` finds pods whose
/// `DaemonSet` is gone.
fn undrainable<'p>(
    pods: impl IntoIterator<Item = &'p PodItem>,
    budgets: &[impl AsRef<Item<Budget>>],
    is_operator_pod: impl Fn(&PodItem) -> bool,
    orphaned: impl Fn(&PodItem) -> bool,
) -> Option<String> {
    let mut why: Vec<String> = vec![];
    for item in pods {
        if is_operator_pod(item) {
            continue;
        }
        let namespace = item.namespace();
        match drain_action(item, orphaned(item)) {
            DrainAction::Unmanaged => why.push(unmanaged(namespace, item.name())),
            DrainAction::Unreadable(problem) => why.push(unreadable(namespace, item.name(), problem)),
            DrainAction::Evicted => {
                // Most budgets are in another namespace, and this is the cheaper comparison.
                let here = budgets.iter().map(AsRef::as_ref).filter(|budget| budget.namespace() == namespace);
                why.extend(item.ok().and_then(|pod| forbidden(pod, here)));
            }
            DrainAction::Stays | DrainAction::Leaving => {}
        }
    }
    // The smallest one, so that the answer changes as rarely as possible.
    why.into_iter().min()
}

/// Which budget allows no disruption now, although one of these pods of a node, which is Ready, would have to be evicted;
/// `None` if each allows one. Whether the node's own pods that are not Ready are the cause is seen only once they have gone
/// elsewhere, so a budget that covers one of them is set aside.
fn blocked<'p>(
    pods: impl IntoIterator<Item = &'p PodItem>,
    budgets: &[impl AsRef<Item<Budget>>],
    is_operator_pod: impl Fn(&PodItem) -> bool,
) -> Option<String> {
    let evicted = pods
        .into_iter()
        .filter(|item| !is_operator_pod(item) && drain_action(item, false) == DrainAction::Evicted);
    let evicted: Vec<(&str, &Pod)> = evicted
        .filter_map(|item| Some((item.namespace(), item.ok()?)))
        .filter(|(_, pod)| heeds(pod))
        .collect();
    let allows_none = budgets.iter().map(AsRef::as_ref).filter(|item| {
        let Some(budget) = item.ok().filter(|budget| budget.allowed <= 0 && budget.observed) else {
            return false;
        };
        let covered =
            evicted.iter().filter(|(namespace, pod)| *namespace == item.namespace() && selects(budget, pod));
        let (mut any, mut all_ready) = (false, true);
        for (_, pod) in covered {
            (any, all_ready) = (true, all_ready && pod.is_ready());
        }
        any && all_ready
    });
    let why = allows_none.map(|item| format!("the PodDisruptionBudget {}/{}", item.namespace(), item.name()));
    why.min()
}

/// The first of these pods that a budget covers, as a sentence; `None` if there is none. A budget that cannot be read covers
/// all of its namespace.
pub fn covered<'p>(
    pods: impl IntoIterator<Item = &'p PodItem>,
    budgets: &[impl AsRef<Item<Budget>>],
) -> Option<String> {
    let covers = |budget: &&Item<Budget>, pod: &PodItem| {
        let selected = || Some(selects(budget.ok()?, pod.ok()?));
        budget.namespace() == pod.namespace() && selected().unwrap_or(true)
    };
    let why = pods.into_iter().filter_map(|pod| {
        let budget = budgets.iter().map(AsRef::as_ref).find(|budget| covers(budget, pod))?;
        let (namespace, name, budget) = (pod.namespace(), pod.name(), budget.name());
        Some(format!("{namespace}/{name}, which the PodDisruptionBudget {namespace}/{budget} covers"))
    });
    why.min()
}

/// Do budgets hold up the eviction of this pod? They do not hold up one that has ended, or has not begun.
fn heeds(pod: &Pod) -> bool {
    !pod.finished && !pod.pending
}

/// Why the budgets of a pod's namespace never allow its eviction; `None` if they may. The rules are those of the API
/// server's eviction.
fn forbidden<'b>(pod: &Pod, budgets: impl Iterator<Item = &'b Item<Budget>>) -> Option<String> {
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
                    selecting.push((item, budget));
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
    if !heeds(pod) {
        return None;
    }
    match &selecting[..] {
        [] => None,
        [(_, budget)] if budget.spares_ready_only && !pod.is_ready() => None,
        [(item, budget)] => never(budget)
            .map(|why| format!("the PodDisruptionBudget {}/{} {why}", item.namespace(), item.name())),
        [(first, _), (second, _), ..] => Some(format!(
            "the PodDisruptionBudgets {}/{} and {} select the same pods, and Kubernetes evicts no pod of two budgets",
            first.namespace(),
            first.name(),
            second.name()
        )),
    }
}

/// Why a budget never allows a disruption, with as many pods as there are. A pod that is not Ready may go only if as many
/// others are healthy as should be; if that is all of them, there are never enough.
fn never(budget: &Budget) -> Option<String> {
    if budget.sync_failed {
        return Some(
            "allows no disruption, because Kubernetes cannot compute it (SyncFailed): kubectl describe pdb says why".to_owned(),
        );
    }
    let all = budget.observed && budget.expected_pods > 0 && budget.desired_healthy >= budget.expected_pods;
    all.then(|| {
        format!(
            "wants all of its {} pods healthy: let it allow one disruption, or add a pod",
            budget.expected_pods
        )
    })
}

fn selects(budget: &Budget, pod: &Pod) -> bool {
    budget.selector.as_ref().is_some_and(|selector| selector.matches(&pod.labels))
}

/// Did this budget change in a way that matters to a drain?
pub fn matters(old: &Item<Budget>, new: &Item<Budget>) -> bool {
    let shape = |item: &Item<Budget>| item.body.clone().map(|budget| Budget { allowed: 0, ..budget });
    allowed(old) < allowed(new) || shape(old) != shape(new)
}

/// How many disruptions this budget allows now.
fn allowed(budget: &Item<Budget>) -> i32 {
    budget.ok().map_or(0, |budget| budget.allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use brupop_api::item::Unreadable;
    use kube::core::Selector;
    use serde_json::json;
    use std::sync::Arc;

    fn budget(namespace: &str, name: &str, allowed: i32) -> Item<Budget> {
        serde_json::from_value(json!({
            "metadata": {"namespace": namespace, "name": name},
            "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
        }))
        .unwrap()
    }

    fn pod(name: &str, owner: Option<&str>, ready: &str) -> PodItem {
        let owners = owner.map(|kind| json!([{"apiVersion": "apps/v1", "kind": kind, "name": "cart", "uid": "o", "controller": true}]));
        serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": name, "labels": {"app": "cart"}, "ownerReferences": owners},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    fn over(name: &str, app: &str, expected: i32, desired: i32) -> Arc<Item<Budget>> {
        let budget = json!({
            "metadata": {"namespace": "shop", "name": name, "generation": 2},
            "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {"observedGeneration": 2, "disruptionsAllowed": 0, "currentHealthy": expected,
                "desiredHealthy": desired, "expectedPods": expected},
        });
        Arc::new(serde_json::from_value(budget).unwrap())
    }

    #[test]
    fn what_can_never_be_evicted_is_found_and_named() {
        let of = |kind| pod("cart-0", Some(kind), "True");
        let cart = of("ReplicaSet");
        let unready = pod("cart-0", Some("ReplicaSet"), "False");
        let mut pending = unready.clone();
        pending.body.as_mut().unwrap().pending = true;
        let but = |name, change: fn(&mut Budget)| {
            let mut budget = over(name, "cart", 2, 2);
            change(Arc::make_mut(&mut budget).body.as_mut().unwrap());
            budget
        };
        let unseen = || but("all", |budget| budget.observed = false);
        let everything = || but("everything", |budget| budget.selector = Some(Selector::default()));
        let nothing = || but("nothing", |budget| budget.selector = None);
        let failed = || {
            let mut budget = over("failed", "cart", 9, 1);
            Arc::make_mut(&mut budget).body.as_mut().unwrap().sync_failed = true;
            budget
        };
        let huge = || {
            let mut budget = over("huge", "mail", 9, 1);
            Arc::make_mut(&mut budget).body.as_mut().unwrap().requirements = REQUIREMENTS_MAX;
            budget
        };
        let unread = |namespace| {
            let mut budget = over("bad", "mail", 9, 1);
            let item = Arc::make_mut(&mut budget);
            item.body = Err(Unreadable::TooLong("selector"));
            item.metadata.namespace = Some(String::from(namespace));
            budget
        };
        for (says, pod, budgets, word) in [
            ("no budget", &cart, vec![], None),
            ("one that allows a disruption", &cart, vec![over("most", "cart", 2, 1)], None),
            (
                "one that allows none",
                &cart,
                vec![over("all", "cart", 2, 2)],
                Some("shop/all wants all of its 2"),
            ),
            ("of all pods", &cart, vec![everything()], Some("shop/everything")),
            ("of no pods", &cart, vec![nothing()], None),
            ("of other pods", &cart, vec![over("all", "mail", 2, 2)], None),
            ("without pods", &cart, vec![over("all", "cart", 0, 0)], None),
            ("not looked at since it changed", &cart, vec![unseen()], None),
            (
                "two",
                &cart,
                vec![over("a", "cart", 9, 1), over("b", "cart", 9, 1)],
                Some("shop/a and b select"),
            ),
            ("not Ready", &unready, vec![over("most", "cart", 2, 1)], None),
            ("not Ready", &unready, vec![over("all", "cart", 2, 2)], Some("shop/all wants all of its 2")),
            (
                "of Ready pods only",
                &unready,
                vec![but("all", |budget| budget.spares_ready_only = true)],
                None,
            ),
            (
                "of Ready pods only",
                &cart,
                vec![but("all", |budget| budget.spares_ready_only = true)],
                Some("shop/all"),
            ),
            (
                "two, not Ready",
                &unready,
                vec![over("a", "cart", 9, 1), over("b", "cart", 9, 1)],
                Some("shop/a and b select"),
            ),
            ("two, not begun", &pending, vec![over("a", "cart", 9, 1), over("b", "cart", 9, 1)], None),
            ("unknown to its controller", &cart, vec![failed()], Some("shop/failed allows no disruption")),
            (
                "thousands",
                &cart,
                vec![over("a", "mail", 9, 1), huge()],
                Some("of namespace shop have more than 4096"),
            ),
            ("unreadable", &cart, vec![unread("shop")], Some("shop/bad cannot be read, for its selector is")),
            ("unreadable, of another namespace", &cart, vec![unread("bank")], None),
            ("of a DaemonSet", &of("DaemonSet"), vec![over("all", "cart", 2, 2)], None),
            ("unmanaged", &pod("debug", None, "True"), vec![], Some("shop/debug has no controller")),
        ] {
            let why = undrainable([pod], &budgets, |_| false, |_| false);
            assert_eq!(
                why.as_deref().map(|why| word.is_some_and(|word| why.contains(word))),
                word.map(|_| true),
                "{says}: {why:?}"
            );
            assert_eq!(undrainable([pod], &budgets, |_| true, |_| false), None, "{says}, but ours");
        }
    }

    #[test]
    fn a_budget_that_allows_nothing_now_is_waited_for() {
        let of = |kind, ready| pod("cart-0", Some(kind), ready);
        let (ready, unready) = (of("ReplicaSet", "True"), of("ReplicaSet", "False"));
        let allowing = |allowed| {
            let mut budget = over("some", "cart", 3, 2);
            Arc::make_mut(&mut budget).body.as_mut().unwrap().allowed = allowed;
            vec![budget]
        };
        for (says, pods, budgets, waits) in [
            ("one that allows none", vec![&ready], allowing(0), true),
            ("one that allows one", vec![&ready], allowing(1), false),
            ("of a DaemonSet", vec![&of("DaemonSet", "True")], allowing(0), false),
            ("only a pod that is not Ready", vec![&unready], allowing(0), false),
            (
                "a pod of the node that is not Ready may be the cause",
                vec![&ready, &unready],
                allowing(0),
                false,
            ),
            ("of other pods", vec![&ready], vec![over("most", "mail", 3, 2)], false),
        ] {
            let why = blocked(pods, &budgets, |_| false);
            assert_eq!(why.as_deref(), waits.then_some("the PodDisruptionBudget shop/some"), "{says}");
        }
        assert_eq!(blocked([&ready], &allowing(0), |_| true), None, "ours");
        let why = "shop/cart-0, which the PodDisruptionBudget shop/some covers";
        assert_eq!(covered([&ready], &allowing(1)).as_deref(), Some(why), "whatever it allows");
        assert_eq!(covered([&ready], &[over("most", "mail", 3, 2)]), None, "of other pods");
    }

    #[test]
    fn only_what_allows_more_than_before_is_asked_again() {
        let mut budgets = Budgets::default();
        let mut look = |found: &[Item<Budget>]| budgets.relaxed(found.iter()).into_iter().collect::<Vec<_>>();
        assert!(look(&[budget("a", "x", 1), budget("b", "x", 0)]).is_empty(), "the first look");
        assert_eq!(look(&[budget("a", "x", 1), budget("b", "x", 1)]), ["b"]);
        assert!(look(&[budget("a", "x", 0), budget("b", "x", 1)]).is_empty());
        assert_eq!(look(&[budget("b", "x", 1)]), ["a"], "it is gone");
        assert!(look(&[budget("b", "x", 1)]).is_empty());
    }
}
