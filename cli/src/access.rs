//! The rights that requests need, and who gives them.

use std::fmt;

use brupop_api::names;

/// A kind of object that this program reads or changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResourceKind {
    Shadows,
    Fleet,
    Pools,
    Nodes,
    Events,
    Lease,
    Pods,
    Exec,
}

/// The right to make a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    verb: &'static str,
    kind: ResourceKind,
    /// The namespace; `None` for Nodes, which have none.
    namespace: Option<String>,
}

impl Right {
    pub(crate) fn new(verb: &'static str, kind: ResourceKind, namespace: &str) -> Self {
        Self { verb, kind, namespace: (kind != ResourceKind::Nodes).then(|| namespace.to_owned()) }
    }

    /// Which of the operator's or of Kubernetes' roles gives this right, as the end of a sentence.
    pub(crate) fn given_by(&self) -> String {
        let place = self.namespace.as_deref().unwrap_or_default();
        match self.kind {
            ResourceKind::Shadows | ResourceKind::Fleet if self.verb == "patch" => {
                format!("the operator's ClusterRole brupop-operator gives this right, bound in the namespace {place}")
            }
            ResourceKind::Pools if self.verb == "patch" => {
                format!("the operator's ClusterRole brupop-pool-editor gives this right, bound in the namespace {place}")
            }
            ResourceKind::Shadows | ResourceKind::Fleet | ResourceKind::Pools | ResourceKind::Lease => format!(
                "the operator's ClusterRole brupop-viewer gives this right (and with it Kubernetes' own view, edit and admin), \
                 and so does brupop-operator, bound in the namespace {place}"
            ),
            ResourceKind::Nodes => "none of the operator's roles gives this right, for RBAC cannot give one annotation of a Node \
                            without the rest of it: a ClusterRole of your own has to"
                .to_owned(),
            ResourceKind::Events | ResourceKind::Pods => format!("Kubernetes' ClusterRole view gives this right, bound in the namespace {place}"),
            ResourceKind::Exec => {
                format!("Kubernetes' ClusterRole edit gives this right, bound in the namespace {place}")
            }
        }
    }

    /// Is it about a resource that comes with the operator?
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.kind, ResourceKind::Shadows | ResourceKind::Fleet | ResourceKind::Pools)
    }

    pub(crate) fn resource(&self) -> String {
        match self.kind {
            ResourceKind::Shadows => format!("bottlerocketshadows.{}", names::GROUP),
            ResourceKind::Fleet => format!("bottlerocketfleets.{}", names::GROUP),
            ResourceKind::Pools => format!("bottlerocketpools.{}", names::GROUP),
            ResourceKind::Nodes => "nodes".to_owned(),
            ResourceKind::Events => "events".to_owned(),
            ResourceKind::Lease => "leases.coordination.k8s.io".to_owned(),
            ResourceKind::Pods => "pods".to_owned(),
            ResourceKind::Exec => "pods/exec".to_owned(),
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource())?;
        match &self.namespace {
            Some(namespace) => write!(f, " in the namespace {namespace}"),
            None => Ok(()),
        }
    }
}
