//! The shipped policies on an API server, without any of the shipped programs: who asks, and what comes back.

use crate::raw;
use anyhow::{Result, ensure};
use brupop_testbed::objects::cluster_role_binding;
use brupop_testbed::operator::{apply_overlay, throw_away_overlay};
use brupop_testbed::{ControlPlane, Options};
use http::Method;
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    /// A person who may do everything.
    Admin,
    Agent,
    Reconciler,
    Webhook,
    /// A kubelet, by its client certificate.
    Kubelet,
    /// Somebody else of kubelets' group, who may do everything: only policies confine it.
    Member,
}

#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    pub body: Json,
    /// UIDs of the flow schema and of the priority level by which the request was let in.
    pub flow: (String, String),
}

impl Answer {
    /// Returns what was said of a refusal.
    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

pub struct Bed {
    pub control_plane: ControlPlane,
    pub namespace: &'static str,
    /// Renames as the overlay does.
    pub named: fn(&str) -> String,
    /// Whether the reconciler may opt Nodes in and delete pods.
    pub with_components: bool,
    /// UID of the Node that the kubelet has registered.
    pub kubelets_node_uid: String,
    clients: BTreeMap<Actor, Client>,
}

impl Bed {
    pub const KUBELETS_NODE: &str = "kubelets";

    /// Applies the overlay. There is no webhook, and nobody is asked to wait for it.
    pub async fn start(overlay: Overlay) -> Result<Self> {
        let control_plane = ControlPlane::start(Options::API).await?;
        let folder = overlay.folder(&control_plane)?;
        apply_overlay(&control_plane, &folder).await?;
        let webhook = (overlay.named)("brupop-webhook");
        let never = r#"[{"op": "replace", "path": "/webhooks/0/matchConditions/0/expression", "value": "false"}]"#;
        let configuration = format!("validatingwebhookconfiguration/{webhook}");
        control_plane
            .kubectl(["patch", &configuration, "--type=json", "-p", never])
            .await?;
        let kubelet = format!("system:node:{}", Self::KUBELETS_NODE);
        let kubelet = member_of_nodes(&control_plane, &kubelet).await?;
        let member = member_of_nodes(&control_plane, MEMBER).await?;
        let mut bed = Self {
            clients: BTreeMap::from([
                (Actor::Admin, control_plane.client()),
                (Actor::Kubelet, kubelet),
                (Actor::Member, member),
            ]),
            control_plane,
            with_components: overlay.with_components,
            kubelets_node_uid: String::new(),
            namespace: overlay.namespace,
            named: overlay.named,
        };
        for (actor, account) in [
            (Actor::Agent, "brupop-agent"),
            (Actor::Reconciler, "brupop-reconciler"),
            (Actor::Webhook, "brupop-webhook"),
        ] {
            let token = bed
                .control_plane
                .token(bed.namespace, &(bed.named)(account))
                .await?;
            bed.clients
                .insert(actor, bed.control_plane.client_for_token(&token).await?);
        }
        bed.bind(MEMBER, "cluster-admin", "User", MEMBER).await?;
        Ok(bed)
    }

    /// Gives this user or group a role.
    pub async fn bind(&self, name: &str, role: &str, kind: &str, who: &str) -> Result<()> {
        let binding = cluster_role_binding(name, role, kind, who);
        let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
        self.must(Method::POST, bindings, &binding).await.map(drop)
    }

    /// Returns what the actor is answered; `as_kubelet` is whom an administrator impersonates.
    pub async fn ask(
        &self,
        actor: Actor,
        as_kubelet: Option<&str>,
        method: Method,
        path: &str,
        body: &Json,
    ) -> Result<Answer> {
        let kind = raw::content_type(&method, body);
        let mut request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind);
        if let Some(kubelet) = as_kubelet {
            request = request
                .header("impersonate-user", kubelet)
                .header("impersonate-group", "system:nodes");
        }
        let request = request.body(Body::from(raw::bytes(body)))?;
        send(&self.clients[&actor], request).await
    }

    pub async fn get(&self, actor: Actor, path: &str) -> Result<Answer> {
        self.ask(actor, None, Method::GET, path, &Json::Null).await
    }

    /// Returns what an administrator is answered who impersonates this kubelet.
    pub async fn patch_as(&self, kubelet: &str, path: &str, body: &Json) -> Result<Answer> {
        let user = format!("system:node:{kubelet}");
        self.ask(Actor::Admin, Some(&user), Method::PATCH, path, body)
            .await
    }

    /// Returns what an administrator is answered, who must not be refused.
    pub async fn must(&self, method: Method, path: &str, body: &Json) -> Result<Json> {
        let answer = self.ask(Actor::Admin, None, method, path, body).await?;
        ensure!((200..300).contains(&answer.code), "{path}: {answer:?}");
        Ok(answer.body)
    }

    /// `/apis/…/namespaces/<ours>/<kind>`
    pub fn ours(&self, group_version: &str, kind: &str) -> String {
        format!("/apis/{group_version}/namespaces/{}/{kind}", self.namespace)
    }
}

const MEMBER: &str = "member";

/// A client with a certificate of this user and of kubelets' group.
async fn member_of_nodes(control_plane: &ControlPlane, user: &str) -> Result<Client> {
    let file = control_plane.dir().join(user.replace(':', "-"));
    control_plane.kubeconfig_of_user(&file, user, Some("system:nodes"))?;
    let (kubeconfig, only_context) = (Kubeconfig::read_from(file)?, KubeConfigOptions::default());
    Ok(Client::try_from(
        Config::from_custom_kubeconfig(kubeconfig, &only_context).await?,
    )?)
}

async fn send(client: &Client, request: http::Request<Body>) -> Result<Answer> {
    let (parts, body) = client.send(request).await?.into_parts();
    let bytes = body.collect().await?.to_bytes();
    let header = |name: &str| {
        parts
            .headers
            .get(name)
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default()
            .to_owned()
    };
    Ok(Answer {
        code: parts.status.as_u16(),
        body: serde_json::from_slice(&bytes).unwrap_or_default(),
        flow: (
            header("x-kubernetes-pf-flowschema-uid"),
            header("x-kubernetes-pf-prioritylevel-uid"),
        ),
    })
}

/// The overlay, and its renaming.
#[derive(Clone, Copy)]
pub struct Overlay {
    pub namespace: &'static str,
    pub named: fn(&str) -> String,
    /// Its kustomization, if it is not the default overlay; `resources` and `components` are paths in this repository.
    pub kustomization: Option<fn() -> Json>,
    /// Whether the reconciler may opt Nodes in and delete pods, and asks for trusted nodes.
    pub with_components: bool,
}

impl Overlay {
    pub const DEFAULT: Self = Self {
        namespace: brupop_testbed::operator::NAMESPACE,
        named: str::to_owned,
        kustomization: None,
        with_components: false,
    };

    /// Another namespace, prefix and suffix, and what components add.
    pub const RENAMED: Self = Self {
        namespace: "updates",
        named: |name| format!("team-{name}-blue"),
        kustomization: Some(|| {
            let components = ["auto-label", "force-drain", "trusted-placement"]
                .map(|name| format!("kustomize/components/{name}"));
            json!({
                "namespace": "updates", "namePrefix": "team-", "nameSuffix": "-blue",
                "resources": ["manifests"],
                "components": components,
            })
        }),
        with_components: true,
    };

    fn folder(&self, control_plane: &ControlPlane) -> Result<PathBuf> {
        let Some(kustomization) = self.kustomization else {
            return Ok("default".into());
        };
        throw_away_overlay(control_plane, "overlay", kustomization())
    }
}
