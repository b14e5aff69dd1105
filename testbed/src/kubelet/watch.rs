//! Watches pods, and runs a task for each of ours.

use super::pod::PodTask;
use super::{Kubelet, PodEntry, is_ready, node};
use crate::mended::Mended;
use brupop_api::names::COMPONENT_LABEL;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use std::net::Ipv4Addr;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

impl Kubelet {
    /// Takes note of a pod; a new one of ours gets a task.
    fn seen(self: &Arc<Self>, pod: Pod, tasks: &mut JoinSet<()>) {
        let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) else {
            return;
        };
        let boot = self.boot(&node);
        if !pod.labels().contains_key(COMPONENT_LABEL) {
            if boot.borrow().up && node::is_played(&pod) && !is_ready(&pod) {
                let client = self.shared.client.clone();
                tasks.spawn(async move { node::revive(&client, &pod, 0).await });
            }
            return;
        }
        let uid = pod.uid().unwrap_or_default();
        let pod = Arc::new(pod);
        let mut state = self.lock();
        if let Some(entry) = state.pods.get(&uid) {
            entry.seen.send_replace(pod);
            return;
        }
        state.addresses = state.addresses.wrapping_add(1);
        let [high, low] = state.addresses.to_be_bytes();
        // A pod that a restored etcd brings back keeps its address; a patch would add a second one, which is refused.
        let ip = pod
            .status
            .as_ref()
            .and_then(|status| status.pod_ip.clone())
            .unwrap_or_else(|| Ipv4Addr::new(10, 245, high, low).to_string());
        let (seen, seen_by_task) = watch::channel(pod);
        let (signals, signals_to_task) = mpsc::unbounded_channel();
        state.pods.insert(
            uid,
            PodEntry {
                seen,
                signals,
                process: None,
            },
        );
        let task = PodTask {
            kubelet: Arc::clone(self),
            pod: seen_by_task,
            boot: boot.subscribe(),
            signals: signals_to_task,
            ip,
        };
        tasks.spawn(task.run());
    }

    /// Forgetting a pod closes its task's channel, and so ends it.
    fn retain(&self, keep: impl Fn(&str) -> bool) {
        self.lock().pods.retain(|uid, _| keep(uid));
    }
}

/// Follows all pods that have a node.
pub(super) async fn pods(kubelet: Arc<Kubelet>) {
    let client = kubelet.shared.client.clone();
    let events = watcher::watcher(
        Api::<Mended<Pod>>::all(client),
        watcher::Config::default().fields("spec.nodeName!="),
    );
    let mut events = events.default_backoff().boxed();
    // Aborted with this task.
    let mut tasks = JoinSet::new();
    let mut listed = Vec::new();
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            Some(_) = tasks.join_next() => continue,
        };
        match event {
            Some(Ok(Event::Init)) => listed.clear(),
            Some(Ok(Event::InitApply(Mended(pod)))) => {
                listed.extend(pod.uid());
                kubelet.seen(pod, &mut tasks);
            }
            Some(Ok(Event::InitDone)) => {
                kubelet.retain(|uid| listed.iter().any(|listed| listed == uid));
            }
            Some(Ok(Event::Apply(Mended(pod)))) => kubelet.seen(pod, &mut tasks),
            Some(Ok(Event::Delete(Mended(pod)))) => {
                let gone = pod.uid().unwrap_or_default();
                kubelet.retain(|uid| uid != gone);
            }
            Some(Err(error)) => tracing::warn!(%error, "watching pods"),
            None => return,
        }
    }
}
