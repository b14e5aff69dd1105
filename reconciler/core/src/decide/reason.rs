//! Why a node moves, or why not: stable words for conditions, metrics and alerts.

use std::borrow::Cow;

use brupop_api::conditions::ConditionStatus;

use super::Abort;

/// Why a node moves or not. The text of a reason changes only with the reason: it holds no counters and no positions in
/// a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason<'a> {
    /// This process does not lead; nothing is said.
    NotLeading,
    /// The Node, its marker or its shadow cannot be read. Holds why.
    NotUnderstood(&'a str),
    /// The Node is gone.
    NodeGone,
    /// The Node was recreated.
    NodeReplaced,
    /// The Node is not labelled (any more).
    NotLabelled,
    /// The agent has not reported yet, or not since the node booted.
    NotReported,
    /// The pod of the agent is not Ready.
    AgentSilent,
    /// The host knows of no update.
    NoUpdate,
    /// The host could not look for updates, so it is not known whether there is one. Holds what its agent says about
    /// that.
    RefreshFailed(&'a str),
    /// The Node is not Ready.
    NodeNotReady,
    /// The Node has so many labels or annotations that the API server might refuse to put it back into service.
    TooManyLabels,
    /// A person paused the fleet.
    FleetPaused,
    /// A person paused this node.
    NodePaused,
    /// No maintenance window is open.
    OutsideWindow,
    /// Our admission rules were not seen to be in force.
    AdmissionNotEnforced,
    /// Another operator is here.
    OtherOperator,
    /// The node failed not long ago.
    BackingOff,
    /// No new node is updated to this version.
    VersionHalted(&'a str),
    /// Other nodes have to try this version first.
    VersionUnproven(&'a str),
    /// The ledger has no room for another halt, so no node is updated to a version that it does not know.
    TooManyVersionsHalted,
    /// The node was made not long ago.
    NodeTooYoung,
    /// An update ended not long ago.
    PausingBetweenUpdates,
    /// Its turn has come; first the reconciler checks whether it can be emptied.
    CheckingPods,
    /// No drain could empty the node, as its pods and their budgets are now.
    CannotDrain(&'a str),
    /// A budget allows no disruption now that the drain needs. Holds which.
    BudgetAllowsNone(&'a str),
    /// The Node is being deleted, or an autoscaler says that it removes it.
    NodeLeaving,
    /// The Node's OS image names no version of Bottlerocket.
    NotBottlerocket,
    /// The API server takes no change of the Node. Holds what it says about that.
    NodeChangesDenied(&'a str),
    /// As many nodes as allowed are being updated.
    LimitReached,
    /// Nodes that are out of service for other reasons use up the limit.
    LimitUsedByUnavailableNodes,
    /// It has its slot, and its update starts.
    Starting(&'a str),
    /// The host downloads and activates the update.
    Staging(&'a str),
    /// The node is out of load balancers and waits for connections to end.
    ExcludedFromLoadBalancers,
    /// The node is being cordoned.
    Cordoning,
    /// Pods are being evicted.
    Draining,
    /// The agent may reboot the host.
    RebootGranted,
    /// The host reboots.
    Rebooting,
    /// The host has not come back in time.
    RebootOverdue,
    /// The host is back and the node is put back into service.
    ReturningToService,
    /// The node is watched for a while.
    Monitoring,
    /// A workload whose pods were evicted is not available again.
    WorkloadsUnavailable(&'a str),
    /// The update is done; the agent has yet to report that, and the slot has yet to be given back.
    Finishing,
    /// The update is given up.
    Aborting(Abort),
}

impl Reason<'_> {
    /// Every word that [`Reason::as_str`] can return, for metrics.
    pub const WORDS: [&'static str; 43] = [
        "NotLeading",
        "NotUnderstood",
        "NodeGone",
        "NodeReplaced",
        "NotLabelled",
        "NotReported",
        "AgentSilent",
        "NoUpdate",
        "RefreshFailed",
        "NodeNotReady",
        "TooManyLabels",
        "FleetPaused",
        "NodePaused",
        "OutsideWindow",
        "AdmissionNotEnforced",
        "OtherOperator",
        "BackingOff",
        "VersionHalted",
        "VersionUnproven",
        "TooManyVersionsHalted",
        "NodeTooYoung",
        "PausingBetweenUpdates",
        "CheckingPods",
        "CannotDrain",
        "BudgetAllowsNone",
        "NodeLeaving",
        "NotBottlerocket",
        "NodeChangesDenied",
        "LimitReached",
        "LimitUsedByUnavailableNodes",
        "Starting",
        "Staging",
        "ExcludedFromLoadBalancers",
        "Cordoning",
        "Draining",
        "RebootGranted",
        "Rebooting",
        "RebootOverdue",
        "ReturningToService",
        "Monitoring",
        "WorkloadsUnavailable",
        "Finishing",
        "Aborting",
    ];

    /// The condition's reason.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::NotLeading => "NotLeading",
            Self::NotUnderstood(_) => "NotUnderstood",
            Self::NodeGone => "NodeGone",
            Self::NodeReplaced => "NodeReplaced",
            Self::NotLabelled => "NotLabelled",
            Self::NotReported => "NotReported",
            Self::AgentSilent => "AgentSilent",
            Self::NoUpdate => "NoUpdate",
            Self::RefreshFailed(_) => "RefreshFailed",
            Self::NodeNotReady => "NodeNotReady",
            Self::TooManyLabels => "TooManyLabels",
            Self::FleetPaused => "FleetPaused",
            Self::NodePaused => "NodePaused",
            Self::OutsideWindow => "OutsideWindow",
            Self::AdmissionNotEnforced => "AdmissionNotEnforced",
            Self::OtherOperator => "OtherOperator",
            Self::BackingOff => "BackingOff",
            Self::VersionHalted(_) => "VersionHalted",
            Self::VersionUnproven(_) => "VersionUnproven",
            Self::TooManyVersionsHalted => "TooManyVersionsHalted",
            Self::NodeTooYoung => "NodeTooYoung",
            Self::PausingBetweenUpdates => "PausingBetweenUpdates",
            Self::CheckingPods => "CheckingPods",
            Self::CannotDrain(_) => "CannotDrain",
            Self::BudgetAllowsNone(_) => "BudgetAllowsNone",
            Self::NodeLeaving => "NodeLeaving",
            Self::NotBottlerocket => "NotBottlerocket",
            Self::NodeChangesDenied(_) => "NodeChangesDenied",
            Self::LimitReached => "LimitReached",
            Self::LimitUsedByUnavailableNodes => "LimitUsedByUnavailableNodes",
            Self::Starting(_) => "Starting",
            Self::Staging(_) => "Staging",
            Self::ExcludedFromLoadBalancers => "ExcludedFromLoadBalancers",
            Self::Cordoning => "Cordoning",
            Self::Draining => "Draining",
            Self::RebootGranted => "RebootGranted",
            Self::Rebooting => "Rebooting",
            Self::RebootOverdue => "RebootOverdue",
            Self::ReturningToService => "ReturningToService",
            Self::Monitoring => "Monitoring",
            Self::WorkloadsUnavailable(_) => "WorkloadsUnavailable",
            Self::Finishing => "Finishing",
            Self::Aborting(_) => "Aborting",
        }
    }

    /// The status of the condition Progressing.
    pub fn status(&self) -> ConditionStatus {
        match self {
            Self::NotReported
            | Self::AgentSilent
            | Self::NodeGone
            | Self::NotUnderstood(_)
            | Self::NotLeading => ConditionStatus::Unknown,
            Self::Starting(_)
            | Self::Staging(_)
            | Self::ExcludedFromLoadBalancers
            | Self::Cordoning
            | Self::Draining
            | Self::RebootGranted
            | Self::Rebooting
            | Self::ReturningToService
            | Self::Monitoring
            | Self::WorkloadsUnavailable(_)
            | Self::Finishing
            | Self::Aborting(_) => ConditionStatus::True,
            _ => ConditionStatus::False,
        }
    }

    /// The condition's message: a sentence for people.
    pub fn message(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::NotLeading => "this reconciler does not lead",
            Self::NotUnderstood(why) => return Cow::Owned(format!("this node is left alone: {why}")),
            Self::NodeGone => "the Node was deleted",
            Self::NodeReplaced => "the Node was recreated; it gets a new shadow",
            Self::NotLabelled => "the node is not labelled bottlerocket.aws/updater-interface-version=2.0.0",
            Self::NotReported => "the agent on this node has not reported since it booted: see its pod",
            Self::AgentSilent => "the agent's pod on this node is not Ready: see its logs",
            Self::NoUpdate => "the host knows of no update",
            Self::NodeNotReady => "the node is not Ready",
            Self::TooManyLabels => {
                "the Node has more than 1,000 labels, or more than 1,000 annotations: remove some, so that the API server \
                 can check changes of it"
            }
            Self::FleetPaused => "a person paused the fleet (spec.paused of the BottlerocketFleet)",
            Self::NodePaused => "a person paused this node (annotation brupop.bottlerocket.aws/pause)",
            Self::OutsideWindow => "outside of the maintenance window, or too little is left of it",
            Self::AdmissionNotEnforced => {
                "dry runs did not show that webhook and policy are enforced: see the fleet's condition AdmissionEnforced"
            }
            Self::OtherOperator => {
                "another operator may update these nodes, too: see the fleet's condition OtherOperator"
            }
            Self::NodeLeaving => "the Node is being deleted, or an autoscaler has tainted it to remove it",
            Self::NotBottlerocket => "the Node's OS image names no version of Bottlerocket",
            Self::BackingOff => "the last attempt was given up, and the node waits before the next one",
            Self::TooManyVersionsHalted => {
                "so many versions are halted that the fleet's status has no room for another (status.versions): look at \
                 the nodes that failed to reach them, and lift halts (spec.acknowledgedHalts)"
            }
            Self::NodeTooYoung => "the node is new, and is not updated yet (MIN_NODE_AGE_SECONDS)",
            Self::PausingBetweenUpdates => {
                "an update ended not long ago: pausing between updates (PAUSE_BETWEEN_UPDATES_SECONDS)"
            }
            Self::CheckingPods => "it is the node's turn; its pods and their budgets are being checked first",
            Self::LimitReached => {
                "queued: concurrency limit reached, or pausing between updates \
                 (MAX_CONCURRENT_UPDATE, PAUSE_BETWEEN_UPDATES_SECONDS)"
            }
            Self::LimitUsedByUnavailableNodes => {
                "nodes that are out of service for other reasons use up the concurrency limit (MAX_CONCURRENT_UPDATE)"
            }
            Self::ExcludedFromLoadBalancers => {
                "the node is excluded from load balancers and waits (EXCLUDE_FROM_LB_WAIT_TIME_IN_SEC)"
            }
            Self::Cordoning => "the node is being cordoned",
            Self::Draining => "pods are being evicted from the node",
            Self::RebootGranted => "the node is drained; its agent may reboot the host",
            Self::Rebooting => "the host is rebooting",
            Self::RebootOverdue => "the host has not come back from its reboot in time: look at the machine",
            Self::ReturningToService => "the node is being put back into service",
            Self::Monitoring => "the node runs the new version, and is being monitored (SOAK_SECONDS)",
            Self::Finishing => "the update has ended; the agent is finishing",
            Self::VersionHalted(version) => {
                return Cow::Owned(format!(
                    "too many nodes failed to reach {version} (status.versions of the fleet), so no further one is \
                     updated to it; to go on, run the command that the fleet's condition Halted names"
                ));
            }
            Self::VersionUnproven(version) => {
                return Cow::Owned(format!(
                    "no node has reached {version} yet: until one has, only as many try it at once as may fail before it \
                     is halted (MAX_FAILURES_OF_NEW_VERSION)"
                ));
            }
            Self::RefreshFailed(why) => {
                return Cow::Owned(format!(
                    "the host cannot look for updates (see its network, proxy and update repository): {why}"
                ));
            }
            Self::CannotDrain(why) => {
                return Cow::Owned(format!(
                    "the node is passed over, because no drain could empty it: {why}"
                ));
            }
            Self::BudgetAllowsNone(budget) => {
                return Cow::Owned(format!(
                    "{budget} allows no disruption now, and covers a pod on the node: the node is not cordoned before that changes"
                ));
            }
            Self::NodeChangesDenied(why) => {
                return Cow::Owned(format!(
                    "the API server refuses changes of the Node, so it could be neither cordoned nor uncordoned: {why}"
                ));
            }
            Self::WorkloadsUnavailable(owner) => {
                return Cow::Owned(format!(
                    "the node is in service, but {owner}, whose pods were evicted from it, is not available again"
                ));
            }
            Self::Starting(version) => return Cow::Owned(format!("the update to {version} begins")),
            Self::Staging(version) => {
                return Cow::Owned(format!("the host is downloading and activating {version}"));
            }
            Self::Aborting(abort) => {
                return Cow::Owned(format!(
                    "the update is given up ({}): {}",
                    abort.as_str(),
                    abort.message()
                ));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brupop_api::conditions::REASONS_AGAINST_PREFETCH;

    #[test]
    fn what_agents_heed_is_what_is_said() {
        let said = [
            Reason::VersionHalted(""),
            Reason::BackingOff,
            Reason::FleetPaused,
            Reason::NodePaused,
            Reason::NodeNotReady,
            Reason::OtherOperator,
        ];
        assert_eq!(said.map(|reason| reason.as_str()), REASONS_AGAINST_PREFETCH);
        assert!(said.iter().all(|reason| reason.status() == ConditionStatus::False));
    }
}
