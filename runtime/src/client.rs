//! Kubernetes clients with limits on every wait.

use crate::api_requests::ApiRequests;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use brupop_api::Item;
use brupop_api::item::Readable;
use brupop_api::names::{PodIdentity, not_bound};
use http::{HeaderValue, header::USER_AGENT};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::api::PostParams;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ConfigExt as _};
use kube::config::InClusterError;
use kube::core::request::Request;
use kube::{Client, Config, Error, Resource, Result};
use serde::Serialize;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use std::{env, error, fs};
use tower::retry::RetryLayer;
use tower::timeout::TimeoutLayer;
use tower::{BoxError, ServiceBuilder};

/// Longest wait for a TCP and TLS connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for the head of an answer, retries included. A watch answers with its head at once.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest silence within a body: above that of any watch.
const READ_TIMEOUT: Duration = Duration::from_mins(12);
/// A silent connection is probed after this time, and is lost after three probes without an answer.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Bytes that a connection reads at once, and the longest head of an answer: that of a TLS record.
const READ_BUFFER: usize = 16 << 10;

/// Names the folder of token, authority and namespace, for a process of the test bed that is in no container.
const FOLDER: &str = "SERVICE_ACCOUNT_FOLDER";

/// Reasons why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Kubelets set the variables and mount the token of each pod with a service account.
    #[error(
        "the Kubernetes API is not configured: run in a pod that mounts the token of its service account"
    )]
    NoPod(#[from] InClusterError),
    /// The test bed gives neither an address nor the files.
    #[error("{FOLDER} names no service account")]
    Folder(#[source] Box<dyn error::Error + Send + Sync>),
    /// The configuration was found, but no client can be made of it.
    #[error("the Kubernetes client could not be made")]
    Build(#[source] Box<Error>),
}

impl From<Error> for ClientError {
    fn from(error: Error) -> Self {
        Self::Build(Box::new(error))
    }
}

/// The cluster that this process works for: where it is, who we are, and our namespace.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    config: Config,
    requests: ApiRequests,
}

impl ClusterConfig {
    /// The cluster of the pod that this process runs in. `component` is the user agent's name, as `brupop-agent`; the
    /// version is added.
    ///
    /// # Errors
    /// This is no pod with a service account.
    pub fn of_pod(component: &str) -> Result<Self, ClientError> {
        install_crypto_provider();
        let config = match env::var_os(FOLDER) {
            Some(folder) => of_folder(folder.as_ref()).map_err(ClientError::Folder)?,
            None => Config::incluster()?,
        };
        Ok(Self::of(config, component)?)
    }

    fn of(config: Config, component: &str) -> Result<Self> {
        Ok(Self {
            config: bounded(config, component)?,
            requests: ApiRequests::default(),
        })
    }

    /// Lets clients count their requests here.
    #[must_use]
    pub fn counting(self, requests: &ApiRequests) -> Self {
        Self {
            requests: requests.clone(),
            ..self
        }
    }

    /// The namespace this process runs in.
    pub fn namespace(&self) -> &str {
        &self.config.default_namespace
    }

    /// The pod that our token is bound to, and its node, as the token itself says. Whatever it says, the API server judges it.
    ///
    /// # Errors
    /// It does not say so: it is bound to no pod on a node.
    pub fn pod(&self) -> Result<PodIdentity, String> {
        let file = self.config.auth_info.token_file.as_ref();
        let token = file.and_then(|file| fs::read_to_string(file).ok());
        claimed(&token.unwrap_or_default())
    }

    /// A client that retries for a while after 429, 503 and 504.
    ///
    /// # Errors
    /// Certificates or credentials of the configuration cannot be used.
    pub fn client(&self) -> Result<Client, ClientError> {
        Ok(self.build(true)?)
    }

    /// A client that does not retry: its caller sees 429, 503 and 504. With 429 the API server also says that a budget does
    /// not allow an eviction.
    ///
    /// # Errors
    /// As [`ClusterConfig::client`].
    pub fn client_without_retry(&self) -> Result<Client, ClientError> {
        Ok(self.build(false)?)
    }

    /// Makes a client as kube does, but for three things that kube 5.0 has no options for. It goes without Nagle's algorithm:
    /// with it, each request on a new connection waits for the API server's delayed acknowledgement, 40 ms. And buffers of
    /// connections do not grow: those of hundreds of watches would stay as large as the longest list that each has brought. And
    /// silent connections are probed.
    fn build(&self, retries: bool) -> Result<Client> {
        let config = &self.config;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEPALIVE));
        tcp.set_keepalive_interval(Some(KEEPALIVE));
        tcp.set_keepalive_retries(Some(3));
        let mut connector =
            TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
        connector.set_connect_timeout(config.connect_timeout);
        connector.set_read_timeout(config.read_timeout);
        connector.set_reset_reader_on_write(config.reset_reader_on_write);
        let mut http = legacy::Client::builder(TokioExecutor::new());
        http.http1_read_buf_exact_size(READ_BUFFER);
        let service = ServiceBuilder::new()
            // The timeout is counted, too: the counter is outermost.
            .layer(&self.requests)
            .layer(patience())
            .layer(config.base_uri_layer())
            .option_layer(retries.then(|| RetryLayer::new(RetryPolicy::server_retry())))
            .option_layer(config.auth_layer()?)
            .layer(config.extra_headers_layer()?)
            .map_err(BoxError::from)
            .service(http.build::<_, Body>(connector));
        Ok(Client::new(service, config.default_namespace.clone()))
    }
}

