//! Details in the sentences of reasons.

use std::fmt;

use jiff::Unit;

use super::Abort;
use crate::facts::{FirstPool, FirstPoolStanding};
use crate::window::Until;

/// A detail of a reason.
pub(super) trait Detail {
    const UNKNOWN: Self;
}

impl Detail for &str {
    const UNKNOWN: Self = "…";
}

impl Detail for Until {
    const UNKNOWN: Self = Self::Unknown;
}

impl Detail for FirstPool<'_> {
    const UNKNOWN: Self = Self {
        pool: "…",
        standing: FirstPoolStanding::NotDone,
    };
}

impl Detail for Contenders<'_> {
    const UNKNOWN: Self = Self("…", "…");
}

impl Detail for UsedUp<'_> {
    const UNKNOWN: Self = Self {
        node: "…",
        limit: LimitScope::DefaultPool,
    };
}

impl Detail for Missing<'_> {
    const UNKNOWN: Self = Self::AtLeast;
}

impl Detail for Abort {
    const UNKNOWN: Self = Self::StepFailed;
}

/// An enum of details, each with its part of the sentence. The first one is told by its word alone.
macro_rules! details {
    ($(#[$about:meta])* $name:ident $(<$life:lifetime>)? { $first:ident $(($known:ident: $type:ty))? => $told:literal, $($variant:ident $(($field:ident: $of:ty))? => $text:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(clippy::doc_markdown, reason = "the docs are what people are told")]
        pub enum $name $(<$life>)? {
            #[doc = $told]
            $first $(($type))?,
            $(#[doc = $text] $variant $(($of))?,)*
        }

        impl $(<$life>)? Detail for $name $(<$life>)? {
            const UNKNOWN: Self = Self::$first $((<$type as Detail>::UNKNOWN))?;
        }

        impl $(<$life>)? fmt::Display for $name $(<$life>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    Self::$first $(($known))? => write!(f, $told),
                    $(Self::$variant $(($field))? => write!(f, $text),)*
                }
            }
        }
    };
}

details! {
/// The progress of the host's download.
StagingStep<'a> {
    Downloads(version: &'a str) => "the host is downloading and activating {version}",
    Begins(version: &'a str) => "the update to {version} begins: the agent on this node has not taken it up yet",
}}

details! {
/// The progress of a node out of service.
DrainStep {
    Evicts => "pods are being evicted from the node",
    LeavesLoadBalancers => "the node is excluded from load balancers and waits",
    Cordons => "the node is being cordoned",
    DetachesVolumes => "the node is empty; its reboot waits until its volumes are detached (status.volumesInUse), for at most two minutes",
}}

details! {
/// The progress of a reboot.
RebootStep {
    Claimed => "the host is rebooting",
    Granted => "the node is drained; the agent has not claimed the reboot yet",
}}

details! {
/// The progress of a node back into service.
MonitorStep {
    InService => "the node runs the new version, and is being monitored",
    Returns => "the node is being put back into service",
}}

details! {
/// The turn that a node waits for.
Turn {
    NoSlot => "waiting for a free slot",
    ChecksPods => "its turn; its pods are being checked",
}}

details! {
Gone {
    Deleted => "deleted",
    Replaced => "recreated; it gets a new shadow",
}}

details! {
/// The form of an agent's silence.
Silence {
    NoPod => "no pod of the agent on this node is Ready",
    NoReport => "the agent has not reported since the node booted",
}}

details! {
/// The version that is halted.
TooManyFailures<'a> {
    Version(version: &'a str) => "too many nodes failed to reach {version} (status.versions of the fleet), so no further one is updated to it",
    NoRoom => "status.versions of the fleet has no room: 64 versions and variants are halted, in a slot, or wanted by nodes",
}}

details! {
/// The effect of another operator on a node.
OtherOperator {
    Installed => "another operator may update these nodes, too",
    LeftUpdate => "another operator began an update of this node",
}}

/// A version that a host is not offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Missing<'a> {
    /// One that this node runs, which has the same variant.
    #[error("{version}, which {node} runs")]
    RunBy { version: &'a str, node: &'a str },
    #[error("a version that its pool asks for (spec.versions.atLeast)")]
    AtLeast,
}

/// Two pools that select a node with the same priority, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{0} and {1}")]
pub struct Contenders<'a>(pub &'a str, pub &'a str);

/// A limit that nodes without a slot use up, and one of these nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{node}, use up the {limit}")]
pub struct UsedUp<'a> {
    pub node: &'a str,
    pub limit: LimitScope,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum LimitScope {
    #[error("limit of this pool (spec.maxUnavailable)")]
    Pool,
    #[error("limit (MAX_CONCURRENT_UPDATE)")]
    DefaultPool,
    #[error("limit of the fleet (spec.maxUnavailable)")]
    Fleet,
}

impl fmt::Display for FirstPool<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pool, standing } = self;
        write!(f, "{pool} goes first (spec.dependsOn)")?;
        match standing {
            FirstPoolStanding::Missing => {
                f.write_str(", and there is no BottlerocketPool of this name")
            }
            FirstPoolStanding::Empty => {
                f.write_str(", and owns no node that is opted in, so it is never done")
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

impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("at an unknown time"),
            Self::Never => f.write_str("never again"),
            Self::At(at) => write!(f, "at {at}"),
        }
    }
}
