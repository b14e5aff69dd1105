//! Bearers of tokens of their own: the variables to start it with, and what the audit log knows it by.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::Client;
use kube::api::{Api, PostParams};

use crate::ControlPlane;
use crate::audit::Event;
use crate::kubeconfig::PodVariables;

/// The `extra` in which the API server puts the id of a token.
const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

/// Returns what a client's credential says besides name and groups, as the API server finds it.
pub async fn extra_of(client: &Client) -> Result<BTreeMap<String, Vec<String>>> {
    let reviews = Api::<SelfSubjectReview>::all(client.clone());
    let review = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await?;
    Ok(review
        .status
        .and_then(|status| status.user_info?.extra)
        .unwrap_or_default())
}

/// The bearer of one token.
#[derive(Clone, Debug)]
pub struct Bearer {
    credential: String,
    variables: PodVariables,
}

impl Bearer {
    /// Writes this token down as kubelets do for a pod; it goes with the control plane.
    pub async fn of(plane: &ControlPlane, token: &str, namespace: &str) -> Result<Self> {
        let extra = extra_of(&plane.client_for_token(token).await?).await?;
        let credential = extra
            .get(CREDENTIAL)
            .and_then(|ids| ids.first())
            .context("no credential id")?
            .clone();
        let folder = plane.dir().join(&credential);
        let variables = plane
            .server()
            .write_service_account(&folder, token, namespace)?;
        Ok(Self {
            credential,
            variables,
        })
    }

    /// The bearer of a new token that is bound to this pod, as its kubelet mounts one.
    pub async fn of_pod(
        plane: &ControlPlane,
        namespace: &str,
        account: &str,
        pod: &str,
    ) -> Result<Self> {
        let token = plane.bound_token(namespace, account, pod).await?;
        Self::of(plane, &token, namespace).await
    }

    /// The variables by which a process of ours finds the API server and the token.
    pub fn variables(&self) -> PodVariables {
        self.variables.clone()
    }

    /// Whether this request carried the token.
    pub fn asked(&self, event: &Event) -> bool {
        event
            .user
            .extra
            .get(CREDENTIAL)
            .is_some_and(|ids| ids.contains(&self.credential))
    }
}
