//! The control plane's programs one by one: started, killed, started again, looked at.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value as Json;
use tokio::process::Command;

use super::{CLUSTER, ControlPlane};
use crate::certificates::Authority;
use crate::etcd;
use crate::sandbox::Signal;

/// Anyone who follows etcd's revisions has all of them so long after the API server has ended.
const READERS: Duration = Duration::from_millis(500);
/// By how much revisions rise with each restore.
pub const BUMP: u64 = 1_000_000_000;

impl ControlPlane {
    /// Kills one of the control plane's programs, and awaits its end. Until [`Self::start_program`] it is gone.
    pub async fn kill(&mut self, program: &str) -> Result<()> {
        let position = self
            .processes
            .iter()
            .position(|process| process.name() == program);
        let mut process = self
            .processes
            .remove(position.with_context(|| format!("{program} does not run"))?);
        process.signal(Signal::KILL)?;
        process.wait().await.map(drop)
    }

    /// Starts a program; one that was killed with the same command line, on the same files.
    pub fn start_program(&mut self, program: &str) -> Result<()> {
        ensure!(
            self.processes
                .iter()
                .all(|process| process.name() != program),
            "{program} runs"
        );
        let command = self.command(program)?;
        let process = self.shared.sandbox.spawn(program, command)?;
        self.processes.push(process);
        Ok(())
    }

    /// Writes what etcd holds now into a file.
    pub async fn save_snapshot(&self, to: &Path) -> Result<()> {
        etcd::save_snapshot(self.etcd().trim_start_matches("http://"), to).await
    }

    /// Puts these objects into etcd, past the API server, which finds them there as if it had stored them: they must be as it
    /// stores them. Keys are such as `/registry/pods/default/a`. At most 128 at once, of 1.5 MB in all.
    pub async fn store(&self, objects: &[(String, Json)]) -> Result<()> {
        etcd::put(self.etcd().trim_start_matches("http://"), objects).await
    }

    /// Puts etcd back to a snapshot, and starts all programs again: Kubernetes' own must not go by what is forgotten. Revisions
    /// go on from those of then by [`BUMP`]. Nodes have to be reported again ([`crate::host::Host::tell_again`]).
    pub async fn restore(&mut self, snapshot: &Path) -> Result<()> {
        let clients = || ["kube-apiserver"].into_iter().chain(CLUSTER);
        for program in clients() {
            // It may be gone already.
            let _ = self.kill(program).await;
        }
        if self.signal("etcd", Signal::CONT).is_ok() {
            tokio::time::sleep(READERS).await;
            self.kill("etcd").await?;
        }
        let (data, restored) = (self.dir().join("etcd"), self.dir().join("etcd-restored"));
        let output = self.etcd_restore(snapshot, &restored, BUMP).output();
        let output = output.await?;
        ensure!(
            output.status.success(),
            "etcdutl: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        std::fs::remove_dir_all(&data).with_context(|| data.display().to_string())?;
        std::fs::rename(&restored, &data).with_context(|| restored.display().to_string())?;
        ["etcd"]
            .into_iter()
            .chain(clients())
            .try_for_each(|program| self.start_program(program))
    }

    /// Copies etcd's objects and the certificates into another folder; etcd must not run.
    pub(super) async fn copy_files(&self, to: &Path) -> Result<Authority> {
        // etcd makes room for 64 MB ahead.
        let files = [self.dir().join("etcd"), self.dir().join("pki")];
        let copied = Command::new("cp")
            .args(["-r", "--sparse=always"])
            .args(&files)
            .arg(to)
            .status()
            .await?;
        ensure!(copied.success(), "{files:?} cannot be copied: {copied}");
        Ok(self.authority.copied_to(&to.join("pki")))
    }

    /// Names of those programs that have ended by themselves; they are forgotten, so that they can be started again.
    pub fn ended(&mut self) -> Vec<String> {
        let mut ended = Vec::new();
        self.processes.retain_mut(|process| {
            let runs = process.check().is_ok();
            if !runs {
                ended.push(process.name().to_owned());
            }
            runs
        });
        ended
    }

    pub fn etcd(&self) -> String {
        format!("http://127.0.0.1:{}", self.etcd_port)
    }

    /// Whether the API server reaches Services; it does unless told otherwise.
    pub fn reach_services(&self, reached: bool) {
        self.shared.services.reach(reached);
    }
}
