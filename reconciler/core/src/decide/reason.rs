//! Why a node moves, or why not; and why updates are given up: stable words for conditions, metrics, alerts and
//! `failures.reason`, each with a sentence for people.

use std::borrow::Cow;
use std::fmt;

use brupop_api::Problem;
use brupop_api::conditions::ConditionStatus;
use brupop_api::facts::StatusFacts;
use jiff::Unit;

use crate::facts::{FirstPool, FirstPoolStanding};
use crate::window::Until;

/// An enum whose variants' names are words for objects and metrics. The text beside each is what people are told.
macro_rules! words {
    ($(#[$about:meta])* $name:ident $(<$life:lifetime>)? {
        $($variant:ident $(($field:ident: $type:ty))? => $text:literal,)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(clippy::doc_markdown, reason = "the docs are what people are told")]
        pub enum $name $(<$life>)? { $(#[doc = $text] $variant $(($type))?,)* }

        impl $(<$life>)? $name $(<$life>)? {
            /// Every word that [`Self::as_str`] can return.
            pub const WORDS: &'static [&'static str] = &[$(stringify!($variant)),*];

            /// The stable word.
            pub fn as_str(&self) -> &'static str {
                match self { $(Self::$variant { .. } => stringify!($variant),)* }
            }

            /// The sentence for people.
            pub fn message(&self) -> Cow<'static, str> {
                match self { $(Self::$variant $(($field))? => text(format_args!($text)),)* }
            }

            /// The one with this stable word, without what else it says; `None` if no word is so, as one of another release.
            pub fn of_word(word: &str) -> Option<Self> {
                $(if word == stringify!($variant) {
                    return Some(Self::$variant $((<$type as Detail>::UNKNOWN))?);
                })*
                None
            }
        }
    };
}

/// What a word does not tell.
trait Detail {
    const UNKNOWN: Self;
}

impl Detail for &str {
    const UNKNOWN: Self = "";
}

impl Detail for Until {
    const UNKNOWN: Self = Self::Unknown;
}

impl Detail for FirstPool<'_> {
    const UNKNOWN: Self = Self { pool: "", standing: FirstPoolStanding::NotDone };
}

impl Detail for UsedUp<'_> {
    const UNKNOWN: Self = Self { node: "", limit: LimitScope::DefaultPool };
}

impl Detail for Abort {
    const UNKNOWN: Self = Self::StepFailed;
}

