//! Whether the fleet or a pool is well, in the two conditions that kstatus reads, and with it Flux and Helm.

use brupop_api::conditions::{
    ADMISSION_ENFORCED, Condition, ConditionStatus, OTHER_OPERATOR, READY, STALLED,
};

use super::{DesiredCondition, DesiredFleetStatus};
use crate::decide::Reason;

const IN_FORCE: &str = "the spec is in force: nodes are updated, or wait, as it says";
/// What the fleet says before its leader has looked.
const NOT_TRIED_OUT: &str = "it is not known yet whether the rules of admission are in force, and whether upstream's \
                             operator is installed";

/// The conditions `Ready` and `Stalled`, from the condition that says why a person has to act, if one does. If none does,
/// `Ready` is True, or what is given.
///
/// `Stalled` is False where it might be left out: kstatus treats both alike, and `kubectl wait --for=condition=Stalled=false`
/// finds nothing without it. There is no `Reconciling`: it would be True during each roll-out, so that a release of
/// Bottlerocket, which changes no object, would keep Flux and Helm waiting.
pub(super) fn health(
    stalls: Option<&DesiredCondition>,
    ready: Option<DesiredCondition>,
) -> [DesiredCondition; 2] {
    let of = DesiredCondition::of;
    match stalls {
        Some(DesiredCondition {
            reason, message, ..
        }) => [
            (READY, ConditionStatus::False),
            (STALLED, ConditionStatus::True),
        ]
        .map(|(type_, status)| of(type_, status, reason, message)),
        None => [
            ready.unwrap_or_else(|| of(READY, ConditionStatus::True, "InForce", IN_FORCE)),
            of(
                STALLED,
                ConditionStatus::False,
                "NotStalled",
                "it is not invalid, contends for no node, and no halt holds nodes",
            ),
        ],
    }
}

impl DesiredFleetStatus {
    /// The conditions `Ready` and `Stalled` over these that are stored: what is not known is as it stands there. As long as
    /// no node is opted in, the rules of admission cannot be tried out, and nothing needs them.
    pub(super) fn health(&self, stored: &[Condition]) -> [DesiredCondition; 2] {
        let hindrances = self.may_be_unknown().filter_map(|(type_, wanted)| {
            let stored = || {
                stored
                    .iter()
                    .find(|it| it.type_ == type_)
                    .map(|it| (it.status, &it.message))
            };
            let said = wanted.map(|it| (it.status, &it.message)).or_else(stored);
            let (good, reason) = match type_ {
                ADMISSION_ENFORCED if self.counts.nodes == 0 => return None,
                ADMISSION_ENFORCED => {
                    (ConditionStatus::True, Reason::AdmissionNotEnforced.as_str())
                }
                _ => (ConditionStatus::False, OTHER_OPERATOR),
            };
            let (status, reason, message) = match said {
                Some((status, _)) if status == good => return None,
                Some((_, message)) => (ConditionStatus::False, reason, message.as_str()),
                None => (ConditionStatus::Unknown, "NotTriedOut", NOT_TRIED_OUT),
            };
            Some(DesiredCondition::of(READY, status, reason, message))
        });
        let ready = hindrances.min_by_key(|it| it.status == ConditionStatus::Unknown);
        health(self.halt_holds_nodes.then_some(&self.halt), ready)
    }
}
