//! Real tokens of everybody who plays a part in the table: of pods, of accounts alone, and of what is gone.

use crate::raw;
use anyhow::{Context as _, Result};
use brupop_admission_cases::{Actor, Node, World};
use brupop_api::BottlerocketShadow;
use brupop_testbed::{ControlPlane, NewNode, await_until};
use http::{HeaderName, HeaderValue, Method};
use k8s_openapi::api::core::v1::{Node as KubeNode, Pod, Secret, ServiceAccount};
use kube::Resource as _;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value as Json, from_value, json};
use std::collections::BTreeMap;

const ELSEWHERE: &str = "elsewhere";

/// In whose name a request is made: a client, and the headers by which an administrator impersonates somebody.
pub struct Identity {
    pub client: Client,
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// The requester, and the names that it asks about.
pub struct Cast {
    pub callers: BTreeMap<Actor, Identity>,
    pub world: World,
}

/// Awaits the pods that the overlay's controllers make, and takes a token for each actor.
pub async fn cast(
    control_plane: &ControlPlane,
    namespace: &str,
    nodes: &[KubeNode],
) -> Result<Cast> {
    let stage = Stage {
        control_plane,
        client: control_plane.client(),
        namespace,
    };
    let agents = stage.pods("agent", nodes.len()).await?;
    let (webhooks, reconcilers) = (
        stage.pods("webhook", 2).await?,
        stage.pods("reconciler", 1).await?,
    );
    let is_on = |pod: &Pod, name: &str| {
        pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(name)
    };
    let on = |name: &str| agents.iter().find(|pod| is_on(pod, name));
    let [first, second, again, longest] = World::node_names();
    let (agent, other) = (
        on(&first).context("no agent")?,
        on(&second).context("no other agent")?,
    );
    let account = account(agent)?;

    let mut tokens = BTreeMap::new();
    for (actor, pod) in [
        (Actor::Agent, agent),
        (Actor::OtherAgent, other),
        (Actor::Reconciler, &reconcilers[0]),
        (Actor::Webhook, &webhooks[0]),
    ] {
        tokens.insert(actor, stage.token_of(pod).await?);
    }
    tokens.insert(
        Actor::Unbound,
        control_plane.token(namespace, account).await?,
    );
    tokens.insert(Actor::SecretBound, stage.secret_bound(account).await?);
    tokens.insert(Actor::NodeBound, stage.node_bound(account, agent).await?);
    tokens.insert(Actor::DeletedPod, stage.deleted(account, &first).await?);
    tokens.insert(Actor::Stray, stage.stray(account).await?);
    tokens.insert(Actor::Elsewhere, stage.elsewhere(agent).await?);
    stage.node(&longest).await?;
    let pod = stage.pod(namespace, "longest", account, &longest).await?;
    tokens.insert(Actor::LongestAgent, stage.token_of(&pod).await?);
    let (former, [of_pod, of_node]) = stage.former(account, &again).await?;
    tokens.insert(Actor::FormerNode, of_pod);
    tokens.insert(Actor::FormerNodeBound, of_node);
    let pod = stage.pod(namespace, "again-2", account, &again).await?;
    tokens.insert(Actor::NewNode, stage.token_of(&pod).await?);

    let world = World {
        namespace: namespace.to_owned(),
        nodes: stage.nodes().await?,
        former_uid: former,
    };
    let mut callers = BTreeMap::new();
    for (actor, token) in tokens {
        let client = control_plane.client_for_token(&token).await?;
        callers.insert(
            actor,
            Identity {
                client,
                headers: Vec::new(),
            },
        );
    }
    for actor in [
        Actor::Impersonator,
        Actor::ImpersonatorOfTwo,
        Actor::ImpersonatorOfTheAccount,
    ] {
        let headers = impersonating(actor, &world, account)?;
        callers.insert(
            actor,
            Identity {
                client: stage.client.clone(),
                headers,
            },
        );
    }
    callers.insert(
        Actor::Admin,
        Identity {
            client: stage.client,
            headers: Vec::new(),
        },
    );
    Ok(Cast { callers, world })
}

fn impersonating(
    actor: Actor,
    world: &World,
    account: &str,
) -> Result<Vec<(HeaderName, HeaderValue)>> {
    let user = format!("system:serviceaccount:{}:{account}", world.namespace);
    let mut headers = vec![(HeaderName::from_static("impersonate-user"), user.parse()?)];
    for (key, values) in actor.extra(world) {
        let name: HeaderName = format!("impersonate-extra-{}", key.replace('/', "%2f")).parse()?;
        for value in values.as_array().into_iter().flatten() {
            headers.push((name.clone(), value.as_str().context("text")?.parse()?));
        }
    }
    Ok(headers)
}

fn account(pod: &Pod) -> Result<&str> {
    let spec = pod.spec.as_ref().context("spec")?;
    spec.service_account_name
        .as_deref()
        .context("a pod without an account")
}

struct Stage<'a> {
    control_plane: &'a ControlPlane,
    client: Client,
    namespace: &'a str,
}

