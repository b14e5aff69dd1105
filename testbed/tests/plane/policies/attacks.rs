//! Attacks with stolen tokens: the rows of `attacks.yaml`.

use super::bed::{Actor, Bed};
use anyhow::{Context as _, Result, ensure};
use brupop_api::names;
use http::Method;
use serde::Deserialize;
use serde_json::{Value as Json, json};

const NODES: &str = "/api/v1/nodes";

/// The verdicts that are no rule of a policy: nobody refuses, the API server's own validation does, or it is there already.
pub const ALLOWED: &str = "allowed";
const INVALID: &str = "invalid";
const EXISTS: &str = "exists";

/// An attempted request, as a dry run, and the expected answer.
#[derive(Debug)]
pub struct Row {
    pub says: String,
    pub actor: Actor,
    pub method: Method,
    pub path: String,
    pub body: Json,
    pub verdict: String,
}

#[derive(Deserialize)]
pub struct Attacks {
    /// Nodes that the rows are about.
    nodes: Vec<Json>,
    rows: Vec<Group>,
    there: Vec<Found>,
    /// Changes of others on the reconciler's records.
    plants: Vec<Found>,
    /// Rows for when that is there.
    planted: Vec<Group>,
}

/// Rows of one actor and path.
#[derive(Deserialize)]
struct Group {
    by: Actor,
    does: String,
    path: String,
    /// Only with the components that give further rights.
    #[serde(default)]
    with_components: bool,
    /// Each body is merged into this one.
    #[serde(default)]
    onto: Json,
    /// Each body is merged into what is stored.
    #[serde(default)]
    onto_stored: bool,
    /// Each patch writes the marker, too.
    #[serde(default)]
    marked: bool,
    rows: Vec<(String, Json, Verdict)>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Verdict {
    Always(String),
    /// Without those components, and with them.
    ByRights([String; 2]),
}

#[derive(Deserialize)]
struct Found {
    path: String,
    object: Json,
}

impl Attacks {
    /// Reads them with the names and UIDs of this cluster.
    pub fn of(bed: &Bed, pod_uid: &str) -> Result<Self> {
        let mut text = include_str!("attacks.yaml").to_owned();
        for name in [
            "brupop-agent",
            "brupop-reconciler",
            "brupop-webhook",
            "brupop-webhook-certificates",
        ] {
            text = text.replace(&format!("<{name}>"), &(bed.named)(name));
        }
        for length in [253, 254, 200_000] {
            text = text.replace(&format!("<x*{length}>"), &"x".repeat(length));
        }
        let text = text
            .replace("<namespace>", bed.namespace)
            .replace("<pod-uid>", pod_uid)
            .replace("<node-uid>", &bed.kubelets_node_uid);
        serde_yaml_ng::from_str(&text).context("attacks.yaml")
    }

    /// Makes what the rows are about.
    pub async fn prepare(&self, bed: &Bed) -> Result<()> {
        for node in &self.nodes {
            let mut object = json!({"apiVersion": "v1", "kind": "Node", "spec": {}});
            json_patch::merge(&mut object, node);
            bed.must(Method::POST, NODES, &object).await?;
            let name = node["metadata"]["name"].as_str().context("no name")?;
            // A new Node gets the taint `not-ready` from the API server.
            let taints = json!({"spec": {"taints": node["spec"]["taints"]}});
            bed.must(Method::PATCH, &format!("{NODES}/{name}"), &taints)
                .await?;
            if let Some(status) = node.get("status") {
                let path = format!("{NODES}/{name}/status");
                bed.must(Method::PATCH, &path, &json!({"status": status}))
                    .await?;
            }
        }
        make(bed, &self.there).await
    }

    pub async fn plant(&self, bed: &Bed) -> Result<()> {
        make(bed, &self.plants).await
    }

    pub async fn rows(&self, bed: &Bed) -> Result<Vec<Row>> {
        expanded(bed, &self.rows).await
    }

