//! From the API server to values, and from patches to the API server.

use std::fmt::Debug;

use brupop_api::crds::MESSAGE_MAX;
use brupop_api::item::Readable;
use brupop_api::names::{UPDATER_INTERFACE_LABEL, UPDATER_INTERFACE_VERSION};
use brupop_api::{BottlerocketFleet, BottlerocketShadow, Item, names};
use brupop_core::objects::{LeaseRecord, NodeFacts, WatchedFleet};
use brupop_core::pool::Pool;
use brupop_runtime::errors::describe;
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

use crate::access::Right;
use crate::error::Error;
use crate::event::Event;
use crate::leads::Leads;
use crate::operator::{self, OperatorPod};
use crate::page::Changed;
use crate::steer::PlannedChange;
use crate::words::{self, shown};

/// The namespace of Events about cluster-scoped objects.
const EVENTS_OF_NODES: &str = "default";
/// The reporter in the reconciler's Events.
const REPORTER: &str = "brupop-reconciler";
/// Field manager of what this program writes. Flux removes from objects in Git what managers have written whose names begin
/// with `kubectl`, so a pause would hold until its next sync.
const FIELD_MANAGER: &str = "brupop-cli";

/// The API server, and the namespace of the operator there.
pub(crate) struct OperatorApi {
    pub client: Client,
    pub namespace: String,
}

/// The fleet as it is now.
#[derive(Clone, Debug)]
pub(crate) struct Fleet {
    pub namespace: String,
    pub object: Option<BottlerocketFleet>,
    pub shadows: Vec<Item<BottlerocketShadow>>,
    pub pools: Vec<Item<Pool>>,
    pub around: Around,
}

/// Facts that are read again and again, not watched: they change often, or few people may watch them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Around {
    pub leads: Leads,
    /// Pods of the operator that do not start, in sentences.
    pub not_started: Vec<String>,
    /// Opted-in Nodes that are cordoned; `None` = the caller may not look.
    pub cordoned: Option<Vec<String>>,
}

/// Objects and Events about a node.
#[derive(Clone, Debug)]
pub(crate) struct AboutNode {
    pub namespace: String,
    pub shadow: Option<BottlerocketShadow>,
    pub fleet: Option<BottlerocketFleet>,
    /// The pools, if the caller may read them.
    pub pools: Vec<Item<Pool>>,
    /// The Node; `Err` = nobody let us look. It is looked for only if there is no shadow.
    pub node: Result<Option<NodeFacts>, String>,
    pub events: Vec<Event>,
    /// Parts that could not be read, with reasons.
    pub notes: Vec<String>,
    pub leads: Leads,
}

impl OperatorApi {
    /// All objects of a kind in the operator's namespace.
    pub fn ours<T: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<T> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn nodes(&self) -> Api<Item<NodeFacts>> {
        Api::all(self.client.clone())
    }

    /// Reads the fleet, shadows and pools.
    pub async fn fleet(&self) -> Result<Fleet, Error> {
        let object = self.fleet_object_if_any().await?.map(|fleet| fleet.object);
        Ok(Fleet {
            namespace: self.namespace.clone(),
            object,
            shadows: list(&self.ours(), "").await?,
            pools: list(&self.ours(), "").await?,
            around: self.around().await,
        })
    }

    /// Reads what is not watched, as far as the caller may.
    pub async fn around(&self) -> Around {
        let opted_in = [UPDATER_INTERFACE_LABEL, UPDATER_INTERFACE_VERSION].join("=");
        let params = ListParams::default().labels(&opted_in);
        let params = params.fields("spec.unschedulable=true");
        Around {
            leads: self.leads().await,
            not_started: operator::not_started(&self.operator_pods().await),
            cordoned: self.node_names(&params).await.ok(),
        }
    }

    /// Reads the pods of the reconciler and the webhook, as far as the caller may.
    pub async fn operator_pods(&self) -> Vec<Item<OperatorPod>> {
        let params = ListParams::default().labels(operator::PODS);
        let pods = self.ours::<Item<OperatorPod>>().list(&params).await;
        pods.map(|pods| pods.items).unwrap_or_default()
    }

    pub async fn fleet_object(&self) -> Result<WatchedFleet, Error> {
        let namespace = &self.namespace;
        let what = format!("fleet in the namespace {namespace}: is the operator there?");
        let found = self.fleet_object_if_any().await?;
        found.ok_or(Error::Missing(what))
    }

    /// Reads the fleet, if there is one.
    ///
    /// # Errors
    /// Also, if the operator is elsewhere, or there is not even the namespace.
    pub async fn fleet_object_if_any(&self) -> Result<Option<WatchedFleet>, Error> {
        if let Some(found) = self.read(names::FLEET).await? {
            return Ok(Some(found));
        }
        // Some people may not look.
        let all = Api::<BottlerocketFleet>::all(self.client.clone());
        let all = all.list_metadata(&ListParams::default()).await;
        let elsewhere = all.ok().and_then(|all| all.items.into_iter().next());
        if let Some(place) = elsewhere.and_then(|fleet| fleet.metadata.namespace) {
            return Err(Error::Elsewhere(
                self.namespace.clone(),
                words::name(&place),
            ));
        }
        let namespaces = Api::<Namespace>::all(self.client.clone());
        if let Ok(None) = namespaces.get_metadata_opt(&self.namespace).await {
            return Err(Error::Missing(format!("namespace {}", self.namespace)));
        }
        Ok(None)
    }

