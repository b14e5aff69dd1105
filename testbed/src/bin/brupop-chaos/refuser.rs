//! A tenant's admission webhook that refuses what our programs write, with the code that its path names.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::ByteString;
use rustls::ServerConfig;
use serde_json::{Value as Json, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// All accounts of the operator.
pub(crate) const OURS: &str = "system:serviceaccounts:brupop-bottlerocket-aws";
/// Name of its configuration.
pub(crate) const NAME: &str = "brupop-chaos-refused";

/// It listens as long as this lives, and is asked while its configuration is there.
pub(crate) struct Refuser {
    address: SocketAddr,
    certificate: String,
    _serving: JoinSet<()>,
}

impl Refuser {
    /// Listens on a port of this machine.
    pub(crate) fn start() -> Result<Self> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)?;
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let (address, listener) = (listener.local_addr()?, TcpListener::from_std(listener)?);
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, TlsAcceptor::from(Arc::new(config))));
        Ok(Self { address, certificate: made.cert.pem(), _serving: serving })
    }

    /// By this the API server asks it, and it refuses with this code.
    pub(crate) fn configuration(&self, code: u16) -> Json {
        let url = format!("https://localhost:{}/{code}", self.address.port());
        let ours = format!("request.userInfo.groups.exists(group, group == '{OURS}')");
        json!({
            "metadata": {"name": NAME},
            "webhooks": [{
                "name": "refuses.example.org",
                "clientConfig": {"url": url, "caBundle": ByteString(self.certificate.clone().into_bytes())},
                "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}],
                "matchConditions": [{"name": "ours", "expression": ours}],
                "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
                "timeoutSeconds": 2,
            }],
        })
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor) {
    // They end with this task.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    connections.spawn(connection(stream, acceptor.clone()));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor) {
    if let Ok(stream) = acceptor.accept(stream).await {
        // Who hangs up has no answer.
        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)).await;
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.ok().map(http_body_util::Collected::to_bytes);
    let refusal = body.and_then(|body| refusal(&path, &body).ok()).unwrap_or_default();
    Ok(Response::new(Full::from(refusal)))
}

fn refusal(path: &str, review: &[u8]) -> Result<Vec<u8>> {
    let code: u16 = path.trim_start_matches('/').parse()?;
    let review: Json = serde_json::from_slice(review)?;
    let uid = review.pointer("/request/uid").context("a review without uid")?;
    let message = "a tenant's webhook is not well\u{1b}[2J";
    Ok(serde_json::to_vec(&json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": uid, "allowed": false, "status": {"code": code, "message": message}},
    }))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_says_the_code() {
        let answer = refusal("/409", br#"{"request": {"uid": "a"}}"#).unwrap();
        let answer: Json = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["response"]["uid"], "a");
        assert_eq!(answer["response"]["status"]["code"], 409);
        assert!(refusal("/x", b"{}").is_err());
    }
}
