//! What users and administrators do to a fleet by hand.

use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use brupop_api::names::{FLEET, PAUSE_ANNOTATION};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::Fleet;
use crate::binaries::control_plane_binaries;
use crate::operator::NAMESPACE;

impl Fleet {
    /// `kubectl` with these words, none of which has a blank in it.
    pub async fn kubectl(&self, words: &str) -> Result<String> {
        self.control_plane.kubectl(words.split(' ')).await
    }

    /// `kubectl annotate node`: `key=value`, or `key-`.
    pub async fn annotate(&self, node: &str, annotation: &str) -> Result<()> {
        self.kubectl(&format!("annotate node {node} --overwrite {annotation}")).await.map(drop)
    }

    /// A person pauses this node, or lets it go on.
    pub async fn pause_node(&self, node: &str, paused: bool) -> Result<()> {
        let annotation = format!("{PAUSE_ANNOTATION}{}", if paused { "=true" } else { "-" });
        self.annotate(node, &annotation).await
    }

    /// A person pauses the fleet, or lets it go on.
    pub async fn pause(&self, paused: bool) -> Result<()> {
        self.change(json!({"paused": paused})).await
    }

    /// A person changes this of the fleet's spec.
    pub async fn change(&self, spec: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.ledger().patch(FLEET, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// A person waits for at most so long until the fleet is idle, as before an uninstallation.
    pub async fn wait_until_idle(&self, timeout: &str) -> Result<()> {
        let wait = format!("wait --for=condition=Idle brf/fleet -n {NAMESPACE} --timeout={timeout}");
        self.kubectl(&wait).await.map(drop)
    }

    /// A person who may do anything pastes this into a shell.
    pub async fn paste(&self, command: &str) -> Result<()> {
        let output = tokio::process::Command::new("/bin/sh")
            .args(["-c", command])
            .env_clear()
            .env("PATH", control_plane_binaries().await?)
            .env("HOME", self.control_plane.dir())
            .env("KUBECONFIG", self.control_plane.kubeconfig())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .context("there is no shell")?;
        ensure!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }
}
