//! A control plane of one's own: started in seconds, gone with its owner.

use crate::audit::AuditReader;
use crate::binaries::control_plane_binaries;
use crate::certificates::Authority;
use crate::kubeconfig::Server;
use crate::sandbox::{Process, Sandbox, Signal, tail};
use crate::services::Services;
use crate::waiting::await_until;
use anyhow::{Context as _, Result};
use kube::Client;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

mod access;
mod commands;
mod programs;

pub(crate) use commands::SERVICE_RANGE;
use commands::{FIRST_SERVICE, egress_socket};
pub use commands::{NAMESPACE, free_port};
pub use programs::BUMP;

/// Number of tries of a start when another process took a port.
const STARTS: usize = 3;

/// What makes a cluster of an API server: the controllers of workloads, budgets and owners; the scheduler; and kwok, for the
/// leases of nodes, and for pods that become Running and go when deleted.
pub const CLUSTER: [&str; 3] = ["kube-controller-manager", "kube-scheduler", "kwok"];

/// From where a control plane is reached, and how it reaches Services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// From this machine. Services are reached by a stand-in for kube-proxy.
    Loopback,
    /// From the network, at this address. Services are reached as the network has it: by a real kube-proxy.
    Network(Ipv4Addr),
}

/// The programs that run beside etcd and the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Of [`CLUSTER`].
    pub programs: &'static [&'static str],
    /// From where it is reached.
    pub reach: Reach,
    /// Whether the API server presents the token in [`ControlPlane::webhook_token`] to our webhook; the token must be there
    /// before the first review.
    pub presents_token: bool,
    /// The API server's audit policy, if it is not to record everything.
    pub audit_policy: Option<&'static str>,
    /// Will its own programs be killed? Then etcd holds objects as JSON, so that its revisions can be read
    /// ([`crate::revisions`]), and nodes need no heartbeat: kwok does not renew a Lease any more once the answer to a renewal
    /// was lost.
    pub under_faults: bool,
}

impl Options {
    /// etcd and the API server alone.
    pub const API: Self = Self {
        programs: &[],
        reach: Reach::Loopback,
        presents_token: false,
        audit_policy: None,
        under_faults: false,
    };
    pub const CLUSTER: Self = Self {
        programs: &CLUSTER,
        ..Self::API
    };
}

/// A running control plane. Dropping it, or the death of this process, ends all that it started, and removes its files.
pub struct ControlPlane {
    shared: Shared,
    authority: Authority,
    binaries: PathBuf,
    options: Options,
    etcd_port: u16,
    api_port: u16,
    processes: Vec<Process>,
}

/// A handle of a control plane; cheap to clone. It does not keep the control plane alive.
#[derive(Clone)]
pub(crate) struct Shared {
    pub sandbox: Arc<Sandbox>,
    pub server: Server,
    pub client: Client,
    pub services: Services,
}

impl ControlPlane {
    /// Builds what is missing, then starts.
    pub async fn start(options: Options) -> Result<Self> {
        Self::start_as(None, options).await
    }

    /// As [`Self::start`], with what another one held when its programs were killed: objects, certificates, token key. Both are
    /// on [`Reach::Loopback`], and not under faults.
    pub async fn start_copy(of: &Self, options: Options) -> Result<Self> {
        Self::start_as(Some(of), options).await
    }

    async fn start_as(of: Option<&Self>, options: Options) -> Result<Self> {
        let binaries = control_plane_binaries().await?;
        for _ in 1..STARTS {
            match Self::start_from(&binaries, of, options).await {
                Err(error) if format!("{error:#}").contains("address already in use") => {}
                result => return result,
            }
        }
        Self::start_from(&binaries, of, options).await
    }

