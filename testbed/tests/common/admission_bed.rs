//! The shipped operator in a namespace, tokens of everybody who plays a part, and one shadow to try things on.

use super::admission_rows::{Actor, Change, Row, Verdict};
use super::raw;
use anyhow::{Context as _, Result, bail, ensure};
use brupop_api::names;
use brupop_testbed::{ControlPlane, await_until};
use http::Method;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value as Json, from_value, json};
use std::collections::BTreeMap;
use std::time::Duration;

pub const DEADLINE: Duration = Duration::from_mins(1);
const ELSEWHERE: &str = "elsewhere";

/// Which of the two gates are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gates {
    Both,
    PolicyAlone,
    WebhookAlone,
}

/// What came of a request: the answer, or code and message of the refusal.
pub type Answer = Result<Json, (u16, String)>;

pub struct Bed {
    pub namespace: String,
    pub clients: BTreeMap<Actor, Client>,
    /// Pods of the webhook.
    pub webhooks: Vec<String>,
    nodes: Vec<Node>,
}

impl Bed {
    /// Awaits the pods that the overlay's controllers make, and takes a token for each actor.
    pub async fn take_part(control_plane: &ControlPlane, namespace: &str, nodes: Vec<Node>) -> Result<Self> {
        let admin = control_plane.client();
        let pods = Api::<Pod>::namespaced(admin.clone(), namespace);
        let of = async |component: &str, count: usize| {
            let wanted = ListParams::default().labels(&format!("{}={component}", names::COMPONENT_LABEL));
            await_until(format!("{count} pods of the {component}"), DEADLINE, async || {
                let mut found = pods.list(&wanted).await.ok()?.items;
                found.retain(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()));
                (found.len() >= count).then_some(found)
            })
            .await
        };
        let (agents, webhooks) = (of("agent", nodes.len()).await?, of("webhook", 2).await?);
        let reconcilers = of("reconciler", 1).await?;
        let on = |node: &str| {
            agents
                .iter()
                .find(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_deref() == Some(node)))
        };
        let (agent, other) = (on("node-0").context("node-0")?, on("node-1").context("node-1")?);

        let mut tokens = BTreeMap::new();
        for (actor, pod) in [
            (Actor::Agent, agent),
            (Actor::OtherAgent, other),
            (Actor::Reconciler, &reconcilers[0]),
            (Actor::Webhook, &webhooks[0]),
        ] {
            tokens.insert(actor, control_plane.bound_token(namespace, account(pod)?, &pod.name_any()).await?);
        }
        tokens.insert(Actor::Unbound, unbound_token(&admin, namespace, account(agent)?).await?);
        tokens.insert(Actor::Stray, stray(control_plane, namespace, account(agent)?).await?);
        tokens.insert(Actor::Elsewhere, elsewhere(control_plane, agent).await?);
        let mut clients = BTreeMap::from([(Actor::Admin, admin)]);
        for (actor, token) in tokens {
            clients.insert(actor, control_plane.client_for_token(&token).await?);
        }
        let webhooks = webhooks.iter().map(Pod::name_any).collect();
        Ok(Self { namespace: namespace.to_owned(), clients, webhooks, nodes })
    }

    pub fn shadow_path(&self, node: usize) -> String {
        format!("{}/brs-node-{node}", self.shadows_path())
    }

    fn shadows_path(&self) -> String {
        format!("/apis/brupop.bottlerocket.aws/v2/namespaces/{}/bottlerocketshadows", self.namespace)
    }

    pub async fn ask(&self, actor: Actor, method: Method, path: &str, body: &Json) -> Result<Answer> {
        match raw::request(&self.clients[&actor], method, path, body).await {
            Ok(answer) => Ok(Ok(answer)),
            Err(kube::Error::Api(status)) => Ok(Err((status.code, status.message.clone()))),
            Err(error) => Err(error).context(format!("{actor:?}: {path}")),
        }
    }

    /// Makes a shadow anew, with this spec and status. `status.owner` stands for another UID of its Node.
    pub async fn shadow(&self, node: usize, spec: &Json, status: &Json) -> Result<Json> {
        let path = self.shadow_path(node);
        if let Err((code, message)) = self.ask(Actor::Admin, Method::DELETE, &path, &Json::Null).await? {
            ensure!(code == 404, "{message}");
        }
        let name = format!("node-{node}");
        let uid = status.get("owner").cloned().unwrap_or_else(|| json!(self.nodes[node].uid()));
        let shadow = json!({
            "apiVersion": "brupop.bottlerocket.aws/v2", "kind": "BottlerocketShadow",
            "metadata": {
                "name": format!("brs-{name}"),
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}],
            },
            "spec": spec,
        });
        let admin = &self.clients[&Actor::Admin];
        let mut made = raw::request(admin, Method::POST, &self.shadows_path(), &shadow).await?;
        if !status.is_null() && status.get("owner").is_none() {
            made["status"] = status.clone();
            made = raw::request(admin, Method::PUT, &format!("{path}/status"), &made).await?;
        }
        Ok(made)
    }

    /// Asks what a row asks. The answer, what was stored before and what is stored after.
    async fn run(&self, row: &Row) -> Result<(Answer, Json, Json)> {
        let (_, actor, spec, status, change, _) = row;
        let target = usize::from(matches!(change, Change::StatusOf(_)));
        let mut before = self.shadow(target, spec, status).await?;
        let path = self.shadow_path(target);
        let (method, path_asked, body) = match change {
            Change::Status(body) | Change::StatusOf(body) => {
                (Method::PATCH, format!("{path}/status"), body.clone())
            }
            Change::DryStatus(body) => (Method::PATCH, format!("{path}/status?dryRun=All"), body.clone()),
            Change::Object(body) => (Method::PATCH, path.clone(), body.clone()),
            Change::Put(body) => (Method::PUT, format!("{path}/status"), merged(&before, body)),
            Change::Create(body) => {
                self.ask(Actor::Admin, Method::DELETE, &path, &Json::Null)
                    .await?
                    .map_err(|(_, said)| anyhow::anyhow!(said))?;
                let mut new = merged(&before, body);
                for field in ["uid", "resourceVersion", "generation", "managedFields", "creationTimestamp"] {
                    new["metadata"].as_object_mut().context("metadata")?.remove(field);
                }
                before = Json::Null;
                (Method::POST, self.shadows_path(), new)
            }
            Change::Delete => (Method::DELETE, path.clone(), Json::Null),
            Change::DeleteAll => (Method::DELETE, self.shadows_path(), Json::Null),
            Change::Node(below, body) => {
                (Method::PATCH, format!("/api/v1/nodes/node-0{below}?dryRun=All"), body.clone())
            }
            Change::Request(method, path, body) => {
                (method.clone(), path.replace("{namespace}", &self.namespace), body.clone())
            }
        };
        let answer = self.ask(*actor, method, &path_asked, &body).await?;
        let after = self.ask(Actor::Admin, Method::GET, &path, &Json::Null).await?;
        Ok((answer, before, after.unwrap_or_default()))
    }

    /// The row's verdict is given, by the one who should, and what is stored afterwards is as it should be.
    pub async fn check(&self, gates: Gates, row: &Row) -> Result<()> {
        let (_, _, _, _, change, verdict) = row;
        let (answer, before, after) = self.run(row).await?;
        match (refusal(*verdict, gates), answer) {
            (Some((code, words)), Err((refused, message))) => {
                let fits = refused == code && words.iter().all(|word| message.contains(word));
                ensure!(fits, "not {code} {words:?}, but {refused}: {message}");
                ensure!(after == before, "refused, and yet changed: {after}");
                Ok(())
            }
            (None, Ok(answer)) => {
                let expected = expected(change, &before, &answer)?;
                let content = |object: &Json| {
                    let metadata = |field: &str| object["metadata"].get(field).cloned();
                    let kept = ["ownerReferences", "labels", "finalizers", "annotations"].map(metadata);
                    (kept, object.get("spec").cloned(), object.get("status").cloned())
                };
                ensure!(content(&after) == content(&expected), "stored {after}, not {expected}");
                Ok(())
            }
            (expected, answer) => bail!("not {expected:?}, but {answer:?}"),
        }
    }

    /// All rows that do not hold, by what they say.
    pub async fn check_all(&self, gates: Gates, table: &[Row]) -> Vec<String> {
        let mut wrong = Vec::new();
        for row in table {
            if let Err(error) = self.check(gates, row).await {
                wrong.push(format!("{gates:?}: {:?}: {}: {error:#}", row.1, row.0));
            }
        }
        wrong
    }
}

