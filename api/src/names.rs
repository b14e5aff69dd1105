//! Names that objects, labels and processes go by; most are upstream's, so that its users can switch.

use crate::crds::{NAME_MAX, is_label_of_any_length};

/// API group of both custom resources.
pub const GROUP: &str = "brupop.bottlerocket.aws";

/// A node with this label, set to [`UPDATER_INTERFACE_VERSION`], is looked after.
pub const UPDATER_INTERFACE_LABEL: &str = "bottlerocket.aws/updater-interface-version";
/// The value of [`UPDATER_INTERFACE_LABEL`].
pub const UPDATER_INTERFACE_VERSION: &str = "2.0.0";
/// A value of [`UPDATER_INTERFACE_LABEL`] that people give to nodes that are to be left out, however the others get theirs.
/// Any value does that is not [`UPDATER_INTERFACE_VERSION`].
pub const LEFT_OUT: &str = "none";
/// The policy's rule that says which labels of a Node the reconciler may change; stands in its message.
pub const LABEL_RULE: &str = "reconciler-node-labels";
/// Prefix of `status.nodeInfo.osImage` of a Bottlerocket host; its version follows.
pub const OS_IMAGE_PREFIX: &str = "Bottlerocket OS ";
/// The variant of a node whose OS image names none.
pub const UNKNOWN_VARIANT: &str = "unknown";

/// Keeps a node out of load balancers while it is updated. A label that Kubernetes defines.
pub const EXCLUDE_FROM_LB_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// Value we give to [`EXCLUDE_FROM_LB_LABEL`]; Kubernetes looks at the key only.
pub const EXCLUDE_FROM_LB_VALUE: &str = "true";

/// Label that tells our components apart: `agent`, `reconciler`, `webhook`.
pub const COMPONENT_LABEL: &str = "brupop.bottlerocket.aws/component";

/// Node annotation that says what we changed on the node and for which attempt; see [`crate::Marker`].
pub const MARKER_ANNOTATION: &str = "brupop.bottlerocket.aws/marker";
/// Taint on a node that is being emptied, for pods that tolerate `unschedulable`.
pub const UPDATING_TAINT: &str = "brupop.bottlerocket.aws/updating";
/// Its effect: the scheduler prefers another node, if there is one.
pub const UPDATING_TAINT_EFFECT: &str = "PreferNoSchedule";
/// Node annotation that keeps Karpenter from disrupting a node.
pub const DO_NOT_DISRUPT_ANNOTATION: &str = "karpenter.sh/do-not-disrupt";
/// Node annotation that keeps the cluster autoscaler from removing a node.
pub const SCALE_DOWN_DISABLED_ANNOTATION: &str =
    "cluster-autoscaler.kubernetes.io/scale-down-disabled";
/// Value of these two annotations as we write them.
pub const KEPT_FROM_AUTOSCALERS: &str = "true";
/// Taints that announce a node's removal. `DeletionCandidateOfClusterAutoscaler` is not one: it may stay for ever.
pub const LEAVING_TAINTS: [&str; 7] = [
    "ToBeDeletedByClusterAutoscaler",
    "aws-node-termination-handler/asg-lifecycle-termination",
    "aws-node-termination-handler/rebalance-recommendation",
    "aws-node-termination-handler/scheduled-maintenance",
    "aws-node-termination-handler/spot-itn",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
];
/// Node annotation by which people stop new updates of one node.
pub const PAUSE_ANNOTATION: &str = "brupop.bottlerocket.aws/pause";
/// Node annotation by which people ask for the update of one node now.
pub const UPDATE_NOW_ANNOTATION: &str = "brupop.bottlerocket.aws/update-now";
/// Node annotation by which people end a node's back-off: the number of the attempt after which it backs off.
pub const RETRY_ANNOTATION: &str = "brupop.bottlerocket.aws/retry";

/// Name of the one [`crate::BottlerocketFleet`].
pub const FLEET: &str = "fleet";
/// The namespace of the shipped overlays.
pub const DEFAULT_NAMESPACE: &str = "brupop-bottlerocket-aws";
/// Name of the reconciler's Lease.
pub const LEASE: &str = "brupop-reconciler";

