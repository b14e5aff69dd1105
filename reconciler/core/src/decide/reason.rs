//! Why a node moves, or why not; and why updates are given up: stable words for conditions, metrics, alerts and
//! `last_failure.reason`, each with a sentence for people.

use std::borrow::Cow;
use std::fmt;

use brupop_api::Problem;
use brupop_api::facts::StatusFacts;
use jiff::Unit;

use crate::facts::{FirstPool, FirstPoolStanding};
use crate::window::Until;

pub use abort::Abort;
use standing::Standing;

/// An enum whose variants' names are words for objects and metrics. Beside each stands what it means, and what people are told.
macro_rules! words {
    ($(#[$about:meta])* $name:ident $(<$life:lifetime>)?: $kind:ident {
        $($variant:ident $(($field:ident: $type:ty))?: $of:ident => $text:literal,)*
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

            /// What it means.
            fn kind(&self) -> $kind {
                match self { $(Self::$variant { .. } => $kind::$of,)* }
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

mod abort;
mod standing;

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
    const UNKNOWN: Self = Self {
        pool: "",
        standing: FirstPoolStanding::NotDone,
    };
}

impl Detail for UsedUp<'_> {
    const UNKNOWN: Self = Self {
        node: "",
        limit: LimitScope::DefaultPool,
    };
}

impl Detail for Missing<'_> {
    const UNKNOWN: Self = Self::AtLeast;
}

impl Detail for OtherOperator {
    const UNKNOWN: Self = Self::Installed;
}

impl Detail for Abort {
    const UNKNOWN: Self = Self::StepFailed;
}

fn text(text: fmt::Arguments<'_>) -> Cow<'static, str> {
    text.as_str()
        .map_or_else(|| Cow::Owned(text.to_string()), Cow::Borrowed)
}

words! {
/// Why a node moves, or why not. The text of a reason changes only with the reason: it holds no counters and no positions in
/// a queue. What hosts and API servers say is quoted.
Reason<'a>: Standing {
    NotLeading: NotKnown => "this reconciler does not lead",
    NotUnderstood(why: &'a str): NotKnown => "this node is left alone: {why}",
    NodeGone: NotKnown => "the Node was deleted",
    NodeReplaced: Held => "the Node was recreated; it gets a new shadow",
    NotLabelled: Held => "the node is not labelled bottlerocket.aws/updater-interface-version=2.0.0",
    NotReported: NotKnown => "the agent has not reported since the node booted: look at its pod",
    AgentSilent: NotKnown => "no pod of the agent on this node is Ready: look at the pod and its logs, or at the DaemonSet if there is no pod",
    NoUpdate: Held => "the host chooses no update",
    NotOffered(missing: Missing<'a>): Held =>
        "the host is not offered {missing}: its wave has not come (settings.updates.ignore-waves), or it is locked \
         (settings.updates.version-lock)",
    NoUpdateChosen(why: &'a str): Held => "the host chooses no update, although one is available: \"{why}\"",
    RefreshFailed(why: &'a str): Held =>
        "the host cannot look for updates (see its network, proxy and update repository): \"{why}\"",
    CannotDisarm(why: &'a str): Held =>
        "the last update was given up, but the host would still boot into it if it rebooted: \"{why}\"",
    NoInPlaceUpdates(why: &'a str): Held =>
        "the host's image has no in-place updates, so only a new node updates it; remove its opt-in label: \"{why}\"",
    HostUnreachable(why: &'a str): Held => "Bottlerocket's API on the host does not answer: \"{why}\"",
    CommandRefused(why: &'a str): Held => "Bottlerocket's API on the host refuses the commands of an update: \"{why}\"",
    RebootRefused(why: &'a str): Held => "the host refuses to reboot: \"{why}\"",
    NotNextToBoot(why: &'a str): Held => "the host would not boot the update: \"{why}\"",
    NodeNotReady: HeldIdle => "the node is not Ready",
    TooManyLabels: Held =>
        "the Node has more than 1,000 labels, or more than 1,000 annotations: remove some, so that the API server \
         can check changes of it",
    FleetPaused: QueuedIdle => "a person paused the fleet (spec.paused of the BottlerocketFleet)",
    NodePaused: HeldIdle => "a person paused this node (annotation brupop.bottlerocket.aws/pause)",
    OutsideWindow(until: Until): Queued => "the maintenance window is closed, or too little of it is left; the window opens {until}",
    Frozen(until: Until): QueuedIdle => "a freeze of its pool holds the node (spec.freezes); it is over {until}",
    PoolPaused: QueuedIdle => "a person paused the pool of this node (spec.paused of its BottlerocketPool)",
    PoolInvalid(why: &'a str): HeldIdle => "the pool of this node cannot be understood, so it holds its nodes: {why}",
    PoolConflict(pools: &'a str): HeldIdle =>
        "the pools {pools} select this node with the same priority, so none of them owns it (spec.priority)",
    WaitingForPool(first: FirstPool<'a>): Queued => "the pool {first}",
    VersionTooYoung(until: Until): Queued =>
        "this version is younger than the pool allows (spec.versions.minAge); it is old enough {until}",
    WaitingForZone(zone: &'a str): Queued =>
        "a node of another zone ({zone}) of the pool is unavailable: it updates one zone at a time (spec.topology)",
    ControlPlaneBusy(node: &'a str): Queued =>
        "another node of the control plane ({node}) is being updated or about to be, is not Ready, or is cordoned: at most one \
         of these nodes is out of service at a time",
    GateClosed(gate: &'a str): Queued =>
        "the gate {gate} of its pool is closed (spec.gates): what it checks is wrong, or was a moment ago",
    GateUnknown(gate: &'a str): Queued =>
        "the gate {gate} of its pool is unknown, and so closed (spec.gates): three good answers open it; if there is none, the pool's condition Ready says why",
    VersionNotAllowed(version: &'a str): HeldIdle => "the pool of this node does not allow {version} (spec.versions)",
    AdmissionNotEnforced: Queued =>
        "dry runs did not show that webhook and policy are enforced: see the fleet's condition AdmissionEnforced",
    OtherOperator(how: OtherOperator): QueuedIdle => "{how}",
    BackingOff: HeldIdle => "the last attempt was given up, and the node waits before the next one",
    VersionHalted(version: &'a str): HeldIdle =>
        "too many nodes failed to reach {version} (status.versions of the fleet), so no further one is updated to \
         it; to go on, run the command that the fleet's condition Halted names",
    VersionUnproven(version: &'a str): Queued =>
        "no node has reached {version} yet: until one has, only as many try it at once as may fail before it is \
         halted (spec.failureThreshold.unproven of the fleet)",
    TooManyVersionsHalted: Queued =>
        "the fleet's status has no room for another version (status.versions): find out why nodes failed, and resume \
         versions (spec.resumedVersions)",
    NodeTooYoung: Queued => "the node is new, and is not updated in its first five minutes",
    CheckingPods: Queued => "it is the node's turn; its pods and their budgets are being checked first",
    TooManyPods: Held =>
        "the node has too many pods, or too large ones, to look at; it is looked at again every five minutes",
    CannotDrain(why: &'a str): Held => "no drain could empty the node, so it is skipped: {why}",
    BudgetAllowsNone(why: &'a str): Held =>
        "{why}: the node is not cordoned before it allows one, or before the node has waited for as long as a drain may take",
    NodeLeaving: Held => "the Node is being deleted, or a taint announces its removal",
    NotBottlerocket: Held => "the Node's OS image names no version of Bottlerocket",
    NodeChangesDenied(why: &'a str): Held =>
        "the API server refuses changes of {why}",
    LimitReached: Queued =>
        "waiting for a free slot (`kubectl brupop status` shows who has them)",
    LimitUsedByUnavailableNodes(by: UsedUp<'a>): Queued =>
        "nodes that are out of service for other reasons, such as {by}: they are not Ready, or somebody has cordoned \
         them within the last hour",
    Starting(version: &'a str): Next => "the update to {version} begins: the agent on this node has not taken it up yet",
    Staging(version: &'a str): Moving => "the host is downloading and activating {version}",
    ExcludedFromLoadBalancers: Moving =>
        "the node is excluded from load balancers and waits",
    Cordoning: Moving => "the node is being cordoned",
    Draining: Moving => "pods are being evicted from the node",
    VolumesInUse: Moving =>
        "the node is empty; its reboot waits until its volumes are detached (status.volumesInUse), for at most two minutes",
    RebootGranted: Moving => "the node is drained; the agent has not claimed the reboot yet",
    Rebooting: Moving => "the host is rebooting",
    RebootOverdue(how: &'a str): Held => "the host {how}: look at the machine",
    ReturningToService: Moving => "the node is being put back into service",
    Monitoring: Moving => "the node runs the new version, and is being monitored",
    WorkloadsUnavailable(owner: &'a str): Moving =>
        "the node is in service, but {owner}, whose pods were evicted from it, has fewer pods available than before",
    Finishing: Next => "the update has ended; the agent has not confirmed it yet",
    Aborting(abort: Abort): Moving => "the update is given up ({abort:?}): {abort}",
}}

/// A version that a host is not offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Missing<'a> {
    /// One that this node runs, which has the same variant.
    RunBy {
        /// The version.
        version: &'a str,
        /// The node.
        node: &'a str,
    },
    /// Whatever its pool asks for at least.
    AtLeast,
}

/// With what precedes and follows it in its sentence.
impl fmt::Display for Missing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RunBy { version, node } => write!(f, "{version}, which {node} runs"),
            Self::AtLeast => {
                f.write_str("a version that its pool asks for (spec.versions.atLeast)")
            }
        }
    }
}

/// What another operator does to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OtherOperator {
    /// It is installed, or nobody knows.
    Installed,
    /// It began the update that the shadow asks for.
    LeftUpdate,
}

/// All of its sentence.
impl fmt::Display for OtherOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Installed => {
                "another operator may update these nodes, too: see the fleet's condition OtherOperator"
            }
            Self::LeftUpdate => {
                "another operator began an update of this node: let it finish, or delete this shadow, which comes back \
                 as Idle, and uncordon the node"
            }
        })
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
        write!(f, "{pool} goes first (spec.dependsOn)")?;
        match standing {
            FirstPoolStanding::Missing => {
                f.write_str(", and there is no BottlerocketPool of this name")
            }
            FirstPoolStanding::NotDone => f.write_str(": it is not done with this version"),
            FirstPoolStanding::Behind(node) => write!(
                f,
                ": it is not done with this version: its node {node} runs an older version and does not want this one; its wave \
                 may not have come (settings.updates.ignore-waves)"
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

impl<'a> Reason<'a> {
    /// Does the host name no update?
    pub fn has_no_update(&self) -> bool {
        matches!(
            self,
            Self::NoUpdate | Self::NotOffered(_) | Self::NoUpdateChosen(_)
        )
    }

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
            matches!(
                reason,
                Self::HostUnreachable(_) | Self::CommandRefused(_) | Self::CannotDisarm(_)
            )
        })
    }
}
