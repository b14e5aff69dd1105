//! What is asked of the API server: an [`Operation`] owns its data, has a time-out, and ends in an [`Outcome`].

use std::time::Duration;

use brupop_api::crds::MESSAGE_MAX;
use brupop_api::item::IdentityOnly;
use brupop_api::printable::printable;
use brupop_api::write::Misfit;
use brupop_api::{
    BottlerocketFleet, BottlerocketFleetSpec, BottlerocketPool, BottlerocketShadow, Item, Marker, names,
};
use brupop_runtime::Listing;
use brupop_runtime::errors::{describe, status_message};
use jiff::Timestamp;
use json_patch::Patch as JsonPatch;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Status;
use kube::{Client, Error};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::watches::on_node;
use brupop_core::drain::DrainPlan;
use brupop_core::objects::{PodItem, is_operator_pod};

/// Longest wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for the answer to a change of a Node: the API server needs this long for our policies if its kubelet has
/// given it tens of thousands of labels or annotations.
const NODE_TIMEOUT: Duration = Duration::from_secs(28);

/// What is asked of the API server.
#[derive(Clone, Debug)]
pub enum Operation {
    /// A conditional patch of a shadow's spec.
    PatchShadow {
        /// Its name.
        name: String,
        /// The patch.
        patch: JsonPatch,
    },
    /// A conditional patch of a Node.
    PatchNode {
        /// Its name.
        name: String,
        /// The patch.
        patch: JsonPatch,
    },
    /// Makes sure that a node is drained, and grants its reboot. What changes between the two is not seen any more.
    Grant {
        /// How to make sure of it.
        confirm: Box<Confirm>,
        /// The shadow's name.
        name: String,
        /// The conditional patch of the shadow's spec.
        patch: JsonPatch,
    },
    /// A conditional patch of a Node that opts it in.
    LabelNode {
        /// Its name.
        name: String,
        /// The patch.
        patch: JsonPatch,
    },
    /// A conditional patch of the ledger.
    PatchLedger(JsonPatch),
    /// Creation of a shadow.
    CreateShadow(Box<BottlerocketShadow>),
    /// Deletion of a shadow that is no longer needed.
    DeleteShadow {
        /// Its name.
        name: String,
        /// UID and `resourceVersion` of the shadow that was decided on: it may have been put to use again since.
        preconditions: Preconditions,
    },
    /// Creation of the `BottlerocketFleet`.
    CreateFleet,
    /// Server-side apply to a shadow's status.
    ApplyToShadow {
        /// Its name.
        name: String,
        /// What is applied.
        status: Value,
    },
    /// Server-side apply to a pool's status.
    ApplyToPool {
        /// Its name.
        name: String,
        /// What is applied.
        status: Value,
    },
    /// Server-side apply to the fleet's status.
    ApplyToFleet(Value),
    /// Nothing: what was decided does not fit its object. That is a mistake of ours, and fails.
    Misfit(Misfit),
}

/// How to make sure that a node is drained: by a fresh list of its pods, and then by a patch that tests that the Node is
/// still cordoned and marked as it was.
#[derive(Clone, Debug)]
pub struct Confirm {
    /// The Node's name.
    pub node: String,
    /// The patch.
    pub patch: JsonPatch,
    /// The node's marker, which says which pods stay; see [`DrainPlan::of`].
    pub marker: Option<Marker>,
    /// The pods that are not waited for; see [`DrainPlan::of`].
    pub overlooked: Option<Timestamp>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done. Holds the object's new `resourceVersion`, if the answer has one.
    Written(Option<u64>),
    /// A grant is done, which has written the Node, too.
    Granted {
        /// The new `resourceVersion` of the Node.
        node: Option<u64>,
        /// The new `resourceVersion` of the shadow.
        shadow: Option<u64>,
    },
    /// The object is gone, as wanted.
    Removed,
    /// The object is not as it was when the call was decided, or is gone. The watch will bring a newer version.
    Refused(String),
    /// A rule, or the API server itself, does not take this change, whatever the version of the object.
    Denied(String),
    /// A rule, or the API server itself, does not take this change of a Node, also if it comes before another write.
    NodeDenied(String),
    /// A fresh list of the node's pods shows that it is not drained.
    NotConfirmed,
    /// There was no answer, or another error.
    Failed(String),
}

impl Outcome {
    /// The word for metrics; a write that changed nothing has another one.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Written(_) | Self::Granted { .. } => "written",
            Self::Removed => "removed",
            Self::Refused(_) => "refused",
            Self::Denied(_) | Self::NodeDenied(_) => "denied",
            Self::NotConfirmed => "not-confirmed",
            Self::Failed(_) => "failed",
        }
    }
}

