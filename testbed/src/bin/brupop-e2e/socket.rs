//! Bottlerocket's API server is started again, as systemd does when it has ended: its socket is another file then, and the
//! container's mount still the old one.

use std::time::Duration;

use anyhow::{Context as _, Result};
use brupop_testbed::await_within;

use crate::cluster::Cluster;

/// A release that only an agent which reaches its host can report.
const LATER: &str = "1.99.0";
/// The agent waits for a minute; then the kubelet starts a new container.
const DEADLINE: Duration = Duration::from_mins(3);

pub async fn see(cluster: &Cluster) -> Result<()> {
    let machine = cluster.machines.first().context("no machine")?;
    let (node, host) = (machine.name(), machine.host());
    println!(
        "-- the API server of the host {node} is started again, so its socket is another file"
    );
    // Nothing shall be updated any more.
    let pause = r#"patch brf fleet --type=merge -p={"spec":{"paused":true}}"#;
    cluster.kubectl(pause).await?;
    host.publish(LATER)?;
    host.restart_api(Duration::from_secs(1));
    let shadow = format!("brs/brs-{node}");
    // An idle agent asks its host every ten minutes, and whenever its shadow changes.
    cluster
        .kubectl(&format!("annotate {shadow} example.com/look=now"))
        .await?;
    let target = format!("get {shadow} -o=jsonpath={{.status.target_version}}");
    await_within(
        DEADLINE,
        "the agent reports what only its host can tell it",
        async || (cluster.kubectl(&target).await.ok()? == LATER).then_some(()),
    )
    .await?;
    let agents = "-l brupop.bottlerocket.aws/component=agent";
    let pods = format!("get pods {agents} --field-selector=spec.nodeName={node}");
    let pods = cluster.kubectl(&pods).await?;
    println!("   {node}: its agent ended, was started again, and reports {LATER}\n{pods}");
    Ok(())
}
