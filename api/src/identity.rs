//! Identifies a caller by the API server's `userInfo` of its token.

use std::collections::BTreeMap;

use crate::names;

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
        (names::AGENT_ACCOUNT, Component::Agent),
        (names::RECONCILER_ACCOUNT, Component::Reconciler),
        (names::WEBHOOK_ACCOUNT, Component::Webhook),
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
