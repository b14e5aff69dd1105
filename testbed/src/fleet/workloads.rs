//! What runs on a fleet beside the operator.

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{from_value, json};

use super::Fleet;
use crate::await_until;
use crate::sandbox::Signal;

/// The namespace of the workloads.
const SHOP: &str = "shop";

impl Fleet {
    /// A Deployment with a disruption budget in the namespace `shop`; returns when all of its pods run.
    pub async fn deploy(&self, name: &str, replicas: usize, max_unavailable: &str) -> Result<()> {
        let client = self.client();
        let namespace: Namespace = from_value(json!({"metadata": {"name": SHOP}}))?;
        if Api::<Namespace>::all(client.clone()).get_opt(SHOP).await?.is_none() {
            Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
        }
        let max_unavailable =
            max_unavailable.parse::<u32>().map_or_else(|_| json!(max_unavailable), |n| json!(n));
        let labels = json!({"app": name});
        let budget: PodDisruptionBudget = from_value(json!({
            "metadata": {"name": name},
            "spec": {"maxUnavailable": max_unavailable, "selector": {"matchLabels": labels}},
        }))?;
        Api::namespaced(client.clone(), SHOP).create(&PostParams::default(), &budget).await?;
        let deployment: Deployment = from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "terminationGracePeriodSeconds": 0,
                        "containers": [{"name": name, "image": "none"}],
                        "topologySpreadConstraints": [{
                            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
                            "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": labels},
                        }],
                    },
                },
            },
        }))?;
        let deployments = Api::<Deployment>::namespaced(client, SHOP);
        deployments.create(&PostParams::default(), &deployment).await?;
        await_until(format!("{replicas} pods of {name} run"), async || {
            let status = deployments.get(name).await.ok()?.status?;
            (usize::try_from(status.available_replicas?).ok()? == replicas).then_some(())
        })
        .await
    }

    /// One more pod under the budget of a Deployment made by [`Fleet::deploy`], for which there is no node; returns when
    /// the budget counts it as away.
    pub async fn deploy_spare(&self, name: &str) -> Result<()> {
        let spare: Deployment = from_value(json!({
            "metadata": {"name": format!("{name}-spare")},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": name, "spare": "yes"}},
                "template": {
                    "metadata": {"labels": {"app": name, "spare": "yes"}},
                    "spec": {
                        "nodeSelector": {"example.com/no-node-has-this": "yes"},
                        "containers": [{"name": name, "image": "none"}],
                    },
                },
            },
        }))?;
        Api::namespaced(self.client(), SHOP).create(&PostParams::default(), &spare).await?;
        self.until_it_allows_none(name).await
    }

    /// Awaits that the budget of this Deployment allows no disruption, for one of its pods is away.
    async fn until_it_allows_none(&self, name: &str) -> Result<()> {
        let budgets = Api::<PodDisruptionBudget>::namespaced(self.client(), SHOP);
        let none = await_until(format!("the budget of {name} allows no disruption"), async || {
            let status = budgets.get(name).await.ok()?.status?;
            (status.disruptions_allowed == 0 && status.expected_pods > status.current_healthy).then_some(())
        });
        none.await
    }

    /// Holds up the next drain: the budget of this Deployment, of one unavailable pod, allows no disruption any more as soon
    /// as a node is out of load balancers, which is before its pods are evicted, and too late for the node to wait for the
    /// budget. Needs an `EXCLUDE_FROM_LB_WAIT_TIME_IN_SEC`.
    pub async fn hold_next_drain(&self, name: &str) -> Result<()> {
        self.until("a node is out of load balancers", |history| history.now().any(|(_, seen)| seen.excluded))
            .await?;
        self.signal("reconciler", Signal::STOP);
        let held = self.allow_none(name).await;
        self.signal("reconciler", Signal::CONT);
        held
    }

    /// Has the budget of this Deployment allow no disruption: by a spare pod that is away, the first time.
    async fn allow_none(&self, name: &str) -> Result<()> {
        let deployments = Api::<Deployment>::namespaced(self.client(), SHOP);
        if deployments.get_opt(&format!("{name}-spare")).await?.is_none() {
            return self.deploy_spare(name).await;
        }
        self.allow_unavailable(name, 1).await?;
        self.until_it_allows_none(name).await
    }

    /// Sets the budget of a Deployment made by [`Fleet::deploy`] to this many unavailable pods.
    pub async fn allow_unavailable(&self, name: &str, max_unavailable: u32) -> Result<()> {
        let budgets = Api::<PodDisruptionBudget>::namespaced(self.client(), SHOP);
        let patch = Patch::Merge(json!({"spec": {"maxUnavailable": max_unavailable}}));
        budgets.patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }
}
