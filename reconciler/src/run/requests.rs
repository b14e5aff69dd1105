//! Requests to the API server about one object, and their outcomes.

use std::borrow::Cow;
use std::time::Duration;

use brupop_api::crds::MESSAGE_MAX;
use brupop_api::printable::printable;
use brupop_api::{
    BottlerocketFleet, BottlerocketFleetSpec, BottlerocketPool, BottlerocketShadow, Marker, Object,
    Write, names,
};
use brupop_core::cluster::Cluster;
use brupop_core::decide::{Reason, Step, drained, new_shadow};
use brupop_core::drain::{DrainPlan, PodKey};
use brupop_core::facts::{FleetFacts, NodeView};
use brupop_core::objects::{NodeFacts, PodItem, is_operator_pod};
use brupop_core::status::{self, Ended, EventText};
use brupop_runtime::errors::{describe, status_message};
use brupop_runtime::{Listing, named};
use jiff::Timestamp;
use json_patch::Patch as JsonPatch;
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{Request as HttpRequest, Status};
use kube::{Client, Error, Resource as _};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::run::Reconciler;
use crate::run::{Pass, Wake};
use crate::watches::on_node;

/// Longest wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for the answer to a change of a Node: the API server needs this long for our policies if its kubelet has
/// given it tens of thousands of labels or annotations.
const NODE_TIMEOUT: Duration = Duration::from_secs(28);

/// The most requests that are under way at once. A request that has no room is decided again when another one is answered.
const MAX_REQUESTS: usize = 32;
/// Conditions may be sent only below this number, so that they never crowd out real work.
const MAX_REQUESTS_BEFORE_CONDITION: usize = 24;

/// A request about one object, with what is needed when its answer comes.
#[derive(Clone, Debug)]
pub struct Request {
    pub object: Object<String>,
    pub body: Body,
    /// The `resourceVersion` of the object that it was decided on.
    pub seen: Option<u64>,
    /// The term that it writes: this process leads once it succeeds.
    pub term: Option<u64>,
    pub context: Context,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// The object as it is.
    Read,
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

/// A check that a node is drained: by a fresh list of its pods, and then by a patch that tests that the Node is
/// still cordoned and marked as it was.
#[derive(Clone, Debug, PartialEq)]
pub struct Confirm {
    pub node: String,
    /// The Node's `resourceVersion` that this was decided on.
    pub seen: Option<u64>,
    pub patch: JsonPatch,
    /// The node's marker, which says which of the operator's pods stay; see [`DrainPlan::of`].
    pub marker: Option<Marker>,
    /// Pods that should have been gone by then are not waited for.
    pub overlooked: Option<Timestamp>,
    pub left: Vec<PodKey>,
}

/// The node of a request, for logs, and the Event to publish once the request succeeds.
#[derive(Clone, Debug, Default)]
pub struct Context {
    pub node: String,
    pub version: String,
    pub state: &'static str,
    pub reason: &'static str,
    pub event: Option<EventText>,
    /// The object on which the Event is published.
    pub about: Option<ObjectReference>,
    /// The phase or update that ends once the request succeeds.
    pub ended: Vec<Ended>,
    /// It opts the node in.
    pub opts_in: bool,
}

#[derive(Debug)]
pub struct Answer {
    pub outcome: Outcome,
    /// The objects that it shows, which may also be the Node of a grant.
    pub objects: Vec<Shown>,
}

/// An object as an answer shows it.
#[derive(Debug)]
pub struct Shown {
    pub object: Object<String>,
    /// The `resourceVersion` that the request was decided on.
    pub seen: Option<u64>,
    /// The object; `None` if it is gone.
    pub json: Option<Box<RawValue>>,
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Written,
    /// The object is gone, as wanted.
    Removed,
    Read,
    /// The object is not as it was when the request was decided, or is gone. The watch will bring a newer version.
    Refused(String),
    /// A rule, a webhook that does not answer, or the API server itself does not take this change of this object, whatever its
    /// version. The object of a grant may be the Node.
    Denied(Object<String>, String),
    /// A fresh list of the node's pods shows that it is not drained.
    NotConfirmed,
    /// There was no connection, or another error.
    Failed(String),
}

impl Outcome {
    /// The word for metrics; a write that changed nothing has another one.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Removed => "removed",
            Self::Read => "read",
            Self::Refused(_) => "refused",
            Self::Denied(..) => "denied",
            Self::NotConfirmed => "not-confirmed",
            Self::Failed(_) => "failed",
        }
    }
}

