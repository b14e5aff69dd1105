//! A workload that must not be hurt: pods behind a Service and a budget, with a customer who asks all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::machines::Images;
use brupop_testbed::objects::{budget, deployment, kubectl};
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{Api, ListParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::cluster::Cluster;

pub const NAMESPACE: &str = "shop";
const REPLICAS: usize = 6;
const MAY_BE_AWAY: usize = 1;

/// The workload, and the observations of it.
pub struct Shop {
    client: Client,
    /// The fewest available pods at any time.
    fewest: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
    unanswered: Arc<AtomicUsize>,
    _watching: JoinSet<()>,
}

impl Shop {
    /// Deploys it; returns when all pods are available and the Service answers.
    pub async fn open(cluster: &Cluster) -> Result<Self> {
        println!(
            "-- a workload: {REPLICAS} pods behind a Service, of which {MAY_BE_AWAY} may be away (PodDisruptionBudget)"
        );
        kubectl(&cluster.control_plane, &["apply"], &objects()).await?;
        let client = cluster.client();
        cluster
            .control_plane
            .until_rolled_out(NAMESPACE, "deployment/cart")
            .await?;
        let service = Api::<Service>::namespaced(client.clone(), NAMESPACE)
            .get("cart")
            .await?;
        let address = service
            .spec
            .and_then(|spec| spec.cluster_ip)
            .context("a Service without an address")?;
        brupop_testbed::await_within(Duration::from_secs(30), "the Service answers", async || {
            ask(&address).await.ok()
        })
        .await?;

        let (fewest, asked, unanswered) = (
            Arc::new(AtomicUsize::new(REPLICAS)),
            Arc::default(),
            Arc::default(),
        );
        let mut watching = JoinSet::new();
        watching.spawn(count_available(client.clone(), Arc::clone(&fewest)));
        watching.spawn(keep_asking(
            address,
            Arc::clone(&asked),
            Arc::clone(&unanswered),
        ));
        Ok(Self {
            client,
            fewest,
            asked,
            unanswered,
            _watching: watching,
        })
    }

    /// Returns how many of its pods are on this node, those on their way out included.
    pub async fn pods_on(&self, node: &str) -> Result<usize> {
        // Of a pod that has ended, the kubelet may not have deleted the object yet.
        let runs = format!("spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed");
        let there = ListParams::default().fields(&runs);
        Ok(Api::<Pod>::namespaced(self.client.clone(), NAMESPACE)
            .list(&there)
            .await?
            .items
            .len())
    }

    /// Fails if the budget was not kept, or customers went away.
    pub fn judge(&self) -> Result<()> {
        let [fewest, asked, unanswered] = [&self.fewest, &self.asked, &self.unanswered]
            .map(|count| count.load(Ordering::Relaxed));
        println!(
            "   the shop: never fewer than {fewest} of {REPLICAS} pods; {unanswered} of {asked} requests unanswered"
        );
        ensure!(
            fewest >= REPLICAS - MAY_BE_AWAY,
            "only {fewest} of {REPLICAS} pods were available"
        );
        ensure!(asked > 100, "the shop was asked {asked} times only");
        // A proxy learns of a pod's end a moment after the pod.
        ensure!(
            unanswered * 100 <= asked,
            "{unanswered} of {asked} requests were not answered"
        );
        Ok(())
    }
}

fn objects() -> [serde_json::Value; 4] {
    let labels = json!({"app": "cart"});
    let pod = json!({
        "containers": [{
            "name": "cart", "image": Images::SANDBOX, "env": [{"name": "LISTEN", "value": ":8080"}],
            "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
            // Until the proxies know that it goes.
            "lifecycle": {"preStop": {"sleep": {"seconds": 2}}},
        }],
        "topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": labels},
        }],
    });
    [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "cart", "namespace": NAMESPACE},
            "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]}}),
        budget(NAMESPACE, "cart", "cart", &json!(MAY_BE_AWAY)),
        deployment(NAMESPACE, "cart", REPLICAS, &json!({"spec": pod})),
    ]
}

async fn count_available(client: Client, fewest: Arc<AtomicUsize>) {
    let deployments = Api::<Deployment>::namespaced(client, NAMESPACE);
    let mut seen = watcher(deployments, watcher::Config::default())
        .default_backoff()
        .applied_objects()
        .boxed();
    while let Some(deployment) = seen.next().await {
        if let Ok(deployment) = deployment
            && deployment.name_any() == "cart"
        {
            let available = deployment
                .status
                .and_then(|status| status.available_replicas)
                .unwrap_or(0);
            fewest.fetch_min(usize::try_from(available).unwrap_or(0), Ordering::Relaxed);
        }
    }
}

async fn keep_asking(address: String, asked: Arc<AtomicUsize>, unanswered: Arc<AtomicUsize>) {
    let mut ticks = interval(Duration::from_millis(50));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        asked.fetch_add(1, Ordering::Relaxed);
        if ask(&address).await.is_err() {
            unanswered.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// One request, by the Service's address: on a connection of its own, so that proxies choose again.
async fn ask(address: &str) -> Result<()> {
    let exchange = async {
        let mut stream = TcpStream::connect((address, 80)).await?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        ensure!(answer.starts_with("HTTP/1.0 200"), "{answer}");
        Ok(())
    };
    timeout(Duration::from_secs(2), exchange).await?
}