/// Field manager of the reconciler's conditions (server-side apply).
pub const CONDITIONS_MANAGER: &str = "brupop-reconciler-conditions";

/// Part of the service account's name that makes a caller an agent.
pub const AGENT_ACCOUNT: &str = "brupop-agent";
/// Part of the service account's name that makes a caller the reconciler.
pub const RECONCILER_ACCOUNT: &str = "brupop-reconciler";
/// Part of the service account's name that makes a caller the webhook.
pub const WEBHOOK_ACCOUNT: &str = "brupop-webhook";

/// Longest node name whose shadow's name is legal, in characters.
pub const NODE_NAME_MAX: usize = NAME_MAX - SHADOW_PREFIX.len();

const SHADOW_PREFIX: &str = "brs-";

/// Can an object of Kubernetes have this name: a DNS subdomain of at most 253 characters? A name that is read out of a field
/// goes through this before it becomes part of a path, a query or a command: fields can hold anything.
/// <https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names>
pub fn is_object_name(text: &str) -> bool {
    text.len() <= NAME_MAX && text.split('.').all(is_label_of_any_length)
}

/// Name of the shadow of a node: `brs-<node>`.
pub fn shadow_name(node: &str) -> String {
    format!("{SHADOW_PREFIX}{node}")
}

/// Name of the node whose shadow this is, if it is named like a shadow.
pub fn node_of_shadow(shadow: &str) -> Option<&str> {
    shadow
        .strip_prefix(SHADOW_PREFIX)
        .filter(|node| !node.is_empty())
}

/// Dry-run writes of the reconciler that only our own rules refuse, and the names by which those refusals are known.
/// As long as all are refused, those rules are in force.
pub mod admission_check {
    /// The webhook's rule that refuses each write of a status by the reconciler: it is asked about dry runs only, and the
    /// policy lets one through that changes nothing. Stands in its message.
    pub const WEBHOOK_RULE: &str = "reconciler-check";
    /// The reconciler sets this annotation on a Node, in a dry run. RBAC lets it through, the webhook is not asked; the policy
    /// that confines the reconciler refuses it.
    pub const NODE_ANNOTATION: &str = "brupop.bottlerocket.aws/check";
    /// The policy's rule that refuses it; stands in its message.
    pub const NODE_RULE: &str = "reconciler-node-annotations";
    /// The policy's rule that refuses it if the reconciler sets a `message`, which is the agent's, in the status of a shadow.
    pub const STATUS_RULE: &str = "reconciler-own-fields";
}

/// Annotation of a pod that the cluster autoscaler shall not evict, if it is `false`.
pub const SAFE_TO_EVICT_ANNOTATION: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
/// Name of the pool of nodes that no `BottlerocketPool` selects. No `BottlerocketPool` may have it.
pub const DEFAULT_POOL: &str = "default";
/// Well-known label of a Node's zone.
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
/// Well-known label of the Nodes of the control plane. No kubelet may set it on its own Node (`NodeRestriction`).
pub const CONTROL_PLANE_LABEL: &str = "node-role.kubernetes.io/control-plane";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shadow_is_named_after_its_node() {
        assert_eq!(
            shadow_name("ip-10-0-0-1.ec2.internal"),
            "brs-ip-10-0-0-1.ec2.internal"
        );
        assert_eq!(node_of_shadow("brs-a"), Some("a"));
        assert_eq!(node_of_shadow("brs-"), None);
        assert_eq!(node_of_shadow("a"), None);
        assert_eq!(shadow_name(&"n".repeat(NODE_NAME_MAX)).len(), 253);
    }

    #[test]
    fn a_name_is_a_dns_subdomain() {
        for name in [
            "a",
            "0",
            "brupop-reconciler-7d9f-x2",
            "ip-10-0-0-1.ec2.internal",
            &"a".repeat(253),
        ] {
            assert!(is_object_name(name), "{name:?}");
        }
        let others =
            ". .. a..b .a a. -a a- a.-b A a_b a/b a?b a#b a%2fb a,b=c é x/exec?command=sh&x=#"
                .split(' ');
        for name in others.chain(["", "a b", "a\n", &"a".repeat(254)]) {
            assert!(!is_object_name(name), "{name:?}");
        }
    }
}
