//! What to do so that a node goes on: one sentence for each reason.

use brupop_core::decide::Reason;

use crate::words::{Argument, brupop};

/// What commands name. What is not known is empty.
pub(super) struct Named<'a> {
    pub node: &'a str,
    /// The version that its host would update to.
    pub version: &'a str,
    /// The pool that steers the node.
    pub pool: &'a str,
    /// The operator's namespace.
    pub namespace: &'a str,
}

/// A match over all reasons, of which a new one has to be among them.
macro_rules! remedies {
    (($node:ident, $namespace:ident, $resume:ident, $resume_fleet:ident, $resume_pool:ident, $update_now:ident, $retry:ident, $resume_version:ident, $resume_any:ident, $status:ident, $agent:ident),
     $($variant:ident => $remedy:literal,)*) => {
        /// What to do so that the node's update begins or goes on, with commands that can be pasted. A node that moves by
        /// itself needs nothing; then the sentence says what comes next.
        pub(super) fn of(reason: &Reason<'_>, named: &Named<'_>) -> String {
            let Named { node, version, pool, namespace: $namespace } = *named;
            let $node = Argument::Node(node);
            let $resume = brupop("resume", Some($node), $namespace);
            let $resume_fleet = brupop("resume", None, $namespace);
            let $resume_pool = brupop("resume --pool", Some(Argument::Pool(pool)), $namespace);
            let $update_now = brupop("update-now", Some($node), $namespace);
            let $retry = brupop("retry", Some($node), $namespace);
            let $resume_version = brupop("resume --version", Some(Argument::Version(version)), $namespace);
            let $resume_any = brupop("resume --version", Some(Argument::Version("")), $namespace);
            let $status = brupop("status", None, $namespace);
            let $agent = format!(
                "`kubectl get pods -n {} -o wide --field-selector spec.nodeName={}`",
                $namespace, $node
            );
            match reason { $(Reason::$variant { .. } => format!($remedy),)* }
        }
    };
}