fn merged(before: &Json, change: &Json) -> Json {
    let mut after = before.clone();
    json_patch::merge(&mut after, change);
    after
}

/// Code and words of the refusal, if there is one with these gates.
fn refusal(verdict: Verdict, gates: Gates) -> Option<(u16, [&'static str; 2])> {
    const POLICY: &str = "ValidatingAdmissionPolicy '";
    const WEBHOOK: &str = "admission webhook \"shadows.brupop.bottlerocket.aws\" denied the request: ";
    match (verdict, gates) {
        (Verdict::ByRbac, _) => Some((403, ["cannot", "User \""])),
        (Verdict::BySchema(words), _) => Some((422, [words, "is invalid"])),
        (Verdict::ByPolicy(rule) | Verdict::ByBoth(rule), Gates::Both | Gates::PolicyAlone) => {
            Some((403, [rule, POLICY]))
        }
        (Verdict::ByWebhook(rule), Gates::Both | Gates::WebhookAlone)
        | (Verdict::ByBoth(rule), Gates::WebhookAlone) => Some((403, [rule, WEBHOOK])),
        _ => None,
    }
}

/// What is stored after a change that is allowed.
fn expected(change: &Change, before: &Json, answer: &Json) -> Result<Json> {
    let mut after = before.clone();
    match change {
        // Only the status goes through `/status`.
        Change::Status(Json::Array(patch)) => {
            let patch: json_patch::Patch = from_value(json!(patch))?;
            json_patch::patch(&mut after, &patch)?;
        }
        Change::Status(body) | Change::StatusOf(body) => {
            json_patch::merge(&mut after, &json!({"status": {}}));
            let only = body.get("status").cloned().unwrap_or_else(|| json!({}));
            json_patch::merge(&mut after, &json!({"status": only}));
        }
        Change::Object(body) => json_patch::merge(&mut after, body),
        Change::Create(_) => after = answer.clone(),
        Change::Delete => after = Json::Null,
        Change::DryStatus(_) | Change::Node(..) | Change::Request(..) => {}
        Change::Put(_) | Change::DeleteAll => bail!("no row expects {change:?} to be allowed"),
    }
    Ok(after)
}

fn account(pod: &Pod) -> Result<&str> {
    let spec = pod.spec.as_ref().context("spec")?;
    spec.service_account_name.as_deref().context("a pod without an account")
}

/// A token of the account itself.
async fn unbound_token(client: &Client, namespace: &str, account: &str) -> Result<String> {
    let request = TokenRequest { spec: TokenRequestSpec::default(), ..TokenRequest::default() };
    let answer = Api::<ServiceAccount>::namespaced(client.clone(), namespace)
        .create_token_request(account, &PostParams::default(), &request)
        .await?;
    Ok(answer.status.context("no token")?.token)
}

/// An account of the operator's namespace with the agents' role.
async fn stray(control_plane: &ControlPlane, namespace: &str, role: &str) -> Result<String> {
    let client = control_plane.client();
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
    let stray = from_value(json!({"metadata": {"name": "stray"}}))?;
    accounts.create(&PostParams::default(), &stray).await?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "stray"},
        // Role and account of the agents have the same name.
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "stray", "namespace": namespace}],
    });
    let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings");
    raw::request(&client, Method::POST, &path, &binding).await?;
    unbound_token(&client, namespace, "stray").await
}

/// Account and pod of the agent's names, in a namespace of another's.
async fn elsewhere(control_plane: &ControlPlane, agent: &Pod) -> Result<String> {
    let client = control_plane.client();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ELSEWHERE}});
    match raw::request(&client, Method::POST, "/api/v1/namespaces", &namespace).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        made => drop(made?),
    }
    let account: ServiceAccount = from_value(json!({"metadata": {"name": account(agent)?}}))?;
    Api::namespaced(client.clone(), ELSEWHERE).create(&PostParams::default(), &account).await?;
    let (account, name) = (account.name_any(), agent.name_any());
    let pod: Pod = from_value(json!({
        "metadata": {"name": name},
        "spec": {"nodeName": "node-0", "serviceAccountName": account, "containers": [{"name": "c", "image": "none"}]},
    }))?;
    Api::namespaced(client, ELSEWHERE).create(&PostParams::default(), &pod).await?;
    control_plane.bound_token(ELSEWHERE, &account, &name).await
}
