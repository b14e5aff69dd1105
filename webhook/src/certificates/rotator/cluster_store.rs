//! Secret and configuration in the cluster, for [`pass`](super::super::pass::pass).

use super::super::objects::{Bundles, StoredSecret};
use super::super::pass::{Publication, Store};
use super::super::{CertificateGeneration, Lifetimes, issue, stored};
use super::{RotationError, Targets};
use brupop_api::Item;
use brupop_runtime::requests;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::Status;
use kube::{Api, Client};

/// Did the object change since it was read? Another 422 says in its causes what is invalid; that does not go away.
fn is_overtaken(status: &Status) -> bool {
    let causes = status
        .details
        .as_ref()
        .is_some_and(|details| !details.causes.is_empty());
    status.is_conflict() || (status.is_invalid() && !causes)
}

/// The [`Store`] that is a cluster.
pub(super) struct ClusterStore {
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) configurations: Api<Item<Bundles>>,
    pub(super) targets: Targets,
    pub(super) lifetimes: Lifetimes,
}

impl ClusterStore {
    fn of_secret(&self, source: kube::Error) -> RotationError {
        RotationError::Secret {
            name: self.targets.secret.clone(),
            source: Box::new(source),
        }
    }

    fn of_configuration(&self, source: kube::Error) -> RotationError {
        RotationError::Configuration {
            name: self.targets.configuration.clone(),
            source: Box::new(source),
        }
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
        Ok(issue::issue(
            &self.targets.names,
            self.lifetimes,
            now,
            serve_from,
        )?)
    }

    async fn secret(&self) -> Result<(StoredSecret, Vec<CertificateGeneration>), RotationError> {
        let secrets = Api::<Item<StoredSecret>>::namespaced(self.client.clone(), &self.namespace);
        let secret = secrets
            .get(&self.targets.secret)
            .await
            .map_err(|error| self.of_secret(error))?;
        let found = stored::read(&secret);
        let name = || self.targets.secret.clone();
        let secret = secret
            .body
            .map_err(|why| RotationError::UnreadableSecret { name: name(), why })?;
        Ok((secret, found))
    }

    async fn replace(
        &self,
        secret: StoredSecret,
        generations: &[CertificateGeneration],
    ) -> Result<bool, RotationError> {
        let secret = stored::write(secret, generations)?;
        let (client, name) = (&self.client, &self.targets.secret);
        match requests::replace::<StoredSecret>(client, &self.namespace, name, &secret).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.is_conflict() => Ok(false),
            Err(error) => Err(self.of_secret(error)),
        }
    }

    async fn configuration(&self) -> Result<Item<Bundles>, RotationError> {
        let name = &self.targets.configuration;
        self.configurations
            .get(name)
            .await
            .map_err(|error| self.of_configuration(error))
    }

    fn trusted(configuration: &Item<Bundles>) -> String {
        configuration.ok().map(stored::trusted).unwrap_or_default()
    }

    fn injector(configuration: &Item<Bundles>) -> Option<&'static str> {
        configuration.ok().and_then(|bundles| bundles.injector)
    }

    async fn publish(
        &self,
        configuration: &Item<Bundles>,
        bundle: &str,
    ) -> Result<Publication, RotationError> {
        let name = &self.targets.configuration;
        let bundles =
            configuration
                .body
                .as_ref()
                .map_err(|why| RotationError::UnreadableConfiguration {
                    name: name.clone(),
                    why: *why,
                })?;
        let version = configuration.metadata.resource_version.as_deref();
        let Some(patch) = stored::publication(version, bundles, bundle) else {
            return Ok(Publication::Found);
        };
        let patch = Patch::<()>::Json(serde_json::from_value(patch)?);
        match self
            .configurations
            .patch(name, &PatchParams::default(), &patch)
            .await
        {
            Ok(_) => Ok(Publication::Written),
            Err(kube::Error::Api(status)) if is_overtaken(&status) => Ok(Publication::Overtaken),
            Err(error) => Err(self.of_configuration(error)),
        }
    }

    fn outrun(&self) -> RotationError {
        RotationError::Race(self.targets.secret.clone())
    }

    fn overtaken(&self) -> RotationError {
        RotationError::Outrun(self.targets.configuration.clone())
    }
}
