//! Workloads of a fleet beside the operator.

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::Api;
use serde_json::{Value as Json, json};

use super::Fleet;
use crate::await_until;
use crate::objects::{self, budget, deployment, merge};
use crate::sandbox::Signal;

/// The namespace of the workloads.
const SHOP: &str = "shop";

impl Fleet {
    /// `kubectl apply` of these objects.
    pub async fn apply(&self, objects: &[Json]) -> Result<()> {
        objects::kubectl(&self.control_plane, &["apply"], objects)
            .await
            .map(drop)
    }

    /// Awaits that all pods of a Deployment run.
    pub async fn until_rolled_out(&self, namespace: &str, name: &str) -> Result<()> {
        self.control_plane
            .until_rolled_out(namespace, &format!("deployment/{name}"))
            .await
            .map(drop)
    }

    /// A Deployment with a disruption budget in the namespace `shop`; returns when all of its pods run.
    pub async fn deploy(&self, name: &str, replicas: usize, max_unavailable: &str) -> Result<()> {
        let max_unavailable = max_unavailable
            .parse::<u32>()
            .map_or_else(|_| json!(max_unavailable), |n| json!(n));
        let template = json!({"spec": {
            "terminationGracePeriodSeconds": 0,
            "topologySpreadConstraints": [{
                "maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": name}},
            }],
        }});
        self.apply(&[
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SHOP}}),
            budget(SHOP, name, name, &max_unavailable),
            deployment(SHOP, name, replicas, &template),
        ])
        .await?;
        self.until_rolled_out(SHOP, name).await
    }

    /// No pod comes into the namespace `shop` from now on while this many are there, until its quota `pods` is deleted.
    pub async fn limit_pods(&self, most: usize) -> Result<()> {
        self.kubectl(&format!("create quota pods --hard=pods={most} -n {SHOP}"))
            .await?;
        let quotas = Api::<ResourceQuota>::namespaced(self.client(), SHOP);
        await_until("the quota is in force", async || {
            quotas.get("pods").await.ok()?.status?.hard.map(drop)
        })
        .await
    }

    /// One more pod under the budget of a Deployment made by [`Fleet::deploy`], for which there is no node; returns when
    /// the budget counts it as away.
    pub async fn deploy_spare(&self, name: &str) -> Result<()> {
        let labels = json!({"app": name, "spare": "yes"});
        let nowhere = json!({"metadata": {"labels": labels}, "spec": {"nodeSelector": {"example.com/no-node-has-this": "yes"}}});
        let mut spare = deployment(SHOP, &format!("{name}-spare"), 1, &nowhere);
        spare["spec"]["selector"]["matchLabels"] = labels;
        self.apply(&[spare]).await?;
        self.until_it_allows_none(name).await
    }

    /// Awaits that the budget of this Deployment allows no disruption, for one of its pods is away.
    async fn until_it_allows_none(&self, name: &str) -> Result<()> {
        let budgets = Api::<PodDisruptionBudget>::namespaced(self.client(), SHOP);
        let none = await_until(
            format!("the budget of {name} allows no disruption"),
            async || {
                let status = budgets.get(name).await.ok()?.status?;
                (status.disruptions_allowed == 0 && status.expected_pods > status.current_healthy)
                    .then_some(())
            },
        );
        none.await
    }

    /// Holds up the next drain: the budget of this Deployment, of one unavailable pod, allows no disruption any more as soon
    /// as a node is out of load balancers, which is before its pods are evicted, and too late for the node to wait for the
    /// budget. Needs an `EXCLUDE_FROM_LB_WAIT_TIME_IN_SEC`.
    pub async fn hold_next_drain(&self, name: &str) -> Result<()> {
        self.until("a node is out of load balancers", |history| {
            history.now().any(|(_, seen)| seen.excluded)
        })
        .await?;
        self.signal("reconciler", Signal::STOP);
        let held = self.allow_none(name).await;
        self.signal("reconciler", Signal::CONT);
        held
    }

    /// Has the budget of this Deployment allow no disruption: by a spare pod that is away, the first time.
    async fn allow_none(&self, name: &str) -> Result<()> {
        let deployments = Api::<Deployment>::namespaced(self.client(), SHOP);
        if deployments
            .get_opt(&format!("{name}-spare"))
            .await?
            .is_none()
        {
            return self.deploy_spare(name).await;
        }
        self.allow_unavailable(name, 1).await?;
        self.until_it_allows_none(name).await
    }

    /// Sets the budget of a Deployment made by [`Fleet::deploy`] to this many unavailable pods.
    pub async fn allow_unavailable(&self, name: &str, max_unavailable: u32) -> Result<()> {
        let budgets = Api::<PodDisruptionBudget>::namespaced(self.client(), SHOP);
        let patch = json!({"spec": {"maxUnavailable": max_unavailable}});
        merge(&budgets, name, patch).await?;
        Ok(())
    }
}
