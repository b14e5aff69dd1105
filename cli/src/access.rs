//! The rights that requests need, and who gives them.

use std::fmt;

use brupop_api::names;
use kube::{Api, Resource};

/// The explanation for a missing right on Nodes.
const NODES: &str = "none of the operator's roles gives this right, because RBAC cannot limit it to one annotation of a Node: \
                     bind a ClusterRole of your own";

/// The right to make a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    verb: &'static str,
    /// Its name, with the group if it has one.
    pub(crate) resource: String,
    /// The namespace; `None` for Nodes, which have none.
    namespace: Option<String>,
}

impl Right {
    pub(crate) fn new<K: Resource<DynamicType = ()>>(
        verb: &'static str,
        namespace: Option<&str>,
    ) -> Self {
        let resource = format!("{}.{}", K::plural(&()), K::group(&()));
        Self {
            verb,
            resource: resource.trim_end_matches('.').to_owned(),
            namespace: namespace.map(str::to_owned),
        }
    }

    /// The right to do this to the objects of `api`.
    pub(crate) fn of<K: Resource<DynamicType = ()>>(verb: &'static str, api: &Api<K>) -> Self {
        Self::new::<K>(verb, api.namespace())
    }

    /// Names the role, of the operator or of Kubernetes, that gives this right; as the end of a sentence.
    pub(crate) fn given_by(&self) -> String {
        let place = self.namespace.as_deref().unwrap_or_default();
        let kind = self.resource.split('.').next().unwrap_or_default();
        let role = match (kind, self.verb) {
            ("nodes", _) => return NODES.to_owned(),
            ("bottlerocketpools", "patch") => "the operator's ClusterRole brupop-pool-editor",
            (_, "patch") => "the operator's ClusterRole brupop-operator",
            ("events", _) => "Kubernetes' ClusterRole view",
            _ => "the operator's ClusterRole brupop-viewer",
        };
        format!("{role} gives this right, bound in the namespace {place}")
    }

    /// Whether it is about a resource that comes with the operator.
    pub(crate) fn is_ours(&self) -> bool {
        self.resource.ends_with(names::GROUP)
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        match &self.namespace {
            Some(namespace) => write!(f, " in the namespace {namespace}"),
            None => Ok(()),
        }
    }
}
