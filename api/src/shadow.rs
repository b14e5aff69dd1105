//! `BottlerocketShadow` v2: one per node; the spec is what its host should reach, the status is where it is.
//!
//! Field names are upstream's; every field beyond upstream's is optional.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conditions::Condition;
use crate::item::{Metadata, Readable, Unreadable};
use crate::problem::Problem;
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

/// What the reconciler wants of a node.
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
    printcolumn(
        name = "State",
        type_ = "string",
        json_path = ".status.current_state",
        priority = 1
    ),
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = ".status.current_version"
    ),
    printcolumn(
        name = "Target State",
        type_ = "string",
        json_path = ".spec.state",
        priority = 1
    ),
    printcolumn(
        name = "Target Version",
        type_ = "string",
        json_path = ".status.target_version"
    ),
    printcolumn(
        name = "Crash Count",
        type_ = "string",
        json_path = ".status.crash_count",
        priority = 1
    ),
    printcolumn(name = "Pool", type_ = "string", json_path = ".status.pool"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Progressing")].reason"#
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
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
    /// The state to reach.
    pub state: State,
    /// When the reconciler last changed `state`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub state_transition_timestamp: Option<String>,
    /// The version to update to; kept while Idle, for the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Version>")]
    pub version: Option<String>,
    /// Counts the updates tried on this node: one more with each slot taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Counter")]
    pub attempt: Option<u64>,
    /// Term of the leader that wrote last. The schema refuses a lower one, so a deposed leader cannot write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Counter")]
    pub leader_term: Option<u64>,
    /// The boot in which the node was when the attempt began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BootId")]
    pub baseline_boot_id: Option<String>,
    /// The grant: the node was drained in this boot, so the agent may reboot it from this boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BootId")]
    pub reboot_granted_boot_id: Option<String>,
    /// Failed attempts since the last success, for the back-off.
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

/// Failed attempts since the last success.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LastFailure {
    /// How many.
    #[schemars(with = "Counter")]
    pub count: u64,
    /// The attempt that failed last.
    #[serde(default)]
    #[schemars(with = "Counter")]
    pub attempt: u64,
    /// When the last one failed.
    #[schemars(with = "Time")]
    pub at: String,
    /// Why the last one failed, in CamelCase.
    #[schemars(with = "Word")]
    pub reason: String,
    /// What its drain failed on, if it was a drain: mostly the API server's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Sentence>")]
    pub message: Option<String>,
}

/// Where a node is; its agent writes everything but pool and conditions. Nothing is required: these may come first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
pub struct BottlerocketShadowStatus {
    /// The version that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Version")]
    pub current_version: Option<String>,
    /// The version that the host would update to; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Version")]
    pub target_version: Option<String>,
    /// The state reached.
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
    /// The claim: the agent is about to reboot, or has rebooted, from this boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BootId")]
    pub reboot_claimed_boot_id: Option<String>,
    /// What is wrong, in one word, for decisions; `message` has the sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
    /// Since when the agent has said `problem`, without another word between; kept when the agent starts again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub problem_since: Option<String>,
    /// What a person should know, at most 1 KiB, without line breaks. Nothing is decided on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Sentence>")]
    pub message: Option<String>,
    /// The pool that steers the node; empty if none does. Written by the reconciler only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = crate::crds::POOL_NAME_MAX), regex(pattern = schema::NAME))]
    pub pool: Option<String>,
    /// Why the node moves or not; written by the reconciler only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = crate::crds::CONDITIONS_MAX))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// What an agent staged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Staged {
    /// The image's version.
    #[schemars(with = "Version")]
    pub version: String,
    /// The host's own time of the prepare that succeeded, or of the last of our commands since, if no other came between;
    /// lets a restarted agent know its image again.
    #[schemars(length(min = 1, max = crate::crds::TIME_MAX), regex(pattern = schema::TIME))]
    pub at: String,
    /// It waits for its turn: it was downloaded ahead, or the attempt that downloaded it was given up. It is not what an
    /// attempt of ours has activated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prefetched: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_has_one_name() {
        for state in State::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
            assert_eq!(state.to_string(), state.as_str());
        }
    }
}
