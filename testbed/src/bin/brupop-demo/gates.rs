//! What `make demo STAY=true` has for gates: a Prometheus, a pool that asks it, and the Secret that names it.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use brupop_testbed::Fleet;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::prometheus::{Prometheus, Served};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::json;
use tokio::time::sleep;

/// The Secret with the sources of gates.
const SECRET: &str = "brupop-gate-sources";
/// A pool of all nodes; its gate is open.
const POOL: &str = r"apiVersion: brupop.bottlerocket.aws/v1alpha1
kind: BottlerocketPool
metadata: {name: gated, namespace: brupop-bottlerocket-aws}
spec:
  nodeSelector: {}
  priority: 100
  gates:
  - name: all-well
    prometheus:
      source: main
      query: up == 0   # to close the gate: up == 1
      requires: up
";

/// Says how to try a gate, and writes the pool. The Prometheus ends when it is dropped.
pub(crate) async fn offer(fleet: &Fleet) -> Result<Prometheus> {
    let folder = fleet.control_plane.dir().join("gates");
    std::fs::create_dir_all(&folder)?;
    let address = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
    let prometheus = prometheus(fleet, folder.clone(), address).await?;
    let pool = folder.join("pool.yaml");
    std::fs::write(&pool, POOL)?;
    println!(
        "-- and a gate, which a Prometheus answers at http://{address}:
   kubectl create secret generic {SECRET} -n {NAMESPACE} --from-literal=main.url=http://{address}
   kubectl apply -f {}
   kubectl edit brp gated -n {NAMESPACE}   # with the query up == 1 it closes",
        pool.display()
    );
    Ok(prometheus)
}

/// A Prometheus that scrapes itself.
async fn prometheus(fleet: &Fleet, folder: PathBuf, address: SocketAddr) -> Result<Prometheus> {
    let configuration = json!({
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [{"job_name": "prometheus", "static_configs": [{"targets": [address]}]}],
    });
    let served = Served {
        address,
        certificate: None,
    };
    Prometheus::run(&fleet.control_plane, folder, &configuration, &served).await
}

/// Mounts the Secret into this folder, as kubelets do, for as long as it is polled.
pub(crate) async fn mount(fleet: &Fleet, folder: &Path) -> Result<()> {
    let secrets = Api::<Secret>::namespaced(fleet.client(), NAMESPACE);
    loop {
        // It comes when somebody makes it, and a request that fails is made again.
        let secret = secrets.get_opt(SECRET).await.ok().flatten();
        let data = secret.and_then(|it| it.data).unwrap_or_default();
        for (file, text) in data {
            std::fs::write(folder.join(file), text.0)?;
        }
        sleep(Duration::from_secs(1)).await;
    }
}
