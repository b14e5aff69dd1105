//! Names that objects, labels and processes go by; most are upstream's, so that its users can switch. And who a caller is, by the
//! `userInfo` of its token.

use std::collections::BTreeMap;

use crate::crds::{NAME_MAX, is_label_of_any_length};

/// API group of the custom resources.
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

const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const NODE_UID: &str = "authentication.kubernetes.io/node-uid";
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";

/// One of our processes, told by its service account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Component {
    /// The agent, which runs on each node.
    Agent,
    /// The reconciler, which decides for all nodes.
    Reconciler,
    /// The webhook, which judges writes of shadows.
    Webhook,
}

/// A token that is bound to one pod on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodIdentity {
    /// Name of the node that the pod runs on.
    pub node_name: String,
    /// UID of the Node of that name.
    pub node_uid: String,
    /// Name of the pod with the token.
    pub pod_name: String,
    /// UID of the pod with the token.
    pub pod_uid: String,
}

/// Returns which of our components has this user name, if any: a service account of `namespace` whose name contains the
/// component's (so that prefixes and suffixes of kustomize do no harm).
pub fn component(username: &str, namespace: &str) -> Option<Component> {
    let account = service_account(username, namespace)?;
    // No account is named like this, so it is none of ours.
    if account.contains(':') {
        return None;
    }
    [
        (AGENT_ACCOUNT, Component::Agent),
        (RECONCILER_ACCOUNT, Component::Reconciler),
        (WEBHOOK_ACCOUNT, Component::Webhook),
    ]
    .into_iter()
    .find_map(|(name, component)| account.contains(name).then_some(component))
}

/// Returns what follows the namespace in the user name of a service account of `namespace`; `None` for all other users.
pub fn service_account<'a>(username: &'a str, namespace: &str) -> Option<&'a str> {
    username
        .strip_prefix("system:serviceaccount:")?
        .strip_prefix(namespace)?
        .strip_prefix(':')
}

/// Node and pod of a token, from `userInfo.extra`.
///
/// # Errors
/// A sentence, unless each of the four claims has exactly one value, which is not empty.
pub fn pod_identity(extra: &BTreeMap<String, Vec<String>>) -> Result<PodIdentity, String> {
    let one = |key| match extra.get(key).map(Vec::as_slice) {
        Some([value]) if !value.is_empty() => Ok(value.clone()),
        _ => Err(not_bound(key)),
    };
    Ok(PodIdentity {
        node_name: one(NODE_NAME)?,
        node_uid: one(NODE_UID)?,
        pod_name: one(POD_NAME)?,
        pod_uid: one(POD_UID)?,
    })
}

/// Says that a token does not tell, by this claim, which node its bearer runs on.
pub fn not_bound(claim: &str) -> String {
    format!("the token does not have exactly one {claim}: it is not bound to a pod on a node")
}

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

    fn extra(values: &[(&str, &[&str])]) -> BTreeMap<String, Vec<String>> {
        values
            .iter()
            .map(|(k, v)| ((*k).to_owned(), v.iter().map(|s| (*s).to_owned()).collect()))
            .collect()
    }

    #[test]
    fn components_are_told_by_account_and_namespace() {
        for (user, expected) in [
            (
                "system:serviceaccount:ns:brupop-agent",
                Some(Component::Agent),
            ),
            (
                "system:serviceaccount:ns:team-brupop-agent-2",
                Some(Component::Agent),
            ),
            (
                "system:serviceaccount:ns:brupop-reconciler",
                Some(Component::Reconciler),
            ),
            (
                "system:serviceaccount:ns:brupop-webhook",
                Some(Component::Webhook),
            ),
            ("system:serviceaccount:ns:default", None),
            ("system:serviceaccount:ns:brupop-agent:x", None),
            ("system:serviceaccount:ns:x:brupop-agent", None),
            ("system:serviceaccount:ns2:brupop-agent", None),
            ("system:serviceaccount:n:brupop-agent", None),
            ("system:serviceaccount:ns", None),
            ("brupop-agent", None),
        ] {
            assert_eq!(component(user, "ns"), expected, "{user}");
        }
    }

    #[test]
    fn a_pods_token_names_node_and_pod() {
        let whole: [(&str, &[&str]); 4] = [
            (NODE_NAME, &["n"]),
            (NODE_UID, &["nu"]),
            (POD_NAME, &["p"]),
            (POD_UID, &["pu"]),
        ];
        let identity = pod_identity(&extra(&whole)).unwrap();
        assert_eq!(
            (identity.node_name.as_str(), identity.pod_uid.as_str()),
            ("n", "pu")
        );

        for left_out in 0..whole.len() {
            let mut claims = whole.to_vec();
            let (key, _) = claims.remove(left_out);
            assert_eq!(pod_identity(&extra(&claims)), Err(not_bound(key)));
            claims.push((key, &[""]));
            assert_eq!(pod_identity(&extra(&claims)), Err(not_bound(key)));
            claims.pop();
            claims.push((key, &["a", "b"]));
            assert_eq!(pod_identity(&extra(&claims)), Err(not_bound(key)));
        }
    }
}
