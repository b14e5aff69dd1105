//! A source for the gates of pools, in place of a Prometheus: it answers two expressions, well or otherwise, and keeps a
//! journal of that.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use brupop_testbed::sandbox::Sandbox;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use serde_json::{Value as Json, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::checker::pools::answers::Answers;
use crate::fault::Source;

/// The name by which pools know it.
const NAME: &str = "main";
/// What must find nothing, and what something.
const FIRING: &str = "firing";
const ALIVE: &str = "alive";

/// It answers as long as this lives.
pub(crate) struct Prometheus {
    shared: Arc<Mutex<State>>,
    folder: Sandbox,
    _serving: JoinSet<()>,
}

#[derive(Default)]
struct State {
    /// What is wrong with it, if anything.
    wrong: Option<Source>,
    answers: Answers,
}

fn lock(shared: &Mutex<State>) -> MutexGuard<'_, State> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Prometheus {
    /// Listens on a port of this machine.
    pub(crate) fn start() -> Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let (address, listener) = (listener.local_addr()?, TcpListener::from_std(listener)?);
        let folder = Sandbox::new()?;
        std::fs::write(folder.dir().join(format!("{NAME}.url")), format!("http://{address}\n"))?;
        let shared = Arc::<Mutex<State>>::default();
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, Arc::clone(&shared)));
        Ok(Self { shared, folder, _serving: serving })
    }

    /// The folder that names it, for `GATE_SOURCES`.
    pub(crate) fn sources(&self) -> &Path {
        self.folder.dir()
    }

    /// From now on this is wrong with it, or nothing.
    pub(crate) fn set(&self, wrong: Option<Source>) {
        let mut state = lock(&self.shared);
        state.wrong = wrong;
        if wrong.is_some() {
            state.answers.note(Timestamp::now(), false);
        }
    }

    /// What it has answered since this was last called.
    pub(crate) fn answers(&self) -> Answers {
        lock(&self.shared).answers.take()
    }
}

/// The gate of a pool that asks it.
pub(crate) fn gate() -> Json {
    let asks = json!({"source": NAME, "query": FIRING, "requires": ALIVE});
    json!({"name": "well", "type": "Prometheus", "prometheus": asks})
}

async fn serve(listener: TcpListener, shared: Arc<Mutex<State>>) {
    // They end with this task.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let away = lock(&shared).wrong == Some(Source::Away);
                if let Ok((stream, _)) = accepted && !away {
                    connections.spawn(connection(stream, Arc::clone(&shared)));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, shared: Arc<Mutex<State>>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let body = answer(&shared, request.uri().query().unwrap_or(""));
        async move {
            match body {
                Some(body) => Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(body)))),
                None => std::future::pending().await,
            }
        }
    });
    // Who hangs up has no answer.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// The body of the answer to this query of a URL; `None`: there never is one.
fn answer(shared: &Mutex<State>, query: &str) -> Option<String> {
    let mut state = lock(shared);
    let is_firing = query.ends_with(FIRING);
    let wrong = state.wrong;
    if is_firing {
        state.answers.note(Timestamp::now(), wrong.is_none());
    }
    let series = match wrong {
        Some(Source::Silent | Source::Away) => return None,
        Some(Source::Nonsense) => return Some("{\"status\": \"success\", \"data\": [\u{1b}".to_owned()),
        Some(Source::Failed) => return Some(json!({"status": "error", "error": "no\u{1b}[2J"}).to_string()),
        Some(Source::Firing) => true,
        Some(Source::Blind) => false,
        None => !is_firing,
    };
    let series = series.then(|| json!({"metric": {}, "value": [1.0, "1"]}));
    let found: Vec<_> = series.into_iter().collect();
    Some(json!({"status": "success", "data": {"resultType": "vector", "result": found}}).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_well_unless_something_is_wrong() {
        let shared = Mutex::<State>::default();
        let finds = |expression: &str| {
            let body = answer(&shared, &format!("limit=1&query={expression}"))?;
            let body: Json = serde_json::from_str(&body).ok()?;
            Some(!body.pointer("/data/result")?.as_array()?.is_empty())
        };
        for (wrong, expected) in [
            (None, [Some(false), Some(true)]),
            (Some(Source::Firing), [Some(true), Some(true)]),
            (Some(Source::Blind), [Some(false), Some(false)]),
            (Some(Source::Nonsense), [None, None]),
            (Some(Source::Failed), [None, None]),
            (Some(Source::Silent), [None, None]),
        ] {
            lock(&shared).wrong = wrong;
            assert_eq!([FIRING, ALIVE].map(finds), expected, "{wrong:?}");
        }
    }
}
