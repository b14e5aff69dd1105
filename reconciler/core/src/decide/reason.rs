//! Reasons why a node moves or waits, and why updates are given up: stable words for conditions, metrics, alerts and
//! `last_failure.reason`, each with a sentence for people that ends with what to do.

use std::borrow::Cow;
use std::fmt;

use brupop_api::conditions::ConditionStatus;
use brupop_api::crds::is_version;
use brupop_api::item::Unreadable;
use brupop_api::names::{DEFAULT_NAMESPACE, is_object_name};
use brupop_api::{BottlerocketShadowStatus, Problem};

use crate::facts::{FirstPool, NodeView};
use crate::window::Until;

/// Separates the sentence of a reason from its remedy.
pub const WHAT_TO_DO: &str = "; what to do: ";
/// A Node to which no change is tried, as what is denied.
pub(crate) const OVERGROWN: &str =
    "the Node: it has more than 1,000 labels, or more than 1,000 annotations";

/// An enum whose variants' names are words for objects and metrics. Beside each stand its kind, the sentence that people are
/// told, and what they do about it. Further variants of a row have its word, and sentences of their own. Rows stand in groups
/// under a title.
macro_rules! words {
    ($(#[$about:meta])* $name:ident $(<$life:lifetime>)?: $kind:ident {
        $($title:literal {
            $($variant:ident $(($($field:ident: $type:ty),+))?: $of:ident => $text:literal
                $(| $more:ident $(($($part:ident: $its:ty),+))? => $told:literal)* $(, $remedy:literal)?;)*
        })*
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(clippy::doc_markdown, reason = "the docs are what people are told")]
        pub enum $name $(<$life>)? {
            $($(
                #[doc = $text]
                $variant $(($($type),+))?,
                $(#[doc = $told] $more $(($($its),+))?,)*
            )*)*
        }

        impl $(<$life>)? $name $(<$life>)? {
            /// Every word that [`Self::as_str`] can return.
            pub const WORDS: &'static [&'static str] = &[$($(stringify!($variant),)*)*];

            /// The words below each title.
            pub const GROUPS: &'static [(&'static str, &'static [&'static str])] =
                &[$(($title, &[$(stringify!($variant)),*])),*];

            pub fn as_str(&self) -> &'static str {
                match self {
                    $($(Self::$variant { .. } $(| Self::$more { .. })* => stringify!($variant),)*)*
                }
            }

            pub fn message(&self) -> Cow<'static, str> {
                match self {
                    $($(
                        Self::$variant $(($($field),+))? => text(format_args!($text)),
                        $(Self::$more $(($($part),+))? => text(format_args!($told)),)*
                    )*)*
                }
            }

            /// Returns what a person does about it; empty if nobody has to do anything.
            fn advice(&self) -> &'static str {
                match self {
                    $($(Self::$variant { .. } $(| Self::$more { .. })* => concat!($($remedy)?),)*)*
                }
            }

            fn kind(&self) -> $kind {
                match self {
                    $($(Self::$variant { .. } $(| Self::$more { .. })* => $kind::$of,)*)*
                }
            }

            /// The first one with this stable word, without what else it says; `None` if no word is so, as one of another release.
            pub fn of_word(word: &str) -> Option<Self> {
                $($(if word == stringify!($variant) {
                    return Some(Self::$variant $(($(<$type as Detail>::UNKNOWN),+))?);
                })*)*
                None
            }
        }
    };
}

/// A detail of a reason, as it is told where nobody knows it.
trait Detail {
    const UNKNOWN: Self;
}

impl Detail for &str {
    const UNKNOWN: Self = "…";
}

impl Detail for Until {
    const UNKNOWN: Self = Self::Unknown;
}

impl Detail for FirstPool<'_> {
    const UNKNOWN: Self = Self::NotDone("…");
}

impl Detail for Abort {
    const UNKNOWN: Self = Self::StepFailed;
}

