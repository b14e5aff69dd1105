//! What is asked of the API server: an [`Operation`] owns its data, has a time-out, and ends in a [`Reply`].

use std::time::Duration;

use brupop_api::crds::MESSAGE_MAX;
use brupop_api::item::IdentityOnly;
use brupop_api::printable::printable;
use brupop_api::{
    BottlerocketFleet, BottlerocketPool, BottlerocketShadow, Item, Marker, Object, names,
};
use brupop_runtime::Listing;
use brupop_runtime::errors::{describe, status_message};
use jiff::Timestamp;
use json_patch::Patch as JsonPatch;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{DynamicObject, Request, Status};
use kube::{Client, Error, Resource as _};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::watches::on_node;
use brupop_core::drain::{DrainPlan, PodKey};
use brupop_core::objects::{PodItem, is_operator_pod};

/// Longest wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for the answer to a change of a Node: the API server needs this long for our policies if its kubelet has
/// given it tens of thousands of labels or annotations.
const NODE_TIMEOUT: Duration = Duration::from_secs(28);

/// What is asked of the API server about one object.
#[derive(Clone, Debug)]
pub enum Operation {
    /// A conditional patch.
    Patch(JsonPatch),
    /// Server-side apply to a status.
    Apply(Value),
    /// The creation of this object.
    Create(Value),
    /// The deletion of an object with this UID and `resourceVersion`: it may have been put to use again since.
    Delete(Preconditions),
    /// Makes sure that a node is drained, and grants its reboot by a conditional patch of the shadow. What changes between
    /// the two is not seen any more.
    Grant(Box<Confirm>, JsonPatch),
}

/// How to make sure that a node is drained: by a fresh list of its pods, and then by a patch that tests that the Node is
/// still cordoned and marked as it was.
#[derive(Clone, Debug)]
pub struct Confirm {
    /// The Node's name.
    pub node: String,
    pub patch: JsonPatch,
    /// The node's marker, which says which of the operator's pods stay; see [`DrainPlan::of`].
    pub marker: Option<Marker>,
    /// Pods that should have been gone by then are not waited for.
    pub overlooked: Option<Timestamp>,
    /// Nor are these.
    pub left: Vec<PodKey>,
}

/// The API server's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Done.
    Written {
        /// The object's new `resourceVersion`, if the answer has one.
        version: Option<u64>,
        /// The new `resourceVersion` of the Node, if a grant has written it, too.
        node: Option<u64>,
    },
    /// The object is gone, as wanted.
    Removed,
    /// The object is not as it was when the call was decided, or is gone. The watch will bring a newer version.
    Refused(String),
    /// A rule, a webhook that does not answer, or the API server itself does not take this change, whatever the version of
    /// the object.
    Denied(String),
    /// It does not take the change of the Node that comes before a grant.
    NodeDenied(String),
    /// A fresh list of the node's pods shows that it is not drained.
    NotConfirmed,
    /// There was no connection, or another error.
    Failed(String),
}

impl Reply {
    /// The word for metrics; a write that changed nothing has another one.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Written { .. } => "written",
            Self::Removed => "removed",
            Self::Refused(_) => "refused",
            Self::Denied(_) | Self::NodeDenied(_) => "denied",
            Self::NotConfirmed => "not-confirmed",
            Self::Failed(_) => "failed",
        }
    }
}