impl Operation {
    /// What a patch would write, to tell whether it would write the same again; `None` for what always changes something.
    pub fn patch(&self) -> Option<Value> {
        match self {
            Self::PatchShadow { patch, .. }
            | Self::PatchNode { patch, .. }
            | Self::Grant { patch, .. }
            | Self::LabelNode { patch, .. }
            | Self::PatchLedger(patch) => Some(json!(patch)),
            Self::ApplyToShadow { status, .. }
            | Self::ApplyToPool { status, .. }
            | Self::ApplyToFleet(status) => Some(status.clone()),
            Self::CreateShadow(_) | Self::DeleteShadow { .. } | Self::CreateFleet | Self::Misfit(_) => None,
        }
    }

    /// Has a Node been changed once this is done?
    pub fn changes_node(&self) -> bool {
        matches!(self, Self::PatchNode { .. } | Self::LabelNode { .. })
    }

    /// The word for metrics and logs: what is written.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::PatchShadow { .. } => "shadow",
            Self::PatchNode { .. } => "node",
            Self::Grant { .. } => "grant",
            Self::LabelNode { .. } => "node-label",
            Self::PatchLedger(_) => "ledger",
            Self::CreateShadow(_) => "shadow-create",
            Self::DeleteShadow { .. } => "shadow-delete",
            Self::CreateFleet => "fleet-create",
            Self::ApplyToShadow { .. } => "shadow-condition",
            Self::ApplyToPool { .. } => "pool-status",
            Self::ApplyToFleet(_) => "fleet-status",
            Self::Misfit(_) => "misfit",
        }
    }
}

/// Asks the API server.
#[derive(Clone)]
pub struct ApiServer {
    /// A client that does not retry by itself.
    pub client: Client,
    /// Our namespace.
    pub namespace: String,
    /// The node that this process runs on, if it is known.
    pub own_node: Option<String>,
}

impl ApiServer {
    /// Carries it out.
    pub async fn send(&self, operation: &Operation) -> Outcome {
        let longest = match operation {
            Operation::PatchNode { .. } | Operation::Grant { .. } => NODE_TIMEOUT,
            _ => TIMEOUT,
        };
        timeout(longest, self.answer(operation))
            .await
            .unwrap_or_else(|_| Outcome::Failed(format!("no answer within {} s", longest.as_secs())))
    }

    async fn answer(&self, operation: &Operation) -> Outcome {
        let params = PatchParams::default();
        let apply = PatchParams::apply(names::CONDITIONS_MANAGER).force();
        let json = |patch: &JsonPatch| Patch::Json::<()>(patch.clone());
        match operation {
            Operation::PatchShadow { name, patch } => self.patch_shadow(name, patch).await,
            Operation::PatchNode { name, patch } => self.patch_node(name, patch).await,
            Operation::Grant { confirm, name, patch } => match self.confirm(confirm).await {
                Outcome::Written(node) => match self.patch_shadow(name, patch).await {
                    Outcome::Written(shadow) => Outcome::Granted { node, shadow },
                    refused => refused,
                },
                unconfirmed => unconfirmed,
            },
            Operation::LabelNode { name, patch } => {
                match written(self.nodes().patch(name, &params, &json(patch)).await) {
                    Outcome::Denied(why) => Outcome::Failed(why),
                    outcome => outcome,
                }
            }
            Operation::PatchLedger(patch) => {
                written(self.fleets().patch_status(names::FLEET, &params, &json(patch)).await)
            }
            Operation::CreateShadow(shadow) => {
                let shadows = Api::<BottlerocketShadow>::namespaced(self.client.clone(), &self.namespace);
                created(shadows.create(&PostParams::default(), shadow).await.map(|shadow| shadow.metadata))
            }
            Operation::DeleteShadow { name, preconditions } => self.delete_shadow(name, preconditions).await,
            Operation::CreateFleet => {
                let fleets = Api::<BottlerocketFleet>::namespaced(self.client.clone(), &self.namespace);
                let fleet = BottlerocketFleet::new(names::FLEET, BottlerocketFleetSpec::default());
                created(fleets.create(&PostParams::default(), &fleet).await.map(|fleet| fleet.metadata))
            }
            Operation::ApplyToShadow { name, status } => {
                written(self.shadows().patch_status(name, &apply, &Patch::Apply(status)).await)
            }
            Operation::ApplyToPool { name, status } => {
                let pools = Api::<Item<IdentityOnly<BottlerocketPool>>>::namespaced(
                    self.client.clone(),
                    &self.namespace,
                );
                written(pools.patch_status(name, &apply, &Patch::Apply(status)).await)
            }
            Operation::ApplyToFleet(status) => {
                written(self.fleets().patch_status(names::FLEET, &apply, &Patch::Apply(status)).await)
            }
            Operation::Misfit(misfit) => Outcome::Failed(misfit.to_string()),
        }
    }

