//! From the API server to values, and from patches to the API server.

mod leader;

use std::fmt::Debug;

use brupop_api::item::{Readable, Unreadable};
use brupop_api::{BottlerocketFleet, BottlerocketShadow, Item, names};
use brupop_core::objects::{WatchedFleet, WatchedNode};
use brupop_core::pool::Pool;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ListParams, PatchParams};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

use crate::access::Right;
use crate::leads::Leads;
use crate::objects::{Event, readable};
use crate::page::Changed;
use crate::steer::PlannedChange;
use crate::{Error, FIELD_MANAGER};

/// Where Kubernetes keeps Events about objects without a namespace.
const EVENTS_OF_NODES: &str = "default";
/// By whom the reconciler says its Events are.
const REPORTER: &str = "brupop-reconciler";

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
    pub leads: Leads,
}

/// What is known of a node.
#[derive(Clone, Debug)]
pub(crate) struct AboutNode {
    pub namespace: String,
    pub shadow: Option<Item<BottlerocketShadow>>,
    pub fleet: Option<BottlerocketFleet>,
    /// The pools, if the caller may read them.
    pub pools: Vec<Item<Pool>>,
    /// The Node; `Err` = nobody let us look. It is looked for only if there is no shadow.
    pub node: Result<Option<WatchedNode>, String>,
    pub events: Vec<Event>,
    /// What could not be looked at, and why.
    pub notes: Vec<String>,
    pub leads: Leads,
}

/// What has happened to the fleet.
#[derive(Clone, Debug)]
pub(crate) struct Past {
    pub fleet: BottlerocketFleet,
    pub events: Vec<Event>,
    pub notes: Vec<String>,
}

impl OperatorApi {
    /// All objects of a kind in the operator's namespace.
    pub fn ours<T: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<T> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The fleet, shadows and pools.
    pub async fn fleet(&self) -> Result<Fleet, Error> {
        let object = self.fleet_object_if_any().await?.map(|fleet| fleet.object);
        let shadows = list(&self.ours(), ListParams::default()).await?;
        let pools = list(&self.ours(), ListParams::default()).await?;
        Ok(Fleet {
            namespace: self.namespace.clone(),
            object,
            shadows,
            pools,
            leads: self.leads().await,
        })
    }

    /// The fleet.
    pub async fn fleet_object(&self) -> Result<WatchedFleet, Error> {
        let missing = || {
            Error::Missing(format!(
                "fleet in the namespace {}: is the operator there?",
                self.namespace
            ))
        };
        self.fleet_object_if_any().await?.ok_or_else(missing)
    }

    /// The fleet, if there is one.
    ///
    /// # Errors
    /// Also, if there is not even the namespace.
    pub async fn fleet_object_if_any(&self) -> Result<Option<WatchedFleet>, Error> {
        let found = self.read(names::FLEET).await?;
        if found.is_none() {
            let namespaces = Api::<Namespace>::all(self.client.clone());
            // Some people may not look.
            if let Ok(None) = namespaces.get_metadata_opt(&self.namespace).await {
                return Err(Error::Missing(format!("namespace {}", self.namespace)));
            }
        }
        Ok(found)
    }

    /// A node's shadow and recent Events; the Node, if it has no shadow.
    pub async fn about_node(&self, node: &str) -> Result<AboutNode, Error> {
        let shadow_name = names::shadow_name(node);
        let shadow = get(&self.ours(), &shadow_name).await?;
        let found = if shadow.is_some() {
            Ok(None)
        } else {
            self.node(node).await
        };
        let node_seen = match found {
            Err(Error::Forbidden(right)) => Err(Error::Forbidden(right).to_string()),
            other => Ok(other?),
        };
        let fleet = self.fleet_object_if_any().await?.map(|fleet| fleet.object);
        let mut notes = vec![];
        // Others may write Events about these objects, too, and say anything.
        let about = |kind: &str, name: &str| {
            format!(
                "involvedObject.kind={kind},involvedObject.name={name},reportingComponent={REPORTER}"
            )
        };
        let of_shadow = about("BottlerocketShadow", &shadow_name);
        let mut events = self.events(&self.namespace, &of_shadow, &mut notes).await?;
        events.extend(
            self.events(EVENTS_OF_NODES, &about("Node", node), &mut notes)
                .await?,
        );
        let (namespace, leads) = (self.namespace.clone(), self.leads().await);
        // Not everybody may read them.
        let pools = list(&self.ours(), ListParams::default())
            .await
            .unwrap_or_default();
        Ok(AboutNode {
            namespace,
            shadow,
            fleet,
            pools,
            node: node_seen,
            events,
            notes,
            leads,
        })
    }

