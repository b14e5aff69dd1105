//! What runs in the pods of the test bed's own tests: tells by HTTP on `LISTEN` what a process of a pod sees.
//!
//! `/environment` is the environment as JSON, `/boot-id` the file named by `BOOT_ID_FILE`, `/readyz` succeeds. On
//! SIGTERM it leaves a file `terminated` in the folder named by `MARKS`. With a path as its argument it prints what it
//! would answer, and ends.

use anyhow::{Context as _, Result};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    if let Some(path) = std::env::args().nth(1) {
        println!("{}", tell(&path)?.with_context(|| format!("nothing is told at {path}"))?);
        return Ok(());
    }
    let mut terminate = signal(SignalKind::terminate())?;
    let listener = TcpListener::bind(std::env::var("LISTEN").context("LISTEN")?).await?;
    println!("it listens");
    loop {
        tokio::select! {
            _ = terminate.recv() => {
                let marks = std::env::var("MARKS").context("MARKS")?;
                return Ok(std::fs::write(Path::new(&marks).join("terminated"), "")?);
            }
            accepted = listener.accept() => {
                let connection = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(Duration::from_secs(5))
                    .serve_connection(TokioIo::new(accepted?.0), service_fn(answer));
                tokio::spawn(async move {
                    if let Err(error) = connection.await {
                        eprintln!("{error}");
                    }
                });
            }
        }
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, body) = match tell(request.uri().path()) {
        Ok(Some(body)) => (StatusCode::OK, body),
        Ok(None) => (StatusCode::NOT_FOUND, String::new()),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}")),
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    Ok(response)
}

fn tell(path: &str) -> Result<Option<String>> {
    Ok(match path {
        "/readyz" => Some(String::new()),
        "/environment" => Some(serde_json::to_string(&std::env::vars().collect::<BTreeMap<_, _>>())?),
        "/boot-id" => Some(std::fs::read_to_string(std::env::var("BOOT_ID_FILE").context("BOOT_ID_FILE")?)?),
        _ => None,
    })
}
