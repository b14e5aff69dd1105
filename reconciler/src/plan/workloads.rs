//! Looks whether workloads whose pods were evicted are available again.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use brupop_api::Item;
use kube::api::{Api, ListParams};
use kube::core::ApiResource;
use kube::{Client, Error};

use super::PlanError;
use brupop_core::cluster::Cluster;
use brupop_core::objects::PodItem;
use brupop_core::workloads::owner;
use brupop_core::workloads::{self, Found, Kind, Scale, Workload};

/// At most so many workloads are looked at: as many as the leader watches at once.
const LOOKED_AT: usize = 512;

/// Looks at the workloads that the leader would wait for, and notes their state in the cluster.
pub(super) async fn look(client: &Client, cluster: &mut Cluster) -> Result<(), PlanError> {
    let monitored = cluster.monitored();
    let owners: BTreeSet<&String> = monitored.values().flatten().collect();
    let mut found = BTreeMap::new();
    for owner in owners {
        let Some(workload) = Workload::parse(owner).filter(|_| found.len() < LOOKED_AT) else { continue };
        found.insert(owner.as_str(), find(client, &workload).await?);
    }
    // Workloads beyond the limit, or of other kinds, are not waited for.
    let known = |owner: &str| Some(found.get(owner).copied().unwrap_or(Found::Unknown));
    cluster.note_evicted(&monitored, |owners| workloads::evicted(owners, known));
    Ok(())
}

/// The `DaemonSet`s that made pods, as far as they were looked for, by owner.
#[derive(Default)]
pub(super) struct DaemonSets(BTreeMap<String, Found>);

impl DaemonSets {
    /// Looks for those that made these pods and were not looked for before.
    pub(super) async fn look(&mut self, client: &Client, pods: &[PodItem]) -> Result<(), PlanError> {
        for owner in pods.iter().filter_map(owner) {
            let Some(workload) = Workload::parse(&owner).filter(|it| it.kind == Kind::DaemonSet) else {
                continue;
            };
            if let Entry::Vacant(unknown) = self.0.entry(owner) {
                unknown.insert(find(client, &workload).await?);
            }
        }
        Ok(())
    }

    /// Has this pod lost the one that made it?
    pub(super) fn orphaned(&self, pod: &PodItem) -> bool {
        workloads::orphaned(pod, |owner| self.0.get(owner).copied())
    }
}

async fn find(client: &Client, workload: &Workload) -> Result<Found, PlanError> {
    let resource = ApiResource::from_gvk(&workload.kind.full_name());
    let api = Api::<Item<Scale>>::namespaced_with(client.clone(), &workload.namespace, &resource);
    // This lists one by name, because the reconciler's account may list workloads, but not get them.
    let named = ListParams::default().fields(&format!("metadata.name={}", workload.name));
    match api.list(&named).await {
        Ok(list) => Ok(Found::of(workload.kind, list.items.first())),
        Err(Error::Api(status)) if status.code == 403 => Ok(Found::Unknown),
        Err(source) => Err(PlanError::Read { what: "the workloads", source: Box::new(source) }),
    }
}
