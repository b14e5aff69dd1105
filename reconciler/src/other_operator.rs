//! Looks for upstream's operator: two operators would cordon, drain and reboot the same nodes, and act on the same shadows.
//!
//! Its `DaemonSet` has the name of ours and is replaced when ours is applied; its Deployments are not.

use std::collections::BTreeSet;

use brupop_api::Item;
use brupop_api::item::IdentityOnly;
use brupop_runtime::errors::describe;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::Api;
use kube::{Client, Error};

use crate::proof::Finding;

/// Where upstream's manifests put it. Its Helm chart may put it elsewhere.
const NAMESPACE: &str = "brupop-bottlerocket-aws";
/// Upstream's Deployments (1.x). The role of the reconciler lists them, too.
const DEPLOYMENTS: [&str; 2] = ["brupop-controller-deployment", "brupop-apiserver"];

/// What was seen of upstream's operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// Its Deployments, as `<namespace>/<name>`.
    found: Vec<String>,
    /// Why it is not known whether one of them is here, if that is so.
    unknown: Option<String>,
}

/// Asks for upstream's Deployments, in our namespace and in upstream's own.
pub async fn look(client: Client, namespace: String) -> Looked {
    let mut looked = Looked::default();
    for namespace in BTreeSet::from([namespace.as_str(), NAMESPACE]) {
        let deployments = Api::<Item<IdentityOnly<Deployment>>>::namespaced(client.clone(), namespace);
        for name in DEPLOYMENTS {
            match deployments.get(name).await {
                Ok(_) => looked.found.push(format!("{namespace}/{name}")),
                Err(Error::Api(status)) if status.code == 404 => {}
                Err(error) => looked.unknown = Some(describe(&error)),
            }
        }
    }
    looked
}

impl Finding for Looked {
    fn holds(&self) -> Result<(), String> {
        if !self.found.is_empty() {
            let found = self.found.join(", ");
            return Err(format!(
                "upstream's operator is installed, too (Deployments {found}), and two operators would reboot the same \
                 nodes: take one of them away, as docs/from-upstream.md says"
            ));
        }
        match &self.unknown {
            Some(why) => Err(format!("it is not known whether upstream's operator is installed, too: {why}")),
            None => Ok(()),
        }
    }

    fn is_unknown(&self) -> bool {
        self.found.is_empty() && self.unknown.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_counts_though_not_all_is_known() {
        let looked = |found: &[&str], unknown: Option<&str>| Looked {
            found: found.iter().map(ToString::to_string).collect(),
            unknown: unknown.map(str::to_owned),
        };
        assert_eq!(looked(&[], None).holds(), Ok(()));
        let both = looked(&["a/brupop-apiserver"], Some("timeout"));
        let why = both.holds().unwrap_err();
        assert!(why.contains("a/brupop-apiserver") && why.contains("docs/from-upstream.md"), "{why}");
        assert!(!both.is_unknown());
        let silent = looked(&[], Some("timeout"));
        assert!(silent.is_unknown() && silent.holds().unwrap_err().contains("too: timeout"));
    }

    #[test]
    fn the_role_that_is_shipped_names_them_all() {
        let shipped = include_str!("../../manifests/reconciler-cluster-role.yaml");
        assert!(shipped.contains(&format!("resourceNames: [{}]", DEPLOYMENTS.join(", "))), "{DEPLOYMENTS:?}");
    }
}
