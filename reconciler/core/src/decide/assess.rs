//! Assesses one node: its next step, or why it waits. Slots are allocated later.

use brupop_api::crds::COUNTER_MAX;
use brupop_api::shadow::ShadowFacts;
use brupop_api::{Marker, Problem, State};

use super::step::Step;
use super::{Abort, Reason};
use crate::drain::Obstacle;
use crate::facts::{FleetFacts, NodeView, PoolFacts, TimeFacts};
use crate::objects::NodeFacts;
use crate::rules::GateState;
use crate::window::Starts;
use crate::workloads::Evicted;

/// A node whose kubelet reports no boot ID is left alone: nobody knows whether such a host has rebooted.
const NO_BOOT_ID: &str = "its kubelet reports no boot ID (status.nodeInfo.bootID)";

/// Describes a host that should have rebooted.
const NOT_BACK: &str = "has not come back from its reboot in time";
const STAYED: &str =
    "was asked to reboot, has not done so in time, and its agent still reports from the old boot";

/// The step for a node, and the reason. Before slots are allocated, it is what the node asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision<'a> {
    /// The step to take now; `None` = wait.
    pub step: Option<Step<'a>>,
    /// The reason why the node moves or waits.
    pub reason: Reason<'a>,
    /// The version to which an update could begin, if the node had a slot.
    pub(super) may_start: Option<&'a str>,
}

pub(super) fn wait(reason: Reason<'_>) -> Decision<'_> {
    Decision {
        step: None,
        reason,
        may_start: None,
    }
}

pub(super) fn take<'a>(step: Step<'a>, reason: Reason<'a>) -> Decision<'a> {
    Decision {
        step: Some(step),
        ..wait(reason)
    }
}

pub(super) fn abort<'a>(why: Abort) -> Decision<'a> {
    take(Step::Abort(why), Reason::Aborting(why))
}

/// A node that has both its Node and its shadow, in its fleet.
#[derive(Clone, Copy)]
pub(super) struct Case<'c, 'a> {
    pub(super) fleet: &'c FleetFacts<'a>,
    pub(super) view: &'c NodeView<'a>,
    pub(super) node: &'a NodeFacts,
    pub(super) shadow: &'c ShadowFacts<'a>,
}

/// Assesses a node. What the API server does not let us undo, or write of the shadow, is told as that.
pub(crate) fn assess<'a>(fleet: &FleetFacts<'a>, view: &NodeView<'a>) -> Decision<'a> {
    let decision = next_step(fleet, view);
    let led = view.led;
    let denied = match decision.step {
        None | Some(Step::Evict | Step::DeletePods) => None,
        Some(step) if step.changes_node() => led.node_denied.as_deref().filter(|_| step.undoes()),
        Some(_) => led.shadow_denied.as_deref(),
    };
    Decision {
        reason: denied.map_or(decision.reason, Reason::NodeChangesDenied),
        ..decision
    }
}

fn next_step<'a>(fleet: &FleetFacts<'a>, view: &NodeView<'a>) -> Decision<'a> {
    if !fleet.is_led() {
        return wait(Reason::NotLeading);
    }
    let Some(node) = view.node else {
        // The garbage collector would delete its shadow, too, but perhaps much later.
        let delete = view
            .shadow
            .map(|_| take(Step::DeleteShadow, Reason::NodeGone));
        return delete.unwrap_or(wait(Reason::NodeGone));
    };
    let Some(shadow) = view.shadow else {
        return without_shadow(node, &view.time);
    };
    let owner = view.owner_uid;
    if owner.is_some_and(|owner| owner != node.uid.as_str()) {
        return take(Step::DeleteShadow, Reason::NodeReplaced);
    }
    if let Some(marker) = node.marker()
        && (marker.shadow_uid != shadow.uid || Some(marker.attempt) != shadow.spec.attempt)
    {
        return undo_when_ready(node, &view.time, Reason::ReturningToService);
    }
    if shadow.is_of_other_operator() {
        return wait(Reason::OtherOperatorsUpdate);
    }
    let case = Case {
        fleet,
        view,
        node,
        shadow: &shadow,
    };
    match shadow.spec.state {
        State::Idle | State::ErrorReset => case.idle(),
        State::StagedAndPerformedUpdate | State::RebootedIntoUpdate
            if node.boot_id().is_empty() =>
        {
            wait(Reason::NotUnderstood(NO_BOOT_ID))
        }
        State::StagedAndPerformedUpdate => case.staged(),
        State::RebootedIntoUpdate => case.rebooted(),
        State::MonitoringUpdate => case.monitoring(),
    }
}

/// A labelled node gets a shadow. On a node that lost both label and shadow, our changes are undone.
fn without_shadow<'a>(node: &'a NodeFacts, time: &TimeFacts) -> Decision<'a> {
    if node.labelled {
        let after = |marker: &Marker| marker.attempt.saturating_add(1).min(COUNTER_MAX);
        let attempt = node.marker().map(after);
        let waits = Reason::AgentNotReported;
        return take(Step::CreateShadow { attempt }, waits);
    }
    match node.marker() {
        Some(_) => undo_when_ready(node, time, Reason::NotLabelled),
        None => wait(Reason::NotLabelled),
    }
}

