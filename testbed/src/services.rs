//! Does the work of kube-proxy for the API server, which calls webhooks by their Service, and takes
//! requests on to pods (`/api/v1/namespaces/<namespace>/pods/<pod>:<port>/proxy/`) and kubelets.
//!
//! The API server hands its connections into the cluster to a proxy on a Unix socket (egress selector, HTTP CONNECT),
//! as in clusters whose control plane is not in the nodes' network. The proxy finds the Service by its address, a
//! ready endpoint in its `EndpointSlice` objects, and the process behind that endpoint's pod. So the shipped webhook
//! configuration, Service, readiness and certificate names are in play as they are in production.

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::host::lock;

/// Longest wait for the head of a request, for the look-up and for the connection together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest head of a request or of an answer.
const HEAD_LIMIT: usize = 16 * 1024;
/// The answer to a request that is granted.
const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";
/// The port of every kubelet, at whatever address.
const KUBELET_PORT: &str = ":10250";

/// The proxy, and who listens behind which pod; cheap to clone. It ends with the last clone.
#[derive(Clone, Debug)]
pub(crate) struct Services {
    backends: Backends,
    _serving: Arc<JoinSet<()>>,
}

#[derive(Clone, Debug, Default)]
struct Backends {
    unreachable: watch::Sender<bool>,
    listening: Arc<Mutex<Listening>>,
    kubelets: Arc<Mutex<Option<mpsc::UnboundedSender<UnixStream>>>>,
    turn: Arc<AtomicUsize>,
}

/// Listeners, by UID of the pod and port of the container.
type Listening = HashMap<(String, i32), Backend>;

#[derive(Clone, Debug)]
struct Backend {
    /// The pod's address, at which nobody can be reached.
    pod: String,
    process: SocketAddr,
}

impl Services {
    pub(crate) fn serve(socket: &Path, client: Client) -> Result<Self> {
        let listener = UnixListener::bind(socket).with_context(|| socket.display().to_string())?;
        let backends = Backends::default();
        let mut serving = JoinSet::new();
        serving.spawn(accept(listener, client, backends.clone()));
        Ok(Self {
            backends,
            _serving: Arc::new(serving),
        })
    }

    /// A container of the pod at `ip` that is said to listen on `port` listens at `process`.
    pub(crate) fn listens(&self, pod_uid: &str, ip: &str, port: i32, process: SocketAddr) {
        let backend = Backend {
            pod: ip.to_owned(),
            process,
        };
        lock(&self.backends.listening).insert((pod_uid.to_owned(), port), backend);
    }

    /// The API server's connections to kubelets, from now on.
    pub(crate) fn kubelets(&self) -> mpsc::UnboundedReceiver<UnixStream> {
        let (to, from) = mpsc::unbounded_channel();
        *lock(&self.backends.kubelets) = Some(to);
        from
    }

    /// Whether Services are reached at all. What was connected is cut off, or API servers would go on with the connections
    /// that they keep.
    pub(crate) fn reach(&self, reached: bool) {
        self.backends.unreachable.send_replace(!reached);
    }

    pub(crate) fn forget(&self, pod_uid: &str) {
        lock(&self.backends.listening).retain(|(uid, _), _| uid != pod_uid);
    }
}

impl Backends {
    /// The process behind a pod's address, or the next of those that serve the port of a Service, in turn.
    async fn resolve(&self, client: &Client, address: &str) -> Result<SocketAddr> {
        if *self.unreachable.borrow() {
            bail!("nothing is reached now");
        }
        let (ip, port) = address.rsplit_once(':').context("no port")?;
        let port: i32 = port.parse()?;
        let of_pod = |((_, p), backend): (&(String, i32), &Backend)| {
            (*p == port && backend.pod == ip).then_some(backend.process)
        };
        if let Some(process) = lock(&self.listening).iter().find_map(of_pod) {
            return Ok(process);
        }
        let services = Api::<Service>::all(client.clone());
        let services = services.list(&ListParams::default()).await?;
        let specs = services
            .iter()
            .filter_map(|it| Some((it, it.spec.as_ref()?)));
        let mut at_ip = specs.filter(|(_, spec)| spec.cluster_ip.as_deref() == Some(ip));
        let (service, spec) = at_ip.next().context("no pod or Service has this address")?;
        let mut ports = spec.ports.iter().flatten();
        let port = ports.find(|it| it.port == port).context("no such port")?;

        let namespace = service.namespace().unwrap_or_default();
        let labels = format!("kubernetes.io/service-name={}", service.name_any());
        let slices = Api::<EndpointSlice>::namespaced(client.clone(), &namespace)
            .list(&ListParams::default().labels(&labels))
            .await?;
        let addresses = {
            let listening = lock(&self.listening);
            let pods = slices
                .iter()
                .flat_map(|slice| ready_pods(slice, port.name.as_deref()));
            let mut addresses: Vec<_> = pods
                .filter_map(|pod| Some(listening.get(&pod)?.process))
                .collect();
            addresses.sort_unstable();
            addresses
        };
        if addresses.is_empty() {
            bail!(
                "Service {namespace}/{} has no ready endpoint",
                service.name_any()
            );
        }
        Ok(addresses[self.turn.fetch_add(1, Ordering::Relaxed) % addresses.len()])
    }
}

