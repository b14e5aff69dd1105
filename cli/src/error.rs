//! Errors of the plugin, with their hints.

use brupop_api::item::Unreadable;
use brupop_runtime::client::ClientError;
use brupop_runtime::errors::status_message;
use kube::config::KubeconfigError;
use kube::core::Status;

use crate::access::Right;

/// Reasons why something could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such kubeconfig or no such context, or it cannot be used.
    #[error("the kubeconfig cannot be used: set KUBECONFIG, or name a file with --kubeconfig")]
    Kubeconfig(#[source] Box<KubeconfigError>),
    /// The kubeconfig can be read, but its certificates or credentials cannot be used.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The caller lacks a right.
    #[error("you may not {0}; {hint}", hint = .0.given_by())]
    Forbidden(Right),
    /// The API server refuses a request for another reason.
    #[error("the API server refuses to let you {0}: {1}")]
    Refused(Right, String),
    /// A request got no answer, or one that is not the API server's.
    #[error("could not {0}")]
    Request(Right, #[source] Box<kube::Error>),
    /// The object changed between reading and writing.
    #[error(
        "{0} has changed since it was read, so nothing was written: look at it again, and repeat the command"
    )]
    Changed(String),
    /// The API server does not know our resources.
    #[error(
        "the operator is not installed in this cluster, which has no resource {0}: check that it is the right cluster \
         (--context, --kubeconfig)"
    )]
    NotInstalled(String),
    /// Several nodes could not be changed, each for this reason.
    #[error("{}", .0.join("; "))]
    Nodes(Vec<String>),
    /// There is no such thing.
    #[error("there is no {0}")]
    Missing(String),
    #[error("there is no operator in the namespace {0}; there is one in {1}: add -n {1}")]
    Elsewhere(String, String),
    /// An object cannot be understood.
    #[error("{0} cannot be read: {1}")]
    Unreadable(String, Unreadable),
    /// The version is not halted.
    #[error("the version {0}")]
    NotHalted(String),
    /// `kubectl exec` failed, and said this.
    #[error("the plan could not be made: {0}")]
    Plan(String),
    /// The result cannot be written as JSON.
    #[error("cannot write JSON")]
    Json(#[from] serde_json::Error),
    /// The result cannot be written as YAML.
    #[error("cannot write YAML")]
    Yaml(#[from] serde_yaml_ng::Error),
    /// The result cannot be printed.
    #[error("cannot write to standard output")]
    Print(#[from] std::io::Error),
}

impl Right {
    /// Returns the error of a request that needed this right.
    pub(crate) fn failed(self, source: kube::Error) -> Error {
        match &source {
            kube::Error::Api(status) if is_about_rights(status) => Error::Forbidden(self),
            // An object that is not there is `NotFound`; other words come from a path that is not served.
            kube::Error::Api(status)
                if status.code == 404 && status.reason != "NotFound" && self.is_ours() =>
            {
                Error::NotInstalled(self.resource)
            }
            kube::Error::Api(status) => Error::Refused(self, status_message(status).into_owned()),
            _ => Error::Request(self, Box::new(source)),
        }
    }
}

/// Whether this refusal comes from RBAC, and not from an admission rule. The API server gives both the same code and reason.
fn is_about_rights(status: &Status) -> bool {
    status.code == 403
        && status.message.contains(" is forbidden: User ")
        && status.message.contains(" cannot ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use brupop_api::{BottlerocketFleet, BottlerocketShadow};
    use k8s_openapi::api::core::v1::Node;

    fn refused(message: &str) -> String {
        let status = Status {
            code: 403,
            message: message.to_owned(),
            ..Status::default()
        };
        let error = Right::new::<BottlerocketFleet>("patch", Some("ns"))
            .failed(kube::Error::Api(Box::new(status)));
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
    fn a_cluster_without_our_resources_has_no_operator() {
        let said = |right: Right, reason: &str| {
            let (message, reason) = ("404 page not found".to_owned(), reason.to_owned());
            let status = Status {
                code: 404,
                message,
                reason,
                ..Status::default()
            };
            let error = right.failed(kube::Error::Api(Box::new(status)));
            brupop_runtime::errors::describe(&error)
        };
        let not_status = "Failed to parse error data";
        let page = said(
            Right::new::<BottlerocketShadow>("list", Some("ns")),
            not_status,
        );
        let expected = "the operator is not installed in this cluster, which has no resource \
                        bottlerocketshadows.brupop.bottlerocket.aws: ";
        assert!(page.starts_with(expected), "{page}");
        let (fleet, nodes) = (
            Right::new::<BottlerocketFleet>("list", Some("ns")),
            Right::new::<Node>("list", None),
        );
        for other in [said(fleet, "NotFound"), said(nodes, not_status)] {
            assert!(other.starts_with("the API server refuses"), "{other}");
        }
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