fn text(text: fmt::Arguments<'_>) -> Cow<'static, str> {
    text.as_str()
        .map_or_else(|| Cow::Owned(text.to_string()), Cow::Borrowed)
}

/// The meaning of a reason for its node. *Idle*: meanwhile its agent downloads nothing.
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

words! {
/// The reason why a node moves or waits. The text of a reason changes only with the reason: it holds no counters and no positions in
/// a queue. What hosts and API servers say is quoted.
Reason<'a>: Standing {
    "It waits by itself" {
        NoUpdate: Held => "the host chooses no update";
        OutsideWindow(until: Until): Queued =>
            "the maintenance window is closed; it opens {until}",
            "wait, or request the update now: `kubectl brupop update-now {node}`";
        NodeTooYoung: Queued =>
            "the node is new, and is not updated in its first five minutes",
            "wait, or request the update now: `kubectl brupop update-now {node}`";
        LimitReached: Queued =>
            "waiting for a free slot"
            | CheckingPods => "the node is next; its pods are being checked",
            "wait; `kubectl brupop status` shows which nodes have the slots; spec.maxUnavailable of pool and fleet \
             (MAX_CONCURRENT_UPDATE without a pool) sets how many there are, at most 500";
        VersionUnproven(version: &'a str): Queued =>
            "no node has reached {version} yet; until one has, only as many nodes try it as may fail before it is halted \
             (spec.failureThreshold.unproven of the fleet)";
        BackingOff: HeldIdle =>
            "the last attempt was given up, and the node waits before the next one",
            "wait, or repair the cause and end the wait (update-now does not end it): `kubectl brupop retry {node}`";
        Staging(version: &'a str): Moving =>
            "the host is downloading and activating {version}"
            | StagingBegins(version: &'a str) =>
                "the update to {version} begins; the agent on this node has not reported it yet";
        Draining: Moving =>
            "pods are being evicted from the node"
            | LeavingLoadBalancers => "the node is excluded from load balancers, and waits before its drain"
            | Cordoning => "the node is being cordoned"
            | DetachingVolumes =>
                "the node is empty; its reboot waits until its volumes are detached (status.volumesInUse), or none has been for a \
                 minute";
        Rebooting: Moving =>
            "the host is rebooting"
            | RebootGranted => "the node is drained; the agent has not claimed the reboot yet";
        Monitoring: Moving =>
            "the node runs the new version, and is being monitored"
            | ReturningToService => "the node is being put back into service";
        Finishing: Next => "the update has ended; the agent has not confirmed it yet";
        Aborting(abort: Abort): Moving => "the update is given up ({abort:?}): {abort}";
        NodeLeaving: Held =>
            "the Node is being deleted, or a taint of an autoscaler or of aws-node-termination-handler announces its removal",
            "wait; if nobody removes the node, remove the taint that was left behind: `kubectl describe node {node}` shows it";
        NodeGone: NotKnown =>
            "the Node was deleted"
            | NodeReplaced => "the Node was recreated; it gets a new shadow";
    }
    "A person holds it" {
        NotLabelled: Held =>
            "the node is not labelled bottlerocket.aws/updater-interface-version=2.0.0",
            "label it: `kubectl label node {node} bottlerocket.aws/updater-interface-version=2.0.0 --overwrite`";
        FleetPaused: QueuedIdle =>
            "a person paused the fleet (spec.paused of the BottlerocketFleet)",
            "resume it: `kubectl brupop resume`";
        PoolPaused: QueuedIdle =>
            "a person paused the pool of this node (spec.paused of its BottlerocketPool)",
            "resume it: `kubectl brupop resume --pool {pool}`";
        NodePaused: HeldIdle =>
            "a person paused this node (annotation brupop.bottlerocket.aws/pause)",
            "resume it: `kubectl brupop resume {node}`";
        Frozen(until: Until): QueuedIdle =>
            "a freeze of its pool holds the node (spec.freezes); it ends {until}",
            "wait, or request the update now: `kubectl brupop update-now {node}`";
        NoUpdateChosen(why: &'a str): Held =>
            "the host chooses no update, although one is available: \"{why}\"",
            "if its lock is no longer wanted, end it: `apiclient set updates.version-lock=latest` on the host";
    }
    "The host" {
        AgentSilent: NotKnown =>
            "no pod of the agent on this node is Ready"
            | AgentNotReported => "the agent has not reported since the node booted",
            "check the agent's pod and its log, or the DaemonSet brupop-agent if there is no pod: `kubectl get pods -n \
             {namespace} -o wide --field-selector spec.nodeName={node}`; check /run/api.sock and apiserver.service on the host; \
             if no node reports, check whether API servers reach the webhook";
        NotOffered: Held =>
            "the host is not offered a version that its pool asks for (spec.versions.atLeast): its wave has not come \
             (settings.updates.ignore-waves), or it is locked (settings.updates.version-lock)"
            | NotOfferedRunBy(version: &'a str, node: &'a str) =>
                "the host is not offered {version}, which {node} runs: its wave has not come \
                 (settings.updates.ignore-waves), it is locked (settings.updates.version-lock), or the release was withdrawn",
            "wait for its wave, at most a week after the release; or first see that the release was not stopped \
             (github.com/bottlerocket-os/bottlerocket/releases), then run `apiclient set updates.ignore-waves=true` on the host; \
             `apiclient get settings.updates` shows a lock";
        RefreshFailed(why: &'a str): Held =>
            "the host cannot look for updates: \"{why}\"",
            "let the host reach its update repository (egress, proxy), and check whether another updog runs there";
        CannotDisarm(why: &'a str): Held =>
            "the last update was given up, but the host would still boot into it if it rebooted: \"{why}\"",
            "let the host reach its update repository, or drain the node and reboot it into the update";
        NoInPlaceUpdates(why: &'a str): Held =>
            "the host's image has no in-place updates: \"{why}\"",
            "replace the node to update it, and remove the label from nodes of this image: `kubectl label node {node} \
             bottlerocket.aws/updater-interface-version-`";
        NotBottlerocket: Held =>
            "the Node's OS image names no version of Bottlerocket",
            "remove the label: `kubectl label node {node} bottlerocket.aws/updater-interface-version-`";
        HostUnreachable(why: &'a str): Held =>
            "Bottlerocket's API on the host does not answer: \"{why}\"",
            "check apiserver.service on the host";
        CommandRefused(why: &'a str): Held =>
            "Bottlerocket's API on the host refuses the commands of an update: \"{why}\"",
            "check what else updates the host (updog, thar-be-updates)";
        RebootRefused(why: &'a str): Held =>
            "the host refuses to reboot: \"{why}\"",
            "see what keeps it from rebooting: `systemd-inhibit --list` on the host";
        NotNextToBoot(why: &'a str): Held =>
            "the host would not boot the update: \"{why}\"",
            "somebody deactivated the image: run `apiclient update apply` on the host, or wait half an hour";
        RebootOverdue(how: &'a str): Held =>
            "the host {how}, and its slot stays taken",
            "look at the machine; if it never comes back, delete its Node: `kubectl delete node {node}`";
    }
    "The node and its pods" {
        NodeNotReady: HeldIdle => "the node is not Ready", "repair the node";
        LimitUsedByUnavailableNodes(node: &'a str, limit: &'static str): Queued =>
            "nodes that are out of service for other reasons, such as {node}, use up the limit {limit}: they are not Ready, or \
             somebody has cordoned them within the last hour",
            "repair or uncordon these nodes, or raise the limit";
        ControlPlaneBusy(node: &'a str): Queued =>
            "another node of the control plane ({node}) is being updated or about to be, is not Ready, or is cordoned; at most \
             one of these nodes may be out of service",
            "wait for its update, or repair or uncordon it";
        WaitingForZone(zone: &'a str): Queued =>
            "a node in another zone ({zone}) is unavailable, and the pool updates one zone at a time (spec.topology)",
            "wait for its update, repair it, or change spec.topology of the pool";
        CannotDrain(why: &'a str): Held =>
            "no drain could empty the node, so it is skipped: {why}",
            "delete the pod, remove its finalizer, or repair what is named; the node is then checked again";
        BudgetAllowsNone(why: &'a str): Held =>
            "{why}: the node is cordoned once the budget allows one, or once the node has waited for as long as a drain may take",
            "scale the workload up or change the budget; otherwise the drain is tried after that time";
        NodeChangesDenied(why: &'a str): Held =>
            "the API server refuses changes of {why}",
            "change the rule or quota, repair the webhook or the field, or remove labels and annotations, as the answer says; \
             the change is tried again after five minutes";
        WorkloadsUnavailable(owner: &'a str): Moving =>
            "the node is in service, but {owner}, whose pods were evicted from it, has fewer pods available than before",
            "repair the workload; the node gives its slot back then, or after spec.verify.workloadsTimeout of the pool";
    }
    "Versions and pools" {
        VersionHalted(version: &'a str): HeldIdle =>
            "too many nodes failed to reach {version} (status.versions of the fleet), so no further one is updated to it"
            | NoRoomForVersion =>
                "status.versions of the fleet is full: each of its 64 versions is in a slot or wanted by a node",
            "find out why nodes failed, then resume the version: `kubectl brupop resume --version {version}`; or wait for another \
             release";
        VersionTooYoung(until: Until): Queued =>
            "this version is younger than the pool allows (spec.versions.minAge); it is old enough {until}",
            "wait, or request the update now: `kubectl brupop update-now {node}`; if newer versions always come first, lower minAge";
        VersionNotAllowed(version: &'a str): HeldIdle =>
            "the pool of this node does not allow {version} (spec.versions)",
            "wait for another release, or change spec.versions";
        WaitingForPool(first: FirstPool<'a>): Queued =>
            "the pool {first}",
            "see what holds that pool; a pool that is paused or has no nodes never finishes";
        GateClosed(gate: &'a str): Queued =>
            "the gate {gate} of its pool is closed (spec.gates): its query finds a problem, or did a moment ago",
            "repair what its query finds; three good answers open it, and update-now does not";
        GateUnknown(gate: &'a str): Queued =>
            "the state of the gate {gate} of its pool is unknown, so it counts as closed (spec.gates)",
            "see the pool's condition Ready, and the Secret brupop-gate-sources; three good answers open it";
        PoolInvalid(why: &'a str): HeldIdle =>
            "the pool of this node cannot be understood, so it holds its nodes: {why}",
            "correct the field that its condition Accepted names";
        TooManyPools(first: &'a str): Queued =>
            "there are more than 128 pools, and {first} is the first by name that is not read, so no update begins",
            "delete pools, or merge those with the same rules; pools are counted again within five minutes";
        PoolConflict(one: &'a str, other: &'a str): HeldIdle =>
            "the pools {one} and {other} select this node with the same priority, so none of them owns it",
            "give one of them another spec.priority or nodeSelector";
    }
    "The operator" {
        NotLeading: NotKnown =>
            "this reconciler does not lead",
            "check the reconciler's pods and their logs: one of them must lead";
        NotUnderstood(why: &'a str): NotKnown =>
            "this node is left alone: {why}"
            | ShadowUnreadable(why: Unreadable) => "this node is left alone: the shadow cannot be read: {why}",
            "depending on the cause, correct the Node, remove the marker and undo what it records, delete the shadow (it is \
             recreated), or restart a kubelet that reports no boot ID";
        AdmissionNotEnforced: Queued =>
            "dry runs did not show that webhook and policy are enforced",
            "see the fleet's condition AdmissionEnforced; check the webhook's pods, and apply the overlay again";
        OtherOperator: QueuedIdle =>
            "another operator may update these nodes, too"
            | OtherOperatorsUpdate => "another operator began an update of this node",
            "remove the other operator (docs/migrating.md); if it left an update of this node unfinished, delete the shadow, which \
             is recreated as Idle, and uncordon the node";
    }
}}

impl<'a> Reason<'a> {
    /// Returns why nothing can be done for this node, if it cannot be read.
    pub(super) fn of_unreadable(view: &NodeView<'a>) -> Option<Self> {
        let marker = view.node.and_then(|node| node.marker.as_ref());
        let why = marker.and_then(|marker| marker.as_ref().err());
        let shadow = view.unreadable_shadow.map(Self::ShadowUnreadable);
        shadow.or_else(|| Some(Self::NotUnderstood(why?)))
    }

    /// Whether the node is left alone, because not all of it is understood.
    pub fn is_not_understood(&self) -> bool {
        matches!(self, Self::NotUnderstood(_) | Self::ShadowUnreadable(_))
    }

    /// Whether the host names no update.
    pub fn has_no_update(&self) -> bool {
        matches!(
            self,
            Self::NoUpdate | Self::NotOffered | Self::NotOfferedRunBy(..) | Self::NoUpdateChosen(_)
        )
    }

    /// Returns what is wrong on the host, as its agent says, if that keeps an update from going on.
    pub(crate) fn of_status(status: &'a BottlerocketShadowStatus) -> Option<Self> {
        let problem = status.problem?;
        let why = status.message.as_deref().unwrap_or(problem.as_str());
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

    /// Returns what is wrong on the host, if that keeps the agent from saying that an update is over.
    pub(crate) fn against_report(status: &'a BottlerocketShadowStatus) -> Option<Self> {
        Self::of_status(status).filter(|reason| {
            matches!(
                reason,
                Self::HostUnreachable(_) | Self::CommandRefused(_) | Self::CannotDisarm(_)
            )
        })
    }

    /// Whether a node with an update waits for nothing but its turn or its time. What else holds it back is about the node
    /// itself.
    pub fn waits_for_turn(&self) -> bool {
        match self {
            Self::OtherOperatorsUpdate => false,
            Self::StagingBegins(_) => true,
            _ => matches!(
                self.kind(),
                Standing::Next | Standing::Queued | Standing::QueuedIdle
            ),
        }
    }

    /// Whether the node would begin if there was room, once others are done, or once something is over that ends by itself or that
    /// a new leader does not know yet.
    pub(crate) fn needs_place(&self) -> bool {
        match self {
            Self::Finishing
            | Self::OutsideWindow(_)
            | Self::WaitingForPool(_)
            | Self::VersionTooYoung(_) => false,
            Self::BudgetAllowsNone(_)
            | Self::AgentSilent
            | Self::AgentNotReported
            | Self::OtherOperator => true,
            reason => reason.waits_for_turn() && !reason.forbids_download(),
        }
    }

    /// Whether the agent downloads nothing ahead meanwhile.
    pub(crate) fn forbids_download(&self) -> bool {
        matches!(self.kind(), Standing::QueuedIdle | Standing::HeldIdle)
    }

    /// The status of the condition Progressing.
    pub fn status(&self) -> ConditionStatus {
        match self.kind() {
            Standing::NotKnown => ConditionStatus::Unknown,
            Standing::Moving | Standing::Next => ConditionStatus::True,
            Standing::Queued | Standing::QueuedIdle | Standing::Held | Standing::HeldIdle => {
                ConditionStatus::False
            }
        }
    }

    /// Returns what a person does about it, with commands that can be pasted; empty if nobody has to do anything.
    pub fn remedy(&self, named: &Named<'_>) -> String {
        let cause = match self {
            Self::Aborting(abort) => abort.remedy(),
            Self::BackingOff => named
                .failure
                .and_then(Abort::of_word)
                .map_or("", Abort::remedy),
            _ => "",
        };
        match (cause, self.advice()) {
            _ if *self == Self::NoRoomForVersion => {
                "let the hosts run and choose fewer different versions and variants".to_owned()
            }
            (cause, "") => cause.to_owned(),
            ("", advice) => named.put_into(advice),
            (cause, advice) => format!("{cause}; {}", named.put_into(advice)),
        }
    }
}

/// The names that a remedy needs.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    pub node: &'a str,
    /// The pool that steers the node; empty if none does.
    pub pool: &'a str,
    /// The version that the host would update to; empty if there is none.
    pub version: &'a str,
    pub namespace: &'a str,
    /// The word of the node's last failure since its last success.
    pub failure: Option<&'a str>,
}

impl Named<'_> {
    /// Returns the advice with these names in its commands. An invalid name becomes a placeholder.
    fn put_into(&self, advice: &str) -> String {
        let name = |name: &str, left_open: &str| {
            let name = if is_object_name(name) {
                name
            } else {
                left_open
            };
            name.to_owned()
        };
        let namespace = name(self.namespace, "NAMESPACE");
        let version = if is_version(self.version) {
            self.version
        } else {
            "VERSION"
        };
        let advice = advice
            .replace("{node}", &name(self.node, "NODE"))
            .replace("{pool}", &name(self.pool, "POOL"))
            .replace("{version}", version)
            .replace("{namespace}", &namespace);
        let commands = advice.split('`').map(|part| {
            let is_ours = part.starts_with("kubectl brupop ") && namespace != DEFAULT_NAMESPACE;
            if is_ours {
                format!("{part} -n {namespace}")
            } else {
                part.to_owned()
            }
        });
        commands.collect::<Vec<_>>().join("`")
    }
}

/// The party to blame for an update that is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blame {
    /// People or new releases cause it, and nobody has failed.
    NoFailure,
    OfNode,
    /// The node's, because of its pods.
    OfDrain,
    /// The version's as well: it was seen on Nodes, which no agent can write, or the agent said nothing.
    OfVersion,
}

words! {
/// The reason why an update is given up. The texts end a sentence.
Abort: Blame {
    "It counts against the version" {
        FellBack: OfVersion =>
            "the host came back with a version other than the wanted one",
            "look at the host's console; if somebody deactivated the image, and the version is halted, run the command at the \
             end of the fleet's condition Halted";
        NotReady: OfVersion => "the node was not Ready with the new version", "look at the node";
        NotConfirmed: OfVersion =>
            "the node runs the new version, and its agent did not confirm that in time",
            "look at the agent's pod on the node, and its log";
    }
    "The node failed" {
        StepFailed: OfNode =>
            "the agent could not complete the step (status.message of the shadow)",
            "repair what status.message names";
        DeadlineExceeded: OfNode =>
            "the step took longer than it may",
            "look at the agent's log and the host's network";
        DrainBlocked: OfDrain =>
            "a budget did not allow the evictions that the drain needs",
            "scale the workload up, change the budget, or give its pods more time (spec.drain.timeout of the pool)";
        DrainTimedOut: OfDrain =>
            "the node could not be emptied in time",
            "repair what keeps the pod, or give it more time (spec.drain.timeout of the pool)";
        NodeChangesDenied: OfNode =>
            "the API server refuses changes of the Node or its shadow",
            "change the rule or quota, repair the webhook or the field, or remove labels and annotations, as the answer says";
        NotBottlerocket: OfNode =>
            "the host came back, and its Node's OS image names no version of Bottlerocket",
            "look at the host";
        RebootedByItself: OfNode =>
            "the host rebooted before its update was ready",
            "if it happens again, look at the host's console";
    }
    "Nobody failed" {
        CannotDrain: NoFailure =>
            "pods appeared that make the drain impossible",
            "delete the pod, remove its finalizer, or repair what is named";
        NoInPlaceUpdates: NoFailure =>
            "the host's image has no in-place updates",
            "replace the node to update it, and remove its label";
        VersionHalted: NoFailure =>
            "too many other nodes failed to reach the version",
            "see the fleet's condition Halted";
        OtherTarget: NoFailure => "the host would now update to another version, or to none";
        NodePaused: NoFailure => "a person paused this node";
        NotLabelled: NoFailure => "the node lost its opt-in label";
        PoolClosed: NoFailure =>
            "its pool, the fleet or the node's removal no longer allowed the update before the node was cordoned, or another node \
             of the control plane went out of service before its reboot was granted; its image is kept";
    }
}}

impl fmt::Display for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())
    }
}

impl Abort {
    /// Returns what a person does about it; empty if nobody has to do anything.
    pub fn remedy(self) -> &'static str {
        self.advice()
    }

    /// Whether it counts as a failure of the node, so that the node backs off. A reboot that nobody granted counts: a host that
    /// crashes whenever it stages would otherwise do so every minute.
    pub fn is_failure(self) -> bool {
        self.kind() != Blame::NoFailure
    }

    /// Whether the failure of this reason is one of a drain.
    pub fn is_of_drain(reason: &str) -> bool {
        Self::of_word(reason).is_some_and(|it| it.kind() == Blame::OfDrain)
    }

    /// Whether the failure of this reason counts against a version.
    pub fn is_corroborated(reason: &str) -> bool {
        Self::of_word(reason).is_some_and(|it| it.kind() == Blame::OfVersion)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::world::rows;
    use brupop_api::conditions::REASONS_AGAINST_PREFETCH;

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

    #[test]
    fn remedies_name_the_node_its_pool_and_the_namespace() {
        let named = Named {
            node: "node-0",
            pool: "web",
            version: "1.20.0",
            namespace: "ns",
            failure: Some("NotReady"),
        };
        let remedy = |word: &str, named| Reason::of_word(word).unwrap().remedy(named);
        for (word, command) in rows! {
            "NodePaused" => "resume it: `kubectl brupop resume node-0 -n ns`";
            "PoolPaused" => "resume it: `kubectl brupop resume --pool web -n ns`";
            "VersionHalted" => "resume the version: `kubectl brupop resume --version 1.20.0 -n ns`";
            "RebootOverdue" => "delete its Node: `kubectl delete node node-0`";
            "BackingOff" => "look at the node; ";
            "Staging" => "";
        } {
            assert!(remedy(word, &named).contains(command), "{word}");
        }
        assert_eq!(remedy("Staging", &named), "");
        let no_room = Reason::NoRoomForVersion.remedy(&named);
        assert!(no_room.contains("fewer different versions"), "{no_room}");
        let foreign = Named {
            node: "$(id)",
            namespace: DEFAULT_NAMESPACE,
            ..named
        };
        assert_eq!(
            remedy("NodePaused", &foreign),
            "resume it: `kubectl brupop resume NODE`"
        );
    }

    /// A condition's message has 1,024 bytes, and a remedy is never cut.
    #[test]
    fn remedies_are_short_sentences_of_their_own() {
        let (node, namespace) = ("n".repeat(249), "s".repeat(63));
        let named = Named {
            node: &node,
            pool: &node,
            version: "1.20.0",
            namespace: &namespace,
            failure: Some("FellBack"),
        };
        for word in Reason::WORDS {
            let remedy = Reason::of_word(word).unwrap().remedy(&named);
            let commands = remedy.matches('`').count();
            assert!(remedy.len() < 700 && commands.is_multiple_of(2), "{remedy}");
            assert!(
                !remedy.ends_with('.') && !remedy.contains(['{', '}']) && !remedy.contains("  "),
                "{remedy}"
            );
        }
    }
}
