//! Conditions that tests wait for and assert of a fleet: objects, Events and metrics.

use anyhow::{Context as _, Result, ensure};
use brupop_api::Marker;
use brupop_api::conditions::{Condition, PROGRESSING};
use brupop_api::fleet::BottlerocketFleetStatus;
use brupop_api::names::{EXCLUDE_FROM_LB_LABEL, FLEET, GROUP, MARKER_ANNOTATION, shadow_name};
use brupop_api::shadow::LastFailure;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};

use super::Fleet;
use crate::await_until;
use crate::history::Seen;
use crate::kubelet::PodProcess;
use crate::scrape::{READER, Scraper};

impl Fleet {
    /// Returns what is known of this node now.
    pub fn seen(&self, node: &str) -> Result<Seen> {
        self.history()
            .of(node)
            .cloned()
            .with_context(|| format!("{node} is not known"))
    }

    /// Waits until this holds for one node.
    pub async fn until_node(
        &self,
        node: &str,
        what: &str,
        so: impl Fn(&Seen) -> bool,
    ) -> Result<()> {
        self.until(&format!("{node}: {what}"), |history| {
            history.of(node).is_some_and(&so)
        })
        .await
    }

    /// Waits until this node waits for this reason.
    pub async fn until_waits(&self, node: &str, reason: &str) -> Result<()> {
        self.until_node(node, reason, |seen| seen.is_idle() && seen.reason == reason)
            .await
    }

    /// Waits until this node runs this version, in service.
    pub async fn until_runs(&self, node: &str, version: &str) -> Result<()> {
        self.until_node(node, version, |seen| seen.runs(version))
            .await
    }

    /// Waits until this holds for the ledger.
    pub async fn until_ledger(
        &self,
        what: &str,
        so: impl Fn(&BottlerocketFleetStatus) -> bool,
    ) -> Result<BottlerocketFleetStatus> {
        let api = self.ledger();
        let waited = await_until(format!("the ledger: {what}"), async || {
            api.get(FLEET)
                .await
                .ok()?
                .status
                .filter(|status| so(status))
        });
        waited.await.with_context(|| self.report())
    }

    /// Waits until no slot is taken.
    pub async fn until_no_slot_is_taken(&self) -> Result<BottlerocketFleetStatus> {
        self.until_ledger("all slots are given back", |status| status.slots.is_empty())
            .await
    }

    /// The condition that says why this node's update progresses or waits.
    pub async fn progressing(&self, node: &str) -> Result<Condition> {
        let shadow = self.shadows().get(&shadow_name(node)).await?;
        let conditions = shadow.status.unwrap_or_default().conditions;
        conditions
            .into_iter()
            .find(|condition| condition.type_ == PROGRESSING)
            .context("no condition")
    }

    /// Returns what its spec notes of a node's failures.
    pub async fn failures(&self, node: &str) -> Result<Option<LastFailure>> {
        Ok(self
            .shadows()
            .get(&shadow_name(node))
            .await?
            .spec
            .last_failure)
    }

    /// The agent's process on this node.
    pub fn agent(&self, node: &str) -> Result<PodProcess> {
        let mut agents = self.processes("agent").into_iter();
        agents
            .find(|agent| agent.node == node)
            .with_context(|| format!("no agent on {node}"))
    }

    /// Waits for an Event about this object, or the shadow of the node of this name, with these words in its note.
    pub async fn wait_for_event(&self, about: &str, reason: &str, words: &str) -> Result<Event> {
        let events = Api::<Event>::all(self.client());
        let matches = |event: &Event| {
            let regarding = event
                .regarding
                .as_ref()
                .and_then(|regarding| regarding.name.as_deref());
            event.reason.as_deref() == Some(reason)
                && regarding.is_some_and(|name| name == about || name == shadow_name(about))
                && event
                    .note
                    .as_deref()
                    .is_some_and(|note| note.contains(words))
        };
        await_until(
            format!("an Event {reason} ({words}) about {about}"),
            async || {
                events
                    .list(&ListParams::default())
                    .await
                    .ok()?
                    .items
                    .into_iter()
                    .find(|event| matches(event))
            },
        )
        .await
    }

    /// Waits until one process of this component has all of these lines in its metrics.
    pub async fn wait_for_metrics(&self, component: &str, lines: &[&str]) -> Result<()> {
        let scraper = Scraper::start(&self.control_plane, Some(READER)).await?;
        let found = await_until(
            format!("{lines:?} is scraped of a {component}"),
            async || {
                for process in self.processes(component) {
                    let text = scraper.scrape(&process).await.unwrap_or_default();
                    if lines
                        .iter()
                        .all(|line| text.lines().any(|found| found == *line))
                    {
                        return Some(());
                    }
                }
                None
            },
        );
        found.await
    }

    /// Nothing of ours is left on this Node, and it is in service. The annotations for autoscalers go once no other node waits,
    /// which is a moment after its update.
    pub async fn assert_node_is_clean(&self, node: &str) -> Result<()> {
        let nodes = Api::<Node>::all(self.client());
        let is_kept = |node: &Node| {
            let marker = node
                .annotations()
                .get(MARKER_ANNOTATION)
                .map(|text| Marker::parse(text));
            matches!(marker, Some(Ok(marker)) if marker.is_kept())
        };
        let node = await_until(format!("{node} is kept no more"), async || {
            nodes.get(node).await.ok().filter(|node| !is_kept(node))
        })
        .await?;
        let spec = node.spec.clone().unwrap_or_default();
        let tainted = spec
            .taints
            .iter()
            .flatten()
            .any(|taint| taint.key.starts_with(GROUP));
        let clean = spec.unschedulable != Some(true)
            && !tainted
            && !node.annotations().contains_key(MARKER_ANNOTATION)
            && !node.labels().contains_key(EXCLUDE_FROM_LB_LABEL);
        let (name, annotations, labels) = (node.name_any(), node.annotations(), node.labels());
        ensure!(
            clean,
            "something is left on {name}: {annotations:?} {labels:?} {spec:?}"
        );
        Ok(())
    }
}
