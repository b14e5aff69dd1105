//! Which node this agent runs on: its own token says so, and nothing else.

use brupop_api::identity::{IdentityError, PodIdentity, pod_identity};
use brupop_api::names;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::{Api, PostParams};

/// Why the node is not known.
#[derive(Debug, thiserror::Error)]
pub enum WhoError {
    /// The API server did not answer; trying again may help.
    #[error("the API server does not say whose token this is")]
    Api(#[source] Box<kube::Error>),
    /// The token is bound to no pod on a node.
    #[error(
        "{0}; run the agent with the token that is mounted into its pod, on Kubernetes 1.32 or newer"
    )]
    Token(#[from] IdentityError),
    /// The environment says something else than the token.
    #[error(
        "MY_NODE_NAME is {told}, but the token is that of a pod on {found}: remove the variable, or take it from spec.nodeName"
    )]
    OtherNode {
        /// `MY_NODE_NAME`.
        told: String,
        /// The token's node.
        found: String,
    },
    /// The shadow's name would be too long.
    #[error("the name of node {0} has more than {max} characters: no shadow can be named after it", max = names::NODE_NAME_MAX)]
    NameTooLong(String),
}

impl WhoError {
    /// May the next try bring something else?
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Api(_))
    }
}

/// Asks the API server whose token this process has.
///
/// # Errors
/// [`WhoError`].
pub async fn who_am_i(client: kube::Client, told: Option<&str>) -> Result<PodIdentity, WhoError> {
    let reviews = Api::<SelfSubjectReview>::all(client);
    let review = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
        .map_err(|error| WhoError::Api(Box::new(error)))?;
    let extra = review
        .status
        .and_then(|status| status.user_info)
        .and_then(|user| user.extra);
    agreed(pod_identity(&extra.unwrap_or_default())?, told)
}

fn agreed(identity: PodIdentity, told: Option<&str>) -> Result<PodIdentity, WhoError> {
    match told {
        Some(told) if !told.is_empty() && told != identity.node_name => Err(WhoError::OtherNode {
            told: told.to_owned(),
            found: identity.node_name,
        }),
        _ if identity.node_name.len() > names::NODE_NAME_MAX => {
            Err(WhoError::NameTooLong(identity.node_name))
        }
        _ => Ok(identity),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(node: &str) -> PodIdentity {
        PodIdentity {
            node_name: node.to_owned(),
            node_uid: "nu".to_owned(),
            pod_name: "p".to_owned(),
            pod_uid: "pu".to_owned(),
        }
    }

    #[test]
    fn my_node_name_must_agree_with_the_token() {
        for told in [None, Some(""), Some("a")] {
            assert_eq!(agreed(identity("a"), told).unwrap().node_name, "a");
        }
        let sentence = agreed(identity("a"), Some("b")).unwrap_err().to_string();
        assert!(
            sentence.contains("MY_NODE_NAME is b") && sentence.contains("pod on a"),
            "{sentence}"
        );
        assert!(agreed(identity(&"n".repeat(249)), None).is_ok());
        assert!(matches!(
            agreed(identity(&"n".repeat(250)), None),
            Err(WhoError::NameTooLong(_))
        ));
    }
}
