//! `BottlerocketShadow` v2: one per node; the spec is what its host should reach, the status is where it is.
//!
//! Field names are upstream's; every field beyond upstream's is optional.

use std::sync::LazyLock;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::conditions::Condition;
use crate::item::{Metadata, Readable, Unreadable};
use crate::schema::{self, BootId, Counter, Sentence, Time, Version, Word};

crate::words! {
    // In the order in which an update passes through them.
    /// A step of an update. As a spec: what the node should reach. As a status: what it has reached.
    #[derive(
        Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
    )]
    pub enum State {
        /// Nothing of ours is pending.
        #[default]
        Idle,
        /// The image is downloaded and is what the host boots next.
        StagedAndPerformedUpdate,
        /// The host runs the wanted version, in another boot.
        RebootedIntoUpdate,
        /// The node is back in service and watched for a while.
        MonitoringUpdate,
        /// Status only: the step failed for good; the reconciler goes back to Idle and backs off.
        ErrorReset,
    }
}

/// The state that the reconciler asks for.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "brupop.bottlerocket.aws",
    version = "v2",
    kind = "BottlerocketShadow",
    namespaced,
    shortname = "brs",
    category = "bottlerocket",
    status = "BottlerocketShadowStatus",
    derive = "PartialEq",
    doc = "The update of one node's Bottlerocket host: spec is what it should reach, status is where it is.",
    printcolumn(name = "State", type_ = "string", json_path = ".status.current_state"),
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = ".status.current_version"
    ),
    printcolumn(name = "Target State", type_ = "string", json_path = ".spec.state"),
    printcolumn(
        name = "Target Version",
        type_ = "string",
        json_path = ".status.target_version"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Progressing")].reason"#
    ),
    printcolumn(
        name = "Pool",
        type_ = "string",
        json_path = ".status.pool",
        priority = 1
    ),
    printcolumn(
        name = "Crash Count",
        type_ = "integer",
        json_path = ".status.crash_count",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        priority = 1
    )
)]
#[x_kube(
    validation = Rule::new("self.state != 'ErrorReset'").message("ErrorReset is a status, not something to reach"),
    validation = Rule::new("!has(oldSelf.leader_term) || (has(self.leader_term) && self.leader_term >= oldSelf.leader_term)")
        .message("leader_term never falls and is never removed: this write comes from a reconciler that no longer leads"),
    validation = Rule::new("!has(oldSelf.attempt) || (has(self.attempt) && self.attempt >= oldSelf.attempt)")
        .message("attempt never falls and is never removed")
)]
pub struct BottlerocketShadowSpec {
    /// The state that the node should reach.
    pub state: State,
    /// When the reconciler last changed `state`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub state_transition_timestamp: Option<String>,
    /// The version to update to; kept while Idle, for the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Version>")]
    pub version: Option<String>,
    /// The version that the host ran when the last update began; for people only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Version>")]
    pub from_version: Option<String>,
    /// Counts the updates tried on this node: one more with each slot taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Counter")]
    pub attempt: Option<u64>,
    /// Term of the leader that wrote last. The schema refuses a lower one, so a deposed leader cannot write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Counter")]
    pub leader_term: Option<u64>,
    /// The boot in which the attempt began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BootId")]
    pub baseline_boot_id: Option<String>,
    /// The grant: the agent may reboot its host from this boot, in which the node was drained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BootId")]
    pub reboot_granted_boot_id: Option<String>,
    /// The last failed attempt since the last success; absent if there is none. The node backs off before the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<LastFailure>,
}

impl Readable for BottlerocketShadow {
    type Kind = Self;

    fn read(json: &str) -> Result<Self, Unreadable> {
        #[derive(Deserialize)]
        struct Shape {
            metadata: Metadata,
            spec: BottlerocketShadowSpec,
            #[serde(default)]
            status: Option<BottlerocketShadowStatus>,
        }
        let Shape {
            metadata,
            spec,
            status,
        } = serde_json::from_str(json)?;
        Ok(Self {
            metadata: metadata.into(),
            spec,
            status,
        })
    }
}

