//! Manual changes of a fleet by users and administrators.

use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use brupop_api::names::{FLEET, PAUSE_ANNOTATION};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

use super::Fleet;
use crate::DEADLINE;
use crate::binaries::control_plane_binaries;
use crate::objects::merge;
use crate::operator::NAMESPACE;

impl Fleet {
    /// `kubectl` with these words, none of which has a blank in it.
    pub async fn kubectl(&self, words: &str) -> Result<String> {
        self.control_plane.kubectl(words.split(' ')).await
    }

    /// `kubectl annotate node`: `key=value`, or `key-`.
    pub async fn annotate(&self, node: &str, annotation: &str) -> Result<()> {
        self.kubectl(&format!("annotate node {node} --overwrite {annotation}"))
            .await
            .map(drop)
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
        merge(&self.ledger(), FLEET, json!({"spec": spec})).await?;
        Ok(())
    }

    /// A person waits for at most so long until the fleet is idle, as before an uninstallation.
    pub async fn wait_until_idle(&self, timeout: &str) -> Result<()> {
        let wait =
            format!("wait --for=condition=Idle brf/fleet -n {NAMESPACE} --timeout={timeout}");
        self.kubectl(&wait).await.map(drop)
    }

    /// A person who may do anything pastes this into a plain shell at the root of the repository; what it said is returned.
    pub async fn paste(&self, commands: &str) -> Result<String> {
        let kubectl = control_plane_binaries().await?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths([kubectl].into_iter().chain(std::env::split_paths(&path)))?;
        let output = Command::new("bash")
            .args(["-c", commands])
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
            .env_clear()
            .env("PATH", path)
            .env("HOME", self.control_plane.dir())
            .env("KUBECONFIG", self.control_plane.kubeconfig())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = timeout(DEADLINE, output)
            .await
            .with_context(|| format!("no end: {commands}"))??;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        ensure!(output.status.success(), "{commands}\n{said}");
        Ok(said)
    }
}