/// Undoes everything that the marker names, once the node is Ready: until then it may be rebooting. A marker that names no
/// change, but only the owners of evicted pods, goes at once. Autoscalers may replace a node that is not Ready for long.
pub(super) fn undo_when_ready<'a>(
    node: &'a NodeFacts,
    time: &TimeFacts,
    reason: Reason<'a>,
) -> Decision<'a> {
    match node.marker() {
        Some(marker) if node.is_ready() || !marker.holds_changes() => take(Step::Undo, reason),
        Some(marker) if time.lost && marker.keeps_autoscalers_away() => {
            take(Step::Release, Reason::NodeNotReady)
        }
        _ => wait(Reason::NodeNotReady),
    }
}

impl<'a> Case<'_, 'a> {
    fn boot(self) -> Boot {
        boot(self.node, self.shadow)
    }

    /// Returns why to give the update up, if there is a reason. Ask this only before the agent has claimed the reboot.
    fn given_up(self) -> Option<Abort> {
        let overdue = self.view.time.step_overdue;
        self.must_stop()
            .or(overdue.then_some(Abort::DeadlineExceeded))
    }

    /// Like [`Self::given_up`], whatever time it is.
    fn must_stop(self) -> Option<Abort> {
        let (view, node, shadow) = (self.view, self.node, self.shadow);
        let fails_for_ever = shadow.status.problem == Some(Problem::NoInPlaceUpdates);
        if shadow.reports(State::ErrorReset) && fails_for_ever {
            Some(Abort::NoInPlaceUpdates)
        } else if shadow.reports(State::ErrorReset) || view.time.cannot_update {
            Some(Abort::StepFailed)
        } else if !node.labelled {
            Some(Abort::NotLabelled)
        } else if node.paused {
            Some(Abort::NodePaused)
        } else if view.led.denied().is_some() {
            Some(Abort::NodeChangesDenied)
        } else if view.busy_control_plane.is_some() && !self.downloads() {
            Some(Abort::PoolClosed)
        } else {
            None
        }
    }

    /// Whether the host may still be downloading the image, which may take hours.
    fn downloads(self) -> bool {
        self.shadow.spec.state == State::StagedAndPerformedUpdate && !self.shadow.reached()
    }

    /// Undoes our changes on a node whose shadow the API server lets nobody change, so that the update can be neither granted
    /// nor given up. Once its marker has said *drained*, a grant may be on its way, and nothing but the shadow's write stops it.
    fn back_without_shadow(self) -> Option<Decision<'a>> {
        let Self { node, view, .. } = self;
        let why = view.led.shadow_denied.as_deref();
        let why = why.filter(|_| node.is_ready())?;
        let ungranted = |marker: &Marker| marker.drained_at.is_none() && !marker.was_drained;
        node.marker()
            .filter(|marker| marker.holds_changes() && ungranted(marker))?;
        Some(take(Step::Undo, Reason::NodeChangesDenied(why)))
    }

    /// Returns why the update is given up if its version is halted: as long as the host does not run it.
    fn halted(self) -> Option<Abort> {
        let version = self.shadow.spec.version.as_deref()?;
        self.fleet
            .is_halted_for(self.view, version)
            .then_some(Abort::VersionHalted)
    }

    /// Wanted: the host has downloaded the image and boots it next. Then the node is emptied, and the reboot granted.
    pub(super) fn staged(self) -> Decision<'a> {
        let shadow = self.shadow;
        let version = shadow.spec.version.as_deref().unwrap_or_default();
        let boot = self.boot();
        if boot != Boot::Same
            && let Some(undo) = self.back_into_service()
        {
            return undo;
        }
        match boot {
            Boot::IntoUpdate => {
                return take(Step::SkipReboot, Reason::ReturningToService);
            }
            Boot::IntoOther if shadow.reached() => return abort(Abort::FellBack),
            Boot::IntoOther | Boot::IntoUnknown => {
                return abort(Abort::RebootedByItself);
            }
            Boot::Same => {}
        }
        if let Some(undo) = self.back_without_shadow() {
            return undo;
        }
        let reached = shadow.reached();
        let stop = if reached {
            self.must_stop()
        } else {
            self.given_up()
        };
        if let Some(why) = stop.or_else(|| self.halted()) {
            return abort(why);
        }
        if !reached {
            let echoed = shadow.status.attempt == shadow.spec.attempt;
            if echoed && shadow.status.target_version != shadow.spec.version {
                return abort(Abort::OtherTarget);
            }
            let waits = match (self.view.agent_ready, echoed) {
                (false, _) => Reason::AgentSilent,
                (true, false) => Reason::StagingBegins(version),
                (true, true) => Reason::Staging(version),
            };
            return wait(Reason::of_status(shadow.status).unwrap_or(waits));
        }
        let decision = self.empty_then_grant();
        if self.view.time.step_overdue && stands_still(&decision) {
            return abort(Abort::DeadlineExceeded);
        }
        decision
    }

    /// Undoes our changes on the node, if there are any and the node is Ready. A host in another boot gets this before
    /// anything else, because it needs neither the agent nor the webhook.
    fn back_into_service(self) -> Option<Decision<'a>> {
        let node = self.node;
        node.marker()
            .filter(|marker| node.is_ready() && marker.holds_changes())?;
        Some(take(Step::PutBack, Reason::ReturningToService))
    }

    fn empty_then_grant(self) -> Decision<'a> {
        let (view, node, attempt) = (self.view, self.node, self.shadow.spec.attempt);
        if view.held().is_none_or(|slot| Some(slot.attempt) != attempt) {
            return wait(Reason::LimitReached);
        }
        if !node.is_ready() {
            return wait(Reason::NodeNotReady);
        }
        if !view.agent_ready && view.time.step_overdue {
            // Nobody would claim the reboot.
            return wait(Reason::AgentSilent);
        }
        if let Some(step) = self.next_drain_step() {
            return step;
        }
        // Pods that use volumes wait elsewhere for minutes if these are still attached to a node that reboots.
        if node.volumes_in_use > 0 && !view.time.volumes_overdue {
            return wait(Reason::DetachingVolumes);
        }
        take(Step::Grant, Reason::Draining)
    }

    /// Wanted: another boot, with the new version. Everything here rests on the Node, its marker and the agent's claim.
    pub(super) fn rebooted(self) -> Decision<'a> {
        let Self { node, .. } = self;
        let boot = self.boot();
        if boot == Boot::Same {
            return self.before_reboot();
        }
        if !node.is_ready() {
            return self.await_return();
        }
        if let Some(undo) = self.back_into_service() {
            return undo;
        }
        match boot {
            Boot::IntoOther => abort(Abort::FellBack),
            Boot::IntoUnknown => abort(Abort::NotBottlerocket),
            Boot::Same | Boot::IntoUpdate => self.watch_it(),
        }
    }

    /// The node is in service with the new version: monitor it, once its agent has reported the reboot, too. A silent
    /// agent does not keep the slot for ever.
    fn watch_it(self) -> Decision<'a> {
        let shadow = self.shadow;
        if shadow.reached() {
            return take(Step::Monitor, Reason::Monitoring);
        }
        // An agent that is not there yet may have said it before the reboot.
        let told = Reason::against_report(shadow.status).filter(|_| self.view.agent_ready);
        self.await_confirmation(told.unwrap_or(Reason::AgentNotReported))
    }

    /// The node is in service with the new version, so nothing holds it back any more. An agent that cannot run there, or cannot
    /// reach its host, says nothing, or that it failed: either way the version counts as failed only once its time is over.
    fn await_confirmation(self, reason: Reason<'a>) -> Decision<'a> {
        if !self.node.labelled {
            abort(Abort::NotLabelled)
        } else if self.view.time.step_overdue {
            // One that has confirmed it, and whose pod is not Ready any more, says nothing of the image.
            abort(if self.shadow.reached() {
                Abort::DeadlineExceeded
            } else {
                Abort::NotConfirmed
            })
        } else {
            wait(reason)
        }
    }

    /// The host reboots. If it does not come back, only a person can help.
    fn await_return(self) -> Decision<'a> {
        let (view, node, shadow) = (self.view, self.node, self.shadow);
        let in_same_boot = self.boot() == Boot::Same && node.is_ready();
        let wrong = Reason::of_status(shadow.status).filter(|_| in_same_boot && view.agent_ready);
        // A host that goes down answers nothing, either.
        let wrong = wrong.filter(|wrong| !matches!(wrong, Reason::HostUnreachable(_)));
        if !view.time.step_overdue {
            return wait(wrong.unwrap_or(Reason::Rebooting));
        }
        let overdue = wrong.unwrap_or(match (in_same_boot, view.agent_ready) {
            (true, true) => Reason::RebootOverdue(STAYED),
            (true, false) => Reason::AgentSilent,
            (false, _) => Reason::RebootOverdue(NOT_BACK),
        });
        // From now on, a repair by replacement is allowed.
        match node
            .marker()
            .filter(|marker| marker.keeps_autoscalers_away())
        {
            Some(_) => take(Step::Release, overdue),
            None => wait(overdue),
        }
    }

    fn before_reboot(self) -> Decision<'a> {
        let Self { node, shadow, .. } = self;
        if shadow.status.reboot_claimed_boot_id.as_deref() == Some(node.boot_id()) {
            return self.await_return();
        }
        if let Some(undo) = self.back_without_shadow() {
            return undo;
        }
        if let Some(why) = self.given_up().or_else(|| self.halted()) {
            return abort(why);
        }
        if shadow.spec.reboot_granted_boot_id.is_none() {
            // The grant was taken back.
            return self.empty_then_grant();
        }
        let drained = node
            .marker()
            .is_some_and(|marker| marker.drained_at.is_some());
        if !drained || !node.unschedulable {
            return take(Step::WithdrawGrant, Reason::Draining);
        }
        wait(Reason::of_status(shadow.status).unwrap_or(Reason::RebootGranted))
    }

    /// Wanted: the node in service for a while with the new version.
    pub(super) fn monitoring(self) -> Decision<'a> {
        let (view, node, shadow) = (self.view, self.node, self.shadow);
        if !node.is_ready() {
            // It was in service; whether it comes back is no longer a matter of this step alone.
            if view.time.step_overdue {
                return abort(Abort::NotReady);
            }
            return wait(Reason::NodeNotReady);
        }
        if node.version() != shadow.spec.version.as_deref() {
            return abort(if node.version().is_none() {
                Abort::NotBottlerocket
            } else {
                Abort::FellBack
            });
        }
        if let Some(undo) = self.back_into_service() {
            return undo;
        }
        if shadow.reached() && view.time.verified && node.labelled {
            let waits = match view.evicted {
                Evicted::Back => None,
                Evicted::Unknown => Some(Reason::Monitoring),
                Evicted::Missing(owner) => Some(Reason::WorkloadsUnavailable(owner)),
            };
            let waits = waits.filter(|_| !view.time.workloads_overdue);
            let gate = || self.fleet.pool_of(view).and_then(closed_gate);
            return match waits.or_else(gate) {
                Some(reason) => wait(reason),
                None => take(Step::Finish, Reason::Finishing),
            };
        }
        let told = Reason::of_status(shadow.status).filter(|_| view.agent_ready);
        self.await_confirmation(told.unwrap_or(Reason::Monitoring))
    }
}