/// The last failed attempt since the last success.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LastFailure {
    /// The time at which it failed.
    #[schemars(with = "Time")]
    pub at: String,
    /// Number of the attempt that failed.
    #[serde(default)]
    #[schemars(with = "Counter")]
    pub attempt: u64,
    /// Number of failed attempts since the last success. Each of them doubles the back-off.
    #[schemars(with = "Counter")]
    pub count: u64,
    /// The reason of the failure, in CamelCase.
    #[schemars(with = "Word")]
    pub reason: String,
    /// The cause of the failure, as a sentence: the drain's obstacle, or the agent's message.
    #[serde(default)]
    #[schemars(with = "Sentence")]
    pub message: String,
}

/// The state of a node. Its agent writes everything but pool and conditions, which may come first, so nothing is required.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
pub struct BottlerocketShadowStatus {
    /// The version that the host runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Version")]
    pub current_version: Option<String>,
    /// The version that the host would update to; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Version")]
    pub target_version: Option<String>,
    /// The state that the node has reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_state: Option<State>,
    /// Failed steps since the last success, as the agent counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Counter")]
    pub crash_count: Option<u64>,
    /// When a step last failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub state_transition_failure_timestamp: Option<String>,
    /// The attempt that the agent acts on; echoed before the host is touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Counter")]
    pub attempt: Option<u64>,
    /// The boot the host is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BootId")]
    pub boot_id: Option<String>,
    /// The image that this agent staged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staged: Option<Staged>,
    /// The claim: the agent is about to use the grant for this boot, or has used it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BootId")]
    pub reboot_claimed_boot_id: Option<String>,
    /// The problem, in one word, for decisions; `message` has the sentence.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "known_problem"
    )]
    pub problem: Option<Problem>,
    /// When the agent began to report this `problem`, without another one since; kept when the agent restarts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub problem_since: Option<String>,
    /// A message for people, at most 1 KiB, without line breaks. Nothing is decided on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Sentence>")]
    pub message: Option<String>,
    /// The pool that steers the node; empty if none does. Written by the reconciler only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = crate::crds::POOL_NAME_MAX), regex(pattern = schema::NAME))]
    pub pool: Option<String>,
    /// Conditions of the node; written by the reconciler only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = crate::crds::CONDITIONS_MAX))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// Reads a word of a later release as no problem, so that the rest of the shadow can be read after a way back.
fn known_problem<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Problem>, D::Error> {
    let word = Option::<String>::deserialize(deserializer)?;
    let mut known = Problem::ALL.into_iter();
    Ok(known.find(|problem| word.as_deref() == Some(problem.as_str())))
}

/// The image that an agent staged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Staged {
    /// The version of the staged image.
    #[schemars(with = "Version")]
    pub version: String,
    /// The host's time of the prepare that succeeded, or of the agent's last command since, if nobody else's came between. By it,
    /// a restarted agent recognizes its image.
    #[schemars(length(min = 1, max = crate::crds::TIME_MAX), regex(pattern = schema::TIME))]
    pub at: String,
    /// The image waits for the node's turn, and no attempt has activated it: it was downloaded ahead, or its attempt was given up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prefetched: bool,
}

crate::words! {
    /// A problem that an agent reports. It stays until its cause has ended.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    pub enum Problem {
        /// Bottlerocket's API gives no answer that can be used.
        HostUnreachable,
        /// Bottlerocket's API refuses an update command.
        CommandRefused,
        /// Bottlerocket's API refuses to reboot.
        RebootRefused,
        /// The host could not look for updates, or does not get to it.
        RefreshFailed,
        /// The host's image has no in-place updates.
        NoInPlaceUpdates,
        /// The host's repository has a newer version, and the host does not choose it.
        NoUpdateChosen,
        /// A download ahead of its turn failed.
        PrefetchFailed,
        /// An image that may be a person's is in the way of a download ahead of its turn.
        PrefetchBlocked,
        /// The host would not boot the update next, and a reboot that was asked for may still come.
        NotNextToBoot,
        /// The host would boot an image whose update was given up, and fails to deactivate it.
        CannotDisarm,
        /// A step of an update failed.
        StepFailed,
    }
}

impl Problem {
    /// Whether Bottlerocket's API does not answer, or refuses requests.
    pub fn is_of_host_api(self) -> bool {
        matches!(
            self,
            Self::HostUnreachable | Self::CommandRefused | Self::RebootRefused
        )
    }

    /// Whether it concerns an attempt, not a host that waits for its turn.
    pub fn is_of_attempt(self) -> bool {
        matches!(self, Self::StepFailed | Self::NotNextToBoot)
    }