    /// The node that is meant: people also give the name of its shadow.
    pub async fn node_named(&self, words: &str) -> String {
        match names::node_of_shadow(words) {
            Some(node) if self.shadow(words).await.is_none() => node.to_owned(),
            _ => words.to_owned(),
        }
    }

    /// A node's shadow, if it is there, can be read, and the caller may read it.
    pub async fn shadow(&self, node: &str) -> Option<BottlerocketShadow> {
        let shadows = self.ours::<Item<BottlerocketShadow>>();
        shadows
            .get_opt(&names::shadow_name(node))
            .await
            .ok()??
            .body
            .ok()
    }

    /// The fleet, and the reconciler's Events.
    pub async fn past(&self) -> Result<Past, Error> {
        let fleet = self.fleet_object().await?.object;
        let (by_us, mut notes) = (format!("reportingComponent={REPORTER}"), vec![]);
        let mut events = self.events(&self.namespace, &by_us, &mut notes).await?;
        events.extend(self.events(EVENTS_OF_NODES, &by_us, &mut notes).await?);
        Ok(Past {
            fleet,
            events,
            notes,
        })
    }

    /// The Events that these fields select. A caller who may not read them gets a note, and the rest.
    async fn events(
        &self,
        namespace: &str,
        fields: &str,
        notes: &mut Vec<String>,
    ) -> Result<Vec<Event>, Error> {
        let events = Api::<Item<Event>>::namespaced(self.client.clone(), namespace);
        match list(&events, ListParams::default().fields(fields)).await {
            Ok(events) => Ok(readable(events)),
            Err(Error::Forbidden(right)) => {
                notes.push(Error::Forbidden(right).to_string());
                Ok(vec![])
            }
            Err(error) => Err(error),
        }
    }

    /// The pool of this name.
    pub async fn pool(&self, name: &str) -> Result<Pool, Error> {
        let missing = || Error::Missing(format!("pool {name} in the namespace {}", self.namespace));
        self.read(name).await?.ok_or_else(missing)
    }

    /// All Nodes.
    pub fn nodes(&self) -> Api<WatchedNode> {
        Api::all(self.client.clone())
    }

    /// The Node of this name.
    pub async fn node(&self, name: &str) -> Result<Option<WatchedNode>, Error> {
        get(&self.nodes(), name).await
    }

    /// What is read of our object of this name, if there is one.
    async fn read<T>(&self, name: &str) -> Result<Option<T>, Error>
    where
        T: Readable<Kind: Resource<DynamicType = (), Scope = NamespaceResourceScope>>,
    {
        let found = get(&self.ours::<Item<T>>(), name).await?;
        let unreadable = |why: Unreadable| Error::Unreadable {
            what: named::<T::Kind>(name),
            why: why.to_string(),
        };
        found.map(|item| item.body.map_err(unreadable)).transpose()
    }

    /// Changes an object, if there is anything to change. Says what is so now; and if no reconciler hears of it, that.
    pub async fn change<K>(
        &self,
        api: &Api<K>,
        name: &str,
        PlannedChange { body, mut says }: PlannedChange,
    ) -> Result<Changed, Error>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let changed = body.is_some();
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        if let Some(patch) = body {
            // Nothing is needed of the answer.
            api.patch(name, &params, &patch)
                .await
                .map_err(|error| match error {
                    // A test of the patch, or the UID that it names, is that of what was read.
                    kube::Error::Api(status) if matches!(status.code, 404 | 409 | 422) => {
                        Error::Changed(named::<K>(name))
                    }
                    error => Right::of("patch", api).failed(error),
                })?;
        }
        if let Some(warning) = self.leads().await.warning() {
            says.extend(["; ", &warning]);
        }
        Ok(Changed { changed, says })
    }
}

/// The object of this name in a sentence.
fn named<K: Resource<DynamicType = ()>>(name: &str) -> String {
    match &*K::kind(&()) {
        "BottlerocketFleet" => "the fleet".to_owned(),
        "BottlerocketPool" => format!("the pool {name}"),
        kind => format!("the {kind} {name}"),
    }
}

/// The object of this name, if there is one.
async fn get<K>(api: &Api<K>, name: &str) -> Result<Option<K>, Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    api.get_opt(name)
        .await
        .map_err(|error| Right::of("get", api).failed(error))
}

async fn list<K>(api: &Api<K>, params: ListParams) -> Result<Vec<K>, Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned,
{
    brupop_runtime::list(api, &params)
        .await
        .map_err(|error| Right::of("list", api).failed(error))
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