    /// Reads the pool of this name.
    pub async fn pool(&self, name: &str) -> Result<Pool, Error> {
        let missing = || Error::Missing(format!("pool {name} in the namespace {}", self.namespace));
        self.read(name).await?.ok_or_else(missing)
    }

    /// Returns the names of the Nodes that this selector selects.
    pub async fn selected_nodes(&self, selector: &str) -> Result<Vec<String>, Error> {
        let params = ListParams::default().labels(selector);
        let names = self.node_names(&params).await?;
        if names.is_empty() {
            return Err(Error::Missing(format!("Node with the labels {selector}")));
        }
        Ok(names)
    }

    async fn node_names(&self, params: &ListParams) -> Result<Vec<String>, Error> {
        let nodes = self.nodes();
        let found = nodes.list(params).await;
        let found = found.map_err(|error| Right::of("list", &nodes).failed(error))?;
        Ok(found.iter().map(|item| item.name().to_owned()).collect())
    }

    /// Reads a node's shadow and recent Events; the Node, if it has no shadow.
    pub async fn about_node(&self, node: &str) -> Result<AboutNode, Error> {
        let shadow_name = names::shadow_name(node);
        let shadow = self.read(&shadow_name).await?;
        let found = match &shadow {
            Some(_) => Ok(None),
            None => get(&self.nodes(), node).await,
        };
        let found = match found {
            Err(forbidden @ Error::Forbidden(_)) => Err(forbidden.to_string()),
            other => Ok(other?.map(NodeFacts::from)),
        };
        let (events, notes) = self.events(Some(node)).await?;
        Ok(AboutNode {
            namespace: self.namespace.clone(),
            shadow,
            fleet: self.fleet_object_if_any().await?.map(|fleet| fleet.object),
            pools: list(&self.ours(), "").await.unwrap_or_default(),
            node: found,
            events,
            notes,
            leads: self.leads().await,
        })
    }

    /// Returns the name of the node that is meant: people also give the name of its shadow.
    pub async fn node_named(&self, words: &str) -> String {
        match names::node_of_shadow(words) {
            Some(node) if self.shadow(words).await.is_none() => node.to_owned(),
            _ => words.to_owned(),
        }
    }

    /// Reads a node's shadow, if it is there, can be read, and the caller may read it.
    pub async fn shadow(&self, node: &str) -> Option<BottlerocketShadow> {
        self.read(&names::shadow_name(node)).await.ok()?
    }

    /// Reads the reconciler's recent Events about this node, or all. They are about the Node, or about its shadow while there is
    /// no Node. Others may write Events about our objects, too, and say anything. A caller who may not read them gets a note.
    pub async fn events(&self, node: Option<&str>) -> Result<(Vec<Event>, Vec<String>), Error> {
        let (mut events, mut notes) = (vec![], vec![]);
        let shadow = node.map(names::shadow_name);
        for (namespace, kind, name) in [
            (EVENTS_OF_NODES, "=Node", node),
            (&*self.namespace, "!=Node", shadow.as_deref()),
        ] {
            let name = name.map(|name| format!(",involvedObject.name={name}"));
            let fields = format!(
                "reportingComponent={REPORTER},involvedObject.kind{kind}{}",
                name.unwrap_or_default()
            );
            let api = Api::<Item<Event>>::namespaced(self.client.clone(), namespace);
            match list(&api, &fields).await {
                Ok(found) => events.extend(found.into_iter().filter_map(|item| item.body.ok())),
                Err(forbidden @ Error::Forbidden(_)) => notes.push(forbidden.to_string()),
                Err(error) => return Err(error),
            }
        }
        Ok((events, notes))
    }

    /// Says whether a reconciler leads. Whatever else was asked for is answered all the same.
    pub async fn leads(&self) -> Leads {
        match self.read::<LeaseRecord>(names::LEASE).await {
            Ok(lease) => Leads::of(lease.as_ref(), Timestamp::now()),
            Err(error) => Leads::NotKnown(shown(&describe(&error), MESSAGE_MAX)),
        }
    }

    /// Reads our object of this name, if there is one.
    pub async fn read<T>(&self, name: &str) -> Result<Option<T>, Error>
    where
        T: Readable<Kind: Resource<DynamicType = (), Scope = NamespaceResourceScope>>,
    {
        let found = get(&self.ours::<Item<T>>(), name).await?;
        found.map(body).transpose()
    }

