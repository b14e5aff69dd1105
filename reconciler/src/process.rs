//! Puts the reconciler together and runs it.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use brupop_api::names;
use brupop_runtime::authorizer::{Authorizer, Requirement};
use brupop_runtime::tls::Resolver;
use brupop_runtime::{
    ClusterConfig, Health, Heartbeat, OwnThread, Shutdown, endpoint, metrics_endpoint,
};
use jiff::Timestamp;
use kube::Client;
use kube::runtime::events::{Recorder, Reporter};
use tokio::sync::watch;

use crate::cli::Settings;
use crate::lease::{self, Elected, Election};
use crate::metrics::Metrics;
use crate::run::Reconciler;
use crate::run::requests::ApiServer;
use crate::watches::Watches;

/// A loop that has not come round for so long is stuck: this process does not lead, and its kubelet starts it again.
pub(crate) const STUCK: Duration = Duration::from_secs(10);

/// Runs the reconciler until it is told to end.
///
/// # Errors
/// It cannot start. Once it runs, it logs errors and tries again.
pub async fn run(settings: Settings) -> Result<(), Box<dyn Error + Send + Sync>> {
    let policy = settings.policy()?;
    if !policy.default_pool.open_ever(Timestamp::now()) {
        // It is no error: the expression may have named a day that has come, and what was begun then goes on.
        let expression = &settings.scheduler_cron_expression;
        let says = "SCHEDULER_CRON_EXPRESSION names only past times: no update starts";
        tracing::warn!(expression, "{says}");
    }
    let us = settings.pod_name.clone().filter(|name| !name.is_empty());
    let us = us.ok_or("set POD_NAME to the name of this pod: the Lease and Events carry it")?;
    let metrics = Metrics::default();
    let cluster =
        ClusterConfig::of_pod("brupop-reconciler")?.counting(&metrics.process.api_requests);
    let shutdown = Shutdown::on_signals();
    let shutdown = shutdown.map_err(|why| format!("cannot handle signals: {why}"))?;
    // For the Lease and the pages, which go on while something holds the loop up.
    let beside = OwnThread::start("lease");
    let beside = beside.map_err(|why| format!("cannot start a thread: {why}"))?;
    let health_listener = beside.make(|| endpoint::listen(settings.health_address))?;
    let metrics_listener = endpoint::listen(settings.metrics_address)?;
    let resolver = Resolver::self_signed(&us)?;
    let namespace = cluster.namespace().to_owned();
    let client = cluster.client_without_retry()?;
    let client_of_lease = beside.make(|| cluster.client_without_retry())?;
    // A busy API server loses no Event.
    let events = cluster.client()?;
    let version = env!("CARGO_PKG_VERSION");
    tracing::info!(version, namespace, "reconciler started");

    let heartbeat = Heartbeat::new(STUCK);
    let health = Health::starting("the watches have not synced yet").with_loop(heartbeat.clone());
    let watches = Arc::new(Watches::start(&client, &namespace));
    let render = {
        let (watches, metrics) = (Arc::clone(&watches), metrics.clone());
        move || {
            let failures = watches.failures.load(Ordering::Relaxed);
            metrics.render(watches.cluster().ok().as_deref(), failures)
        }
    };
    let scrapers = Authorizer::new(
        client.clone(),
        Requirement::Get(metrics_endpoint::PATH),
        metrics.process.refused_scrapes.clone(),
    );
    let drops = metrics.process.drops.clone();
    let (pages, ending) = (health.clone(), || shutdown.clone());
    let health_pages = endpoint::serve(health_listener, pages, drops.clone(), ending());
    let health_pages = beside.spawn(health_pages);
    let listener = metrics_listener;
    let metrics_pages =
        metrics_endpoint::serve(listener, resolver, scrapers, render, drops, ending());
    let pages = tokio::spawn(async move { tokio::join!(health_pages, metrics_pages) });
    tokio::select! {
        () = heartbeat.during(watches.wait_until_synced()) => {}
        () = shutdown.requested() => return Ok(()),
    }
    metrics.name_events(watches.cluster().ok().as_deref());
    // The lists have shown that this process may watch. Until it leads, it needs to know nothing of the cluster.
    watches.rest();
    health.ready();

    let election = Election {
        namespace: namespace.clone(),
        lease: names::LEASE.to_owned(),
        us: us.clone(),
        duration: Duration::from_secs(settings.lease_duration_seconds),
    };
    let recorder = Recorder::new(events, reporter(Some(us)));
    let api = ApiServer {
        client: client.clone(),
        namespace,
        own_node: own_node(&cluster),
    };
    let reconciler =
        |elected| Reconciler::new(policy, settings, api, recorder, watches, elected, metrics);
    let client = client_of_lease;
    lead_in_turn(&beside, election, client, heartbeat, reconciler, shutdown).await;
    let _ = pages.await;
    Ok(())
}

/// Names this program in Events.
pub(crate) fn reporter(instance: Option<String>) -> Reporter {
    Reporter {
        controller: "brupop-reconciler".into(),
        instance,
    }
}

/// Takes part in the election, on the thread beside this one, and reconciles while this process leads. The Lease is given back
/// only when no call of ours is under way any more.
async fn lead_in_turn(
    beside: &OwnThread,
    election: Election,
    client: Client,
    heartbeat: Heartbeat,
    reconciler: impl FnOnce(Elected) -> Reconciler,
    shutdown: Shutdown,
) {
    let (sender, elected) = watch::channel(None);
    let (resign, resigned) = Shutdown::by_hand();
    let electing = lease::run(election, client, resigned, heartbeat.clone(), sender);
    let electing = beside.spawn(electing);
    reconciler(elected).run(heartbeat, shutdown).await;
    resign.request();
    let _ = electing.await;
}

/// The node that this process runs on, from its own token; `None` if that is not known. Only the order of updates
/// depends on it.
pub(crate) fn own_node(cluster: &ClusterConfig) -> Option<String> {
    let pod = cluster.pod();
    if let Err(why) = &pod {
        tracing::info!(why, "this process does not know which node it runs on");
    }
    Some(pod.ok()?.node_name)
}

#[cfg(test)]
pub(crate) mod tests;
