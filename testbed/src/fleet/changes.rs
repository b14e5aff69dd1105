//! Changes of a running fleet: its nodes, and the operator's settings.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use brupop_api::names;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::json;

use super::{Fleet, OLD};
use crate::host::{Durations, Faults, Host, HostOptions};
use crate::objects::merge;
use crate::operator::NAMESPACE;
use crate::sandbox::Signal;
use crate::{NewNode, await_until};

impl Fleet {
    /// The node `node-<number>` with its host, which becomes the last of [`Fleet::hosts`].
    pub async fn join(&mut self, number: usize, durations: Durations) -> Result<()> {
        let node = NewNode::numbered(number);
        let host = self.boot(&node.name, number, durations)?;
        let node = node.on(&host);
        node.create(&self.client()).await?;
        self.kubelets.attach(&node.name, host.power());
        self.hosts.push(host);
        Ok(())
    }

    /// The host of this node, of the old version, with the variant of this number.
    pub fn boot(&self, node: &str, number: usize, durations: Durations) -> Result<Host> {
        let variant = self
            .variants
            .get(number % self.variants.len().max(1))
            .context("hosts have no variant")?;
        Host::start(HostOptions {
            socket: self.kubelets.api_socket(node)?,
            socket_group: None,
            version: OLD.to_owned(),
            variant: (*variant).to_owned(),
            boot_id_file: self.kubelets.boot_id_file(node)?,
            durations,
        })
    }

    /// Another machine takes the place of this one, under the same name: the Node is deleted and made again, and what
    /// runs on it is started again.
    pub async fn replace(&self, number: usize) -> Result<()> {
        let host = self
            .hosts
            .get(number)
            .with_context(|| format!("host {number}"))?;
        let node = NewNode::numbered(number).on(host);
        Api::<Node>::all(self.client())
            .delete(&node.name, &DeleteParams::default())
            .await?;
        node.create(&self.client()).await?;
        host.reboot_now();
        Ok(())
    }

    /// Changes what people adjust of reconcilers (but for what [`FleetOptions::env`](super::FleetOptions::env) sets) and restarts them; returns when
    /// one of them leads.
    pub async fn configure(&self, settings: &[(&str, &str)]) -> Result<()> {
        let settings: BTreeMap<_, _> = settings.iter().copied().collect();
        let maps = Api::<ConfigMap>::namespaced(self.client(), NAMESPACE);
        // Its name carries a hash of its data.
        let of = "{.spec.template.spec.containers[0].envFrom[0].configMapRef.name}";
        let get = format!("get deployment brupop-reconciler -n {NAMESPACE} -o jsonpath={of}");
        let map = self.kubectl(&get).await?;
        merge(&maps, &map, json!({"data": settings})).await?;
        let before = self.term().await?;
        let reconcilers =
            ListParams::default().labels(&format!("{}=reconciler", names::COMPONENT_LABEL));
        let pods = Api::<Pod>::namespaced(self.client(), NAMESPACE);
        pods.delete_collection(&DeleteParams::default(), &reconcilers)
            .await?;
        self.next_term(before).await.map(drop)
    }

    /// This many replicas of reconciler or webhook from now on; where that is none, returns when all have ended.
    pub async fn scale(&self, component: &str, replicas: usize) -> Result<()> {
        self.kubectl(&format!(
            "-n {NAMESPACE} scale deployment brupop-{component} --replicas={replicas}"
        ))
        .await?;
        await_until(format!("the end of every {component}"), async || {
            (replicas > 0 || self.processes(component).is_empty()).then_some(())
        })
        .await
    }

    /// All processes of a component get a signal.
    pub fn signal(&self, component: &str, signal: Signal) {
        for process in self.processes(component) {
            self.kubelets.signal(NAMESPACE, &process.pod, signal);
        }
    }

    /// From now on this goes wrong with every host, and nothing else.
    pub fn set_faults(&self, faults: &Faults) {
        self.hosts
            .iter()
            .for_each(|host| host.set_faults(faults.clone()));
    }
}
