//! The state of a node.

use brupop_api::names::{EXCLUDE_FROM_LB_LABEL, MARKER_ANNOTATION};
use brupop_api::{BottlerocketShadow, Marker, State};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

/// The state of one node at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Seen {
    /// There is a shadow. Without one, `spec` and `status` are as if they were empty.
    pub has_shadow: bool,
    /// There is a Node. Without one, so is it.
    pub has_node: bool,
    pub goal: State,
    pub target: Option<String>,
    pub reached: Option<State>,
    pub version: Option<String>,
    pub available: Option<String>,
    pub crashes: u64,
    pub staged: Option<String>,
    /// Reason of the condition Progressing.
    pub reason: String,
    pub ready: bool,
    /// `spec.unschedulable` of the Node.
    pub cordoned: bool,
    /// The Node carries the label that keeps it out of load balancers.
    pub excluded: bool,
    pub drained: bool,
    /// The Node carries a marker that says more than that autoscalers are kept away.
    pub marked: bool,
    /// `status.nodeInfo.bootID` of the Node.
    pub boot_id: String,
}

/// The objects of a node.
pub(super) type Objects = (Option<BottlerocketShadow>, Option<Node>);

impl Seen {
    pub(super) fn of(objects: &Objects) -> Self {
        let (shadow, node) = objects;
        let spec = shadow
            .as_ref()
            .map(|shadow| shadow.spec.clone())
            .unwrap_or_default();
        let status = shadow
            .as_ref()
            .and_then(|shadow| shadow.status.clone())
            .unwrap_or_default();
        let progressing = status
            .conditions
            .iter()
            .find(|condition| condition.type_ == "Progressing");
        let told = node.as_ref().and_then(|node| node.status.as_ref());
        let mut conditions = told
            .and_then(|status| status.conditions.as_ref())
            .into_iter()
            .flatten();
        let annotations = node.as_ref().map(ResourceExt::annotations);
        let marker = annotations
            .and_then(|all| all.get(MARKER_ANNOTATION))
            .map(|text| Marker::parse(text).ok());
        let unschedulable = node
            .as_ref()
            .and_then(|node| node.spec.as_ref()?.unschedulable);
        let boot_id = told.and_then(|status| Some(status.node_info.as_ref()?.boot_id.clone()));
        Self {
            has_shadow: shadow.is_some(),
            has_node: node.is_some(),
            goal: spec.state,
            target: spec.version,
            reached: status.current_state,
            reason: progressing
                .map(|condition| condition.reason.to_string())
                .unwrap_or_default(),
            version: status.current_version,
            available: status.target_version,
            crashes: status.crash_count.unwrap_or(0),
            staged: status.staged.map(|staged| staged.version),
            ready: conditions
                .any(|condition| condition.type_ == "Ready" && condition.status == "True"),
            cordoned: unschedulable.unwrap_or(false),
            excluded: node
                .as_ref()
                .is_some_and(|node| node.labels().contains_key(EXCLUDE_FROM_LB_LABEL)),
            marked: marker
                .as_ref()
                .is_some_and(|read| !read.as_ref().is_some_and(Marker::is_kept)),
            drained: marker
                .flatten()
                .is_some_and(|read| read.drained_at.is_some()),
            boot_id: boot_id.unwrap_or_default(),
        }
    }

    /// Out of service: pods cannot run there, or not be started there. Nobody counts on a Node that is not there.
    pub fn is_unavailable(&self) -> bool {
        self.has_node && (!self.ready || self.cordoned)
    }

    /// Idle, in service, on this version.
    pub fn runs(&self, version: &str) -> bool {
        self.is_idle()
            && self.has_node
            && !self.is_unavailable()
            && self.version.as_deref() == Some(version)
    }

    /// Nothing of an update is left.
    pub fn is_idle(&self) -> bool {
        self.goal == State::Idle && self.reached == Some(State::Idle) && !self.marked
    }
}
