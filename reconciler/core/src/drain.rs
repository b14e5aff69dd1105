//! Which pods a drain evicts, as `kubectl drain --ignore-daemonsets --delete-emptydir-data` decides.

use std::collections::BTreeSet;

use brupop_api::Marker;
use brupop_api::item::Unreadable;
use brupop_api::marker::OPERATOR_PODS_MAX;
use jiff::Timestamp;

use crate::objects::{Controller, PodItem};
use crate::workloads::{Kind, owner};

/// What a drain does about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainAction {
    /// It stays, and a drain does not wait for it: a mirror pod, a pod of a `DaemonSet`.
    Stays,
    /// It is evicted.
    Evicted,
    /// It is terminating; the drain waits for it.
    Leaving,
    /// It has no controller that would make it again, so a person has to decide.
    Unmanaged,
    /// It cannot be read, so a person has to decide.
    Unreadable(Unreadable),
}

/// One pod, as an eviction names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl PodKey {
    /// The key of this pod.
    pub fn of(pod: &PodItem) -> Self {
        Self { namespace: pod.namespace().to_owned(), name: pod.name().to_owned(), uid: pod.uid().to_owned() }
    }
}

/// What to tell people about a pod without a controller, which holds a drain up.
pub fn unmanaged(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name} has no controller that would recreate it elsewhere: delete it by hand")
}

/// What to tell people about a pod that cannot be read, which holds a drain up.
pub fn unreadable(namespace: &str, name: &str, why: Unreadable) -> String {
    format!("the pod {namespace}/{name} cannot be read, for {why}: repair or delete it")
}

/// What a drain of a node has to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainPlan {
    /// Pods to evict now.
    pub evict: Vec<PodKey>,
    /// Pods of the operator, to evict when no other is left: one of them may be the process that drains.
    pub last: Vec<PodKey>,
    /// It is the turn of the operator's own pods: `evict` holds no others.
    pub evict_operator_pods: bool,
    /// It would be their turn, but the marker does not list them yet. Their UIDs.
    pub operator_pods: Vec<String>,
    /// Pods that are not evicted now, though they may not stay: see [`crate::returns::Returning`].
    pub held: Vec<PodKey>,
    /// The workloads whose pods came back each time that they were evicted. See [`crate::returns::Returns`].
    pub returning: Vec<String>,
    /// A budget covers a pod that would be left for that reason. Says which.
    pub needed: Option<String>,
    /// Terminating pods, and when each should be gone.
    pub leaving: Vec<(Timestamp, PodKey)>,
    /// Pods without a controller; they hold the drain up.
    pub unmanaged: Vec<PodKey>,
    /// Pods that cannot be read; they hold the drain up, too.
    pub unreadable: Vec<(PodKey, Unreadable)>,
    /// The workloads whose pods are evicted or terminating, as `<apiVersion>/<kind>/<namespace>/<name>`, sorted. The
    /// reconciler keeps only those that are available.
    pub owners: Vec<String>,
}