remedies! {
    (node, namespace, resume, resume_fleet, resume_pool, update_now, retry, resume_version, resume_any, status, agent),
    NotLeading => "look at the reconciler's pods and their logs: one of them has to lead",
    NotUnderstood =>
        "repair the object that cannot be read: remove a marker and undo by hand what it records, correct \
         a Node, delete a shadow (the reconciler recreates it), or restart a kubelet that reports no boot ID",
    NodeGone => "nothing: the reconciler deletes the shadow, too",
    NodeReplaced => "nothing: the reconciler deletes this shadow and creates that of the new Node",
    NotLabelled => "label the node: `kubectl label node {node} bottlerocket.aws/updater-interface-version=2.0.0 --overwrite`",
    NotReported =>
        "look at the agent's pod on the node ({agent}), and whether the host has /run/api.sock; if no node \
         reports, API servers may not reach the webhook",
    AgentSilent =>
        "look at the agent's pod on the node and at its logs ({agent}), or at the DaemonSet brupop-agent if \
         there is no pod: one has to be Ready",
    NoUpdate => "nothing: the host is up to date as far as it knows",
    NotOffered =>
        "wait for its wave, which comes within a week of the release; to not wait, let the host ignore waves, and look at \
         its lock (`apiclient set updates.ignore-waves=true` and `apiclient get settings.updates` on the host)",
    NoUpdateChosen =>
        "nothing, if the host is to stay locked; else end its lock (`apiclient set updates.version-lock=latest` on the host)",
    RefreshFailed => "let the host reach its update repository: look at egress and proxy",
    CannotDisarm =>
        "let the host reach its update repository, without which it cannot undo the activation; or drain \
         the node and reboot it into the update",
    NoInPlaceUpdates => "replace the node to update it, and remove the opt-in label from nodes of this image: `kubectl label node {node} \
         bottlerocket.aws/updater-interface-version-`",
    HostUnreachable => "look at apiserver.service on the host",
    CommandRefused => "see what the host's API says, and what runs on the host (`updog`, `thar-be-updates`)",
    RebootRefused => "see what keeps the host from rebooting (`systemd-inhibit --list`)",
    NotNextToBoot => "activate the update on the host again (`apiclient update apply`), or wait until it is given up",
    NodeNotReady => "repair the node: it has to become Ready",
    TooManyLabels => "remove labels or annotations of the Node, down to 1,000 of each",
    FleetPaused => "resume the fleet ({resume_fleet})",
    NodePaused => "resume the node ({resume})",
    OutsideWindow => "wait for the maintenance window, or request the update now ({update_now})",
    Frozen => "wait for the end of the freeze, or request the update now ({update_now})",
    PoolPaused => "resume the pool ({resume_pool})",
    PoolInvalid => "correct the field of the pool that the sentence names",
    PoolConflict => "give one of the pools another priority, or another selector",
    WaitingForPool =>
        "see what holds the pool that the sentence names, or wait for the end of its soak; if there is none of this name, \
         correct spec.dependsOn",
    WaitingForZone => "bring the node of the other zone back into service, or change spec.topology of the pool",
    ControlPlaneBusy =>
        "wait for the node of the control plane that the sentence names: it has to be updated, Ready and \
         uncordoned",
    VersionTooYoung =>
        "wait until the version is old enough (spec.versions.minAge), or request the update now ({update_now})",
    GateClosed =>
        "repair what the query of the gate finds (spec.gates of the pool); three good answers open it, \
         and update-now does not",
    GateUnknown =>
        "see the pool's condition Ready, and the Secret brupop-gate-sources: the gate's source has to \
         answer",
    VersionNotAllowed => "wait for another release, or change what the pool allows (spec.versions)",
    AdmissionNotEnforced =>
        "look at the webhook's pods, and apply the overlay again: webhook and policies have to be in \
         force",
    OtherOperator => "remove upstream's operator, or the shadow that it left, as docs/migrating.md says",
    BackingOff => "repair the cause, and end the wait ({retry})",
    VersionHalted =>
        "find out why nodes failed, and resume the version ({resume_version}); or wait \
         for another release",
    VersionUnproven => "wait for the nodes that try the version now: one of them has to reach it",
    TooManyVersionsHalted =>
        "find out why nodes failed, and resume a version that {status} shows as halted ({resume_any})",
    NodeTooYoung =>
        "wait until the node is five minutes old, or request its update now ({update_now})",
    CheckingPods => "nothing: the reconciler is looking at the node's pods and their budgets",
    TooManyPods =>
        "delete pods of the node that nobody needs (`kubectl get pods -A --field-selector \
         spec.nodeName={node}`), and limit their namespace (a ResourceQuota)",
    CannotDrain => "delete the pod or repair what the sentence names; the node is then looked at again",
    BudgetAllowsNone =>
        "do what the sentence says of the budget, or wait: the node is tried after the time of a drain",
    NodeLeaving => "nothing: the node is about to go",
    NotBottlerocket => "remove the opt-in label if the node is not to run Bottlerocket: `kubectl label node {node} \
         bottlerocket.aws/updater-interface-version-`",
    NodeChangesDenied => "change the admission rule, or repair the field of the Node, that the sentence names",
    LimitReached =>
        "wait for a slot, or raise the limit (spec.maxUnavailable of the pool or the fleet, \
         MAX_CONCURRENT_UPDATE)",
    LimitUsedByUnavailableNodes =>
        "repair or uncordon the nodes that use up the limit, or raise it (spec.maxUnavailable, \
         MAX_CONCURRENT_UPDATE)",
    Starting => "wait; if the agent does not take the update up for long, its process hangs: delete its pod ({agent})",
    Staging => "nothing: the host finishes its download, within four hours",
    ExcludedFromLoadBalancers => "nothing: the drain begins at the time that the sentence names",
    Cordoning => "nothing: the node is cordoned next",
    Draining =>
        "wait for the pods to go; a budget that allows no disruption, or a pod that does not end, holds the drain up until \
         its deadline (spec.drain.timeout of the pool)",
    VolumesInUse => "nothing: the node reboots once its volumes are detached, or after two minutes",
    RebootGranted => "nothing: the agent reboots the host",
    Rebooting => "nothing: the host comes back with the new version, and the node becomes Ready",
    RebootOverdue => "look at the machine; if it will never come back, delete the Node: `kubectl delete node {node}`",
    ReturningToService => "nothing: the node is uncordoned next",
    Monitoring => "nothing: the node has to stay Ready until the time that the sentence names",
    WorkloadsUnavailable => "repair the workload that the sentence names: the node gives its slot back then, or at the time in the sentence",
    Finishing => "nothing: the agent confirms the end",
    Aborting => "nothing: the node is put back as it was, and its agent undoes its changes to the host",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedies_are_sentences_of_their_own() {
        let named = Named {
            node: "node-0",
            version: "1.20.0",
            pool: "web",
            namespace: "ns",
        };
        let remedies = Reason::WORDS
            .iter()
            .filter_map(|word| Some(of(&Reason::of_word(word)?, &named)));
        let mut remedies: Vec<String> = remedies
            .filter(|remedy| !remedy.starts_with("nothing: "))
            .collect();
        assert!(remedies.len() > 30, "{}", remedies.len());
        assert!(
            remedies
                .iter()
                .all(|remedy| !remedy.ends_with('.') && !remedy.contains("  ")),
            "{remedies:?}"
        );
        remedies.sort_unstable();
        let all = remedies.len();
        remedies.dedup();
        assert_eq!(remedies.len(), all, "two reasons need the same");
        let command = |word| of(&Reason::of_word(word).unwrap(), &named);
        assert!(command("NodePaused").contains("`kubectl brupop resume node-0 -n ns`"));
        assert!(command("PoolPaused").contains("`kubectl brupop resume --pool web -n ns`"));
        assert!(
            command("VersionHalted").contains("`kubectl brupop resume --version 1.20.0 -n ns`")
        );
        // README's opt-out is another value of the label.
        assert!(command("NotLabelled").contains("interface-version=2.0.0 --overwrite`"));
        // The version that the node waits for has no record.
        let halted = command("TooManyVersionsHalted");
        assert!(
            !halted.contains("1.20.0") && halted.contains("`kubectl brupop status -n ns`"),
            "{halted}"
        );
        assert!(
            halted.contains("`kubectl brupop resume --version VERSION -n ns`"),
            "{halted}"
        );
        for remedy in remedies.iter().filter(|remedy| **remedy != halted) {
            for (number, part) in remedy.split('`').enumerate() {
                let is_command = number % 2 == 1;
                assert!(is_command || !part.contains("kubectl"), "{remedy}");
                assert!(
                    !is_command || !part.contains("NODE") && !part.contains("VERSION"),
                    "{remedy}"
                );
            }
        }
    }
}
