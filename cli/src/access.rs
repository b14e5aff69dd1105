//! The rights that requests need, and who gives them.

use std::fmt;

use brupop_api::names;
use brupop_runtime::errors::status_message;
use kube::client::UpgradeConnectionError;
use kube::core::Status;

use crate::Error;

/// A kind of object that this program reads or changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
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
    kind: Kind,
    /// The namespace; `None` for Nodes, which have none.
    namespace: Option<String>,
}

impl Right {
    pub(crate) fn new(verb: &'static str, kind: Kind, namespace: &str) -> Self {
        Self { verb, kind, namespace: (kind != Kind::Nodes).then(|| namespace.to_owned()) }
    }

    /// The error of a request that needed this right.
    pub(crate) fn failed(self, source: kube::Error) -> Error {
        match &source {
            kube::Error::Api(status) if is_about_rights(status) => Error::Forbidden(self),
            kube::Error::Api(status) => {
                Error::Refused { what: self, why: status_message(status).into_owned() }
            }
            // Nothing but the code is told of such an answer.
            kube::Error::UpgradeConnection(UpgradeConnectionError::ProtocolSwitch(code)) if *code == 403 => {
                Error::Forbidden(self)
            }
            _ => Error::Request { what: self, source: Box::new(source) },
        }
    }

    /// Which of the operator's or of Kubernetes' roles gives this right, as the end of a sentence.
    pub(crate) fn given_by(&self) -> String {
        let place = self.namespace.as_deref().unwrap_or_default();
        match self.kind {
            Kind::Shadows | Kind::Fleet if self.verb == "patch" => {
                format!("the operator's ClusterRole brupop-operator gives this right, bound in the namespace {place}")
            }
            Kind::Pools if self.verb == "patch" => {
                format!("the operator's ClusterRole brupop-pool-editor gives this right, bound in the namespace {place}")
            }
            Kind::Shadows | Kind::Fleet | Kind::Pools | Kind::Lease => format!(
                "the operator's ClusterRole brupop-viewer gives this right (and with it Kubernetes' own view, edit and admin), \
                 and so does brupop-operator, bound in the namespace {place}"
            ),
            Kind::Nodes => "none of the operator's roles gives this right, for RBAC cannot give one annotation of a Node \
                            without the rest of it: a ClusterRole of your own has to"
                .to_owned(),
            Kind::Events | Kind::Pods => format!("Kubernetes' ClusterRole view gives this right, bound in the namespace {place}"),
            Kind::Exec => {
                format!("Kubernetes' ClusterRole edit gives this right, bound in the namespace {place}")
            }
        }
    }

    fn resource(&self) -> String {
        match self.kind {
            Kind::Shadows => format!("bottlerocketshadows.{}", names::GROUP),
            Kind::Fleet => format!("bottlerocketfleets.{}", names::GROUP),
            Kind::Pools => format!("bottlerocketpools.{}", names::GROUP),
            Kind::Nodes => "nodes".to_owned(),
            Kind::Events => "events".to_owned(),
            Kind::Lease => "leases.coordination.k8s.io".to_owned(),
            Kind::Pods => "pods".to_owned(),
            Kind::Exec => "pods/exec".to_owned(),
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

/// Does this refusal come from RBAC, and not from an admission rule? The API server gives both the same code and reason.
fn is_about_rights(status: &Status) -> bool {
    status.code == 403
        && status.message.contains(" is forbidden: User ")
        && status.message.contains(" cannot ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(message: &str) -> String {
        let status = Status { code: 403, message: message.to_owned(), ..Status::default() };
        let error = Right::new("patch", Kind::Fleet, "ns").failed(kube::Error::Api(Box::new(status)));
        brupop_runtime::errors::describe(&error)
    }

    #[test]
    fn a_missing_right_is_named_with_the_role_that_gives_it() {
        let rbac = r#"bottlerocketfleets.brupop.bottlerocket.aws "fleet" is forbidden: User "eve" cannot patch resource "bottlerocketfleets" in API group "brupop.bottlerocket.aws" in the namespace "ns""#;
        assert_eq!(
            refused(rbac),
            "you may not patch bottlerocketfleets.brupop.bottlerocket.aws in the namespace ns; the operator's ClusterRole \
             brupop-operator gives this right, bound in the namespace ns"
        );
    }

    #[test]
    fn a_refusal_of_an_admission_rule_is_quoted() {
        let policy = "bottlerocketfleets \"fleet\" is forbidden: ValidatingAdmissionPolicy 'freeze' denied request: not today";
        let said = refused(policy);
        assert_eq!(
            said,
            format!(
                "the API server refuses to let you patch bottlerocketfleets.brupop.bottlerocket.aws in the namespace ns: \
                 {policy}"
            )
        );
    }
}
