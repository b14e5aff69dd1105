//! Everything that can be asked of RBAC: what discovery lists, and what only authorizers know of.

use crate::raw;
use anyhow::{Context as _, Result};
use http::Method;
use kube::Client;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};

/// What may be done with a resource.
const VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
/// What may be done with a path that names no resource.
const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];
/// Verbs beyond reading and writing, and resources that discovery does not list: group, resource, namespaced, verbs.
const BEYOND: [(&str, &str, bool, &[&str]); 21] = [
    ("", "users", false, &["impersonate", "impersonate:user-info"]),
    ("", "groups", false, &["impersonate"]),
    ("", "serviceaccounts", true, &["impersonate", "impersonate:serviceaccount", "use"]),
    ("", "nodes", false, &["impersonate:arbitrary-node", "impersonate:associated-node", "proxy"]),
    ("", "pods", true, &["proxy", "exec"]),
    ("", "services", true, &["proxy"]),
    ("", "nodes/stats", false, &["get", "create"]),
    ("", "nodes/metrics", false, &["get", "create"]),
    ("", "nodes/log", false, &["get", "create"]),
    ("", "nodes/spec", false, &["get", "create"]),
    ("", "nodes/checkpoint", false, &["get", "create"]),
    ("", "nodes/pods", false, &["get", "create"]),
    ("", "nodes/configz", false, &["get", "create"]),
    ("authentication.k8s.io", "uids", false, &["impersonate", "impersonate:user-info"]),
    ("authentication.k8s.io", "userextras/authentication.kubernetes.io/node-name", false, &["impersonate"]),
    ("authentication.k8s.io", "users", false, &["impersonate:user-info"]),
    ("rbac.authorization.k8s.io", "roles", true, &["bind", "escalate"]),
    ("rbac.authorization.k8s.io", "clusterroles", false, &["bind", "escalate"]),
    ("certificates.k8s.io", "signers", false, &["approve", "sign", "attest"]),
    ("policy", "podsecuritypolicies", false, &["use"]),
    ("*", "*", false, &["*"]),
];

/// Paths that discovery does not list.
const PATHS: [&str; 14] = [
    "/",
    "/.well-known/openid-configuration",
    "/openid/v1/jwks",
    "/metrics",
    "/metrics/slis",
    "/logs",
    "/debug/pprof",
    "/debug/flags/v",
    "/configz",
    "/flagz",
    "/statusz",
    "/proxy",
    "/swagger.json",
    "/nothing",
];

/// Where a namespaced resource is asked about; a cluster-scoped one is nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The resource has no namespace.
    Cluster,
    Ours,
    KubeSystem,
    Another,
    /// All namespaces by one request.
    All,
}

impl Place {
    pub const NAMESPACED: [Self; 4] = [Self::Ours, Self::KubeSystem, Self::Another, Self::All];

    fn namespace(self, ours: &str) -> &str {
        match self {
            Self::Cluster | Self::All => "",
            Self::Ours => ours,
            Self::KubeSystem => "kube-system",
            Self::Another => "another",
        }
    }
}

/// What is asked about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    Resource { group: String, resource: String, place: Place, name: String },
    Path(String),
}

/// May somebody do this?
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Question {
    pub object: Object,
    pub verb: &'static str,
}

impl Question {
    /// The `SubjectAccessReview` that asks it.
    pub fn review(&self, user: &Json, ours: &str) -> Json {
        let mut spec = json!({"user": user["username"], "groups": user["groups"], "uid": user["uid"]});
        match &self.object {
            Object::Path(path) => {
                spec["nonResourceAttributes"] = json!({"path": path, "verb": self.verb});
            }
            Object::Resource { group, resource, place, name } => {
                let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
                spec["resourceAttributes"] = json!({
                    "group": group, "resource": resource, "subresource": subresource, "version": "*",
                    "namespace": place.namespace(ours), "name": name, "verb": self.verb,
                });
            }
        }
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec})
    }
}

/// Resources and names that rules speak of: a rule gives a name's rights to its own resources alone.
pub struct Names {
    /// Roles, which are of our namespace.
    pub here: BTreeSet<(String, String)>,
    /// Cluster roles.
    pub everywhere: BTreeSet<(String, String)>,
}

/// All questions.
pub async fn all(client: &Client, names: &Names) -> Result<Vec<Question>> {
    let mut questions = Vec::new();
    for ((group, resource), namespaced) in resources(client).await? {
        about(&mut questions, &group, &resource, namespaced, &VERBS, names);
    }
    for (group, resource, namespaced, verbs) in BEYOND {
        about(&mut questions, group, resource, namespaced, verbs, names);
    }
    let root = get(client, "/").await?;
    let listed = root["paths"].as_array().context("no paths")?.iter().filter_map(Json::as_str);
    let paths = listed.chain(PATHS).map(|path| Object::Path(path.to_owned()));
    let asked = |object: Object| METHODS.map(|verb| Question { object: object.clone(), verb });
    questions.extend(paths.flat_map(asked));
    questions.sort_unstable();
    questions.dedup();
    Ok(questions)
}

fn about(
    questions: &mut Vec<Question>,
    group: &str,
    resource: &str,
    namespaced: bool,
    verbs: &[&'static str],
    names: &Names,
) {
    let places = if namespaced { &Place::NAMESPACED[..] } else { &[Place::Cluster] };
    for &place in places {
        // A Role's name means something in our namespace.
        let here = matches!(place, Place::Ours | Place::Cluster).then_some(&names.here);
        let known = here.into_iter().flatten().chain(&names.everywhere);
        let known = known.filter(|(of, _)| of == resource || of.contains('*')).map(|(_, name)| name.as_str());
        for name in known.chain([""]).collect::<BTreeSet<_>>() {
            let (group, resource, name) = (group.to_owned(), resource.to_owned(), name.to_owned());
            let object = Object::Resource { group, resource, place, name };
            questions.extend(verbs.iter().map(|verb| Question { object: object.clone(), verb }));
        }
    }
}

/// Group and name (with sub-resource) of what the API server serves, in whatever version; is it namespaced?
async fn resources(client: &Client) -> Result<BTreeMap<(String, String), bool>> {
    let groups = get(client, "/apis").await?;
    let groups = groups["groups"].as_array().context("no groups")?;
    let versions = groups.iter().flat_map(|group| group["versions"].as_array().into_iter().flatten());
    let versions =
        versions.filter_map(|version| version["groupVersion"].as_str()).map(|v| format!("/apis/{v}"));
    let mut resources = BTreeMap::new();
    for path in versions.chain(["/api/v1".to_owned()]) {
        let list = get(client, &path).await?;
        let group = list["groupVersion"].as_str().and_then(|version| version.split_once('/'));
        for resource in list["resources"].as_array().context("no resources")? {
            let name = resource["name"].as_str().context("no name")?;
            let key = (group.map_or("", |(group, _)| group).to_owned(), name.to_owned());
            resources.insert(key, resource["namespaced"] == true);
        }
    }
    Ok(resources)
}

async fn get(client: &Client, path: &str) -> Result<Json> {
    raw::request(client, Method::GET, path, &Json::Null).await.with_context(|| path.to_owned())
}