    /// Whether an update would certainly fail, most often at its first step, a refresh.
    pub fn prevents_update(self) -> bool {
        matches!(self, Self::RefreshFailed | Self::NoInPlaceUpdates) || self.is_of_host_api()
    }
}

/// May the reconciler move the spec from one state to the other?
///
/// Forward step by step, and back to Idle from everywhere: by success from `MonitoringUpdate`, by abort from the
/// others.
pub fn spec_may_move(from: State, to: State) -> bool {
    match (from, to) {
        (_, State::ErrorReset) => false,
        (from, to) if from == to => true,
        (_, State::Idle)
        | (State::Idle, State::StagedAndPerformedUpdate)
        | (State::StagedAndPerformedUpdate, State::RebootedIntoUpdate)
        | (State::RebootedIntoUpdate, State::MonitoringUpdate) => true,
        _ => false,
    }
}

/// The states that an agent may report while the spec asks for `goal`.
///
/// The goal once it is reached, or `ErrorReset` when it cannot be; from any state before, for an agent may have been
/// away for several steps. Idle cannot fail: there is nothing to do.
pub fn status_may_become(goal: State, from: Option<State>, to: State) -> bool {
    from == Some(to)
        || to == goal
        || (to == State::ErrorReset && goal != State::Idle && goal != State::ErrorReset)
}

/// A shadow as decisions see it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShadowFacts<'a> {
    /// The shadow's `metadata.name`, with its prefix.
    pub name: &'a str,
    /// The shadow's `metadata.uid`, borrowed from it.
    pub uid: &'a str,
    /// `metadata.generation`: changes with every change of the spec.
    pub generation: u64,
    /// The shadow's spec.
    pub spec: &'a BottlerocketShadowSpec,
    /// The status; all absent if there is none.
    pub status: &'a BottlerocketShadowStatus,
}

impl BottlerocketShadowSpec {
    /// Whether this number, which a person has written ([`crate::names::RETRY_ANNOTATION`]), ends the back-off after the last
    /// failure: it is of the attempt that failed, or of a later one that has not failed.
    pub fn is_retried(&self, retry: Option<u64>) -> bool {
        self.last_failure
            .as_ref()
            .is_some_and(|failures| retry >= Some(failures.attempt) && retry <= self.attempt)
    }
}

impl BottlerocketShadowStatus {
    /// Whether its agent reports that the host cannot look for updates, or cannot have any.
    pub fn cannot_update(&self) -> bool {
        self.problem.is_some_and(Problem::prevents_update)
    }
}

impl<'a> ShadowFacts<'a> {
    /// The view of an object; `None` if it has no name, UID or generation, as no object of the API server does.
    pub fn of(shadow: &'a BottlerocketShadow) -> Option<Self> {
        static NO_STATUS: LazyLock<BottlerocketShadowStatus> = LazyLock::new(Default::default);
        Some(Self {
            name: shadow.metadata.name.as_deref()?,
            uid: shadow.metadata.uid.as_deref()?,
            generation: u64::try_from(shadow.metadata.generation?).ok()?,
            spec: &shadow.spec,
            status: shadow.status.as_ref().unwrap_or(&NO_STATUS),
        })
    }

    /// Whether the agent has reached the spec's state at the spec's attempt.
    pub fn reached(&self) -> bool {
        self.reports(self.spec.state)
    }

    /// Does the agent report this state, at the spec's attempt? (A shadow that nobody has updated has no attempt.)
    pub fn reports(&self, state: State) -> bool {
        self.status.current_state == Some(state)
            && self.status.attempt.unwrap_or(0) == self.spec.attempt.unwrap_or(0)
    }

    /// Whether this operator began the update that the spec asks for.
    pub fn is_in_update(&self) -> bool {
        self.spec.state != State::Idle && self.spec.attempt.is_some()
    }

    /// Whether another operator began the update that the spec asks for: each of ours has an attempt.
    pub fn is_of_other_operator(&self) -> bool {
        self.spec.state != State::Idle && self.spec.attempt.is_none()
    }

    /// Whether the agent has claimed the granted reboot.
    pub fn is_claimed(&self) -> bool {
        self.spec.reboot_granted_boot_id.is_some()
            && self.spec.reboot_granted_boot_id == self.status.reboot_claimed_boot_id
    }

