//! Learns the agent's node from its own token, and from nothing else.

use brupop_api::identity::{IdentityError, PodIdentity, pod_identity};
use brupop_api::names;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::{Api, PostParams};

/// Reasons why the node is not known.
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
    /// The shadow's name would be too long.
    #[error("the name of node {0} has more than {max} characters: no shadow can be named after it", max = names::NODE_NAME_MAX)]
    NameTooLong(String),
}

impl WhoError {
    /// Whether a retry may succeed.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Api(_))
    }
}

/// Asks the API server whose token this process has.
///
/// # Errors
/// [`WhoError`].
pub async fn who_am_i(client: kube::Client) -> Result<PodIdentity, WhoError> {
    let reviews = Api::<SelfSubjectReview>::all(client);
    let review = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
        .map_err(|error| WhoError::Api(Box::new(error)))?;
    let extra = review
        .status
        .and_then(|status| status.user_info)
        .and_then(|user| user.extra);
    let identity = pod_identity(&extra.unwrap_or_default())?;
    if identity.node_name.len() > names::NODE_NAME_MAX {
        return Err(WhoError::NameTooLong(identity.node_name));
    }
    Ok(identity)
}
