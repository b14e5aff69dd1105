//! A pass that sends nothing, for `plan`.

use std::sync::Arc;
use std::time::Duration;

use brupop_api::conditions::{ADMISSION_ENFORCED, ConditionStatus, OTHER_OPERATOR};
use brupop_core::cluster::Cluster;
use brupop_core::decide::{Allocation, Decisions};
use brupop_core::facts::Observed;
use brupop_core::gates::GOOD_IN_A_ROW;
use brupop_core::workloads::Evicted;
use futures::StreamExt as _;
use tokio::time::{Instant, sleep_until};

use crate::checks::Finding;
use crate::pass::Pass;
use crate::run::Reconciler;
use crate::watches::MAX_POD_WATCHES;

/// Longest wait until all is read that a decision needs.
const DEADLINE: Duration = Duration::from_secs(20);

/// Not all that a decision needs could be read.
#[derive(Debug, thiserror::Error)]
#[error("not read within {} s: {}", DEADLINE.as_secs(), .0.join(", "))]
pub struct NotRead(Vec<&'static str>);

impl Reconciler {
    /// Decides as if this process led, and sends nothing. Returns what `show` makes of the decisions, once all is read that they
    /// need.
    ///
    /// # Errors
    /// Something could not be read.
    pub async fn dry_run<T>(
        mut self,
        show: impl Fn(&Observed<'_>, &Decisions<'_>) -> T,
    ) -> Result<T, NotRead> {
        let deadline = Instant::now() + DEADLINE;
        self.leading.gates.times = GOOD_IN_A_ROW;
        let watches = Arc::clone(&self.watches);
        loop {
            let unread = match self.dry_pass(&show) {
                Ok(shown) => return Ok(shown),
                Err(unread) => unread,
            };
            tokio::select! {
                () = watches.changed.notified() => {}
                () = watches.pods_changed.notified() => {}
                Some(complete) = self.leading.under_way.next() => complete(&mut self),
                () = sleep_until(deadline) => return Err(NotRead(unread)),
            }
        }
    }

    /// Makes one pass. `Err` names what has not been read yet.
    fn dry_pass<T>(
        &mut self,
        show: impl Fn(&Observed<'_>, &Decisions<'_>) -> T,
    ) -> Result<T, Vec<&'static str>> {
        let watches = Arc::clone(&self.watches);
        let unsynced = watches.unsynced();
        if !unsynced.is_empty() {
            return Err(unsynced);
        }
        if let Ok(cluster) = watches.cluster() {
            self.succeed_leader(&cluster);
        }
        let shown = self.observe_then(|this, pass| {
            this.knows_right_to_force(pass);
            this.ask(pass);
            // As if this process led, even if none has led yet.
            let mut observed = pass.observed.clone();
            observed.fleet.ledger_term = Some(observed.fleet.term);
            let decided = observed.decide();
            this.preflight(pass, &decided.allocation);
            let views = observed.views.iter();
            for view in views.filter(|view| view.evicted == Evicted::Unknown) {
                this.read_evicted(view, &mut pass.wake);
            }
            let unread = this.unread(pass, &decided.allocation);
            if unread.is_empty() {
                Ok(show(&observed, &decided))
            } else {
                Err(unread)
            }
        });
        shown.unwrap_or_else(|| Err(vec!["the BottlerocketFleet"]))
    }

    /// Takes over the leader's term, and what its last checks found: they are dry-run writes, so they are not repeated.
    fn succeed_leader(&mut self, cluster: &Cluster) {
        let (now, ledger) = (self.now(), cluster.ledger());
        let says = |type_: &str| {
            let mut conditions = ledger.iter().flat_map(|ledger| &ledger.conditions);
            conditions.any(|it| it.type_ == type_ && it.status == ConditionStatus::True)
        };
        let finding = |holds: bool| Finding {
            holds: holds.then_some(()).ok_or_else(String::new),
            is_unknown: false,
        };
        let leading = &mut self.leading;
        leading.state.term = ledger.and_then(|ledger| ledger.term).unwrap_or(0);
        leading
            .admission
            .found(finding(says(ADMISSION_ENFORCED)), now);
        leading.alone.found(finding(!says(OTHER_OPERATOR)), now);
    }

    /// Names what has not been read yet of what decisions on these nodes need.
    fn unread(&self, pass: &Pass<'_>, slots: &Allocation<'_>) -> Vec<&'static str> {
        let Pass {
            cluster, observed, ..
        } = *pass;
        let mut next = slots.preflight.iter();
        let records = cluster.records.values();
        let drains = records.filter(|record| record.led.drain.is_some()).count();
        let pods_known =
            drains >= MAX_POD_WATCHES || next.all(|&index| observed.views[index].pods.known);
        let answered = self.leading.under_way.is_empty();
        let read = [
            (answered, "workloads, the sources of gates, or a right"),
            (
                pods_known,
                "the next nodes' pods, their budgets or workloads",
            ),
        ];
        let unread = read.into_iter().filter(|(is_read, _)| !is_read);
        unread.map(|(_, what)| what).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::process::tests::{holds_up, reconciler};
    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use tokio::sync::{mpsc::unbounded_channel, watch};

    #[tokio::test]
    async fn an_empty_cluster_is_decided_on_without_a_write() {
        let (wrote, mut writes) = unbounded_channel();
        let (_, elected) = watch::channel(None);
        let reconciler = reconciler(holds_up(wrote, std::sync::mpsc::channel().1), elected);
        let nodes = reconciler.dry_run(|_, decided| decided.nodes.len()).await;
        assert_eq!((nodes.unwrap(), writes.recv().await), (0, None));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_read_in_time_is_named() {
        let silent = tower::service_fn(|_: Request<Body>| {
            std::future::pending::<Result<Response<Body>, std::convert::Infallible>>()
        });
        let (_, elected) = watch::channel(None);
        let reconciler = reconciler(Client::new(silent, "ns"), elected);
        let refused = reconciler.dry_run(|_, _| ()).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "not read within 20 s: Nodes, shadows, the fleet, pools, the agents' pods"
        );
    }
}
