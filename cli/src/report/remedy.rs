//! What would have to change for a node to go on: one sentence for each reason.

use brupop_core::decide::Reason;

/// A match over all reasons, of which a new one has to be among them.
macro_rules! remedies {
    ($($variant:ident => $remedy:literal,)*) => {
        /// What would have to change for the node's update to begin or go on, and who can change it. A node that moves by itself
        /// needs nothing; then the sentence says what comes next.
        pub(super) fn of(reason: &Reason<'_>) -> &'static str {
            match reason { $(Reason::$variant { .. } => $remedy,)* }
        }
    };
}

remedies! {
    NotLeading => "a reconciler has to lead: look at the reconciler's pods and their logs",
    NotUnderstood =>
        "somebody has to repair the object that cannot be read: remove a marker and undo by hand what it \
         recorded, correct a Node, delete a shadow (the reconciler recreates it)",
    NodeGone => "nothing: the reconciler deletes the shadow, too",
    NodeReplaced => "nothing: the reconciler deletes this shadow and creates that of the new Node",
    NotLabelled => "somebody has to label the node bottlerocket.aws/updater-interface-version=2.0.0",
    NotReported =>
        "the agent on the node has to report: look at its pod, and whether the host has /run/api.sock; if no node \
         reports, API servers may not reach the webhook",
    AgentSilent => "the agent's pod on the node has to become Ready: look at its logs",
    NoUpdate =>
        "the host has to find an update: a new release, the host's turn in its update wave, or no version lock \
         (`apiclient update check` and `apiclient get settings.updates` on the host)",
    RefreshFailed =>
        "the host has to reach its update repository: look at egress and proxy",
    CannotDisarm =>
        "the host has to reach its update repository, without which it cannot undo the activation: look at egress and proxy; \
         or let it boot the update, by a reboot of the drained node",
    NoInPlaceUpdates =>
        "nothing updates such a host in place: replace the node, and remove the opt-in label from nodes of this image",
    HostUnreachable => "the host's API server (apiserver.service) has to answer: look at the host",
    CommandRefused => "the host has to take the commands: see what its API says, and what runs on it (`updog`, `thar-be-updates`)",
    RebootRefused => "what keeps the host from rebooting has to end: see its inhibitors (`systemd-inhibit --list`)",
    NotNextToBoot =>
        "somebody has to activate the update on the host again (`apiclient update apply`), or wait until it is given up",
    NodeNotReady => "the node has to become Ready: repair it",
    TooManyLabels => "somebody has to remove labels or annotations of the Node, down to 1,000 of each",
    FleetPaused => "somebody has to resume the fleet (kubectl brupop resume)",
    NodePaused => "somebody has to resume the node (kubectl brupop resume NODE)",
    OutsideWindow =>
        "the maintenance window has to open, or somebody asks for the update now (kubectl brupop update-now NODE)",
    Frozen => "the freeze has to end, or somebody asks for the update now (kubectl brupop update-now NODE)",
    PoolPaused => "somebody has to resume the pool (spec.paused of its BottlerocketPool)",
    PoolInvalid => "somebody has to correct the field of the pool that the sentence names",
    PoolConflict => "somebody has to give one of the pools another priority, or another selector",
    NoPool =>
        "a pool has to select the node, or somebody lets the environment steer such nodes (spec.unpooledNodes of the \
         fleet)",
    WaitingForPool =>
        "the nodes of the pool that the sentence names have to reach the version and stay well for as long as \
         spec.after says",
    WaitingForZone =>
        "the node of the other zone has to come back into service, or somebody changes spec.topology of the pool",
    ControlPlaneBusy =>
        "the node of the control plane that the sentence names has to be updated, Ready and uncordoned",
    VersionTooYoung =>
        "the version has to become old enough (spec.versions.minAge), or somebody asks for the update now (kubectl brupop \
         update-now NODE)",
    GateClosed =>
        "what the gate asks for has to be well, three times in a row (the query of spec.gates of the pool); update-now does \
         not open it",
    GateUnknown =>
        "the source of the gate has to answer: see the log of the reconciler that leads, and the Secret \
         brupop-gate-sources",
    VersionNotAllowed =>
        "the hosts have to find another version, or somebody changes what the pool allows (spec.versions)",
    AdmissionNotEnforced =>
        "webhook and policies have to be in force: look at the webhook's pods, and apply the overlay again",
    OtherOperator => "somebody has to uninstall upstream's operator, as docs/migrating.md says",
    BackingOff =>
        "the wait after the failure has to pass; repair its cause before, or delete the shadow to wait no longer",
    VersionHalted =>
        "somebody has to lift the halt (kubectl brupop resume-version VERSION), or the hosts have to find another \
         version",
    VersionHaltedInPool =>
        "somebody has to lift the halt of the pool (its condition Halted names the command), or the hosts have to find \
         another version",
    VersionUnproven => "one of the nodes that try the version now has to reach it",
    TooManyVersionsHalted => "somebody has to lift halts (kubectl brupop resume-version VERSION)",
    NodeTooYoung =>
        "the node has to become MIN_NODE_AGE_SECONDS old, or somebody asks for its update now (kubectl brupop \
         update-now NODE)",
    PausingBetweenUpdates =>
        "PAUSE_BETWEEN_UPDATES_SECONDS have to pass since the last update, or somebody asks for this one now \
         (kubectl brupop update-now NODE)",
    CheckingPods => "nothing: the reconciler is looking at the node's pods and their budgets",
    TooManyPods =>
        "somebody has to delete pods of the node that nobody needs (kubectl get pods -A --field-selector \
         spec.nodeName=NODE), and to limit how many its namespace may have (a ResourceQuota)",
    CannotDrain =>
        "somebody has to change the budget or delete the pod that the sentence names; the node is then looked at \
         again",
    BudgetAllowsNone =>
        "the workload under the budget has to become healthy enough, or somebody allows more disruptions; a pod that asks \
         not to be disrupted has to end",
    NodeLeaving => "nothing: the node is about to go",
    NotBottlerocket => "the node has to run Bottlerocket; if it never will, remove the opt-in label",
    NodeChangesDenied =>
        "the API server has to take changes of the Node: change the admission rule or repair the field that the \
         sentence names",
    LimitReached => "an update has to end and give its slot back, or somebody raises the limit (spec.maxUnavailable of the \
         pool or the fleet, MAX_CONCURRENT_UPDATE)",
    LimitUsedByUnavailableNodes =>
        "nodes that are not Ready or cordoned have to come back, or somebody raises the limit that they use up \
         (spec.maxUnavailable, MAX_CONCURRENT_UPDATE)",
    Starting => "the agent has to take the update up: if that lasts, its process hangs, and deleting its pod helps",
    Staging => "the host has to finish its download; STAGE_DEADLINE_SECONDS limits it",
    ExcludedFromLoadBalancers => "EXCLUDE_FROM_LB_WAIT_TIME_IN_SEC have to pass",
    Cordoning => "nothing: the node is cordoned next",
    Draining =>
        "the pods on the node have to go; a budget that allows no disruption or a pod that does not end holds the \
         drain up until DRAIN_DEADLINE_SECONDS",
    VolumesInUse => "the node's volumes have to be detached; after two minutes it reboots all the same",
    RebootGranted => "the agent has to reboot the host",
    Rebooting => "the host has to come back with the new version, and the node has to become Ready",
    RebootOverdue =>
        "the machine has to reboot and come back: look at it, or delete the Node if it never will",
    ReturningToService => "nothing: the node is uncordoned next",
    Monitoring => "SOAK_SECONDS have to pass while the node stays Ready",
    WorkloadsUnavailable => "the workload that the sentence names has to become available again",
    Finishing => "the agent has to report that it is done",
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
