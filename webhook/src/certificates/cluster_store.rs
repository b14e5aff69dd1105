//! Secret and configuration in the cluster, for [`pass`](super::pass::pass).

use super::objects::{Bundles, StoredSecret};
use super::pass::{CONFIGURATION, Outrun, Publication, SECRET, Store};
use super::{CertificateGeneration, Lifetimes, issue, stored};
use brupop_api::Item;
use brupop_api::item::Unreadable;
use brupop_runtime::client::write;
use brupop_runtime::tls::TlsError;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::Status;
use kube::{Api, Client};
use thiserror::Error;

/// The reason why certificates could not be renewed or published this time. The log names the objects.
#[derive(Debug, Error)]
pub(crate) enum RotationError {
    /// The object of this kind cannot be read or written.
    #[error("the {0} cannot be read or written")]
    Request(&'static str, #[source] Box<kube::Error>),
    /// The object of this kind is none that the webhook could write back.
    #[error("the {0} cannot be understood: {1}")]
    Unreadable(&'static str, Unreadable),
    /// The certificate could not be made.
    #[error(transparent)]
    Issue(#[from] issue::IssueError),
    /// The certificate could not be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The generations or the patch could not be written as JSON.
    #[error("the certificates could not be written as JSON")]
    Json(#[from] serde_json::Error),
    /// Another replica was faster, or another tool.
    #[error(transparent)]
    Outrun(#[from] Outrun),
    /// The API server does not answer.
    #[error("the API server has not answered in time")]
    Timeout,
}

/// Did the object change since it was read? Another 422 says in its causes what is invalid; that does not go away.
fn is_overtaken(status: &Status) -> bool {
    let causes = status
        .details
        .as_ref()
        .is_some_and(|details| !details.causes.is_empty());
    status.is_conflict() || (status.is_invalid() && !causes)
}

fn of_secret(source: kube::Error) -> RotationError {
    RotationError::Request(SECRET, Box::new(source))
}

fn of_configuration(source: kube::Error) -> RotationError {
    RotationError::Request(CONFIGURATION, Box::new(source))
}

pub(crate) struct ClusterStore {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    /// Name of the Secret, in our namespace.
    pub(crate) secret: String,
    pub(crate) configuration: String,
    /// DNS names and addresses the webhook is called by.
    pub(crate) names: Vec<String>,
    pub(crate) lifetimes: Lifetimes,
}

impl ClusterStore {
    /// The configurations of the cluster.
    pub(super) fn configurations(&self) -> Api<Item<Bundles>> {
        Api::all(self.client.clone())
    }
}

impl Store for ClusterStore {
    type Error = RotationError;
    type Secret = StoredSecret;
    type Configuration = Item<Bundles>;

    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn issue(
        &self,
        now: Timestamp,
        serve_from: Timestamp,
    ) -> Result<CertificateGeneration, RotationError> {
        Ok(issue::issue(&self.names, self.lifetimes, now, serve_from)?)
    }

    async fn secret(&self) -> Result<(StoredSecret, Vec<CertificateGeneration>), RotationError> {
        let secrets = Api::<Item<StoredSecret>>::namespaced(self.client.clone(), &self.namespace);
        let secret = secrets.get(&self.secret).await.map_err(of_secret)?;
        let found = stored::read(&secret);
        let secret = secret
            .body
            .map_err(|why| RotationError::Unreadable(SECRET, why))?;
        Ok((secret, found))
    }

    async fn replace(
        &self,
        secret: StoredSecret,
        generations: &[CertificateGeneration],
    ) -> Result<bool, RotationError> {
        let secret = stored::write(secret, generations)?;
        let (client, namespace) = (&self.client, &self.namespace);
        match write::<StoredSecret>(client, namespace, Some(&self.secret), &secret).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.is_conflict() => Ok(false),
            Err(error) => Err(of_secret(error)),
        }
    }

    async fn configuration(&self) -> Result<Item<Bundles>, RotationError> {
        let found = self.configurations().get(&self.configuration).await;
        found.map_err(of_configuration)
    }

    fn trusted(configuration: &Item<Bundles>) -> String {
        configuration.ok().map(stored::trusted).unwrap_or_default()
    }

    async fn publish(
        &self,
        configuration: &Item<Bundles>,
        bundle: &str,
    ) -> Result<Publication, RotationError> {
        let bundles = configuration.body.as_ref();
        let bundles = bundles.map_err(|why| RotationError::Unreadable(CONFIGURATION, *why))?;
        let version = configuration.metadata.resource_version.as_deref();
        let Some(patch) = stored::publication(version, bundles, bundle) else {
            return Ok(Publication::Found);
        };
        let patch = Patch::<()>::Json(serde_json::from_value(patch)?);
        let (name, params) = (&self.configuration, PatchParams::default());
        match self.configurations().patch(name, &params, &patch).await {
            Ok(_) => Ok(Publication::Written),
            Err(kube::Error::Api(status)) if is_overtaken(&status) => Ok(Publication::Overtaken),
            Err(error) => Err(of_configuration(error)),
        }
    }
}
