//! The least that an admission webhook can do: behind the same TLS it finds the review's uid and answers that all is
//! well. What ours takes beyond this is the price of its verdict.

use std::borrow::Cow;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Args;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, version};
use serde::Deserialize;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Where it listens and with what certificate.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Address and port for admission reviews (TLS)
    #[arg(long, env = "ADMISSION_ADDRESS")]
    address: SocketAddr,
    /// File with the serving certificate
    #[arg(long, env = "CERTIFICATE")]
    certificate: PathBuf,
    /// File with its key
    #[arg(long, env = "CERTIFICATE_KEY")]
    key: PathBuf,
}

#[derive(Deserialize)]
struct Review<'a> {
    #[serde(borrow)]
    request: Uid<'a>,
}

#[derive(Deserialize)]
struct Uid<'a> {
    #[serde(borrow)]
    uid: Cow<'a, str>,
}

/// Answers reviews until it is killed.
pub async fn serve(options: Options) -> Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let acceptor = TlsAcceptor::from(Arc::new(tls(&options.certificate, &options.key)?));
    let listener = TcpListener::bind(options.address).await.context("ADMISSION_ADDRESS")?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(connection(acceptor.clone(), stream));
    }
}

/// As our webhook's: TLS 1.3, HTTP/2 and HTTP/1.1, no resumption.
fn tls(certificate: &Path, key: &Path) -> Result<ServerConfig> {
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>()?;
    let mut config = ServerConfig::builder_with_protocol_versions(&[&version::TLS13])
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.send_tls13_tickets = 0;
    Ok(config)
}

async fn connection(acceptor: TlsAcceptor, stream: TcpStream) {
    let stream = match acceptor.accept(stream).await {
        Ok(stream) => stream,
        Err(error) => return eprintln!("TLS: {error}"),
    };
    let builder = Builder::new(TokioExecutor::new());
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service_fn(answer)).await {
        eprintln!("connection: {error}");
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.ok().map(http_body_util::Collected::to_bytes);
    let answer = body.as_deref().and_then(allowed);
    let status = if answer.is_some() { StatusCode::OK } else { StatusCode::BAD_REQUEST };
    let mut response = Response::new(Full::from(answer.unwrap_or_default()));
    *response.status_mut() = status;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    Ok(response)
}

fn allowed(review: &[u8]) -> Option<Vec<u8>> {
    let Review { request: Uid { uid } } = serde_json::from_slice(review).ok()?;
    let answer = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": uid, "allowed": true},
    });
    serde_json::to_vec(&answer).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_has_a_uid_is_allowed() {
        let answer =
            allowed(br#"{"kind": "AdmissionReview", "request": {"uid": "a", "object": {"uid": 1}}}"#);
        let answer: serde_json::Value = serde_json::from_slice(&answer.unwrap()).unwrap();
        assert_eq!(answer["response"], json!({"uid": "a", "allowed": true}));
        assert_eq!(allowed(b"{}"), None);
    }
}