/// UID and container port of each ready pod of a slice, for the Service's port of this name.
fn ready_pods(slice: &EndpointSlice, name: Option<&str>) -> Vec<(String, i32)> {
    let named = |have: Option<&str>| have.unwrap_or_default() == name.unwrap_or_default();
    let ports = slice.ports.iter().flatten();
    let Some(port) = ports
        .filter(|port| named(port.name.as_deref()))
        .find_map(|port| port.port)
    else {
        return Vec::new();
    };
    let endpoints = slice.endpoints.iter();
    endpoints
        .filter(|endpoint| endpoint.conditions.as_ref().and_then(|c| c.ready) != Some(false))
        .filter_map(|endpoint| Some((endpoint.target_ref.as_ref()?.uid.clone()?, port)))
        .collect()
}

async fn accept(listener: UnixListener, client: Client, backends: Backends) {
    // Aborted with this task.
    let mut tunnels = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    tunnels.spawn(tunnel(stream, client.clone(), backends.clone()));
                }
                Err(error) => {
                    tracing::error!(%error, "the way to Services is closed");
                    return;
                }
            },
            Some(_) = tunnels.join_next() => {}
        }
    }
}

async fn tunnel(mut stream: UnixStream, client: Client, backends: Backends) {
    let connect = async {
        let address = read_connect(&mut stream).await?;
        if address.ends_with(KUBELET_PORT) {
            return Ok(None);
        }
        let backend = backends
            .resolve(&client, &address)
            .await
            .with_context(|| address.clone())?;
        let stream = TcpStream::connect(backend)
            .await
            .with_context(|| format!("{address} is {backend}"))?;
        // Without it a review waits 40 ms for the acknowledgement of its own headers, which no real proxy costs it.
        stream.set_nodelay(true)?;
        anyhow::Ok(Some(stream))
    };
    let connected = timeout(CONNECT_TIMEOUT, connect)
        .await
        .context("too slow")
        .flatten();
    let result = match connected {
        Ok(None) => {
            let established = stream.write_all(ESTABLISHED).await;
            let kubelets = lock(&backends.kubelets);
            if let Some(kubelets) = kubelets.as_ref().filter(|_| established.is_ok()) {
                // Without kubelets the connection ends.
                let _ = kubelets.send(stream);
            }
            established
        }
        Ok(Some(mut backend)) => {
            let established = stream.write_all(ESTABLISHED).await;
            // The two ends of a tunnel decide when it ends.
            let mut unreachable = backends.unreachable.subscribe();
            tokio::select! {
                copied = copy_bidirectional(&mut stream, &mut backend), if established.is_ok() => copied.map(drop),
                _ = unreachable.wait_for(|unreachable| *unreachable), if established.is_ok() => Ok(()),
                else => established,
            }
        }
        Err(error) => {
            tracing::info!(error = format!("{error:#}"), "API server to Service");
            stream
                .write_all(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
                .await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "tunnel");
    }
}

/// Reads the head of a CONNECT request and returns what it wants to be connected with.
async fn read_connect(stream: &mut UnixStream) -> Result<String> {
    let head = read_head(stream).await?;
    let mut words = head.split(' ');
    match (words.next(), words.next()) {
        (Some("CONNECT"), Some(address)) => Ok(address.to_owned()),
        _ => bail!("not a CONNECT request"),
    }
}

/// Reads the head of a request or of an answer, and no more.
pub(crate) async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(
            head.len() < HEAD_LIMIT,
            "a head of more than {HEAD_LIMIT} bytes"
        );
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8(head)?)
}
