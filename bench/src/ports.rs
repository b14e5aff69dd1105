//! The memory of the webhook in a flood of connections to each of its two replicas. Who is served meanwhile is tested in
//! testbed/tests/ports.rs.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::await_until;
use brupop_testbed::flood::{Behaviour, Flood, Port, raise_open_files};
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::usage::Usage;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::Api;

use crate::table::Figure;
use crate::webhook::Cluster;

/// The most memory that manifests/webhook.yaml expects the webhook to use.
const AIM_MIB: f64 = 190.0;
/// The port of the webhook's container for admission reviews.
const ADMISSION: i32 = 8443;
/// Number of connections that are opened to each replica, and opened again at once: more than it keeps.
const CONNECTIONS: usize = 2000;
const COSTLY: [Behaviour; 3] = [
    Behaviour::HalfBody,
    Behaviour::LongBody,
    Behaviour::CostlyBody,
];

pub async fn measure() -> Result<Vec<Figure>> {
    let cluster = Cluster::start(2).await?;
    raise_open_files()?;
    let webhooks = || {
        let mut processes = cluster.kubelets.processes();
        processes.retain(|process| process.component == "webhook");
        processes
    };
    let flooded = webhooks();
    ensure!(flooded.len() == 2, "{flooded:?}");
    let configurations = Api::<ValidatingWebhookConfiguration>::all(cluster.client());
    let configuration = configurations.get("brupop-webhook").await?;
    let entry = configuration
        .webhooks
        .into_iter()
        .flatten()
        .next()
        .context("no webhook")?;
    let bundle = entry.client_config.ca_bundle.context("no bundle")?.0;
    let mut floods = vec![];
    for webhook in &flooded {
        let address = *webhook
            .listens
            .get(&ADMISSION)
            .context("it does not listen")?;
        let port = Port::tls(address, &format!("brupop-webhook.{NAMESPACE}.svc"), &bundle)?;
        floods.push(Flood::start(&port, CONNECTIONS, &COSTLY, Duration::ZERO)?);
    }
    for flood in &floods {
        let all = async || (flood.completed() >= CONNECTIONS).then_some(());
        await_until("all of the flood has come", all).await?;
    }
    let mut resident: f64 = 0.0;
    for webhook in &flooded {
        resident = resident.max(Usage::of(webhook.pid)?.peak);
    }
    ensure!(
        webhooks() == flooded,
        "a webhook ended: {flooded:?} {:?}",
        webhooks()
    );
    let what = format!("webhook: resident at most, {CONNECTIONS} connections with costly bodies");
    Ok(vec![Figure::new(what, resident, "MiB").aim(AIM_MIB)])
}
