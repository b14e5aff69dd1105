//! Why updates are given up: stable words for `failures.reason`, conditions and Events.

/// Why an update is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Abort {
    /// The agent reported that the step failed.
    StepFailed,
    /// The step took longer than it may.
    DeadlineExceeded,
    /// The drain took longer than it may.
    DrainTimedOut,
    /// Before the drain began, a pod or a budget appeared that no drain gets past.
    CannotDrain,
    /// Before the drain began, a budget allowed no disruption for as long as a drain may take.
    BudgetAllowsNone,
    /// Pods came back each time that they were evicted, and may not be left on the node.
    PodsComeBack,
    /// The API server takes no change of the Node.
    NodeChangesDenied,
    /// The host came back with a version other than the wanted one.
    FellBack,
    /// The host came back, and its Node's OS image names no version of Bottlerocket.
    NotBottlerocket,
    /// The node was not Ready after the update.
    NotReady,
    /// A workload whose pods were evicted did not become available again, while no other node was being updated.
    WorkloadsUnavailable,
    /// The same, while other nodes were down or being updated, which may be the cause.
    WorkloadsUnavailableAmongOthers,
    /// The host rebooted by itself before the update was ready.
    RebootedByItself,
    /// The host would now update to another version, or to none.
    OtherTarget,
    /// Other nodes failed to reach the version, before the host's reboot began.
    VersionHalted,
    /// A person paused the node.
    NodePaused,
    /// The node lost its label.
    NotLabelled,
}

impl Abort {
    /// The word for `failures.reason`, conditions and Events.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::StepFailed => "StepFailed",
            Self::DeadlineExceeded => "DeadlineExceeded",
            Self::DrainTimedOut => "DrainTimedOut",
            Self::CannotDrain => "CannotDrain",
            Self::BudgetAllowsNone => "BudgetAllowsNone",
            Self::PodsComeBack => "PodsComeBack",
            Self::NodeChangesDenied => "NodeChangesDenied",
            Self::FellBack => "FellBack",
            Self::NotBottlerocket => "NotBottlerocket",
            Self::NotReady => "NotReady",
            Self::WorkloadsUnavailable => "WorkloadsUnavailable",
            Self::WorkloadsUnavailableAmongOthers => "WorkloadsUnavailableAmongOthers",
            Self::RebootedByItself => "RebootedByItself",
            Self::OtherTarget => "OtherTarget",
            Self::VersionHalted => "VersionHalted",
            Self::NodePaused => "NodePaused",
            Self::NotLabelled => "NotLabelled",
        }
    }

    /// Does it count as a failure of the node, so that the node backs off? Aborts that people or new releases cause do
    /// not. A reboot that nobody granted does: otherwise a host that crashes whenever it stages would do so every
    /// minute.
    pub fn is_failure(self) -> bool {
        !matches!(
            self,
            Self::OtherTarget
                | Self::VersionHalted
                | Self::NodePaused
                | Self::NotLabelled
                | Self::CannotDrain
                | Self::BudgetAllowsNone
        )
    }

    /// Was this failure seen on Nodes or workloads, which no agent can write? Only such failures count against a
    /// version.
    pub fn is_corroborated(reason: &str) -> bool {
        [Self::FellBack, Self::NotReady, Self::WorkloadsUnavailable]
            .iter()
            .any(|seen| reason == seen.as_str())
    }

    /// The end of a sentence for people.
    pub(super) fn message(self) -> &'static str {
        match self {
            Self::StepFailed => "the agent could not complete the step; status.message says why",
            Self::DeadlineExceeded => "the step took longer than it may",
            Self::DrainTimedOut => "the node could not be emptied in time",
            Self::CannotDrain => "a pod or a budget appeared that makes the drain impossible",
            Self::BudgetAllowsNone => "a budget has allowed no disruption for as long as a drain may take",
            Self::PodsComeBack => {
                "pods come back each time they are evicted, and a budget covers them, or they belong to too many workloads"
            }
            Self::NodeChangesDenied => "the API server refuses changes of the Node",
            Self::FellBack => "the host came back with a version other than the wanted one",
            Self::NotBottlerocket => {
                "the host came back, and its Node's OS image names no version of Bottlerocket"
            }
            Self::NotReady => "the node was not Ready with the new version",
            Self::WorkloadsUnavailable => "a workload whose pods were evicted did not become available again",
            Self::WorkloadsUnavailableAmongOthers => {
                "a workload whose pods were evicted did not become available again; other nodes were away or being \
                 updated, so that does not count against the version"
            }
            Self::RebootedByItself => "the host rebooted before its update was ready",
            Self::VersionHalted => "too many other nodes failed to reach the version",
            Self::OtherTarget => "the host would now update to another version, or to none",
            Self::NodePaused => "a person paused this node",
            Self::NotLabelled => "the node lost its opt-in label",
        }
    }
}