    async fn start_from(binaries: &Path, of: Option<&Self>, options: Options) -> Result<Self> {
        let sandbox = Arc::new(Sandbox::new()?);
        let dir = sandbox.dir();
        let address = match options.reach {
            Reach::Loopback => Ipv4Addr::LOCALHOST,
            Reach::Network(address) => address,
        };
        let authority = match of {
            Some(of) => of.copy_files(dir).await?,
            None => new_authority(&dir.join("pki"), address)?,
        };

        let (etcd_port, api_port) = (free_port()?, free_port()?);
        let server = Server {
            url: format!("https://{address}:{api_port}"),
            certificate_authority: authority.certificate(),
        };
        let admin = dir.join("kubeconfig");
        let credential = authority.credential("admin");
        server.write_kubeconfig(&admin, &credential)?;
        let client = server.client(&credential).await?;
        // Bound before the API server starts, which looks for it.
        let services = Services::serve(&egress_socket(dir), client.clone())?;

        let shared = Shared {
            sandbox: Arc::clone(&sandbox),
            server,
            client,
            services,
        };
        let mut started = Self {
            shared,
            authority,
            binaries: binaries.to_owned(),
            options,
            etcd_port,
            api_port,
            processes: vec![],
        };
        started.start_program("etcd")?;
        started.start_program("kube-apiserver")?;
        wait_until_ready(&started.shared.client, &mut started.processes).await?;
        for program in options.programs {
            started.start_program(program)?;
        }
        Ok(started)
    }

    /// Fails if one of the programs has ended, with its status and the end of its log.
    pub fn check(&mut self) -> Result<()> {
        self.processes.iter_mut().try_for_each(Process::check)
    }

    /// Sends a signal to one of the control plane's programs.
    pub fn signal(&self, program: &str, signal: Signal) -> Result<()> {
        let process = self
            .processes
            .iter()
            .find(|process| process.name() == program);
        process
            .with_context(|| format!("{program} was not started"))?
            .signal(signal)
    }

    /// Returns where the API server is.
    pub fn server(&self) -> &Server {
        &self.shared.server
    }

    /// The temporary folder of this control plane, for files that shall go with it.
    pub fn dir(&self) -> &Path {
        self.shared.sandbox.dir()
    }

    /// The sandbox, to start processes in that shall go with the control plane.
    pub fn sandbox(&self) -> &Sandbox {
        &self.shared.sandbox
    }

    /// The API server's audit log, from its first line on.
    pub fn audit(&self) -> AuditReader {
        AuditReader::new(self.dir().join("audit.log"))
    }

    /// Returns where the API server finds the token that it presents to the default overlay's webhook on port 443, and to
    /// nobody else, if it is started with [`Options::presents_token`].
    pub fn webhook_token(&self) -> PathBuf {
        self.dir().join("webhook-token")
    }

    /// The end of a process's log: of a program by its name, of a pod's by the pod's.
    pub fn log(&self, name: &str) -> String {
        tail(&self.shared.sandbox.logs().join(format!("{name}.log")))
    }

    pub(crate) fn shared(&self) -> Shared {
        self.shared.clone()
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.show_logs();
        }
        // Not left to the last clone of `Shared`: tasks may hold one.
        self.shared.sandbox.end();
    }
}

impl ControlPlane {
    /// The processes of pods only: the control plane's own programs have much to say and little to tell.
    fn show_logs(&self) {
        let programs: Vec<_> = self.processes.iter().map(Process::name).collect();
        let logs = std::fs::read_dir(self.shared.sandbox.logs())
            .into_iter()
            .flatten()
            .flatten();
        for path in logs.map(|entry| entry.path()) {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            if !programs.contains(&name.as_ref()) {
                eprintln!("--- {name}\n{}", tail(&path));
            }
        }
    }
}

fn new_authority(dir: &Path, address: Ipv4Addr) -> Result<Authority> {
    let authority = Authority::new(dir)?;
    let names = [
        "127.0.0.1",
        &address.to_string(),
        FIRST_SERVICE,
        "localhost",
        "kubernetes.default.svc",
    ];
    authority.server("apiserver", &names)?;
    authority.signing_key("tokens")?;
    authority.client("admin", "admin", Some("system:masters"))?;
    Ok(authority)
}

async fn wait_until_ready(client: &Client, processes: &mut [Process]) -> Result<()> {
    await_until("the API server is ready", async || {
        if let Err(error) = processes.iter_mut().try_for_each(Process::check) {
            return Some(Err(error));
        }
        let request = http::Request::get("/readyz").body(Vec::new()).ok()?;
        let answer = timeout(Duration::from_secs(2), client.request_text(request)).await;
        matches!(answer, Ok(Ok(text)) if text == "ok").then_some(Ok(()))
    })
    .await?
}