impl Context {
    /// The context of a request for one node.
    pub fn of(
        cluster: &Cluster,
        view: &NodeView<'_>,
        reason: &'static str,
        event: Option<EventText>,
    ) -> Self {
        let name = view.shadow_name;
        let on_node = cluster.node(name).map(|node| node.object_ref());
        let on_shadow = || Some(cluster.shadow(name)?.object_ref(&()));
        let spec = view.shadow.map(|shadow| shadow.spec);
        let version = spec.as_ref().and_then(|spec| spec.version.as_deref());
        Self {
            node: names::node_of_shadow(name).unwrap_or(name).to_owned(),
            version: version.unwrap_or_default().to_owned(),
            state: spec.map_or("", |spec| spec.state.as_str()),
            reason,
            event,
            about: on_node.or_else(on_shadow),
            ..Self::default()
        }
    }

    fn of_fleet(cluster: &Cluster, event: Option<EventText>) -> Self {
        Self {
            reason: event.as_ref().map_or("", |event| event.reason),
            event,
            about: cluster.fleet().map(|fleet| fleet.object.object_ref(&())),
            ..Self::default()
        }
    }
}

impl Request {
    /// A request about this object, as it is known.
    pub fn new(cluster: &Cluster, object: Object<String>, body: Body, context: Context) -> Self {
        Self {
            seen: cluster.version(&object),
            object,
            body,
            term: None,
            context,
        }
    }

    pub fn create_fleet(cluster: &Cluster) -> Self {
        let fleet = BottlerocketFleet::new(names::FLEET, BottlerocketFleetSpec::default());
        let body = Body::Create(json!(fleet));
        Self::new(cluster, Object::Ledger, body, Context::default())
    }

    /// A write to the ledger, and the Event to publish once it is made.
    pub fn to_ledger(
        cluster: &Cluster,
        write: &Write<'_>,
        event: Option<EventText>,
    ) -> Option<Self> {
        let context = Context::of_fleet(cluster, event);
        let body = Body::Patch(patch(cluster, write)?);
        Some(Self::new(cluster, Object::Ledger, body, context))
    }

    /// A step of one node; `None` for evictions, which are many, and for what was not read.
    pub fn of_step(
        cluster: &Cluster,
        view: &NodeView<'_>,
        step: Step<'_>,
        reason: &Reason<'_>,
        fleet: &FleetFacts<'_>,
    ) -> Option<Self> {
        let body = body(cluster, view, step, fleet)?;
        let object = match view.node.filter(|_| step.changes_node()) {
            Some(node) => Object::Node(node.name()),
            None => Object::ShadowSpec(view.shadow_name),
        };
        let event = EventText::of_step(view, step);
        let mut context = Context::of(cluster, view, reason.as_str(), event);
        if step == Step::DeleteShadow && view.is_removed_after_update() {
            // Nobody looks at the Events of objects that are gone.
            context.about = Context::of_fleet(cluster, None).about;
        }
        context.ended = status::ended_by(cluster, fleet, view, step);
        Some(Self::new(cluster, object.owned(), body, context))
    }

    pub fn opt_in(cluster: &Cluster, node: &NodeFacts, write: &Write<'_>) -> Option<Self> {
        let event = EventText::of_opt_in(&node.name);
        let context = Context {
            node: node.name.clone(),
            reason: event.reason,
            event: Some(event),
            about: Some(node.object_ref()),
            opts_in: true,
            ..Context::default()
        };
        let body = Body::Patch(patch(cluster, write)?);
        Some(Self::new(cluster, write.object.owned(), body, context))
    }
}

/// Returns what this step asks of the API server; `None` if it is asked elsewhere, or its object was not read.
fn body(
    cluster: &Cluster,
    view: &NodeView<'_>,
    step: Step<'_>,
    fleet: &FleetFacts<'_>,
) -> Option<Body> {
    Some(match step {
        Step::Grant => {
            let (node, plan) = (view.node?, view.led.plan.as_ref()?);
            let confirm = drained(fleet, node);
            let confirm = Confirm {
                node: node.name().to_owned(),
                seen: cluster.version(&confirm.object.owned()),
                patch: patch(cluster, &confirm)?,
                marker: node.marker().cloned(),
                overlooked: plan.overlooked,
                left: plan.left.clone(),
            };
            Body::Grant(
                Box::new(confirm),
                patch(cluster, &step.write(fleet, view)?)?,
            )
        }
        Step::CreateShadow { attempt } => {
            let (node, uid) = (view.node?.name(), view.node?.uid.as_str());
            let shadow = new_shadow(node, uid, attempt, fleet.term, fleet.now);
            Body::Create(json!(shadow))
        }
        Step::DeleteShadow => {
            let shadow = cluster.shadow(view.shadow_name)?;
            Body::Delete(Preconditions {
                uid: Some(shadow.metadata.uid.clone()?),
                resource_version: Some(shadow.metadata.resource_version.clone()?),
            })
        }
        _ => Body::Patch(patch(cluster, &step.write(fleet, view)?)?),
    })
}