impl DrainPlan {
    /// The plan for these pods of one node. The operator's own pods (`is_operator_pod`) tolerate the cordon, and come back
    /// if there is no better node: those that the marker lists are evicted, and others stay. So do pods of workloads that
    /// the marker leaves. `orphaned` finds pods whose `DaemonSet` is gone.
    pub fn of<'p>(
        pods: impl IntoIterator<Item = &'p PodItem>,
        is_operator_pod: impl Fn(&PodItem) -> bool,
        orphaned: impl Fn(&PodItem) -> bool,
        marker: Option<&Marker>,
    ) -> Self {
        let mut plan = Self::default();
        let (listed, left) =
            marker.map_or((&[][..], &[][..]), |marker| (&marker.operator_pods, &marker.left_owners));
        for pod in pods {
            let ours = is_operator_pod(pod);
            let drain_action = drain_action(pod, orphaned(pod));
            let key = || PodKey::of(pod);
            match drain_action {
                DrainAction::Stays => continue,
                DrainAction::Evicted
                    if ours && !listed.is_empty() && !listed.iter().any(|uid| uid == pod.uid()) =>
                {
                    continue;
                }
                DrainAction::Evicted | DrainAction::Unmanaged
                    if !left.is_empty() && left.contains(&identity(pod)) =>
                {
                    continue;
                }
                // A terminating webhook serves a little longer. Nobody has to wait for that: its budget has seen to
                // another one that is Ready, and a reboot ends its connections no worse than its own end does.
                DrainAction::Leaving if ours => continue,
                DrainAction::Leaving => plan.leaving.push((gone_by(pod), key())),
                DrainAction::Unmanaged => plan.unmanaged.push(key()),
                DrainAction::Unreadable(why) => plan.unreadable.push((key(), why)),
                DrainAction::Evicted if ours => plan.last.push(key()),
                DrainAction::Evicted => plan.evict.push(key()),
            }
            plan.owners.extend(owner(pod));
        }
        plan.last.sort_unstable();
        if plan.evict.is_empty() && plan.leaving.is_empty() && plan.needs_nobody() {
            if listed.is_empty() {
                plan.operator_pods = plan.last.iter().map(|pod| pod.uid.clone()).collect();
                plan.operator_pods.truncate(OPERATOR_PODS_MAX);
            } else {
                plan.evict = std::mem::take(&mut plan.last);
                plan.evict_operator_pods = true;
            }
        }
        plan.evict.sort_unstable();
        plan.leaving.sort_unstable();
        plan.unmanaged.sort_unstable();
        plan.unreadable.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        plan.owners.sort_unstable();
        plan.owners.dedup();
        plan
    }

    /// Is there no pod about which a person has to decide?
    fn needs_nobody(&self) -> bool {
        self.unmanaged.is_empty() && self.unreadable.is_empty()
    }

    /// The pods about which a person has to decide, each as a sentence.
    pub fn for_people(&self) -> impl Iterator<Item = String> {
        let unreadable = self.unreadable.iter().map(|(pod, why)| unreadable(&pod.namespace, &pod.name, *why));
        self.unmanaged.iter().map(|pod| unmanaged(&pod.namespace, &pod.name)).chain(unreadable)
    }

    /// The same plan, but pods about which a person has to decide are removed, too.
    #[must_use]
    pub fn forced(mut self) -> Self {
        self.evict.append(&mut self.unmanaged);
        self.evict.extend(self.unreadable.drain(..).map(|(pod, _)| pod));
        self.evict.sort_unstable();
        self
    }

    /// The same plan, but these pods (UIDs) are not evicted now.
    pub fn hold(&mut self, pods: &BTreeSet<String>) {
        let evict = std::mem::take(&mut self.evict);
        (self.held, self.evict) = evict.into_iter().partition(|pod| pods.contains(&pod.uid));
    }

    /// Is nothing left to evict, to wait for, or to ask a person about?
    pub fn is_done(&self) -> bool {
        let pods = [&self.evict, &self.held, &self.last];
        pods.iter().all(|pods| pods.is_empty()) && self.leaving.is_empty() && self.needs_nobody()
    }
}

/// What a drain does about this pod. An `orphaned` pod, whose `DaemonSet` is gone, counts as one without a controller.
pub fn drain_action(item: &PodItem, orphaned: bool) -> DrainAction {
    let pod = match &item.body {
        Ok(pod) => pod,
        Err(why) => return DrainAction::Unreadable(*why),
    };
    let is_daemon = |owner: &Controller| Kind::of(&owner.api_version, &owner.kind) == Some(Kind::DaemonSet);
    let of_daemon = pod.controller.as_ref().is_some_and(is_daemon);
    if pod.is_mirror || (of_daemon && !pod.finished && !orphaned) {
        DrainAction::Stays
    } else if pod.gone_by.is_some() {
        DrainAction::Leaving
    } else if pod.finished || (pod.controller.is_some() && !orphaned) {
        DrainAction::Evicted
    } else {
        DrainAction::Unmanaged
    }
}

/// When the pod's termination grace period ends.
fn gone_by(pod: &PodItem) -> Timestamp {
    pod.ok().and_then(|pod| pod.gone_by).unwrap_or(Timestamp::MAX)
}

