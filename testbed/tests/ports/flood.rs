//! A flood of connections: clients on a few addresses of this machine that take as many connections of a port as they can get.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::body::Bytes;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::runtime::{self, Runtime};
use tokio_rustls::TlsConnector;

/// From how many addresses a flood comes: 127.0.0.2 and those that follow.
const ADDRESSES: u8 = 4;
/// The longest body that the webhook takes, in bytes.
const LONGEST_BODY: usize = 3_670_016;
/// The first bytes of a TLS record with a handshake.
const HALF_A_HANDSHAKE: &[u8] = &[22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];

/// A port, and how to reach it.
#[derive(Clone)]
pub struct Port {
    address: SocketAddr,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// A connection, with or without TLS.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// The behaviour of a flood's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    Silent,
    /// Sends half a TLS handshake, and stalls.
    HalfHandshake,
    /// Sends half the head of a request, and stalls.
    HalfHead,
    /// Sends half a body, and stalls.
    HalfBody,
    /// Announces a long body, sends the beginning, and stalls.
    LongBody,
    /// Asks something, and keeps the connection.
    KeptAlive,
}

impl Behaviour {
    /// Those that never ask for anything as a whole, at a port with TLS.
    pub const UNFINISHED: [Self; 5] = [
        Self::Silent,
        Self::HalfHandshake,
        Self::HalfHead,
        Self::HalfBody,
        Self::LongBody,
    ];
}

impl Port {
    /// Floods a port that has no TLS.
    pub fn plain(address: SocketAddr) -> Self {
        Self { address, tls: None }
    }

    /// A port with TLS, whose certificate is for this name, by one of these authorities (PEM).
    pub fn tls(address: SocketAddr, name: &str, authorities: &[u8]) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(authorities) {
            roots.add(authority?)?;
        }
        let config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(name.to_owned())?;
        Ok(Self {
            address,
            tls: Some((TlsConnector::from(Arc::new(config)), name)),
        })
    }

    pub async fn connect(&self, from: Ipv4Addr) -> io::Result<Box<dyn Stream>> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        let stream = socket.connect(self.address).await?;
        stream.set_nodelay(true)?;
        Ok(match &self.tls {
            Some((connector, name)) => Box::new(connector.connect(name.clone(), stream).await?),
            None => Box::new(stream),
        })
    }

    /// Acts like this until the other side ends the connection. `done` counts each time that all was sent.
    async fn run(
        &self,
        from: Ipv4Addr,
        behaviour: Behaviour,
        done: &AtomicUsize,
    ) -> anyhow::Result<()> {
        let head = "POST /validate HTTP/1.1\r\nhost: flood\r\n";
        let body = |length: usize, sent: usize| {
            Bytes::from(format!(
                "{head}content-length: {length}\r\n\r\n{}",
                " ".repeat(sent)
            ))
        };
        let bare = || Self {
            tls: None,
            ..self.clone()
        };
        let (mut stream, sends) = match behaviour {
            Behaviour::Silent => (bare().connect(from).await?, Bytes::new()),
            Behaviour::HalfHandshake => (bare().connect(from).await?, HALF_A_HANDSHAKE.into()),
            Behaviour::HalfHead => (self.connect(from).await?, head.into()),
            Behaviour::HalfBody => (self.connect(from).await?, body(4000, 2000)),
            Behaviour::LongBody => (self.connect(from).await?, body(LONGEST_BODY, 100_000)),
            Behaviour::KeptAlive => (
                self.connect(from).await?,
                "GET / HTTP/1.1\r\nhost: flood\r\n\r\n".into(),
            ),
        };
        stream.write_all(&sends).await?;
        done.fetch_add(1, Ordering::Relaxed);
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
        Ok(())
    }
}

/// Many connections that are opened again whenever they are closed. They are closed when this is dropped.
pub struct Flood {
    size: usize,
    done: Arc<AtomicUsize>,
    _thread: OwnRuntime,
}

impl Flood {
    /// This many connections, which behave in these ways in turn. Each is opened again after a `pause`.
    pub fn start(
        port: &Port,
        size: usize,
        behaviours: &[Behaviour],
        pause: Duration,
    ) -> io::Result<Self> {
        let (done, thread) = (Arc::new(AtomicUsize::new(0)), OwnRuntime::start(1)?);
        for (number, behaviour) in behaviours.iter().copied().cycle().take(size).enumerate() {
            let (port, done) = (port.clone(), Arc::clone(&done));
            let from = address(number / behaviours.len());
            thread.spawn(async move {
                loop {
                    // It is closed sooner or later, and then that is an error as a rule.
                    let _ = port.run(from, behaviour, &done).await;
                    tokio::time::sleep(pause).await;
                }
            });
        }
        Ok(Self {
            size,
            done,
            _thread: thread,
        })
    }

    /// Returns how many connections there are.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns how many times a connection has sent all that it was to send.
    pub fn completed(&self) -> usize {
        self.done.load(Ordering::Relaxed)
    }
}

/// Threads of their own: what runs on them competes with others as other processes do. Its tasks end when it is dropped.
pub struct OwnRuntime(Option<Runtime>);

impl OwnRuntime {
    pub fn start(threads: usize) -> io::Result<Self> {
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.0 {
            runtime.spawn(task);
        }
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        // It may be dropped by a task of another one, which must not wait.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// The address of the flood's n-th connection.
fn address(number: usize) -> Ipv4Addr {
    let last = u8::try_from(number % usize::from(ADDRESSES)).unwrap_or(0);
    Ipv4Addr::new(127, 0, 0, 2 + last)
}

/// Lets this process have as many open files as the system allows.
pub fn raise_open_files() -> io::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    Ok(setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    )?)
}
