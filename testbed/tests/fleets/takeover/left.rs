//! Nodes as upstream's operator leaves them when it is stopped: shadow, host and Node.

use anyhow::{Context as _, Result};
use brupop_api::names::{EXCLUDE_FROM_LB_LABEL, UPDATER_INTERFACE_LABEL, shadow_name};
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::host::Command;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::{Fleet, await_until};
use http::Method;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::Api;
use serde_json::{Value as Json, json};

use crate::raw::request;

const TIME: &str = "2026-01-01T00:00:00.123456789+00:00";

/// How far the host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// It runs the old version.
    Old,
    /// It would boot the new version next.
    Activated,
    /// It runs the new version.
    New,
}

/// What is to be left as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stays {
    /// Nothing: it is upstream's.
    Nothing,
    /// Cordon and exclusion: they are a person's.
    OutOfService,
    /// Everything: the node has lost its label.
    Everything,
}

/// One node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    /// As which version the shadow is stored.
    pub stored: &'static str,
    /// `spec.state`
    pub wanted: &'static str,
    /// `status.current_state`
    pub reached: &'static str,
    pub host: Host,
    pub cordoned: bool,
    pub excluded: bool,
    /// What nobody is to change.
    pub stays: Stays,
}

impl Left {
    /// Of a shadow stored as `v2`, on a node in service.
    pub(crate) const fn v2(wanted: &'static str, reached: &'static str, host: Host) -> Self {
        Self {
            stored: "v2",
            wanted,
            reached,
            host,
            cordoned: false,
            excluded: false,
            stays: Stays::Nothing,
        }
    }

    /// Of a shadow stored as `v1`.
    pub(crate) const fn v1(wanted: &'static str, reached: &'static str) -> Self {
        Self {
            stored: "v1",
            ..Self::v2(wanted, reached, Host::Old)
        }
    }

    /// On a cordoned node.
    pub(crate) const fn cordoned(self) -> Self {
        Self {
            cordoned: true,
            ..self
        }
    }

    /// On a node that load balancers leave out.
    pub(crate) const fn excluded(self) -> Self {
        Self {
            excluded: true,
            ..self
        }
    }

    /// Cordon and exclusion are a person's.
    pub(crate) const fn by_a_person(self) -> Self {
        Self {
            stays: Stays::OutOfService,
            ..self
        }
    }

    /// On a node without the label.
    pub(crate) const fn unlabelled(self) -> Self {
        Self {
            stays: Stays::Everything,
            ..self
        }
    }

    /// Host and Node of this number become so.
    pub(crate) async fn on_its_node(self, fleet: &Fleet, number: usize) -> Result<()> {
        let host = fleet
            .hosts
            .get(number)
            .with_context(|| format!("host {number}"))?;
        let node = format!("node-{number}");
        if self.host != Host::Old {
            for command in [Command::Refresh, Command::Prepare, Command::Activate] {
                host.has_run(command)?;
            }
        }
        if self.host == Host::New {
            host.reboot_now();
            let nodes = Api::<Node>::all(fleet.client());
            await_until(format!("{node} shows its new image"), async || {
                let info = nodes.get(&node).await.ok()?.status?.node_info?;
                info.os_image.contains(NEW).then_some(())
            })
            .await?;
        }
        if self.cordoned {
            fleet.kubectl(&format!("cordon {node}")).await?;
        }
        if self.excluded {
            let label = format!("{EXCLUDE_FROM_LB_LABEL}=true");
            fleet.kubectl(&format!("label node {node} {label}")).await?;
        }
        if self.stays == Stays::Everything {
            let label = format!("{UPDATER_INTERFACE_LABEL}-");
            fleet.kubectl(&format!("label node {node} {label}")).await?;
        }
        Ok(())
    }

    /// Its shadow, as upstream's apiserver makes it for its agent.
    pub(crate) async fn shadow(self, fleet: &Fleet, number: usize) -> Result<()> {
        let node = Api::<Node>::all(fleet.client())
            .get(&format!("node-{number}"))
            .await?;
        let path = format!(
            "/apis/brupop.bottlerocket.aws/{}/namespaces/{NAMESPACE}/bottlerocketshadows",
            self.stored
        );
        let name = shadow_name(&node.name_any());
        let owner =
            json!({"apiVersion": "v1", "kind": "Node", "name": node.name_any(), "uid": node.uid()});
        let shadow = json!({
            "apiVersion": format!("brupop.bottlerocket.aws/{}", self.stored), "kind": "BottlerocketShadow",
            "metadata": {"name": name, "ownerReferences": [owner]}, "spec": self.spec(),
        });
        let client = fleet.client();
        let mut made = await_until(format!("{name} is made"), async || {
            // The definition is known to the API server a moment after it is there.
            request(&client, Method::POST, &path, &shadow).await.ok()
        })
        .await?;
        made["status"] = self.status();
        request(
            &client,
            Method::PUT,
            &format!("{path}/{name}/status"),
            &made,
        )
        .await?;
        Ok(())
    }

    fn spec(self) -> Json {
        let (time, version) = if self.wanted == "Idle" {
            (None, None)
        } else {
            (Some(TIME), Some(NEW))
        };
        json!({"state": self.wanted, "state_transition_timestamp": time, "version": version})
    }

    fn status(self) -> Json {
        let runs = if self.host == Host::New { NEW } else { OLD };
        let mut status =
            json!({"current_version": runs, "target_version": NEW, "current_state": self.reached});
        if self.stored == "v2" {
            let failed = self.reached == "ErrorReset";
            status["crash_count"] = json!(u8::from(failed));
            status["state_transition_failure_timestamp"] = json!(failed.then_some(TIME));
        }
        status
    }
}
