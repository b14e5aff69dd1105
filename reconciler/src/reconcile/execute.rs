//! Carries out what was decided for a node: makes its write, or removes its pods.

use brupop_api::{Object, names};
use brupop_core::decide::{Decision, Step};
use brupop_core::drain::DrainPlan;
use brupop_core::facts::NodeView;
use brupop_core::workloads::Evicted;
use futures::FutureExt as _;

use super::pass::Pass;
use super::wake::Wake;
use super::{Completed, Reconciler, calls};
use crate::evict;
use crate::leadership::leads_now;
use crate::workloads;

/// The most evictions that are under way at once, in addition to other requests.
const MAX_EVICTIONS: usize = 32;

/// How a pod is removed from a node.
#[derive(Clone, Copy)]
enum Removal {
    /// By an eviction, which respects budgets.
    Evict,
    /// By a deletion, which does not.
    Delete,
}

impl Reconciler {
    /// Carries out what was decided for a node, unless a request for it is under way or its result was not seen yet.
    pub(super) fn execute(
        &mut self,
        pass: &mut Pass<'_>,
        view: &NodeView<'_>,
        decision: &Decision<'_>,
    ) {
        let Pass {
            cluster, observed, ..
        } = *pass;
        let name = view.shadow_name;
        let Some(step) = decision.step else {
            return;
        };
        let plan = cluster.drain(name);
        if step.empties() && plan.is_none() {
            // The watch of its pods will wake the loop.
            return;
        }
        if let (Step::Cordon | Step::CordonAgain, Some(plan)) = (step, plan) {
            // Their marker notes how many pods of these are available.
            let owners = plan.owners.iter().map(|owner| (owner, 0));
            self.read_workloads(name, owners, &mut pass.wake);
            if cluster
                .records
                .get(name)
                .is_none_or(|record| record.led.scales.is_none())
            {
                return;
            }
        }
        match (step, plan) {
            (Step::Evict, Some(plan)) => {
                return self.remove_pods(plan, Removal::Evict, &mut pass.wake);
            }
            (Step::DeletePods, Some(plan)) => {
                // The operator's own pods are evicted even now: if their budget forbids it, they are needed.
                let removal = if plan.evict_operator_pods {
                    Removal::Evict
                } else {
                    Removal::Delete
                };
                return self.remove_pods(&plan.clone().forced(), removal, &mut pass.wake);
            }
            (Step::Evict | Step::DeletePods, None) => return,
            _ => {}
        }
        if !self.is_node_ready(pass, name)
            || !self.is_ready(pass, &Object::ShadowSpec(name.to_owned()))
        {
            return;
        }
        if let Some(mut call) = calls::of(cluster, view, step, &decision.reason, &observed.fleet) {
            if let Some(event) = &mut call.context.event
                && let Some(more) = self.detail(pass, view, &decision.reason)
            {
                event.note = format!("{}; {more}", event.note);
            }
            self.send(pass, call);
        }
    }

    /// Reads the workloads of a node that are still to be read, if that is due and there is room. When there is room again, a
    /// request has been answered, and that makes a pass.
    fn read_workloads<'o>(
        &mut self,
        name: &str,
        owners: impl Iterator<Item = (&'o String, u32)>,
        wake: &mut Wake,
    ) {
        let (now, has_room) = (self.now(), self.has_room_for_conditions());
        let reads = &mut self.leading.drainer.workloads;
        let unread = reads.unread(name, owners);
        let Some(due) = reads.due(name) else { return };
        if unread.is_empty() && reads.has_ended(name) || !has_room {
            return;
        }
        if now < due {
            return wake.by(due);
        }
        reads.begin(name);
        let (name, read) = (
            name.to_owned(),
            workloads::read(self.api.client.clone(), unread),
        );
        let completed = read.map(|scales| Completed::WorkloadsRead(name, scales));
        self.leading.under_way.push(completed.boxed());
    }