impl Operation {
    /// What would be written, to tell whether it would be the same again; `None` for what always changes something.
    pub fn content(&self) -> Option<Value> {
        match self {
            Self::Patch(patch) | Self::Grant(_, patch) => Some(json!(patch)),
            Self::Apply(status) => Some(status.clone()),
            Self::Create(_) | Self::Delete(_) => None,
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
    pub async fn send(&self, object: &Object<String>, operation: &Operation) -> Reply {
        let longest = match (object, operation) {
            (Object::Node(_), _) | (_, Operation::Grant(..)) => NODE_TIMEOUT,
            _ => TIMEOUT,
        };
        timeout(longest, self.reply(object, operation))
            .await
            .unwrap_or_else(|_| Reply::Denied(format!("no answer within {} s", longest.as_secs())))
    }

    async fn reply(&self, object: &Object<String>, operation: &Operation) -> Reply {
        let node = match operation {
            Operation::Grant(confirm, _) => match self.confirm(confirm).await {
                Reply::Written { version, .. } => version,
                Reply::Denied(why) => return Reply::NodeDenied(why),
                unconfirmed => return unconfirmed,
            },
            _ => None,
        };
        match (self.write(object, operation).await, operation) {
            (Ok(_), Operation::Delete(_)) => Reply::Removed,
            (Err(Error::Api(status)), Operation::Delete(_)) if status.code == 404 => Reply::Removed,
            (answer, _) => written(answer, node),
        }
    }

    /// Makes the one request of this operation; of a grant, the patch of the shadow.
    async fn write(
        &self,
        object: &Object<String>,
        operation: &Operation,
    ) -> kube::Result<Answered> {
        let ours = Some(self.namespace.as_str());
        let status = Some("status");
        let (path, name, subresource) = match object {
            Object::Node(name) => (Node::url_path(&(), None), name.as_str(), None),
            Object::ShadowSpec(name) => {
                (BottlerocketShadow::url_path(&(), ours), name.as_str(), None)
            }
            Object::ShadowStatus(name) => (
                BottlerocketShadow::url_path(&(), ours),
                name.as_str(),
                status,
            ),
            Object::Ledger | Object::FleetStatus => {
                (BottlerocketFleet::url_path(&(), ours), names::FLEET, status)
            }
            Object::PoolStatus(name) => {
                (BottlerocketPool::url_path(&(), ours), name.as_str(), status)
            }
        };
        let request = Request::new(path);
        let patched = |params: &PatchParams, patch: &Patch<&Value>| match subresource {
            Some(subresource) => request.patch_subresource(subresource, name, params, patch),
            None => request.patch(name, params, patch),
        };
        let request = match operation {
            Operation::Patch(json) | Operation::Grant(_, json) => {
                patched(&PatchParams::default(), &Patch::Json(json.clone()))
            }
            Operation::Apply(status) => patched(
                &PatchParams::apply(names::CONDITIONS_MANAGER).force(),
                &Patch::Apply(status),
            ),
            Operation::Create(new) => {
                request.create(&PostParams::default(), new.to_string().into_bytes())
            }
            Operation::Delete(preconditions) => request.delete(
                name,
                &DeleteParams::default().preconditions(preconditions.clone()),
            ),
        };
        self.client
            .request(request.map_err(Error::BuildRequest)?)
            .await
    }

    /// Makes sure that the node is drained; it is if the patch is [`Reply::Written`].
    async fn confirm(&self, confirm: &Confirm) -> Reply {
        match self.is_drained(confirm).await {
            Ok(true) => {
                let patch = Operation::Patch(confirm.patch.clone());
                let node = Object::Node(confirm.node.clone());
                written(self.write(&node, &patch).await, None)
            }
            Ok(false) => Reply::NotConfirmed,
            // Nothing was to be changed.
            Err(error) => Reply::Failed(describe(&error)),
        }
    }

    async fn is_drained(&self, confirm: &Confirm) -> kube::Result<bool> {
        let ours = |pod: &PodItem| is_operator_pod(pod, &self.namespace);
        let (all, marker) = (
            Api::<PodItem>::all(self.client.clone()),
            confirm.marker.as_ref(),
        );
        let mut pods = Listing::begin(&all, &on_node(&confirm.node)).await?;
        while let Some(pod) = pods.next().await? {
            let is_left = confirm.left.iter().any(|left| left.uid == pod.uid());
            let must_go = || !DrainPlan::of([&pod], ours, marker, confirm.overlooked).is_done();
            // One that has to go is enough, however many there are.
            if !is_left && must_go() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// An object as it was answered, or the [`Status`] of one that is deleted.
type Answered = Item<IdentityOnly<DynamicObject>>;

/// The `resourceVersion` of an object as a number, so that versions can be compared.
pub fn resource_version(metadata: &ObjectMeta) -> Option<u64> {
    metadata.resource_version.as_ref()?.parse().ok()
}

fn written(answer: kube::Result<Answered>, node: Option<u64>) -> Reply {
    match answer {
        Ok(object) => Reply::Written {
            version: resource_version(&object.metadata),
            node,
        },
        Err(error) => failure(&error),
    }
}

/// What the API server or a webhook answered, fit for conditions, Events and log lines.
fn message(status: &Status) -> String {
    printable(&status_message(status), MESSAGE_MAX).into_owned()
}

fn failure(error: &Error) -> Reply {
    match error {
        Error::Api(status) if is_denied(status) => Reply::Denied(message(status)),
        // 404: gone. 409: it exists already, or has another UID or version. 422 without causes: a `test` of the patch
        // does not hold.
        Error::Api(status) if matches!(status.code, 404 | 409 | 422) => {
            Reply::Refused(message(status))
        }
        error => Reply::Failed(describe(error)),
    }
}

/// Whether another version of the object would not help. An API server whose webhook does not answer says 500. A policy without a
/// reason answers 422, and a webhook any code; unlike a `test` that does not hold, both say why. So does the schema, for example
/// because the term is lower than the ledger's; and the API server if it cannot take back what it has served, such as a time in
/// the year 10000.
fn is_denied(status: &Status) -> bool {
    let causes = status
        .details
        .as_ref()
        .is_some_and(|details| !details.causes.is_empty());
    matches!(status.code, 400 | 403 | 413 | 500..600)
        || (status.code == 422 && causes)
        || ((400..500).contains(&status.code) && status.message.contains("denied"))
}

#[cfg(test)]
mod tests;