impl<'a> Case<'_, 'a> {
    /// The next step on the way to an empty node; `None` once it is cordoned and no pod is left that has to go. Whether that
    /// is so is made sure of with the grant.
    pub(super) fn next_drain_step(self) -> Option<Decision<'a>> {
        if self.view.led.obstacle == Some(Obstacle::TooManyPods) {
            return Some(abort(Abort::CannotDrain));
        }
        match self.node.marker() {
            Some(marker) if marker.drain_started_at.is_some() => self.drain_until_empty(marker),
            marker => Some(self.begin_drain(marker.is_some_and(|it| it.excluded_at.is_some()))),
        }
    }

    /// Up to the cordon, which starts the drain: checks that the node can be emptied, and excludes it from load balancers for as
    /// long as configured, unless it is excluded already.
    fn begin_drain(self, is_excluded: bool) -> Decision<'a> {
        let view = self.view;
        if !self.fleet.enforced {
            // Without the webhook we could empty the node, but neither grant its reboot nor give the update up.
            return wait(Reason::AdmissionNotEnforced);
        }
        if let Some(closed) = self.closed() {
            return closed;
        }
        if view.undrainable().is_some() {
            return abort(Abort::CannotDrain);
        }
        // A started exclusion goes on: a node that is out of load balancers does not wait there for a budget.
        if let Some(why) = view.awaited_budget().filter(|_| !is_excluded) {
            return wait(Reason::BudgetAllowsNone(why));
        }
        let leaves = Reason::LeavingLoadBalancers;
        if view.time.exclude && !self.node.excluded && !is_excluded {
            return take(Step::Exclude, leaves);
        }
        if is_excluded && !view.time.exclusion_over {
            return wait(leaves);
        }
        take(Step::Cordon, Reason::Cordoning)
    }

    /// From the cordon on: evicts until no pod is left, and starts again if pods come back. `None` if none is left.
    fn drain_until_empty(self, marker: &Marker) -> Option<Decision<'a>> {
        let Self { view, node, .. } = self;
        let plan = view.led.plan.as_deref();
        let overdue = view.time.drain_overdue;
        // Force deletes what is left at the deadline, but not what came once somebody had uncordoned the node.
        let goes_on = view.force && node.unschedulable;
        if overdue && !goes_on {
            return Some(abort(if plan.is_some_and(|plan| plan.is_blocked) {
                Abort::DrainBlocked
            } else {
                Abort::DrainTimedOut
            }));
        }
        if !node.unschedulable {
            // Somebody uncordoned it meanwhile: pods may have come, so it has not been seen empty. The deadline stays as it is.
            return Some(take(Step::CordonAgain, Reason::Cordoning));
        }
        if marker.drained_at.is_none() {
            return self.evict(overdue);
        }
        let Some(plan) = plan else {
            return Some(wait(Reason::Draining));
        };
        // Pods have come since. Either somebody uncordoned the node and cordoned it again, unseen; or the pods tolerate the
        // cordon, so the deadline stays as it is.
        (!plan.is_done()).then(|| take(Step::DrainAgain, Reason::Draining))
    }

    /// The node is cordoned and not yet recorded as drained.
    fn evict(self, overdue: bool) -> Option<Decision<'a>> {
        let led = self.view.led;
        if (led.plan.as_ref()).is_some_and(|plan| !plan.operator_pods.is_empty()) {
            return Some(take(Step::ListOperatorPods, Reason::Draining));
        }
        if led.is_drained() {
            return None;
        }
        let step = if overdue {
            Step::DeletePods
        } else {
            Step::Evict
        };
        Some(take(step, Reason::Draining))
    }
}