    /// Reads the workloads whose pods were evicted, once their node has been in service for long enough.
    pub(super) fn read_evicted(&mut self, view: &NodeView<'_>, wake: &mut Wake) {
        let name = view.shadow_name;
        let is_awaited =
            view.evicted != Evicted::Back || self.leading.drainer.workloads.has_ended(name);
        let marker = view.node.and_then(|node| node.marker());
        if let Some(marker) = marker.filter(|_| view.time.verified && is_awaited) {
            let owners = marker.evicted_owners.iter();
            let owners = owners.map(|(owner, before)| (owner, *before));
            self.read_workloads(name, owners, wake);
        }
    }

    /// Starts as many removals of the plan's pods as are due and have room.
    fn remove_pods(&mut self, plan: &DrainPlan, removal: Removal, wake: &mut Wake) {
        let now = self.now();
        let room = MAX_EVICTIONS.saturating_sub(self.evicting.len());
        for pod in self.leading.drainer.begin(plan, room, now, wake) {
            let (client, elected) = (self.api.client.clone(), self.elected.clone());
            self.evicting.spawn(async move {
                let answer = match removal {
                    // The loop was held up since this was decided.
                    _ if leads_now(&elected).is_none() => {
                        evict::EvictionAnswer::Failed("this process no longer leads".to_owned())
                    }
                    Removal::Evict => evict::evict(client, &pod).await,
                    Removal::Delete => evict::delete(client, &pod).await,
                };
                (pod, answer)
            });
        }
    }

    /// Whether a call about the Node of this shadow may be made now. If not, the pass notes when it may. A decision about a shadow rests
    /// on both: a grant whose Node is not seen yet to be drained would be taken back.
    fn is_node_ready(&mut self, pass: &mut Pass<'_>, shadow: &str) -> bool {
        names::node_of_shadow(shadow)
            .is_none_or(|node| self.is_ready(pass, &Object::Node(node.to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tests::{holds_up, reconciler};
    use brupop_core::drain::PodKey;
    use brupop_core::workloads::Scales;
    use std::time::Duration;
    use tokio::sync::{mpsc::unbounded_channel, watch};

    #[tokio::test]
    async fn a_process_that_no_longer_leads_evicts_nothing() {
        let (wrote, mut writes) = unbounded_channel();
        let (_, elected) = watch::channel(None);
        let mut reconciler = reconciler(holds_up(wrote, std::sync::mpsc::channel().1), elected);
        let pod = PodKey {
            namespace: "n".into(),
            name: "p".into(),
            uid: "u".into(),
        };
        let plan = DrainPlan {
            evict: vec![pod],
            ..DrainPlan::default()
        };
        reconciler.remove_pods(&plan, Removal::Evict, &mut Wake::default());
        let (_, answer) = reconciler.evicting.join_next().await.unwrap().unwrap();
        assert_eq!((answer.as_str(), writes.try_recv().ok()), ("failed", None));
    }

    /// Else the workloads of some thirty updated nodes that do not come back would keep all other requests from being sent.
    #[tokio::test]
    async fn a_workload_that_is_awaited_takes_no_room_of_requests() {
        let (wrote, _writes) = unbounded_channel();
        let (_, elected) = watch::channel(None);
        let mut reconciler = reconciler(holds_up(wrote, std::sync::mpsc::channel().1), elected);
        let owner = "apps/v1/ReplicaSet/shop/cart".to_owned();
        let read = |reconciler: &mut Reconciler, name: &str| {
            let mut wake = Wake::default();
            reconciler.read_workloads(name, [(&owner, 2)].into_iter(), &mut wake);
            (reconciler.leading.under_way.len(), wake.at().is_some())
        };
        assert_eq!(read(&mut reconciler, "brs-a"), (1, false));
        reconciler.leading.under_way.clear();
        let reads = &mut reconciler.leading.drainer.workloads;
        reads.end("brs-a", Scales::new(), Duration::ZERO);
        assert_eq!(read(&mut reconciler, "brs-a"), (0, true), "not due yet");
        while reconciler.has_room_for_conditions() {
            let never = futures::future::pending().boxed();
            reconciler.leading.under_way.push(never);
        }
        let all = reconciler.leading.under_way.len();
        assert_eq!(read(&mut reconciler, "brs-b"), (all, false), "no room");
    }
}