    pub async fn planted(&self, bed: &Bed) -> Result<Vec<Row>> {
        expanded(bed, &self.planted).await
    }
}

async fn make(bed: &Bed, found: &[Found]) -> Result<()> {
    for Found { path, object } in found {
        bed.must(Method::POST, path, object).await?;
    }
    Ok(())
}

async fn expanded(bed: &Bed, groups: &[Group]) -> Result<Vec<Row>> {
    let mut all = Vec::new();
    for group in groups {
        if group.with_components && !bed.with_components {
            continue;
        }
        let onto = if group.onto_stored {
            bed.must(Method::GET, &group.path, &Json::Null).await?
        } else {
            group.onto.clone()
        };
        for (says, body, verdict) in &group.rows {
            let mut whole = body.clone();
            if !onto.is_null() {
                whole = onto.clone();
                json_patch::merge(&mut whole, body);
            }
            let verdict = match verdict {
                Verdict::Always(verdict) => verdict,
                Verdict::ByRights(by) => &by[usize::from(bed.with_components)],
            };
            all.push(Row {
                says: says.clone(),
                actor: group.by,
                method: group.does.parse()?,
                path: group.path.clone(),
                body: if group.marked {
                    with_marker(whole)
                } else {
                    whole
                },
                verdict: verdict.clone(),
            });
        }
    }
    Ok(all)
}

pub fn with_marker(mut patch: Json) -> Json {
    patch["metadata"]["annotations"][names::MARKER_ANNOTATION] = json!("{}");
    patch
}

/// The violated expectation of a row.
pub async fn check(bed: &Bed, row: &Row) -> Result<()> {
    // An eviction says so in its body.
    let is_dry_by_path = row.method != Method::GET && !row.path.ends_with("/eviction");
    let dry = if is_dry_by_path { "?dryRun=All" } else { "" };
    let path = format!("{}{dry}", row.path);
    let answer = bed
        .ask(row.actor, None, row.method.clone(), &path, &row.body)
        .await?;
    let holds = match &*row.verdict {
        ALLOWED => (200..300).contains(&answer.code),
        INVALID => answer.code == 422 || answer.code == 400,
        EXISTS => answer.code == 409,
        rule => {
            let message = answer.message();
            answer.code == 403
                && message.contains("ValidatingAdmissionPolicy")
                && message.contains(&format!("denied request: {rule}: "))
        }
    };
    ensure!(holds, "not {}, but {answer:?}", row.verdict);
    Ok(())
}

/// Once the policies are in force, the kubelet registers its node, as its user data has it; somebody pauses it, and it is
/// marked; and there are pods of ours and of others' on it.
pub async fn register(bed: &mut Bed) -> Result<()> {
    let labels =
        json!({names::UPDATER_INTERFACE_LABEL: "2.0.0", "topology.kubernetes.io/zone": "z"});
    let annotations = json!({"volumes.kubernetes.io/controller-managed-attach-detach": "true"});
    let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": Bed::KUBELETS_NODE, "labels": labels, "annotations": annotations}});
    for annotation in [
        names::MARKER_ANNOTATION,
        names::PAUSE_ANNOTATION,
        names::UPDATE_NOW_ANNOTATION,
        names::RETRY_ANNOTATION,
    ] {
        let mut body = node.clone();
        body["metadata"]["annotations"][annotation] = json!("true");
        let row = Row {
            says: format!("registered with {annotation}"),
            actor: Actor::Kubelet,
            method: Method::POST,
            path: NODES.to_owned(),
            body,
            verdict: "kubelet-node-annotations".to_owned(),
        };
        check(bed, &row).await.context(row.says)?;
    }
    let answer = bed
        .ask(Actor::Kubelet, None, Method::POST, NODES, &node)
        .await?;
    ensure!(answer.code == 201, "it cannot register: {answer:?}");
    let uid = answer.body["metadata"]["uid"].as_str().context("no UID")?;
    uid.clone_into(&mut bed.kubelets_node_uid);
    let paused =
        with_marker(json!({"metadata": {"annotations": {names::PAUSE_ANNOTATION: "true"}}}));
    let path = format!("{NODES}/{}", Bed::KUBELETS_NODE);
    bed.must(Method::PATCH, &path, &paused).await?;
    let pods = format!("/api/v1/namespaces/{}/pods", bed.namespace);
    for (name, label, value) in [
        ("ours", names::COMPONENT_LABEL, "webhook"),
        ("theirs", "a", "b"),
    ] {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {label: value}},
            "spec": {"nodeName": Bed::KUBELETS_NODE, "serviceAccountName": (bed.named)("brupop-agent"),
                "containers": [{"name": "c", "image": "none"}]}});
        bed.must(Method::POST, &pods, &pod).await?;
    }
    Ok(())
}