    /// The version to update to, if there is one.
    pub fn update(&self) -> Option<&'a str> {
        let target = self.status.target_version.as_deref();
        target.filter(|_| self.status.target_version != self.status.current_version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use State::{ErrorReset, Idle, MonitoringUpdate, RebootedIntoUpdate, StagedAndPerformedUpdate};

    #[test]
    fn a_spec_stays_moves_one_forward_or_to_idle() {
        let legal: Vec<(State, State)> = State::ALL
            .into_iter()
            .flat_map(|from| State::ALL.into_iter().map(move |to| (from, to)))
            .filter(|&(from, to)| spec_may_move(from, to))
            .collect();
        assert_eq!(
            legal,
            [
                (Idle, Idle),
                (Idle, StagedAndPerformedUpdate),
                (StagedAndPerformedUpdate, Idle),
                (StagedAndPerformedUpdate, StagedAndPerformedUpdate),
                (StagedAndPerformedUpdate, RebootedIntoUpdate),
                (RebootedIntoUpdate, Idle),
                (RebootedIntoUpdate, RebootedIntoUpdate),
                (RebootedIntoUpdate, MonitoringUpdate),
                (MonitoringUpdate, Idle),
                (MonitoringUpdate, MonitoringUpdate),
                (ErrorReset, Idle),
            ]
        );
    }

    #[test]
    fn status_follows_the_goal_or_fails() {
        for goal in [
            Idle,
            StagedAndPerformedUpdate,
            RebootedIntoUpdate,
            MonitoringUpdate,
        ] {
            for from in State::ALL.into_iter().map(Some).chain([None]) {
                let reachable: Vec<State> = State::ALL
                    .into_iter()
                    .filter(|&to| from != Some(to) && status_may_become(goal, from, to))
                    .collect();
                let mut expected = vec![goal];
                if goal != Idle {
                    expected.push(ErrorReset);
                }
                expected.retain(|&to| from != Some(to));
                assert_eq!(reachable, expected, "goal {goal}, from {from:?}");
            }
        }
    }

    #[test]
    fn an_object_without_name_uid_or_generation_is_none() {
        let whole = || {
            let mut shadow = BottlerocketShadow::new("brs-a", BottlerocketShadowSpec::default());
            (shadow.metadata.uid, shadow.metadata.generation) = (Some("u".into()), Some(2));
            shadow
        };
        let shadow = whole();
        let seen = ShadowFacts::of(&shadow).unwrap();
        assert_eq!((seen.name, seen.uid, seen.generation), ("brs-a", "u", 2));
        let changes: [fn(&mut BottlerocketShadow); 4] = [
            |shadow| shadow.metadata.name = None,
            |shadow| shadow.metadata.uid = None,
            |shadow| shadow.metadata.generation = None,
            |shadow| shadow.metadata.generation = Some(-1),
        ];
        for change in changes {
            let mut shadow = whole();
            change(&mut shadow);
            assert_eq!(ShadowFacts::of(&shadow), None, "{:?}", shadow.metadata);
        }
    }

    #[test]
    fn a_state_is_reported_at_the_attempt_asked_for() {
        use State::{ErrorReset, Idle, MonitoringUpdate};
        for (current_state, attempt, asked_for, reports) in [
            (
                Some(MonitoringUpdate),
                Some(1),
                Some(1),
                Some(MonitoringUpdate),
            ),
            (Some(MonitoringUpdate), None, None, Some(MonitoringUpdate)),
            (Some(MonitoringUpdate), Some(1), Some(2), None),
            (Some(MonitoringUpdate), None, Some(1), None),
            (Some(ErrorReset), Some(1), Some(1), Some(ErrorReset)),
            (Some(Idle), Some(1), Some(2), None),
            (None, Some(1), Some(1), None),
        ] {
            let facts = ShadowFacts {
                name: "brs-a",
                uid: "u",
                generation: 2,
                spec: &BottlerocketShadowSpec {
                    state: MonitoringUpdate,
                    attempt: asked_for,
                    ..Default::default()
                },
                status: &BottlerocketShadowStatus {
                    current_state,
                    attempt,
                    ..Default::default()
                },
            };
            let told = State::ALL.into_iter().find(|state| facts.reports(*state));
            assert_eq!(
                told, reports,
                "{current_state:?} at {attempt:?}, not {asked_for:?}"
            );
            assert_eq!(
                facts.reached(),
                reports == Some(MonitoringUpdate),
                "{current_state:?}"
            );
        }
    }
}