/// Reads the claims of a service account's token.
fn claimed(token: &str) -> Result<PodIdentity, String> {
    let payload = token.split('.').nth(1).unwrap_or_default();
    let payload = URL_SAFE_NO_PAD.decode(payload).unwrap_or_default();
    let claims: Value = serde_json::from_slice(&payload).unwrap_or_default();
    let one = |claim| match claims.pointer(claim).and_then(Value::as_str) {
        None | Some("") => Err(not_bound(claim)),
        Some(value) => Ok(value.to_owned()),
    };
    Ok(PodIdentity {
        node_name: one("/kubernetes.io/node/name")?,
        node_uid: one("/kubernetes.io/node/uid")?,
        pod_name: one("/kubernetes.io/pod/name")?,
        pod_uid: one("/kubernetes.io/pod/uid")?,
    })
}

fn of_folder(folder: &Path) -> Result<Config, Box<dyn error::Error + Send + Sync>> {
    let variable = |name| env::var(format!("KUBERNETES_SERVICE_{name}"));
    let url = format!("https://{}:{}/", variable("HOST")?, variable("PORT")?);
    let mut config = Config::new(url.parse()?);
    config.default_namespace = fs::read_to_string(folder.join("namespace"))?;
    config.root_cert_file = Some(folder.join("ca.crt"));
    config.auth_info.token_file = Some(folder.join("token").to_string_lossy().into_owned());
    Ok(config)
}

/// A client of the server of this configuration, which does not retry. It follows no redirects.
///
/// # Errors
/// Certificates of the configuration cannot be used.
pub fn without_retry(config: Config, component: &str) -> Result<Client> {
    ClusterConfig::of(config, component)?.build(false)
}

/// Replaces the object of this name, if that still has the object's resource version; creates it, if there is no name.
/// Unlike with kube's own, the answer is read as an [`Item`], so that no field of it makes a write look like a failure.
///
/// # Errors
/// The API server refuses it, or cannot be reached.
pub async fn write<T>(
    client: &Client,
    namespace: &str,
    name: Option<&str>,
    object: &impl Serialize,
) -> Result<Item<T>>
where
    T: Readable,
    T::Kind: Resource<DynamicType = ()>,
{
    let body = serde_json::to_vec(object).map_err(Error::SerdeError)?;
    let collection = Request::new(T::Kind::url_path(&(), Some(namespace)));
    let params = PostParams::default();
    let request = match name {
        Some(name) => collection.replace(name, &params, body),
        None => collection.create(&params, body),
    };
    client.request(request.map_err(Error::BuildRequest)?).await
}

/// Adds a limit on each wait for a connection and on silence, and the name of a component and the version as user agent.
///
/// # Errors
/// The name is not valid in a header.
pub fn bounded(mut config: Config, component: &str) -> Result<Config> {
    let agent = format!("{component}/{}", env!("CARGO_PKG_VERSION"));
    let agent = HeaderValue::from_str(&agent).map_err(|error| Error::HttpError(error.into()))?;
    config.headers.push((USER_AGENT, agent));
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    config.reset_reader_on_write = true;
    Ok(config)
}

/// The limit on the wait for the head of an answer.
pub fn patience() -> TimeoutLayer {
    TimeoutLayer::new(RESPONSE_TIMEOUT)
}

/// Makes `ring` the cryptography of this process. Each `main` calls it first. Further calls change nothing.
pub fn install_crypto_provider() {
    // An error says that a provider is installed, which is what was asked for.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    #[test]
    fn a_bound_token_names_pod_and_node() {
        let token = |node: Value| {
            let claims =
                json!({"kubernetes.io": {"node": node, "pod": {"name": "p", "uid": "pü?~"}}});
            format!("e30.{}.signed", URL_SAFE_NO_PAD.encode(claims.to_string()))
        };
        let pod = claimed(&token(json!({"name": "n", "uid": "nu"}))).unwrap();
        assert_eq!([pod.node_name, pod.node_uid], ["n", "nu"]);
        assert_eq!([pod.pod_name, pod.pod_uid], ["p", "pü?~"]);
        for (node, missing) in [
            (Value::Null, "name"),
            (json!({"name": "", "uid": "nu"}), "name"),
            (json!({"name": "n", "uid": 1}), "uid"),
        ] {
            let error = claimed(&token(node)).unwrap_err();
            assert!(
                error.contains(&format!("/kubernetes.io/node/{missing}:")),
                "{error}"
            );
        }
        for none in ["", "a.b", "a.!.c", "a.e30.c"] {
            assert!(claimed(none).is_err(), "{none}");
        }
    }

    fn cluster(address: std::net::SocketAddr) -> ClusterConfig {
        let uri = format!("http://{address}").parse().unwrap();
        ClusterConfig::of(Config::new(uri), "brupop-test").unwrap()
    }

    #[tokio::test]
    async fn without_retry_429_is_returned_at_once() {
        install_crypto_provider();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = cluster(listener.local_addr().unwrap())
            .client_without_retry()
            .unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let body = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"budget","reason":"TooManyRequests","code":429}"#;
            let answer = format!(
                "HTTP/1.1 429 Too Many Requests\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8(head).unwrap().to_ascii_lowercase()
        });
        let answer = tokio::time::timeout(Duration::from_secs(5), client.apiserver_version())
            .await
            .unwrap();
        let Error::Api(status) = answer.unwrap_err() else {
            panic!("not an answer of the API")
        };
        assert_eq!(status.code, 429);
        assert!(server.await.unwrap().contains(concat!(
            "user-agent: brupop-test/",
            env!("CARGO_PKG_VERSION")
        )));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_does_not_hold_calls() {
        install_crypto_provider();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = cluster(listener.local_addr().unwrap()).client().unwrap();
        let started = tokio::time::Instant::now();
        assert!(client.apiserver_version().await.is_err());
        assert!(started.elapsed() <= RESPONSE_TIMEOUT + Duration::from_secs(1));
    }
}