    /// Makes sure that the node is drained; it is if the patch is [`Outcome::Written`].
    async fn confirm(&self, confirm: &Confirm) -> Outcome {
        let Confirm { node, patch, marker, overlooked } = confirm;
        match self.is_drained(node, marker.as_ref(), *overlooked).await {
            Ok(true) => self.patch_node(node, patch).await,
            Ok(false) => Outcome::NotConfirmed,
            Err(error) => failure(&error),
        }
    }

    async fn patch_shadow(&self, name: &str, patch: &JsonPatch) -> Outcome {
        let patch = Patch::Json::<()>(patch.clone());
        written(self.shadows().patch(name, &PatchParams::default(), &patch).await)
    }

    async fn delete_shadow(&self, name: &str, preconditions: &Preconditions) -> Outcome {
        let params = DeleteParams::default().preconditions(preconditions.clone());
        match self.shadows().delete(name, &params).await {
            Ok(_) => Outcome::Removed,
            Err(Error::Api(status)) if status.code == 404 => Outcome::Removed,
            Err(error) => failure(&error),
        }
    }

    async fn patch_node(&self, name: &str, patch: &JsonPatch) -> Outcome {
        let patch = Patch::Json::<()>(patch.clone());
        match written(self.nodes().patch(name, &PatchParams::default(), &patch).await) {
            Outcome::Denied(why) => Outcome::NodeDenied(why),
            outcome => outcome,
        }
    }

    async fn is_drained(
        &self,
        node: &str,
        marker: Option<&Marker>,
        overlooked: Option<Timestamp>,
    ) -> kube::Result<bool> {
        let ours = |pod: &PodItem| is_operator_pod(pod, &self.namespace);
        let mut pods = Listing::begin(&Api::<PodItem>::all(self.client.clone()), &on_node(node)).await?;
        while let Some(pod) = pods.next().await? {
            // One that has to go is enough, however many there are.
            if !DrainPlan::of([&pod], ours, |_| false, marker, overlooked).is_done() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn nodes(&self) -> Api<Item<IdentityOnly<Node>>> {
        Api::all(self.client.clone())
    }

    fn shadows(&self) -> Api<Item<IdentityOnly<BottlerocketShadow>>> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn fleets(&self) -> Api<Item<IdentityOnly<BottlerocketFleet>>> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

/// The `resourceVersion` of an object as a number, so that versions can be compared.
pub fn resource_version(metadata: &ObjectMeta) -> Option<u64> {
    metadata.resource_version.as_ref()?.parse().ok()
}

fn written<T>(answer: kube::Result<Item<T>>) -> Outcome {
    created(answer.map(|object| object.metadata))
}

fn created(answer: kube::Result<ObjectMeta>) -> Outcome {
    match answer {
        Ok(metadata) => Outcome::Written(resource_version(&metadata)),
        Err(error) => failure(&error),
    }
}

/// What the API server or a webhook answered, fit for conditions, Events and log lines.
fn message(status: &Status) -> String {
    printable(&status_message(status), MESSAGE_MAX).into_owned()
}

fn failure(error: &Error) -> Outcome {
    match error {
        Error::Api(status) if is_denied(status) => Outcome::Denied(message(status)),
        // 404: gone. 409: it exists already, or has another UID or version. 422 without causes: a `test` of the patch
        // does not hold.
        Error::Api(status) if matches!(status.code, 404 | 409 | 422) => Outcome::Refused(message(status)),
        error => Outcome::Failed(describe(error)),
    }
}

/// Would another version of the object not help? A policy without a reason answers 422, and a webhook any code; unlike a
/// `test` that does not hold, both say why. So does the schema, for example because the term is lower than the ledger's;
/// and the API server if it cannot take back what it has served, such as a time in the year 10000.
fn is_denied(status: &Status) -> bool {
    let causes = status.details.as_ref().is_some_and(|details| !details.causes.is_empty());
    matches!(status.code, 400 | 403 | 413)
        || (status.code == 422 && causes)
        || ((400..500).contains(&status.code) && status.message.contains("denied"))
}

#[cfg(test)]
mod tests;