fn text(text: fmt::Arguments<'_>) -> Cow<'static, str> {
    text.as_str().map_or_else(|| Cow::Owned(text.to_string()), Cow::Borrowed)
}

words! {
/// Why a node moves, or why not. The text of a reason changes only with the reason: it holds no counters and no positions in
/// a queue.
Reason<'a> {
    NotLeading => "this reconciler does not lead",
    NotUnderstood(why: &'a str) => "this node is left alone: {why}",
    NodeGone => "the Node was deleted",
    NodeReplaced => "the Node was recreated; it gets a new shadow",
    NotLabelled => "the node is not labelled bottlerocket.aws/updater-interface-version=2.0.0",
    NotReported => "the agent has not reported since the node booted: look at its pod",
    AgentSilent => "no pod of the agent on this node is Ready: look at the pod and its logs, or at the DaemonSet if there is no pod",
    NoUpdate => "the host knows of no update",
    RefreshFailed(why: &'a str) =>
        "the host cannot look for updates (see its network, proxy and update repository): {why}",
    CannotDisarm(why: &'a str) =>
        "the last update was given up, but the host would still boot into it if it rebooted: {why}",
    NoInPlaceUpdates(why: &'a str) =>
        "the host's image has no in-place updates, so only a new node updates it; remove its opt-in label: {why}",
    HostUnreachable(why: &'a str) => "Bottlerocket's API on the host does not answer: {why}",
    CommandRefused(why: &'a str) => "Bottlerocket's API on the host refuses the commands of an update: {why}",
    RebootRefused(why: &'a str) => "the host refuses to reboot: {why}",
    NotNextToBoot(why: &'a str) => "the host would not boot the update: {why}",
    NodeNotReady => "the node is not Ready",
    TooManyLabels =>
        "the Node has more than 1,000 labels, or more than 1,000 annotations: remove some, so that the API server \
         can check changes of it",
    FleetPaused => "a person paused the fleet (spec.paused of the BottlerocketFleet)",
    NodePaused => "a person paused this node (annotation brupop.bottlerocket.aws/pause)",
    OutsideWindow(until: Until) => "the maintenance window is closed, or too little of it is left; the window opens {until}",
    Frozen(until: Until) => "a freeze of its pool holds the node (spec.freezes); it is over {until}",
    PoolPaused => "a person paused the pool of this node (spec.paused of its BottlerocketPool)",
    PoolInvalid(why: &'a str) => "the pool of this node cannot be understood, so it holds its nodes: {why}",
    PoolConflict(pools: &'a str) =>
        "the pools {pools} select this node with the same priority, so none of them owns it (spec.priority)",
    NoPool => "no BottlerocketPool selects this node, and the fleet says to hold such nodes (spec.unpooledNodes)",
    WaitingForPool(first: FirstPool<'a>) => "the pool {first}",
    VersionTooYoung(until: Until) =>
        "this version is younger than the pool allows (spec.versions.minAge); it is old enough {until}",
    WaitingForZone(zone: &'a str) =>
        "a node of another zone ({zone}) of the pool is unavailable: it updates one zone at a time (spec.topology)",
    ControlPlaneBusy(node: &'a str) =>
        "another node of the control plane ({node}) is being updated or about to be, is not Ready, or is cordoned: at most one \
         of these nodes is out of service at a time",
    GateClosed(gate: &'a str) =>
        "the gate {gate} of its pool is closed (spec.gates): what it checks is wrong, or was a moment ago",
    GateUnknown(gate: &'a str) =>
        "the gate {gate} of its pool is unknown, and so closed (spec.gates): three good answers open it; if there is none, the pool's condition Ready says why",
    VersionNotAllowed(version: &'a str) => "the pool of this node does not allow {version} (spec.versions)",
    AdmissionNotEnforced =>
        "dry runs did not show that webhook and policy are enforced: see the fleet's condition AdmissionEnforced",
    OtherOperator => "another operator may update these nodes, too: see the fleet's condition OtherOperator",
    BackingOff => "the last attempt was given up, and the node waits before the next one",
    VersionHalted(version: &'a str) =>
        "too many nodes failed to reach {version} (status.versions of the fleet), so no further one is updated to \
         it; to go on, run the command that the fleet's condition Halted names",
    VersionHaltedInPool(version: &'a str) =>
        "too many updates to {version} left workloads of this pool unavailable (spec.failureThreshold), so none begins any \
         more; to go on, run the command that the pool's condition Halted names",
    VersionUnproven(version: &'a str) =>
        "no node has reached {version} yet: until one has, only as many try it at once as may fail before it is \
         halted (MAX_FAILURES_OF_NEW_VERSION)",
    TooManyVersionsHalted =>
        "the fleet's status has no room for another halted version (status.versions): find out why nodes failed, and \
         lift halts (spec.acknowledgedHalts)",
    NodeTooYoung => "the node is new, and is not updated yet (MIN_NODE_AGE_SECONDS)",
    PausingBetweenUpdates => "an update ended not long ago: pausing between updates (PAUSE_BETWEEN_UPDATES_SECONDS)",
    CheckingPods => "it is the node's turn; its pods and their budgets are being checked first",
    TooManyPods =>
        "the node has too many pods, or too large ones, to look at; it is looked at again every five minutes",
    CannotDrain(why: &'a str) => "no drain could empty the node, so it is skipped: {why}",
    BudgetAllowsNone(budget: &'a str) =>
        "{budget} allows no disruption of a pod on the node now: the node is not cordoned before that changes",
    NodeLeaving => "the Node is being deleted, or an autoscaler has tainted it to remove it",
    NotBottlerocket => "the Node's OS image names no version of Bottlerocket",
    NodeChangesDenied(why: &'a str) =>
        "the API server refuses changes of the Node, so it could be neither cordoned nor uncordoned: {why}",
    LimitReached =>
        "waiting for a free slot (`kubectl brupop status` shows who has them)",
    LimitUsedByUnavailableNodes(by: UsedUp<'a>) =>
        "nodes that are out of service for other reasons, such as {by}: they are not Ready, or somebody has cordoned \
         them within CORDONED_BY_OTHERS_SECONDS",
    Starting(version: &'a str) => "the update to {version} begins: the agent on this node has not taken it up yet",
    Staging(version: &'a str) => "the host is downloading and activating {version}",
    ExcludedFromLoadBalancers =>
        "the node is excluded from load balancers and waits",
    Cordoning => "the node is being cordoned",
    Draining => "pods are being evicted from the node",
    VolumesInUse =>
        "the node is empty; its reboot waits until its volumes are detached (status.volumesInUse), for at most two minutes",
    RebootGranted => "the node is drained; the agent has not claimed the reboot yet",
    Rebooting => "the host is rebooting",
    RebootOverdue(how: &'a str) => "the host {how}: look at the machine",
    ReturningToService => "the node is being put back into service",
    Monitoring => "the node runs the new version, and is being monitored",
    WorkloadsUnavailable(owner: &'a str) =>
        "the node is in service, but {owner}, whose pods were evicted from it, is not available again",
    Finishing => "the update has ended; the agent has not confirmed it yet",
    Aborting(abort: Abort) => "the update is given up ({abort:?}): {abort}",
}}

words! {
/// Why an update is given up. The texts end a sentence.
Abort {
    StepFailed => "the agent could not complete the step; status.message says why",
    NoInPlaceUpdates => "the host's image has no in-place updates",
    DeadlineExceeded => "the step took longer than it may",
    DrainTimedOut => "the node could not be emptied in time",
    TooManyPods => "the node has too many pods, or too large ones, to look at",
    CannotDrain => "a pod or a budget appeared that makes the drain impossible",
    BudgetAllowsNone => "a budget has allowed no disruption for as long as a drain may take",
    PodsComeBack =>
        "pods come back each time they are evicted, and a budget covers them, or they belong to too many workloads",
    NodeChangesDenied => "the API server refuses changes of the Node",
    FellBack => "the host came back with a version other than the wanted one",
    FellBackDeactivated =>
        "the host came back with a version other than the wanted one; before its reboot its agent had said that the update \
         was not what it would boot next, so somebody may have deactivated it",
    NotBottlerocket => "the host came back, and its Node's OS image names no version of Bottlerocket",
    NotReady => "the node was not Ready with the new version",
    WorkloadsUnavailable => "a workload whose pods were evicted did not become available again",
    WorkloadsUnavailableAmongOthers =>
        "a workload whose pods were evicted did not become available again; other nodes were away, cordoned or being \
         updated, so that does not count against the version",
    WorkloadsChanged =>
        "a workload whose pods were evicted did not become available again; another revision of it is being rolled out, \
         so that does not count against the version",
    RebootedByItself => "the host rebooted before its update was ready",
    OtherTarget => "the host would now update to another version, or to none",
    VersionHalted => "too many other nodes failed to reach the version",
    NodePaused => "a person paused this node",
    PoolClosed => "before the node was cordoned, its pool or the fleet no longer allowed the update",
    ControlPlaneBusy => "before the node was cordoned, another node of the control plane went out of service",
    NotLabelled => "the node lost its opt-in label",
}}

impl Abort {
    /// Why an update was given up, as a message tells it that names the word in brackets.
    pub fn told_by(message: &str) -> Option<Self> {
        let (_, rest) = message.split_once("given up (")?;
        Self::of_word(rest.split_once(')')?.0)
    }
}

/// A limit that nodes without a slot use up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UsedUp<'a> {
    /// One of the nodes.
    pub node: &'a str,
    /// The limit.
    pub limit: LimitScope,
}

/// Who sets a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitScope {
    /// The `BottlerocketPool` of the node.
    Pool,
    /// The environment, for nodes that no pool selects.
    DefaultPool,
    /// The fleet.
    Fleet,
}

/// With what follows the name in its sentence.
impl fmt::Display for UsedUp<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = match self.limit {
            LimitScope::Pool => "limit of this pool (spec.maxUnavailable)",
            LimitScope::DefaultPool => "limit (MAX_CONCURRENT_UPDATE)",
            LimitScope::Fleet => "limit of the fleet (spec.maxUnavailable)",
        };
        write!(f, "{}, use up the {limit}", self.node)
    }
}

/// With what follows the name in its sentence.
impl fmt::Display for FirstPool<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pool, standing } = self;
        write!(f, "{pool} goes first (spec.after)")?;
        match standing {
            FirstPoolStanding::Missing => f.write_str(", and there is no BottlerocketPool of this name"),
            FirstPoolStanding::NotDone => f.write_str(": it is not done with this version"),
            FirstPoolStanding::Behind(node) => write!(
                f,
                ": it is not done with this version: its node {node} runs an older version and does not want this one"
            ),
            FirstPoolStanding::Soaking(until) => {
                let until = until.round(Unit::Second).unwrap_or(*until);
                write!(f, ": it is done with this version, and soaks until {until}")
            }
        }
    }
}

/// Of a window or a freeze, at the end of its sentence.
impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("at an unknown time"),
            Self::Never => f.write_str("never again"),
            Self::At(at) => write!(f, "at {at}"),
        }
    }
}

impl fmt::Display for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())
    }
}

impl<'a> Reason<'a> {
    /// What is wrong on the host, as its agent says, if that keeps an update from going on.
    pub(crate) fn of_status(status: &StatusFacts<'a>) -> Option<Self> {
        let problem = status.problem?;
        let why = status.message.unwrap_or(problem.as_str());
        Some(match problem {
            Problem::HostUnreachable => Self::HostUnreachable(why),
            Problem::CommandRefused => Self::CommandRefused(why),
            Problem::RebootRefused => Self::RebootRefused(why),
            Problem::RefreshFailed => Self::RefreshFailed(why),
            Problem::NotNextToBoot => Self::NotNextToBoot(why),
            Problem::NoInPlaceUpdates => Self::NoInPlaceUpdates(why),
            Problem::CannotDisarm => Self::CannotDisarm(why),
            Problem::NoUpdateChosen
            | Problem::PrefetchFailed
            | Problem::PrefetchBlocked
            | Problem::StepFailed => return None,
        })
    }

    /// What is wrong on the host, if that keeps the agent from saying that an update is over.
    pub(crate) fn against_report(status: &StatusFacts<'a>) -> Option<Self> {
        Self::of_status(status).filter(|reason| {
            matches!(reason, Self::HostUnreachable(_) | Self::CommandRefused(_) | Self::CannotDisarm(_))
        })
    }

    /// Does a node with an update wait for nothing but its turn or its time? What else holds it back is about the node
    /// itself.
    pub fn waits_for_turn(&self) -> bool {
        matches!(self.standing(), Standing::Next | Standing::Queued | Standing::QueuedIdle)
    }

    /// Does the agent download nothing ahead meanwhile?
    pub(super) fn forbids_download(&self) -> bool {
        matches!(self.standing(), Standing::QueuedIdle | Standing::HeldIdle)
    }

    /// Does an update of the fleet's usual course begin a step with it? Such a word is written at once, and once; others only
    /// if they last. What lies between two steps lasts milliseconds, or is worth a word because it does not.
    pub fn begins_step(&self) -> bool {
        matches!(self, Self::Staging(_) | Self::Draining | Self::Rebooting | Self::Monitoring)
    }

    /// Is an update under way?
    pub fn is_moving(&self) -> bool {
        self.standing() == Standing::Moving
    }

    /// The status of the condition Progressing.
    pub fn status(&self) -> ConditionStatus {
        match self.standing() {
            Standing::NotKnown => ConditionStatus::Unknown,
            Standing::Moving | Standing::Next => ConditionStatus::True,
            Standing::Queued | Standing::QueuedIdle | Standing::Held | Standing::HeldIdle => {
                ConditionStatus::False
            }
        }
    }

    /// Every reason has its place here: a new one does not compile without.
    fn standing(&self) -> Standing {
        match self {
            Self::NotReported
            | Self::AgentSilent
            | Self::NodeGone
            | Self::NotUnderstood(_)
            | Self::NotLeading => Standing::NotKnown,
            Self::Staging(_)
            | Self::ExcludedFromLoadBalancers
            | Self::Cordoning
            | Self::Draining
            | Self::VolumesInUse
            | Self::RebootGranted
            | Self::Rebooting
            | Self::ReturningToService
            | Self::Monitoring
            | Self::WorkloadsUnavailable(_)
            | Self::Aborting(_) => Standing::Moving,
            Self::Starting(_) | Self::Finishing => Standing::Next,
            Self::OutsideWindow(_)
            | Self::AdmissionNotEnforced
            | Self::VersionUnproven(_)
            | Self::WaitingForPool(_)
            | Self::WaitingForZone(_)
            | Self::ControlPlaneBusy(_)
            | Self::VersionTooYoung(_)
            | Self::GateClosed(_)
            | Self::GateUnknown(_)
            | Self::NodeTooYoung
            | Self::PausingBetweenUpdates
            | Self::CheckingPods
            | Self::LimitReached
            | Self::LimitUsedByUnavailableNodes(_) => Standing::Queued,
            Self::FleetPaused | Self::PoolPaused | Self::Frozen(_) | Self::OtherOperator => {
                Standing::QueuedIdle
            }
            Self::NodeReplaced
            | Self::NotLabelled
            | Self::NoUpdate
            | Self::RefreshFailed(_)
            | Self::CannotDisarm(_)
            | Self::NoInPlaceUpdates(_)
            | Self::HostUnreachable(_)
            | Self::CommandRefused(_)
            | Self::RebootRefused(_)
            | Self::NotNextToBoot(_)
            | Self::TooManyLabels
            | Self::TooManyVersionsHalted
            | Self::TooManyPods
            | Self::CannotDrain(_)
            | Self::BudgetAllowsNone(_)
            | Self::NodeLeaving
            | Self::NotBottlerocket
            | Self::NodeChangesDenied(_)
            | Self::RebootOverdue(_) => Standing::Held,
            Self::NodeNotReady
            | Self::NodePaused
            | Self::PoolInvalid(_)
            | Self::PoolConflict(_)
            | Self::NoPool
            | Self::VersionNotAllowed(_)
            | Self::BackingOff
            | Self::VersionHalted(_)
            | Self::VersionHaltedInPool(_) => Standing::HeldIdle,
        }
    }
}

/// What a reason means for its node. *Idle*: meanwhile its agent downloads nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// The node is not seen, or not understood.
    NotKnown,
    /// An update is under way.
    Moving,
    /// An update begins or has ended: the node does not hold another one up.
    Next,
    /// It waits for its turn or its time.
    Queued,
    /// It waits for a person, a freeze or another operator.
    QueuedIdle,
    /// Something about the node itself holds it back.
    Held,
    /// Something about the node itself holds it back, and no image would be of use.
    HeldIdle,
}

impl Abort {
    /// Does it count as a failure of the node, so that the node backs off? Aborts that people or new releases cause do
    /// not. A reboot that nobody granted does: otherwise a host that crashes whenever it stages would do so every
    /// minute.
    pub fn is_failure(self) -> bool {
        !matches!(
            self,
            Self::OtherTarget
                | Self::NoInPlaceUpdates
                | Self::VersionHalted
                | Self::NodePaused
                | Self::PoolClosed
                | Self::ControlPlaneBusy
                | Self::NotLabelled
                | Self::CannotDrain
                | Self::BudgetAllowsNone
        )
    }

    /// Was this failure seen on Nodes or workloads, which no agent can write? Only such failures count against a
    /// version.
    pub fn is_corroborated(reason: &str) -> bool {
        [Self::FellBack, Self::FellBackDeactivated, Self::NotReady, Self::WorkloadsUnavailable]
            .iter()
            .any(|seen| reason == seen.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadlines::sentences::given_up_text;
    use brupop_api::conditions::REASONS_AGAINST_PREFETCH;

    #[test]
    fn every_word_is_known_again() {
        for word in Reason::WORDS {
            assert_eq!(Reason::of_word(word).map(|reason| reason.as_str()), Some(*word));
        }
        assert_eq!(Reason::of_word("Dreaming"), None);
    }

    /// A new leader reads from the condition why an update was given up, whether that was the last word or the back-off is.
    #[test]
    fn messages_tell_why_an_update_was_given_up() {
        for word in Abort::WORDS {
            let why = Abort::of_word(word).unwrap();
            let aborting = Reason::Aborting(why).message();
            let told = format!("({why:?}): {why}");
            let waits = given_up_text("1.20.0", Some(&told), "2026-11-21T04:00:00Z").unwrap();
            let waits = format!("{}; {waits}", Reason::BackingOff.message());
            assert_eq!([Abort::told_by(&aborting), Abort::told_by(&waits)], [Some(why); 2]);
        }
        let nobody_knows = given_up_text("1.20.0", None, "2026-11-21T04:00:00Z").unwrap();
        assert_eq!([Abort::told_by(&nobody_knows), Abort::told_by("")], [None; 2]);
    }

    /// Agents read words, and have a list of their own of those that keep them from downloading.
    #[test]
    fn agents_know_each_word_against_prefetching() {
        let mut words: Vec<_> = Reason::WORDS
            .iter()
            .filter(|word| Reason::of_word(word).is_some_and(|it| it.forbids_download()))
            .copied()
            .collect();
        let mut known = REASONS_AGAINST_PREFETCH.to_vec();
        words.sort_unstable();
        known.sort_unstable();
        assert_eq!(words, known);
    }
}
