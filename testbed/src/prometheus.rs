//! Debian's Prometheus.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use kube::{Client, Config};
use rcgen::{CertifiedKey, KeyPair};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::sandbox::Process;
use crate::{ControlPlane, await_until};

/// The address of a Prometheus.
pub struct Served {
    pub address: SocketAddr,
    /// By TLS with this certificate; otherwise in clear text.
    pub certificate: Option<CertifiedKey<KeyPair>>,
}

/// A running Prometheus; gone when it is dropped.
pub struct Prometheus {
    pub address: SocketAddr,
    /// Asks it.
    pub client: Client,
    _process: Process,
}

impl Prometheus {
    /// Starts it in this folder, with this configuration.
    pub async fn run(
        control_plane: &ControlPlane,
        folder: PathBuf,
        configuration: &Value,
        served: &Served,
    ) -> Result<Self> {
        let file = folder.join("prometheus.yml");
        std::fs::write(&file, configuration.to_string())?;
        promtool(&["check", "config", &file.display().to_string()], "").await?;
        let address = served.address;
        let mut config = Config::new(format!("http://{address}").parse()?);
        let mut command = Command::new(program("prometheus")?);
        if let Some(CertifiedKey { cert, signing_key }) = &served.certificate {
            std::fs::write(folder.join("tls.crt"), cert.pem())?;
            std::fs::write(folder.join("tls.key"), signing_key.serialize_pem())?;
            let web = json!({"tls_server_config": {"cert_file": "tls.crt", "key_file": "tls.key"}});
            std::fs::write(folder.join("web.yml"), web.to_string())?;
            command.arg(format!(
                "--web.config.file={}",
                folder.join("web.yml").display()
            ));
            config = Config::new(format!("https://{address}").parse()?);
            config.root_cert = Some(vec![cert.der().to_vec()]);
        }
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.join("data").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .env_clear()
            .current_dir(&folder);
        let mut process = control_plane.sandbox().spawn("prometheus", command)?;
        let client = Client::try_from(config)?;
        await_until("Prometheus is ready", async || {
            let ready = http::Request::get("/-/ready").body(Vec::new()).ok()?;
            if process.check().is_err() {
                return Some(());
            }
            client.request_text(ready).await.ok().map(drop)
        })
        .await?;
        process.check()?;
        Ok(Self {
            address,
            client,
            _process: process,
        })
    }
}

fn program(name: &str) -> Result<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file());
    found
        .with_context(|| format!("{name} is not in PATH: `.ci/tools prometheus` installs Debian's"))
}

/// Runs promtool, which must be content.
pub async fn promtool(arguments: &[&str], input: &str) -> Result<()> {
    let mut child = std::process::Command::new(program("promtool")?)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    child
        .stdin
        .take()
        .context("no input")?
        .write_all(input.as_bytes())?;
    let output = tokio::task::spawn_blocking(move || child.wait_with_output()).await??;
    let said = [output.stdout, output.stderr].concat();
    ensure!(
        output.status.success(),
        "promtool {arguments:?}: {}",
        String::from_utf8_lossy(&said)
    );
    Ok(())
}