impl Stage<'_> {
    /// Pods of a component, once there are this many.
    async fn pods(&self, component: &str, count: usize) -> Result<Vec<Pod>> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), self.namespace);
        let wanted = ListParams::default().labels(&format!(
            "{}={component}",
            brupop_api::names::COMPONENT_LABEL
        ));
        let found = await_until(format!("{count} pods of the {component}"), async || {
            let mut found = pods.list(&wanted).await.ok()?.items;
            found.retain(|pod| {
                pod.spec
                    .as_ref()
                    .is_some_and(|spec| spec.node_name.is_some())
            });
            (found.len() >= count).then_some(found)
        });
        found.await
    }

    async fn token_of(&self, pod: &Pod) -> Result<String> {
        let namespace = pod.namespace().context("a namespace")?;
        self.control_plane
            .bound_token(&namespace, account(pod)?, &pod.name_any())
            .await
    }

    async fn secret_bound(&self, account: &str) -> Result<String> {
        let secrets = Api::<Secret>::namespaced(self.client.clone(), self.namespace);
        let secret = from_value(json!({"metadata": {"name": "bound"}}))?;
        let made = secrets.create(&PostParams::default(), &secret).await?;
        self.control_plane
            .token_bound_to(self.namespace, account, &made)
            .await
    }

    /// Bound to the Node of this pod, and to no pod.
    async fn node_bound(&self, account: &str, pod: &Pod) -> Result<String> {
        let name = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.node_name.clone())
            .context("a node")?;
        let node = Api::<KubeNode>::all(self.client.clone()).get(&name).await?;
        self.control_plane
            .token_bound_to(self.namespace, account, &node)
            .await
    }

    /// Of a pod that was there when the token was used first, and is not any more. Anyone who asks awaits that the API
    /// server notices.
    async fn deleted(&self, account: &str, node: &str) -> Result<String> {
        let pod = self.pod(self.namespace, "deleted", account, node).await?;
        let token = self.token_of(&pod).await?;
        self.use_once(&token).await?;
        let at_once = DeleteParams {
            grace_period_seconds: Some(0),
            ..DeleteParams::default()
        };
        Api::<Pod>::namespaced(self.client.clone(), self.namespace)
            .delete("deleted", &at_once)
            .await?;
        Ok(token)
    }

    async fn use_once(&self, token: &str) -> Result<()> {
        let client = self.control_plane.client_for_token(token).await?;
        let path = BottlerocketShadow::url_path(&(), Some(self.namespace));
        raw::request(&client, Method::GET, &path, &Json::Null).await?;
        Ok(())
    }

    /// UID of a Node, and tokens of a pod on it and of itself; the Node has been made again since.
    async fn former(&self, account: &str, name: &str) -> Result<(String, [String; 2])> {
        let uid = self.node(name).await?.uid().context("a UID")?;
        let pod = self.pod(self.namespace, "again-1", account, name).await?;
        let tokens = [
            self.token_of(&pod).await?,
            self.node_bound(account, &pod).await?,
        ];
        for token in &tokens {
            self.use_once(token).await?;
        }
        Api::<KubeNode>::all(self.client.clone())
            .delete(name, &DeleteParams::default())
            .await?;
        self.node(name).await?;
        Ok((uid, tokens))
    }

    /// A Node of this name that has not opted in; the one that is there, if there is one.
    async fn node(&self, name: &str) -> Result<KubeNode> {
        if let Some(node) = Api::<KubeNode>::all(self.client.clone())
            .get_opt(name)
            .await?
        {
            return Ok(node);
        }
        let node = NewNode {
            name: name.to_owned(),
            labels: BTreeMap::new(),
            ..NewNode::numbered(9)
        };
        node.create(&self.client).await
    }

    async fn nodes(&self) -> Result<[Node; 4]> {
        let api = Api::<KubeNode>::all(self.client.clone());
        let mut nodes = Vec::new();
        for name in World::node_names() {
            let uid = api.get(&name).await?.uid().context("a UID")?;
            nodes.push(Node { name, uid });
        }
        nodes.try_into().ok().context("four nodes")
    }

    async fn pod(&self, namespace: &str, name: &str, account: &str, node: &str) -> Result<Pod> {
        let pod: Pod = from_value(json!({
            "metadata": {"name": name},
            "spec": {"nodeName": node, "serviceAccountName": account, "containers": [{"name": "c", "image": "none"}]},
        }))?;
        let api = Api::namespaced(self.client.clone(), namespace);
        api.create(&PostParams::default(), &pod)
            .await
            .with_context(|| format!("pod {name}"))
    }

    /// An account of the operator's namespace with the agents' role.
    async fn stray(&self, role: &str) -> Result<String> {
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), self.namespace);
        accounts
            .create(
                &PostParams::default(),
                &from_value(json!({"metadata": {"name": "stray"}}))?,
            )
            .await?;
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "stray"},
            // Role and account of the agents have the same name.
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "stray", "namespace": self.namespace}],
        });
        let path = format!(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
            self.namespace
        );
        raw::request(&self.client, Method::POST, &path, &binding).await?;
        self.control_plane.token(self.namespace, "stray").await
    }

    /// Account and pod of the agent's names, in a namespace of another's.
    async fn elsewhere(&self, agent: &Pod) -> Result<String> {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ELSEWHERE}});
        match raw::request(&self.client, Method::POST, "/api/v1/namespaces", &namespace).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            made => drop(made?),
        }
        let account: ServiceAccount = from_value(json!({"metadata": {"name": account(agent)?}}))?;
        Api::namespaced(self.client.clone(), ELSEWHERE)
            .create(&PostParams::default(), &account)
            .await?;
        let [first, ..] = World::node_names();
        let pod = self
            .pod(ELSEWHERE, &agent.name_any(), &account.name_any(), &first)
            .await?;
        self.token_of(&pod).await
    }
}
