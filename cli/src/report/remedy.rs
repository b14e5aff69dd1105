//! What to do so that a node goes on: one sentence for each reason.

use brupop_core::decide::Reason;

/// A match over all reasons, of which a new one has to be among them.
macro_rules! remedies {
    ($($variant:ident => $remedy:literal,)*) => {
        /// What to do so that the node's update begins or goes on. A node that moves by itself
        /// needs nothing; then the sentence says what comes next.
        pub(super) fn of(reason: &Reason<'_>) -> &'static str {
            match reason { $(Reason::$variant { .. } => $remedy,)* }
        }
    };
}

remedies! {
    NotLeading => "look at the reconciler's pods and their logs: one of them has to lead",
    NotUnderstood =>
        "repair the object that cannot be read: remove a marker and undo by hand what it records, correct \
         a Node, or delete a shadow (the reconciler recreates it)",
    NodeGone => "nothing: the reconciler deletes the shadow, too",
    NodeReplaced => "nothing: the reconciler deletes this shadow and creates that of the new Node",
    NotLabelled => "label the node bottlerocket.aws/updater-interface-version=2.0.0",
    NotReported =>
        "look at the agent's pod on the node, and whether the host has /run/api.sock; if no node reports, \
         API servers may not reach the webhook",
    AgentSilent =>
        "look at the agent's pod on the node and at its logs, or at the DaemonSet brupop-agent if there is no pod: one has to be Ready",
    NoUpdate =>
        "nothing, unless a release is missing: see the host's update wave and version lock (`apiclient \
         update check` and `apiclient get settings.updates` on the host)",
    RefreshFailed => "let the host reach its update repository: look at egress and proxy",
    CannotDisarm =>
        "let the host reach its update repository, without which it cannot undo the activation; or drain \
         the node and reboot it into the update",
    NoInPlaceUpdates => "replace the node to update it, and remove the opt-in label from nodes of this image",
    HostUnreachable => "look at apiserver.service on the host",
    CommandRefused => "see what the host's API says, and what runs on the host (`updog`, `thar-be-updates`)",
    RebootRefused => "see what keeps the host from rebooting (`systemd-inhibit --list`)",
    NotNextToBoot => "activate the update on the host again (`apiclient update apply`), or wait until it is given up",
    NodeNotReady => "repair the node: it has to become Ready",
    TooManyLabels => "remove labels or annotations of the Node, down to 1,000 of each",
    FleetPaused => "resume the fleet (kubectl brupop resume)",
    NodePaused => "resume the node (kubectl brupop resume NODE)",
    OutsideWindow => "wait for the maintenance window, or request the update now (kubectl brupop update-now NODE)",
    Frozen => "wait for the end of the freeze, or request the update now (kubectl brupop update-now NODE)",
    PoolPaused => "resume the pool (spec.paused of its BottlerocketPool)",
    PoolInvalid => "correct the field of the pool that the sentence names",
    PoolConflict => "give one of the pools another priority, or another selector",
    NoPool =>
        "make a pool that selects the node, or give such nodes to the pool default (spec.unpooledNodes of \
         the fleet)",
    WaitingForPool =>
        "wait until the pool that the sentence names has run the version for as long as spec.after says; \
         see what holds its nodes back",
    WaitingForZone => "bring the node of the other zone back into service, or change spec.topology of the pool",
    ControlPlaneBusy =>
        "wait for the node of the control plane that the sentence names: it has to be updated, Ready and \
         uncordoned",
    VersionTooYoung =>
        "wait until the version is old enough (spec.versions.minAge), or request the update now (kubectl \
         brupop update-now NODE)",
    GateClosed =>
        "repair what the query of the gate finds (spec.gates of the pool); three good answers open it, \
         and update-now does not",
    GateUnknown =>
        "see the log of the leading reconciler, and the Secret brupop-gate-sources: the gate's source has \
         to answer",
    VersionNotAllowed => "wait for another release, or change what the pool allows (spec.versions)",
    AdmissionNotEnforced =>
        "look at the webhook's pods, and apply the overlay again: webhook and policies have to be in \
         force",
    OtherOperator => "uninstall upstream's operator, as docs/migrating.md says",
    BackingOff => "repair the cause and wait; to not wait, delete the shadow",
    VersionHalted =>
        "find out why nodes failed, and lift the halt (kubectl brupop resume-version VERSION); or wait \
         for another release",
    VersionHaltedInPool =>
        "repair the workloads, and lift the halt of the pool (its condition Halted names the command); or \
         wait for another release",
    VersionUnproven => "wait for the nodes that try the version now: one of them has to reach it",
    TooManyVersionsHalted => "lift halts (kubectl brupop resume-version VERSION)",
    NodeTooYoung =>
        "wait until the node is MIN_NODE_AGE_SECONDS old, or request its update now (kubectl brupop \
         update-now NODE)",
    PausingBetweenUpdates =>
        "wait for PAUSE_BETWEEN_UPDATES_SECONDS after the last update, or request this one now (kubectl \
         brupop update-now NODE)",
    CheckingPods => "nothing: the reconciler is looking at the node's pods and their budgets",
    TooManyPods =>
        "delete pods of the node that nobody needs (kubectl get pods -A --field-selector \
         spec.nodeName=NODE), and limit their namespace (a ResourceQuota)",
    CannotDrain => "change the budget or delete the pod that the sentence names; the node is then looked at again",
    BudgetAllowsNone =>
        "make the workload under the budget healthy, or allow a disruption; a pod that asks not to be \
         disrupted has to end",
    NodeLeaving => "nothing: the node is about to go",
    NotBottlerocket => "remove the opt-in label if the node is not to run Bottlerocket",
    NodeChangesDenied => "change the admission rule, or repair the field of the Node, that the sentence names",
    LimitReached =>
        "wait for a slot, or raise the limit (spec.maxUnavailable of the pool or the fleet, \
         MAX_CONCURRENT_UPDATE)",
    LimitUsedByUnavailableNodes =>
        "repair or uncordon the nodes that use up the limit, or raise it (spec.maxUnavailable, \
         MAX_CONCURRENT_UPDATE)",
    Starting => "wait for the agent to take the update up; if that lasts, its process hangs: delete its pod",
    Staging => "nothing: the host finishes its download, within STAGE_DEADLINE_SECONDS",
    ExcludedFromLoadBalancers => "nothing: the drain begins after EXCLUDE_FROM_LB_WAIT_TIME_IN_SEC",
    Cordoning => "nothing: the node is cordoned next",
    Draining =>
        "wait for the pods to go; a budget that allows no disruption, or a pod that does not end, holds \
         the drain up until DRAIN_DEADLINE_SECONDS",
    VolumesInUse => "nothing: the node reboots once its volumes are detached, or after two minutes",
    RebootGranted => "nothing: the agent reboots the host",
    Rebooting => "nothing: the host comes back with the new version, and the node becomes Ready",
    RebootOverdue => "look at the machine; delete the Node if it will never come back",
    ReturningToService => "nothing: the node is uncordoned next",
    Monitoring => "nothing: the node has to stay Ready for SOAK_SECONDS",
    WorkloadsUnavailable => "repair the workload that the sentence names: it has to become available again",
    Finishing => "nothing: the agent confirms the end",
    Aborting => "nothing: the node is put back as it was, and its agent undoes its changes to the host",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedies_are_sentences_of_their_own() {
        let remedies = Reason::WORDS.iter().filter_map(|word| Some(of(&Reason::of_word(word)?)));
        let mut remedies: Vec<&str> = remedies.filter(|remedy| !remedy.starts_with("nothing: ")).collect();
        assert!(remedies.len() > 30, "{}", remedies.len());
        assert!(
            remedies.iter().all(|remedy| !remedy.ends_with('.') && !remedy.contains("  ")),
            "{remedies:?}"
        );
        remedies.sort_unstable();
        let all = remedies.len();
        remedies.dedup();
        assert_eq!(remedies.len(), all, "two reasons need the same");
    }
}