/// Whether nothing but the deadline of its step ends what this decision waits for. A drain ends by itself, except one by force
/// whose pods cannot be deleted; so do the waits for a budget, for load balancers and for volumes.
fn stands_still(decision: &Decision<'_>) -> bool {
    match (decision.step, decision.reason) {
        (Some(Step::DeletePods), _) => true,
        (
            None,
            Reason::BudgetAllowsNone(_) | Reason::LeavingLoadBalancers | Reason::DetachingVolumes,
        ) => false,
        (step, _) => step.is_none(),
    }
}

/// The boot of the host, on facts of the Node alone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Boot {
    /// Still in the boot from which the update began (or was granted).
    Same,
    /// In another boot, with the wanted version.
    IntoUpdate,
    /// In another boot, with another version.
    IntoOther,
    /// In another boot, and the Node does not say with which version.
    IntoUnknown,
}

/// Returns in which boot the host of this node is.
fn boot(node: &NodeFacts, shadow: &ShadowFacts<'_>) -> Boot {
    let granted = shadow.spec.reboot_granted_boot_id.as_deref();
    let from = granted.or(shadow.spec.baseline_boot_id.as_deref());
    match (from == Some(node.boot_id()), node.version()) {
        (true, _) => Boot::Same,
        (false, None) => Boot::IntoUnknown,
        (false, version) if version == shadow.spec.version.as_deref() => Boot::IntoUpdate,
        (false, Some(_)) => Boot::IntoOther,
    }
}

/// Whether the host of an update has begun a reboot, granted or not: its agent claimed it, or the Node names another boot.
pub(super) fn has_begun_reboot(node: &NodeFacts, shadow: &ShadowFacts<'_>) -> bool {
    shadow.is_claimed() || !node.boot_id().is_empty() && boot(node, shadow) != Boot::Same
}

/// The gate of this pool that is not open, if there is one.
pub(super) fn closed_gate<'a>(pool: &PoolFacts<'a>) -> Option<Reason<'a>> {
    Some(match pool.gate? {
        (GateState::Closed, gate) => Reason::GateClosed(gate),
        (_, gate) => Reason::GateUnknown(gate),
    })
}

/// Returns why this pool holds all its nodes for now: a pause, a freeze, its window or a gate.
pub fn holds<'a>(pool: &PoolFacts<'a>) -> impl Iterator<Item = Reason<'a>> {
    let starts = match pool.starts {
        Starts::Paused => Some(Reason::PoolPaused),
        Starts::Frozen(until) => Some(Reason::Frozen(until)),
        Starts::OutsideWindow(until) => Some(Reason::OutsideWindow(until)),
        Starts::Open | Starts::Invalid(_) => None,
    };
    starts.into_iter().chain(closed_gate(pool))
}
