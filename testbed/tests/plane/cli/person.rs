//! Somebody who runs `kubectl brupop`.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::binaries::control_plane_binaries;
use brupop_testbed::operator::{NAMESPACE, built};
use brupop_testbed::{DEADLINE, Fleet};
use serde_json::Value as Json;
use tokio::process::Command;
use tokio::time::timeout;

pub fn program() -> Result<PathBuf> {
    Ok(built(&["kubectl-brupop"])?.join("kubectl-brupop"))
}

pub struct Person {
    pub kubeconfig: PathBuf,
}

impl Person {
    /// A user to whom this `ClusterRole` is bound in the operator's namespace, if any is.
    pub async fn with(fleet: &Fleet, name: &str, role: Option<&str>) -> Result<Self> {
        let kubeconfig = fleet.control_plane.dir().join(format!("kubeconfig-{name}"));
        fleet
            .control_plane
            .kubeconfig_of_user(&kubeconfig, name, None)?;
        if let Some(role) = role {
            let (role, user) = (format!("--clusterrole={role}"), format!("--user={name}"));
            fleet
                .kubectl(&format!(
                    "create rolebinding {name} -n {NAMESPACE} {role} {user}"
                ))
                .await?;
        }
        Ok(Self { kubeconfig })
    }

    pub async fn command(&self, words: &str) -> Result<Command> {
        let mut command = Command::new(program()?);
        command
            .args(words.split(' '))
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(["--context", "testbed"]);
        // `plan` runs kubectl, which keeps a cache.
        let home = self.kubeconfig.parent().context("no folder")?;
        command
            .env_clear()
            .env("PATH", control_plane_binaries().await?)
            .env("HOME", home)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        Ok(command)
    }

    /// Returns what the program prints, and whether it went well; without a terminal there are no colours.
    async fn run(&self, words: &str) -> Result<(bool, String)> {
        let output = timeout(DEADLINE, self.command(words).await?.output())
            .await
            .context("it does not end")??;
        let said = String::from_utf8([output.stdout, output.stderr].concat())?;
        ensure!(
            !said.contains('\u{1b}'),
            "colours without a terminal: {said}"
        );
        Ok((output.status.success(), said))
    }

    /// Returns what is printed when this goes well, or does not; with these words in it.
    async fn tries(&self, well: bool, words: &str, expected: &[&str]) -> Result<String> {
        let (went_well, said) = self.run(words).await?;
        let is_so = went_well == well && expected.iter().all(|it| said.contains(it));
        ensure!(is_so, "{words}: not {expected:?}: {said}");
        Ok(said)
    }

    pub async fn says(&self, words: &str, expected: &[&str]) -> Result<String> {
        self.tries(true, words, expected).await
    }

    pub async fn says_json(&self, words: &str) -> Result<Json> {
        Ok(serde_json::from_str(
            &self.says(&format!("{words} -o json"), &[]).await?,
        )?)
    }

    pub async fn is_refused(&self, words: &str, expected: &[&str]) -> Result<()> {
        self.tries(false, words, expected).await.map(drop)
    }
}