/// What makes this pod anew, in the words of [`owner`]: of a pod without a controller, a pod of this name.
pub fn identity(pod: &PodItem) -> String {
    owner(pod).unwrap_or_else(|| format!("v1/Pod/{}/{}", pod.namespace(), pod.name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(name: &str, owner: Option<&str>, phase: &str, more: &Value) -> PodItem {
        let mut metadata = json!({"name": name, "namespace": "shop", "uid": format!("uid-{name}")});
        if let Some(kind) = owner {
            metadata["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": kind, "name": "cart", "uid": "o", "controller": true}]);
        }
        for (key, value) in more.as_object().unwrap() {
            metadata[key] = value.clone();
        }
        serde_json::from_value(json!({"metadata": metadata, "status": {"phase": phase}})).unwrap()
    }

    fn of<'p>(
        pods: impl IntoIterator<Item = &'p PodItem>,
        is_operator_pod: impl Fn(&PodItem) -> bool,
        listed: &[&str],
    ) -> DrainPlan {
        let operator_pods = listed.iter().map(|name| format!("uid-{name}")).collect();
        let marker = Marker { operator_pods, ..Marker::default() };
        DrainPlan::of(pods, is_operator_pod, |_| false, Some(&marker))
    }

    #[test]
    fn the_table() {
        let none = json!({});
        let leaving = json!({"deletionTimestamp": "2026-11-21T04:00:00Z"});
        let mirror = json!({"annotations": {"kubernetes.io/config.mirror": "x"}});
        let owned =
            json!({"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "o"}]});
        let table = [
            ("of a ReplicaSet", Some("ReplicaSet"), "Running", &none, DrainAction::Evicted),
            ("of a ReplicaSet, pending", Some("ReplicaSet"), "Pending", &none, DrainAction::Evicted),
            ("of a Job, finished", Some("Job"), "Succeeded", &none, DrainAction::Evicted),
            ("of a DaemonSet", Some("DaemonSet"), "Running", &none, DrainAction::Stays),
            ("of a DaemonSet, leaving", Some("DaemonSet"), "Running", &leaving, DrainAction::Stays),
            ("of a DaemonSet, failed", Some("DaemonSet"), "Failed", &none, DrainAction::Evicted),
            ("mirror", Some("Node"), "Running", &mirror, DrainAction::Stays),
            ("leaving", Some("ReplicaSet"), "Running", &leaving, DrainAction::Leaving),
            ("unmanaged", None, "Running", &none, DrainAction::Unmanaged),
            ("unmanaged, finished", None, "Failed", &none, DrainAction::Evicted),
            ("unmanaged, leaving", None, "Running", &leaving, DrainAction::Leaving),
            ("owned, but not controlled", None, "Running", &owned, DrainAction::Unmanaged),
        ];
        for (what, owner, phase, more, expected) in table {
            assert_eq!(drain_action(&pod("a", owner, phase, more), false), expected, "{what}");
        }
        for (what, phase, more, expected) in [
            ("of a DaemonSet that is gone", "Running", &none, DrainAction::Unmanaged),
            ("of one that is gone, leaving", "Running", &leaving, DrainAction::Leaving),
            ("of one that is gone, finished", "Failed", &none, DrainAction::Evicted),
        ] {
            assert_eq!(drain_action(&pod("a", Some("DaemonSet"), phase, more), true), expected, "{what}");
        }
    }

    #[test]
    fn a_plan_names_workloads_once_and_what_holds_it_up() {
        let pods = [
            pod("b", Some("ReplicaSet"), "Running", &json!({})),
            pod("a", Some("ReplicaSet"), "Running", &json!({})),
            pod("c", Some("DaemonSet"), "Running", &json!({})),
            pod("d", None, "Running", &json!({})),
            pod("e", Some("StatefulSet"), "Running", &json!({"deletionTimestamp": "2026-11-21T04:00:00Z"})),
        ];
        let plan = of(&pods, |_| false, &[]);
        assert_eq!(plan.evict.iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        let leaving: Vec<_> = plan.leaving.iter().map(|(by, pod)| (by.to_string(), &*pod.name)).collect();
        assert_eq!(leaving, [("2026-11-21T04:00:00Z".to_owned(), "e")]);
        assert_eq!(plan.unmanaged.iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>(), ["d"]);
        assert_eq!(plan.owners, ["apps/v1/ReplicaSet/shop/cart", "apps/v1/StatefulSet/shop/cart"]);
        assert!(!plan.is_done());
        let forced = plan.clone().forced();
        assert_eq!(forced.evict.iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>(), ["a", "b", "d"]);
        assert!(of(&pods[2..3], |_| false, &[]).is_done());
    }

    #[test]
    fn an_unreadable_pod_holds_its_drain_up() {
        let pods = [
            pod("a", Some("ReplicaSet"), "Running", &json!({})),
            pod("bad", Some("ReplicaSet"), "Running", &json!({"labels": {"size": 3}})),
        ];
        let plan = of(&pods, |_| false, &[]);
        assert_eq!((plan.evict.len(), plan.unreadable.len(), plan.is_done()), (1, 1, false));
        assert!(!of(&pods[1..], |_| false, &[]).is_done());
        let says: Vec<_> = plan.for_people().collect();
        assert!(matches!(&says[..], [one] if one.starts_with("the pod shop/bad cannot be read")), "{says:?}");
        assert_eq!(plan.forced().evict.len(), 2);
    }

    #[test]
    fn our_own_pods_go_last_and_only_those_that_were_listed() {
        let cart = |more: &Value| pod("cart-0", Some("ReplicaSet"), "Running", more);
        let [webhook, anew] = ["brupop-webhook-0", "brupop-webhook-1"]
            .map(|it| pod(it, Some("ReplicaSet"), "Running", &json!({})));
        let ours = |pod: &PodItem| pod.name().starts_with("brupop");
        let leaving = json!({"deletionTimestamp": "2026-11-21T04:00:00Z"});
        for (says, pods, listed, evicts, lists, done) in [
            ("others go first", vec![&webhook, &cart(&json!({}))], &[][..], &["cart-0"][..], false, false),
            ("and are waited for", vec![&webhook, &cart(&leaving)], &[], &[], false, false),
            ("then ours are listed", vec![&webhook], &[], &[], true, false),
            (
                "and evicted",
                vec![&webhook, &anew],
                &["brupop-webhook-0"],
                &["brupop-webhook-0"],
                false,
                false,
            ),
            ("but not what comes back", vec![&anew], &["brupop-webhook-0"], &[], false, true),
            (
                "which waits its turn",
                vec![&webhook, &cart(&json!({}))],
                &["brupop-webhook-0"],
                &["cart-0"],
                false,
                false,
            ),
        ] {
            let plan = of(pods, ours, listed);
            let evicted: Vec<_> = plan.evict.iter().map(|pod| &*pod.name).collect();
            assert_eq!(
                (&evicted[..], plan.operator_pods.len() == 1, plan.is_done()),
                (evicts, lists, done),
                "{says}"
            );
            assert_eq!(plan.evict_operator_pods, done || evicts == ["brupop-webhook-0"], "{says}");
        }
        let lingering = pod("brupop-webhook-0", Some("ReplicaSet"), "Running", &leaving);
        assert!(of(&[lingering], ours, &[]).is_done(), "is not waited for");
        let many: Vec<_> = (0..20)
            .map(|it| pod(&format!("brupop-{it}"), Some("ReplicaSet"), "Running", &json!({})))
            .collect();
        assert_eq!(of(&many, ours, &[]).operator_pods.len(), OPERATOR_PODS_MAX);
    }

    #[test]
    fn pods_of_workloads_that_are_left_stay() {
        let leaving = json!({"deletionTimestamp": "2026-11-21T04:00:00Z"});
        let pods = [
            pod("a", Some("ReplicaSet"), "Running", &json!({})),
            pod("b", Some("StatefulSet"), "Running", &json!({})),
            pod("c", None, "Running", &json!({})),
            pod("d", Some("ReplicaSet"), "Running", &leaving),
        ];
        let left_owners = ["apps/v1/ReplicaSet/shop/cart", "v1/Pod/shop/c"].map(str::to_owned).into();
        let marker = Marker { left_owners, ..Marker::default() };
        let plan = DrainPlan::of(&pods, |_| false, |_| false, Some(&marker));
        assert_eq!(plan.evict.iter().map(|pod| &*pod.name).collect::<Vec<_>>(), ["b"]);
        assert_eq!((plan.unmanaged.len(), plan.leaving.len()), (0, 1), "what leaves is waited for");
    }
}
