//! Serves the kubelets' API to the API server: `kubectl logs` and `kubectl exec`.
//!
//! One server stands for the kubelets of all nodes. Connections come from [`crate::services`], so only the API server
//! reaches it.

use super::Kubelet;
use super::answer::plain;
use super::exec::upgraded;
use anyhow::Result;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::net::UnixStream;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// Serves each connection until it ends.
pub(super) async fn serve(kubelet: Arc<Kubelet>, mut connections: UnboundedReceiver<UnixStream>) {
    let acceptor = match acceptor() {
        Ok(acceptor) => acceptor,
        Err(error) => {
            return tracing::error!(error = format!("{error:#}"), "kubelets serve nothing");
        }
    };
    // They end with this task.
    let mut served = JoinSet::new();
    loop {
        tokio::select! {
            connection = connections.recv() => match connection {
                Some(stream) => drop(served.spawn(connected(Arc::clone(&kubelet), acceptor.clone(), stream))),
                None => return,
            },
            Some(_) = served.join_next() => {}
        }
    }
}

/// With a certificate that the API server, which knows no authority of kubelets, does not check.
fn acceptor() -> Result<TlsAcceptor> {
    let made = rcgen::generate_simple_self_signed(["kubelet".to_owned()])?;
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let config = ServerConfig::builder().with_no_client_auth();
    Ok(TlsAcceptor::from(Arc::new(
        config.with_single_cert(vec![made.cert.der().clone()], key)?,
    )))
}

async fn connected(kubelet: Arc<Kubelet>, acceptor: TlsAcceptor, stream: UnixStream) {
    let served = async {
        let stream = TokioIo::new(acceptor.accept(stream).await?);
        let answer = service_fn(move |request| {
            let answer = answer(&kubelet, request);
            async move { Ok::<_, Infallible>(answer) }
        });
        anyhow::Ok(
            http1::Builder::new()
                .serve_connection(stream, answer)
                .with_upgrades()
                .await?,
        )
    };
    if let Err(error) = served.await {
        tracing::debug!(error = format!("{error:#}"), "API server to kubelet");
    }
}

fn answer(kubelet: &Kubelet, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let query = request.uri().query().unwrap_or_default().as_bytes();
    let query: Vec<(String, String)> = form_urlencoded::parse(query).into_owned().collect();
    let path: Vec<&str> = request.uri().path().split('/').collect();
    match path[..] {
        // All that its processes have said, whatever the options: people look at it, and no test.
        ["", "containerLogs", _namespace, pod, _container] => {
            let log = std::fs::read(kubelet.shared.sandbox.logs().join(format!("{pod}.log")));
            log.map_or_else(
                |_| plain(StatusCode::NOT_FOUND, "no process, no log"),
                |log| plain(StatusCode::OK, log),
            )
        }
        ["", "exec", namespace, pod, _container] => {
            let words = query
                .into_iter()
                .filter_map(|(key, word)| (key == "command").then_some(word));
            let command = kubelet.command(namespace, pod, &words.collect::<Vec<_>>());
            upgraded(request, command)
        }
        _ => plain(
            StatusCode::NOT_FOUND,
            "the test bed's kubelets serve logs and exec only",
        ),
    }
}
