//! A node in mid-update: staged, rebooted, monitored; or given up.

use brupop_api::{Marker, Problem, State};

use super::boot::{Boot, boot};
use super::{
    Abort, Case, Decision, DrainStep, Effect, Milestone, MonitorStep, Reason, RebootStep, Silence,
    StagingStep, Turn, pool, writes,
};
use crate::workloads::Evicted;

/// How a host is that should have rebooted.
const NOT_BACK: &str = "has not come back from its reboot in time";
const STAYED: &str =
    "was asked to reboot, has not done so in time, and its agent still reports from the same boot";

/// Why a host may have come back with another version.
const DEACTIVATED: &str = "before its reboot its agent had said that the update was not what it would boot next, so somebody may \
                           have deactivated it";

impl<'a> Case<'_, 'a> {
    fn boot(self) -> Boot {
        boot(self.node, self.shadow)
    }

    pub(super) fn abort(self, why: Abort) -> Decision<'a> {
        let pods = &self.view.pods;
        let failed_on = match why {
            Abort::DrainBlocked | Abort::DrainTimedOut => {
                pods.held_up_by.or(pods.undrainable).or(pods.blocked)
            }
            Abort::StepFailed => self.shadow.status.message,
            Abort::NodeChangesDenied => self.view.denied,
            // It counts all the same: no word of an agent may hide a bad release.
            Abort::FellBack => {
                (self.shadow.status.problem == Some(Problem::NotNextToBoot)).then_some(DEACTIVATED)
            }
            _ => None,
        };
        let write = writes::abort(self.fleet, self.shadow, why, failed_on);
        Decision::write(write, Reason::Aborting(why)).reaching(Milestone::Aborted(why))
    }

    /// Why to give the update up, if there is a reason. Ask this only while no reboot is under way: before the agent
    /// has claimed it, or after the host is back.
    fn given_up(self) -> Option<Abort> {
        let overdue = self.view.time.step_overdue;
        self.must_stop()
            .or(overdue.then_some(Abort::DeadlineExceeded))
    }

    /// Like [`Self::given_up`], whatever time it is.
    fn must_stop(self) -> Option<Abort> {
        let Self {
            view, node, shadow, ..
        } = self;
        let fails_for_ever = shadow.status.problem == Some(Problem::NoInPlaceUpdates);
        // What was said before a reboot says nothing of the host that is back.
        let silent = view.time.host_silent && self.boot() == Boot::Same;
        if shadow.reports(State::ErrorReset) && fails_for_ever {
            Some(Abort::NoInPlaceUpdates)
        } else if shadow.reports(State::ErrorReset) || silent {
            Some(Abort::StepFailed)
        } else if !node.labelled {
            Some(Abort::NotLabelled)
        } else if node.paused {
            Some(Abort::NodePaused)
        } else if view.denied.or(view.shadow_denied).is_some() && self.is_before_grant() {
            Some(Abort::NodeChangesDenied)
        } else {
            None
        }
    }

    /// Is the reboot still to be granted?
    fn is_before_grant(self) -> bool {
        let asks = matches!(
            self.shadow.spec.state,
            State::StagedAndPerformedUpdate | State::RebootedIntoUpdate
        );
        asks && self.shadow.spec.reboot_granted_boot_id.is_none() && self.boot() == Boot::Same
    }

    /// Undoes our changes on a node whose shadow the API server lets nobody change, so that the update can be neither granted
    /// nor given up. Once its marker has said *drained*, a grant may be on its way, and nothing but the shadow's write stops it.
    fn back_without_shadow(self) -> Option<Decision<'a>> {
        let Self { node, view, .. } = self;
        let why = view
            .shadow_denied
            .filter(|_| node.ready && self.is_before_grant())?;
        let ungranted = |marker: &Marker| marker.drained_at.is_none() && !marker.was_drained;
        let marker = node
            .marker
            .filter(|marker| marker.holds_changes() && ungranted(marker))?;
        Some(Decision::write(
            writes::undo(node, marker),
            Reason::NodeChangesDenied(why),
        ))
    }

    /// Is the version halted? Then the update is given up, as long as the host does not run it.
    fn halted(self) -> Option<Abort> {
        let version = self.shadow.spec.version?;
        self.fleet
            .is_halted_for(self.view, version)
            .then_some(Abort::VersionHalted)
    }

    /// Wanted: the host has downloaded the image and boots it next. Then the node is emptied, and the reboot granted.
    pub(super) fn staged(self) -> Decision<'a> {
        let Self {
            fleet,
            node,
            shadow,
            ..
        } = self;
        let version = shadow.spec.version.unwrap_or("");
        let boot = self.boot();
        if boot != Boot::Same
            && let Some(undo) = self.back_into_service()
        {
            return undo;
        }
        match boot {
            Boot::IntoUpdate => {
                return Decision::write(
                    writes::skip_reboot(fleet, shadow),
                    Reason::Monitoring(MonitorStep::Returns),
                );
            }
            Boot::IntoOther if shadow.reached() => return self.abort(Abort::FellBack),
            Boot::IntoOther | Boot::IntoUnknown => return self.abort(Abort::RebootedByItself),
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
            return self.abort(why);
        }
        if !reached {
            let echoed = shadow.status.attempt == shadow.spec.attempt;
            if echoed && shadow.status.target_version != shadow.spec.version {
                return self.abort(Abort::OtherTarget);
            }
            let waits = match (node.agent_ready, echoed) {
                (false, _) => Reason::AgentSilent(Silence::NoPod),
                (true, false) => Reason::Staging(StagingStep::Begins(version)),
                (true, true) => Reason::Staging(StagingStep::Downloads(version)),
            };
            return Decision::wait(Reason::of_status(&shadow.status).unwrap_or(waits));
        }
        let decision = self.empty_then_grant();
        if self.view.time.step_overdue && stands_still(&decision) {
            return self.abort(Abort::DeadlineExceeded);
        }
        decision
    }

    /// Undoes our changes on the node, if there are any and the node is Ready. A host in another boot gets this before
    /// anything else, because it needs neither the agent nor the webhook.
    fn back_into_service(self) -> Option<Decision<'a>> {
        let node = self.node;
        let marker = node
            .marker
            .filter(|marker| node.ready && marker.holds_changes())?;
        // It is empty, which is what autoscalers remove, and the pods of the next node go there. One that was empty before is
        // theirs.
        let kept = marker.emptied && node.version == self.shadow.spec.version;
        let undo = writes::undo_and_keep_owners(self.fleet, node, marker, kept);
        Some(Decision::write(
            undo,
            Reason::Monitoring(MonitorStep::Returns),
        ))
    }

    fn empty_then_grant(self) -> Decision<'a> {
        let Self {
            fleet,
            view,
            node,
            shadow,
            slot,
        } = self;
        if slot.is_none_or(|slot| Some(slot.attempt) != shadow.spec.attempt) {
            return Decision::wait(Reason::LimitReached(Turn::NoSlot));
        }
        if !node.ready {
            return Decision::wait(Reason::NodeNotReady);
        }
        if !node.agent_ready && view.time.step_overdue {
            // Nobody would claim the reboot.
            return Decision::wait(Reason::AgentSilent(Silence::NoPod));
        }
        if let Some(step) = self.next_drain_step() {
            return step;
        }
        // Pods that use volumes wait elsewhere for minutes if these are still attached to a node that reboots.
        if node.volumes_in_use
            && node.marker.is_some_and(|marker| marker.evicted_claims)
            && !view.time.volumes_overdue
        {
            return Decision::wait(Reason::Draining(DrainStep::DetachesVolumes));
        }
        let (confirm, grant) = (
            writes::drained(fleet, node),
            writes::grant(fleet, shadow, node),
        );
        let grants = Decision::carry_out(
            Effect::Grant { confirm, grant },
            Reason::Draining(DrainStep::Evicts),
        );
        Decision {
            milestone: (!view.pods.left.is_empty()).then_some(Milestone::PodsLeft),
            ..grants
        }
    }

    /// Wanted: another boot, with the new version. Everything here rests on the Node, its marker and the agent's claim.
    pub(super) fn rebooted(self) -> Decision<'a> {
        let Self { node, .. } = self;
        let boot = self.boot();
        if boot == Boot::Same {
            return self.before_reboot();
        }
        if !node.ready {
            return self.await_return();
        }
        if let Some(undo) = self.back_into_service() {
            return undo;
        }
        match boot {
            Boot::IntoOther => self.abort(Abort::FellBack),
            Boot::IntoUnknown => self.abort(Abort::NotBottlerocket),
            Boot::Same | Boot::IntoUpdate => self.watch_it(),
        }
    }

    /// The node is in service with the new version: monitor it, once its agent has reported the reboot, too. A silent
    /// agent does not keep the slot for ever.
    fn watch_it(self) -> Decision<'a> {
        let Self {
            fleet,
            node,
            shadow,
            ..
        } = self;
        if shadow.reached() {
            return Decision::write(
                writes::monitor(fleet, shadow),
                Reason::Monitoring(MonitorStep::InService),
            );
        }
        // An agent that is not there yet may have said it before the reboot.
        let told = Reason::against_report(&shadow.status).filter(|_| node.agent_ready);
        match self.given_up() {
            Some(Abort::NodePaused) | None => {
                Decision::wait(told.unwrap_or(Reason::AgentSilent(Silence::NoReport)))
            }
            Some(why) => self.abort(why),
        }
    }

    /// The host reboots. If it does not come back, only a person can help.
    fn await_return(self) -> Decision<'a> {
        let Self {
            view, node, shadow, ..
        } = self;
        let in_same_boot = self.boot() == Boot::Same && node.ready && node.agent_ready;
        let wrong = Reason::of_status(&shadow.status).filter(|_| in_same_boot);
        // A host that goes down answers nothing, either.
        let wrong = wrong.filter(|wrong| !matches!(wrong, Reason::HostUnreachable(_)));
        if !view.time.step_overdue {
            return Decision::wait(wrong.unwrap_or(Reason::Rebooting(RebootStep::Claimed)));
        }
        let overdue = wrong.unwrap_or(Reason::RebootOverdue(if in_same_boot {
            STAYED
        } else {
            NOT_BACK
        }));
        // Who repairs nodes by replacing them may do so from now on.
        match node.marker.filter(|marker| marker.keeps_autoscalers_away()) {
            Some(marker) => Decision::write(writes::release_to_autoscalers(node, marker), overdue),
            None => Decision::wait(overdue),
        }
    }

    fn before_reboot(self) -> Decision<'a> {
        let Self {
            fleet,
            node,
            shadow,
            ..
        } = self;
        if shadow.status.reboot_claimed_boot_id == Some(node.boot_id) {
            return self.await_return();
        }
        if let Some(undo) = self.back_without_shadow() {
            return undo;
        }
        if let Some(why) = self.given_up().or_else(|| self.halted()) {
            return self.abort(why);
        }
        if shadow.spec.reboot_granted_boot_id.is_none() {
            // The grant was taken back.
            return self.empty_then_grant();
        }
        let drained = node
            .marker
            .is_some_and(|marker| marker.drained_at.is_some());
        if !drained || !node.unschedulable {
            return Decision::write(
                writes::withdraw_grant(fleet, shadow),
                Reason::Draining(DrainStep::Evicts),
            );
        }
        Decision::wait(
            Reason::of_status(&shadow.status).unwrap_or(Reason::Rebooting(RebootStep::Granted)),
        )
    }

    /// Wanted: the node in service for a while with the new version.
    pub(super) fn monitoring(self) -> Decision<'a> {
        let Self {
            fleet,
            view,
            node,
            shadow,
            ..
        } = self;
        if !node.ready {
            // It was in service; whether it comes back is no longer a matter of this step alone.
            if view.time.step_overdue {
                return self.abort(Abort::NotReady);
            }
            return Decision::wait(Reason::NodeNotReady);
        }
        if node.version != shadow.spec.version {
            return self.abort(if node.version.is_none() {
                Abort::NotBottlerocket
            } else {
                Abort::FellBack
            });
        }
        if let Some(undo) = self.back_into_service() {
            return undo;
        }
        if shadow.reached() && view.time.verified && node.labelled {
            let (waits, milestone) = match view.evicted {
                Evicted::Back => (None, Milestone::Updated),
                Evicted::Unknown => (
                    Some(Reason::Monitoring(MonitorStep::InService)),
                    Milestone::Updated,
                ),
                Evicted::Missing(owner) => (
                    Some(Reason::WorkloadsUnavailable(owner)),
                    Milestone::UpdatedWithoutWorkloads,
                ),
            };
            let closed = pool::well(fleet, view).err();
            return match waits.filter(|_| !view.time.workloads_overdue).or(closed) {
                Some(reason) => Decision::wait(reason),
                None => Decision::write(writes::finish(fleet, shadow), Reason::Finishing)
                    .reaching(milestone),
            };
        }
        match self.given_up() {
            // It runs the update and is in service: a pause has nothing to hold back any more.
            Some(Abort::NodePaused) | None => {
                Decision::wait(Reason::Monitoring(MonitorStep::InService))
            }
            Some(why) => self.abort(why),
        }
    }
}

/// Whether nothing but the deadline of its step ends what this decision waits for. A drain ends by itself, except one by force
/// whose pods cannot be deleted; so do the waits for a budget, for load balancers and for volumes.
fn stands_still(decision: &Decision<'_>) -> bool {
    match (&decision.effect, &decision.reason) {
        (Some(Effect::Delete), _) => true,
        (
            None,
            Reason::BudgetAllowsNone(_)
            | Reason::Draining(DrainStep::LeavesLoadBalancers | DrainStep::DetachesVolumes),
        ) => false,
        (effect, _) => effect.is_none(),
    }
}
