//! The component host-network over the overlay: the webhook listens on its hosts, and is asked there.

use std::time::Duration;

use anyhow::Result;
use brupop_testbed::await_within;

use crate::cluster::Cluster;
use crate::trespass;

pub async fn see(cluster: &Cluster) -> Result<()> {
    println!("-- with the component host-network");
    cluster
        .apply(&["kustomize/components/host-network"])
        .await?;
    cluster
        .until_rolled_out("deployment/brupop-webhook")
        .await?;
    let endpoints = "get endpointslices -l kubernetes.io/service-name=brupop-webhook \
         -o=jsonpath={.items[*].endpoints[*].addresses[*]}:{.items[*].ports[*].port}";
    // Those of the pods that went are taken out a moment later.
    let hosts = await_within(
        Duration::from_secs(30),
        "the Service has the hosts' addresses only",
        async || {
            let found = cluster.kubectl(endpoints).await.ok()?;
            let addresses: Vec<&str> = found.strip_suffix(":18443")?.split(' ').collect();
            (addresses.len() == 2
                && addresses
                    .iter()
                    .all(|address| address.starts_with("10.77.0.")))
            .then_some(found)
        },
    )
    .await?;
    println!("   behind its Service: {hosts}");
    trespass::see(cluster).await
}
