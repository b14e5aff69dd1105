//! A node in mid-update that upstream's operator left behind.

use brupop_api::{Field, Marker, State, Value};

use super::{Case, Decision, Milestone, Reason, Silence, StagingStep, Turn, slots, writes};

impl<'a> Case<'_, 'a> {
    /// Takes over a shadow that upstream's operator left in mid-update: it has no attempt. First the cordon on its node
    /// becomes ours, then the shadow gets the attempt of its slot.
    ///
    /// Upstream's operator cordons a node, and excludes it from load balancers, only once the reboot is wanted. A
    /// cordon that is there before that is a person's. So is every cordon of a node without the label: the policy
    /// `brupop-reconciler` keeps such nodes from us, and the update is given up.
    pub(super) fn adopt(self) -> Decision<'a> {
        let Self {
            fleet,
            node,
            shadow,
            ..
        } = self;
        let Some(slot) = self.slot else {
            return Decision::wait(match fleet.alone {
                false => Reason::OtherOperator,
                true if slots::awaits_agent(self.view) => Reason::AgentSilent(Silence::NoPod),
                true => Reason::LimitReached(Turn::NoSlot),
            });
        };
        let starting = Reason::Staging(StagingStep::Begins(shadow.spec.version.unwrap_or("")));
        let upstreams = node.labelled && shadow.spec.state != State::StagedAndPerformedUpdate;
        if upstreams && node.marker.is_none() && (node.unschedulable || node.excluded) {
            let marker = Marker {
                shadow_uid: shadow.uid.to_owned(),
                attempt: slot.attempt,
                term: fleet.term,
                cordoned_at: node.unschedulable.then(|| fleet.now.to_owned()),
                excluded_at: node.excluded.then(|| fleet.now.to_owned()),
                ..Marker::default()
            };
            let tests = [
                (Field::Unschedulable, Value::flag(node.unschedulable)),
                (Field::ExcludedFromLoadBalancers, Value::flag(node.excluded)),
            ];
            return Decision::write(writes::mark(node, tests, [], marker), starting);
        }
        Decision::write(writes::adopt(fleet, shadow, node, slot), starting)
            .reaching(Milestone::Adopted)
    }
}