    /// Changes an object, if there is anything to change. Says how things are now; and if no reconciler hears of it, that.
    pub async fn change<K>(
        &self,
        api: &Api<K>,
        name: &str,
        PlannedChange { patch, mut says }: PlannedChange,
    ) -> Result<Changed, Error>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let changed = patch.is_some();
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        if let Some(patch) = patch {
            let failed = |error| match error {
                // The UID or resource version in the patch is that of what was read.
                kube::Error::Api(status) if matches!(status.code, 404 | 409 | 422) => {
                    Error::Changed(named::<K>(name))
                }
                error => Right::of("patch", api).failed(error),
            };
            // Nothing is needed of the answer.
            api.patch(name, &params, &Patch::Merge(patch))
                .await
                .map_err(failed)?;
        }
        if let Some(warning) = self.leads().await.warning() {
            says.extend(["; ", &warning]);
        }
        Ok(Changed { changed, says })
    }
}

/// Returns what was read of the object.
pub(crate) fn body<T: Readable<Kind: Resource<DynamicType = ()>>>(
    item: Item<T>,
) -> Result<T, Error> {
    let what = named::<T::Kind>(item.name());
    item.body.map_err(|why| Error::Unreadable(what, why))
}

/// Returns the object of this name in a sentence.
fn named<K: Resource<DynamicType = ()>>(name: &str) -> String {
    match &*K::kind(&()) {
        "BottlerocketFleet" => "the fleet".to_owned(),
        "BottlerocketPool" => format!("the pool {}", words::name(name)),
        "BottlerocketShadow" => format!("the shadow {}", words::name(name)),
        kind => format!("the {kind} {}", words::name(name)),
    }
}

/// Reads the object of this name, if there is one.
pub(crate) async fn get<K>(api: &Api<K>, name: &str) -> Result<Option<K>, Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let found = api.get_opt(name).await;
    found.map_err(|error| Right::of("get", api).failed(error))
}

/// Reads all objects that these fields select.
pub(crate) async fn list<K>(api: &Api<K>, fields: &str) -> Result<Vec<K>, Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let found = api.list(&ListParams::default().fields(fields)).await;
    let found = found.map(|found| found.items);
    found.map_err(|error| Right::of("list", api).failed(error))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    impl OperatorApi {
        /// An API server that answers so to requests with this path; every other answer has code 404.
        pub(crate) fn answering(
            body: impl Fn(&str) -> Option<serde_json::Value> + Clone + Send + 'static,
        ) -> Self {
            Self::coded(move |path| body(path).map_or((404, json!(null)), |body| (200, body)))
        }

        fn coded(
            answer: impl Fn(&str) -> (u16, serde_json::Value) + Clone + Send + 'static,
        ) -> Self {
            let service = tower::service_fn(move |request: Request<Body>| {
                let (code, body) = answer(request.uri().path());
                let reason = if code == 404 { "NotFound" } else { "Forbidden" };
                let failure =
                    json!({"status": "Failure", "reason": reason, "code": code, "message": "no"});
                let body = if code == 200 { body } else { failure };
                let answer = Response::builder()
                    .status(code)
                    .body(Body::from(body.to_string().into_bytes()));
                async move { Ok::<_, Infallible>(answer.unwrap()) }
            });
            Self {
                client: Client::new(service, "ns"),
                namespace: "ns".to_owned(),
            }
        }
    }

    /// An API server on which this object is all there is; every other answer has this code.
    fn only(path: &'static str, otherwise: u16) -> OperatorApi {
        OperatorApi::coded(move |asked| match asked {
            _ if asked == path => (200, json!({"metadata": {"name": "of-this-name"}})),
            _ if asked.starts_with("/api/") => (otherwise, json!(null)),
            _ => (404, json!(null)),
        })
    }

    #[tokio::test]
    async fn objects_with_unreadable_times_are_found() {
        let server = OperatorApi::answering(|_| {
            let fields = json!([{"manager": "kubelet", "time": "10000-01-01T23:58:59Z"}]);
            let metadata = json!({"name": "poisoned", "managedFields": fields});
            Some(json!({"metadata": {}, "items": [
                {"metadata": {"name": "sound"}, "spec": {"containers": []}},
                {"metadata": metadata, "spec": {"containers": []}},
            ]}))
        });
        let nodes = server.selected_nodes("a=b").await.unwrap();
        assert_eq!(nodes, ["sound", "poisoned"]);
        assert_eq!(server.around().await.cordoned, Some(nodes));
        let pods = server.operator_pods().await;
        let read: Vec<_> = pods
            .iter()
            .map(|pod| (pod.name(), pod.ok().is_some()))
            .collect();
        assert_eq!(read, [("sound", true), ("poisoned", true)]);
    }

    #[tokio::test]
    async fn a_namespace_that_is_not_there_is_an_error() {
        let fleet = async |server: OperatorApi| {
            server
                .fleet_object_if_any()
                .await
                .map(|found| found.is_some())
        };
        let missing = fleet(only("/", 404)).await.unwrap_err().to_string();
        assert_eq!(missing, "there is no namespace ns");
        assert!(
            !fleet(only("/api/v1/namespaces/ns", 404)).await.unwrap(),
            "nothing is in it"
        );
        assert!(!fleet(only("/", 403)).await.unwrap(), "nobody lets us look");
    }
}
