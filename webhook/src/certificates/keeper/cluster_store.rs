//! Secret and configuration in the cluster, for [`pass`](super::super::pass::pass).

use super::super::pass::{Publication, Store};
use super::super::{Generation, Policy, issue, stored};
use super::{KeeperError, Places};
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};

/// The [`Store`] that is a cluster.
pub(super) struct ClusterStore {
    pub(super) secrets: Api<Secret>,
    pub(super) configurations: Api<ValidatingWebhookConfiguration>,
    pub(super) places: Places,
    pub(super) policy: Policy,
}

impl ClusterStore {
    fn of_secret(&self, source: kube::Error) -> KeeperError {
        KeeperError::Secret { name: self.places.secret.clone(), source: Box::new(source) }
    }

    fn of_configuration(&self, source: kube::Error) -> KeeperError {
        KeeperError::Configuration { name: self.places.configuration.clone(), source: Box::new(source) }
    }
}

impl Store for ClusterStore {
    type Error = KeeperError;
    type Secret = Secret;
    type Configuration = ValidatingWebhookConfiguration;

    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn issue(&self, now: Timestamp, serve_from: Timestamp) -> Result<Generation, KeeperError> {
        Ok(issue::issue(&self.places.names, self.policy, now, serve_from)?)
    }

    async fn secret(&self) -> Result<(Secret, Vec<Generation>), KeeperError> {
        let secret = self.secrets.get(&self.places.secret).await.map_err(|error| self.of_secret(error))?;
        let found = stored::read(&secret);
        Ok((secret, found))
    }

    async fn replace(&self, mut secret: Secret, generations: &[Generation]) -> Result<bool, KeeperError> {
        stored::write(&mut secret, generations)?;
        match self.secrets.replace(&self.places.secret, &PostParams::default(), &secret).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.is_conflict() => Ok(false),
            Err(error) => Err(self.of_secret(error)),
        }
    }

    async fn configuration(&self) -> Result<ValidatingWebhookConfiguration, KeeperError> {
        let name = &self.places.configuration;
        self.configurations.get(name).await.map_err(|error| self.of_configuration(error))
    }

    fn trusted(configuration: &ValidatingWebhookConfiguration) -> String {
        stored::trusted(configuration)
    }

    async fn publish(
        &self,
        configuration: &ValidatingWebhookConfiguration,
        bundle: &str,
    ) -> Result<Publication, KeeperError> {
        let Some(patch) = stored::publication(configuration, bundle) else {
            return Ok(Publication::Found);
        };
        let name = &self.places.configuration;
        let patch = Patch::<ValidatingWebhookConfiguration>::Json(serde_json::from_value(patch)?);
        match self.configurations.patch(name, &PatchParams::default(), &patch).await {
            Ok(_) => Ok(Publication::Written),
            // With these the API server answers if a `test` does not hold.
            Err(kube::Error::Api(status)) if status.is_invalid() || status.is_conflict() => {
                Ok(Publication::Overtaken)
            }
            Err(error) => Err(self.of_configuration(error)),
        }
    }

    fn outrun(&self) -> KeeperError {
        KeeperError::Race(self.places.secret.clone())
    }

    fn overtaken(&self) -> KeeperError {
        KeeperError::Outrun(self.places.configuration.clone())
    }
}