/// Returns the patch for a write to an object, as it was read; `None` if it was not read.
fn patch(cluster: &Cluster, write: &Write<'_>) -> Option<JsonPatch> {
    static NOTHING: Value = Value::Null;
    let read = match write.object {
        // The type knows every field that a patch quotes, and absent is as good as null to the API server.
        Object::ShadowSpec(name) => Cow::Owned(json!(cluster.shadow(name)?)),
        Object::Node(name) => Cow::Owned(cluster.node(&names::shadow_name(name))?.quoted()),
        Object::Ledger => Cow::Borrowed(cluster.fleet().map_or(&NOTHING, |fleet| &fleet.quoted)),
        // The reconciler writes no other status by conditional patches.
        _ => return None,
    };
    Some(write.patch(&read))
}

/// A list of at most one object.
#[derive(Deserialize)]
struct List {
    items: Vec<Box<RawValue>>,
}

impl Reconciler {
    /// Whether a request about this object may be sent now. If not, the pass notes when it may.
    pub(crate) fn is_ready(
        &mut self,
        cluster: &Cluster,
        object: &Object<String>,
        wake: &mut Wake,
    ) -> bool {
        let now = self.now();
        let sent = self.leading.requests.of(object);
        let due = sent.due(cluster.version(object));
        let is_due = due.is_some_and(|due| due <= now);
        if !is_due {
            wake.by(due);
        }
        is_due
    }

    /// Whether one more condition may be under way.
    pub(crate) fn has_room_for_conditions(&self) -> bool {
        self.leading.under_way.len() < MAX_REQUESTS_BEFORE_CONDITION
    }

    /// Sends a request, if none about its object is under way, and there is room for it.
    pub(crate) fn send(&mut self, pass: &mut Pass<'_>, request: Request) {
        let has_room = match request.object {
            Object::ShadowStatus(_) | Object::PoolStatus(_) => self.has_room_for_conditions(),
            _ => self.leading.under_way.len() < MAX_REQUESTS,
        };
        if !has_room || !self.is_ready(pass.cluster, &request.object, &mut pass.wake) {
            return;
        }
        self.leading.requests.of(&request.object).begin();
        let api = self.api.clone();
        let answered = async move { (api.send(&request).await, request) };
        self.start(answered, |this, (answer, request)| {
            this.answered(request, answer);
        });
    }
}

#[derive(Clone)]
pub struct ApiServer {
    /// A client that does not retry by itself.
    pub client: Client,
    pub namespace: String,
    /// The node that this process runs on, if it is known.
    pub own_node: Option<String>,
}

impl ApiServer {
    pub async fn send(&self, request: &Request) -> Answer {
        let longest = match (&request.object, &request.body) {
            (Object::Node(_), _) | (_, Body::Grant(..)) => NODE_TIMEOUT,
            _ => TIMEOUT,
        };
        let answer = timeout(longest, self.answer(request)).await;
        answer.unwrap_or_else(|_| {
            let why = format!("no answer within {} s", longest.as_secs());
            Answer {
                outcome: Outcome::Denied(request.object.clone(), why),
                objects: vec![],
            }
        })
    }

    async fn answer(&self, request: &Request) -> Answer {
        let (object, body) = (&request.object, &request.body);
        let mut objects = vec![];
        if let Err(outcome) = self.confirm(body, &mut objects).await {
            return Answer { outcome, objects };
        }
        let answer = match body {
            Body::Read => {
                let list = self.make::<List>(object, body).await;
                list.map(|mut list| (Outcome::Read, list.items.pop()))
            }
            Body::Delete(_) => match self.make::<IgnoredAny>(object, body).await {
                Err(Error::Api(status)) if status.code == 404 => Ok((Outcome::Removed, None)),
                answer => answer.map(|_| (Outcome::Removed, None)),
            },
            _ => {
                let json = self.make(object, body).await;
                json.map(|json| (Outcome::Written, Some(json)))
            }
        };
        let outcome = match answer {
            Ok((outcome, json)) => {
                let (object, seen) = (object.clone(), request.seen);
                objects.push(Shown { object, seen, json });
                outcome
            }
            Err(error) => failure(object, &error),
        };
        Answer { outcome, objects }
    }

    /// Makes the one request of this body; of a grant, the patch of the shadow. Reads by a list of one, for there is no right to
    /// get an object.
    async fn make<T>(&self, object: &Object<String>, body: &Body) -> kube::Result<T>
    where
        T: DeserializeOwned,
    {
        let ours = Some(self.namespace.as_str());
        let (path, name) = match object {
            Object::Node(name) => (Node::url_path(&(), None), name.as_str()),
            Object::ShadowSpec(name) | Object::ShadowStatus(name) => {
                (BottlerocketShadow::url_path(&(), ours), name.as_str())
            }
            Object::PoolStatus(name) => (BottlerocketPool::url_path(&(), ours), name.as_str()),
            Object::Ledger | Object::FleetStatus => {
                (BottlerocketFleet::url_path(&(), ours), names::FLEET)
            }
        };
        let request = HttpRequest::new(path);
        let patched = |params: &PatchParams, patch: &Patch<&Value>| match object {
            Object::Node(_) | Object::ShadowSpec(_) => request.patch(name, params, patch),
            _ => request.patch_subresource("status", name, params, patch),
        };
        let request = match body {
            Body::Read => request.list(&named(name)),
            Body::Patch(json) | Body::Grant(_, json) => {
                patched(&PatchParams::default(), &Patch::Json(json.clone()))
            }
            Body::Apply(status) => {
                let params = PatchParams::apply(names::CONDITIONS_MANAGER).force();
                patched(&params, &Patch::Apply(status))
            }
            Body::Create(new) => {
                request.create(&PostParams::default(), new.to_string().into_bytes())
            }
            Body::Delete(preconditions) => {
                let params = DeleteParams::default().preconditions(preconditions.clone());
                request.delete(name, &params)
            }
        };
        let request = request.map_err(Error::BuildRequest)?;
        self.client.request(request).await
    }

    /// Makes sure, before a grant, that the node is drained, and adds the Node as it is then. `Err` says what came of it if not.
    async fn confirm(&self, body: &Body, objects: &mut Vec<Shown>) -> Result<(), Outcome> {
        let Body::Grant(confirm, _) = body else {
            return Ok(());
        };
        match self.is_drained(confirm).await {
            Ok(true) => {}
            Ok(false) => return Err(Outcome::NotConfirmed),
            // Nothing was to be changed.
            Err(error) => return Err(Outcome::Failed(describe(&error))),
        }
        let object = Object::Node(confirm.node.clone());
        let patch = Body::Patch(confirm.patch.clone());
        let json = self.make(&object, &patch).await;
        let json = Some(json.map_err(|error| failure(&object, &error))?);
        let seen = confirm.seen;
        objects.push(Shown { object, seen, json });
        Ok(())
    }

    async fn is_drained(&self, confirm: &Confirm) -> kube::Result<bool> {
        let ours = |pod: &PodItem| is_operator_pod(pod, &self.namespace);
        let marker = confirm.marker.as_ref();
        let all = Api::<PodItem>::all(self.client.clone());
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

fn failure(object: &Object<String>, error: &Error) -> Outcome {
    // An answer of the API server or a webhook, fit for conditions, Events and log lines.
    let message = |status: &Status| printable(&status_message(status), MESSAGE_MAX).into_owned();
    match error {
        Error::Api(status) if is_denied(status) => Outcome::Denied(object.clone(), message(status)),
        // 404: gone. 409: it exists already, or has another UID or version. 422 without causes: a `test` of the patch
        // does not hold.
        Error::Api(status) if matches!(status.code, 404 | 409 | 422) => {
            Outcome::Refused(message(status))
        }
        error => Outcome::Failed(describe(error)),
    }
}

/// Whether another version of the object would not help. An API server whose webhook does not answer says 500. A policy without a
/// reason answers 422, and a webhook any code; unlike a `test` that does not hold, both say why. So does the schema, for example
/// because the term is lower than the ledger's; and the API server if it cannot take back what it has served, such as a time in
/// the year 10000.
fn is_denied(status: &Status) -> bool {
    let details = status.details.as_ref();
    let has_causes = details.is_some_and(|details| !details.causes.is_empty());
    matches!(status.code, 400 | 403 | 413 | 500..600)
        || (status.code == 422 && has_causes)
        || ((400..500).contains(&status.code) && status.message.contains("denied"))
}

#[cfg(test)]
mod tests;
