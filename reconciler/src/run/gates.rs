//! Asks the sources of gates, and knows what they answered. The sources are the administrator's: files of a Secret, for each a
//! URL, and perhaps an authority and a token. They are read for each query, and never shown; nor is what is answered. Neither
//! redirects nor proxies are used. The answer and the time for it are bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use brupop_api::pool::PrometheusGate;
use brupop_api::printable::printable;
use brupop_core::gates::{ANSWER_MAX, Gates, TOO_LONG, answer_of, matter, read_answer, refusal};
use brupop_core::rules::GateState;
use brupop_runtime::errors::describe;
use brupop_runtime::{FailureLog, client};
use futures::future::OptionFuture;
use http::header::{ACCEPT, AUTHORIZATION};
use http::uri::Scheme;
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper_util::client::legacy;
use kube::client::Body;
use kube::{Client, Config};
use rustls::CertificateError;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::run::Pass;
use crate::run::Reconciler;

/// Longest time for all of a query.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time that the source is to spend on an expression.
const EVALUATION: &str = "5s";
/// Longest URL, authority and token, in bytes.
const URL_MAX: u64 = 1024;
const AUTHORITY_MAX: u64 = 256 * 1024;
const TOKEN_MAX: u64 = 16 * 1024;
/// The most bytes of an expression in the log.
const QUERY_LOGGED: usize = 256;

const BROKE_OFF: &str = "its answer broke off, is not HTTP, or has too long a header";
/// The hint for a URL.
const URL: &str = ": write a URL such as https://prometheus.monitoring.svc:9090, without user, query and fragment";
const NO_AUTHORITY: &str = " has to hold the authorities for an https URL, as PEM";

/// The states of gates, and what was logged.
pub(crate) struct GateAnswers {
    pub(crate) gates: Gates,
    /// The reason why queries have no answer.
    failures: BTreeMap<PrometheusGate, FailureLog>,
}

impl GateAnswers {
    /// From now on each query is asked, and again after each interval.
    pub(crate) fn new(interval: Duration, now: Duration) -> Self {
        Self {
            gates: Gates::new(interval, now),
            failures: BTreeMap::new(),
        }
    }

    /// Whether this query has an answer. If not, `Err` says why; `None` = it was not asked yet.
    pub(crate) fn failure(&self, query: &PrometheusGate) -> Result<(), Option<&str>> {
        let log = self.failures.get(query).ok_or(None)?;
        log.reason().map_or(Ok(()), |why| Err(Some(why)))
    }

    /// This is the answer to a query, or why there is none.
    pub(crate) fn answered(
        &mut self,
        query: &PrometheusGate,
        answer: &Result<GateState, String>,
        now: Duration,
    ) {
        let (source, shown) = (&query.source, printable(&query.query, QUERY_LOGGED));
        let shown = shown.as_ref();
        let log = self.failures.entry(query.clone()).or_default();
        match answer {
            Ok(_) if log.resolved() => {
                tracing::info!(source, query = shown, "the source of a gate answers again");
            }
            Err(why) if log.is_new(why) => {
                let says = "the source of a gate gives no answer, so the gate is closed";
                tracing::warn!(source, query = shown, why, "{says}");
            }
            _ => {}
        }
        let answer = answer.as_ref().copied().unwrap_or(GateState::Unknown);
        self.gates.answered(query, answer, now);
    }
}

impl Reconciler {
    /// Asks what is due for the gates, and tells how those are that matter now.
    pub(crate) fn ask(&mut self, pass: &mut Pass<'_>) {
        let now = self.now();
        let matter = matter(&pass.observed.fleet, &pass.observed.views);
        let gates = pass.cluster.gates_of(&matter);
        let queries: BTreeSet<_> = gates.map(|(_, gate)| &gate.prometheus).collect();
        let all = pass.cluster.gate_queries();
        let known = &mut self.leading.gates;
        known.failures.retain(|query, _| all.contains(query));
        let (due, next) = known.gates.due(&queries, &all, now);
        pass.wake.by(next);
        for query in due {
            let sources = self.settings.gate_sources.clone();
            let asking = async move { (ask(&sources, &query).await, query) };
            self.start(asking, |this, (answer, query)| {
                let now = this.now();
                this.leading.gates.answered(&query, &answer, now);
            });
        }
        let gates = pass.cluster.gates_of(&matter).map(|(pool, gate)| {
            let state = self.leading.gates.gates.state(&gate.prometheus, now);
            (pool, &*gate.name, state)
        });
        pass.gauges.tell_gates(gates);
    }
}

/// Asks a source, of those in this folder. `Err` says why there is no answer, or that it says nothing: in a sentence that has no word
/// of a certificate or a token, of a URL the host, and of an answer that the expression is none.
async fn ask(folder: &Path, query: &PrometheusGate) -> Result<GateState, String> {
    let answer = tokio::time::timeout(TIMEOUT, answer(folder, query)).await;
    answer.unwrap_or_else(|_| Err(timed_out()))
}

fn timed_out() -> String {
    format!("it did not answer in {} s", TIMEOUT.as_secs())
}

/// Returns what is wrong with a file of a source.
fn of_secret(file: &str, what: &str) -> String {
    format!("{file} of the Secret brupop-gate-sources{what}")
}

async fn answer(folder: &Path, query: &PrometheusGate) -> Result<GateState, String> {
    let source = Source::read(folder, &query.source)?;
    let client = source.client()?;
    let requires = query.requires.as_deref();
    let requires = requires.map(|it| source.find(&client, "requires", it));
    let requires = OptionFuture::from(requires);
    let (query, requires) = tokio::join!(source.find(&client, "query", &query.query), requires);
    Ok(answer_of(query?, requires.transpose()?))
}

/// A source, as it is now.
struct Source {
    name: String,
    url: Uri,
    authority: Option<String>,
    token: Option<HeaderValue>,
}

impl Source {
    fn read(folder: &Path, name: &str) -> Result<Self, String> {
        // Kubelets replace all files of a Secret at once, by replacing this link.
        let folder: PathBuf =
            std::fs::canonicalize(folder.join("..data")).unwrap_or_else(|_| folder.into());
        let file = |kind: &str| format!("{name}.{kind}");
        let url = read(&folder, &file("url"), URL_MAX)?.ok_or_else(|| {
            let url = file("url");
            format!("the Secret brupop-gate-sources names no such source: it has no key {url}")
        })?;
        let url = base(url.trim()).ok_or_else(|| of_secret(&file("url"), URL))?;
        let token = read(&folder, &file("token"), TOKEN_MAX)?;
        if token.is_some() && url.scheme() != Some(&Scheme::HTTPS) {
            let what = " is sent by TLS only: write an https URL";
            return Err(of_secret(&file("token"), what));
        }
        let token = token.map(|token| {
            bearer(token.trim()).ok_or_else(|| of_secret(&file("token"), " is no token"))
        });
        let authority = read(&folder, &file("ca"), AUTHORITY_MAX)?;
        Ok(Self {
            name: name.to_owned(),
            url,
            authority,
            token: token.transpose()?,
        })
    }

    /// A client for one query: nothing is kept of it, so what changes in the Secret counts at once.
    fn client(&self) -> Result<Client, String> {
        let mut authorities = vec![];
        if self.url.scheme() == Some(&Scheme::HTTPS) {
            let pem = self.authority.as_deref().unwrap_or_default();
            let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
            authorities = all.unwrap_or_default();
            if authorities.is_empty() {
                return Err(self.authority_unusable());
            }
        }
        let mut config = Config::new(self.url.clone());
        config.root_cert = Some(authorities.iter().map(|it| it.to_vec()).collect());
        client::without_retry(config, "brupop-reconciler").map_err(|_| self.authority_unusable())
    }

    fn authority_unusable(&self) -> String {
        of_secret(&format!("{}.ca", self.name), NO_AUTHORITY)
    }

    /// Returns why a request has no answer.
    fn unanswered(&self, error: &kube::Error) -> String {
        let mut cause: Option<&(dyn Error + 'static)> = Some(error);
        let why = loop {
            let Some(error) = cause else {
                return BROKE_OFF.to_owned();
            };
            cause = error.source();
            let client = error.downcast_ref::<legacy::Error>();
            if let Some(why) = cause.filter(|_| client.is_some_and(legacy::Error::is_connect)) {
                break why;
            }
        };
        let io = why.downcast_ref::<io::Error>();
        if io.is_some_and(|it| it.kind() == io::ErrorKind::TimedOut) {
            return timed_out();
        }
        // The error of the handshake is within one of the connector.
        let handshake = io.and_then(|it| it.get_ref()?.downcast_ref::<io::Error>());
        if let Some(error) = handshake {
            return format!("it cannot be reached: {}", without_names(error));
        }
        let host = self.url.host().unwrap_or_default();
        format!("the host {host} cannot be reached: {}", describe(why))
    }

    /// Returns whether the expression of this field finds a series.
    async fn find(
        &self,
        client: &Client,
        field: &'static str,
        expression: &str,
    ) -> Result<bool, String> {
        let mut request = Request::get(query(expression)).header(ACCEPT, "application/json");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(Body::empty());
        let request = request.map_err(|error| describe(&error))?;
        let answer = client.send(request).await;
        let answer = answer.map_err(|error| self.unanswered(&error))?;
        let status = answer.status();
        let refuses = [StatusCode::BAD_REQUEST, StatusCode::UNPROCESSABLE_ENTITY].contains(&status);
        if status != StatusCode::OK && !refuses {
            return Err(format!("it answers with the HTTP status {status}"));
        }
        let body = Limited::new(answer.into_body(), ANSWER_MAX);
        let body = body.collect().await.map_err(|error| {
            let is_too_long = error.is::<LengthLimitError>();
            if is_too_long { TOO_LONG } else { BROKE_OFF }
        });
        if refuses {
            let why = body.ok().and_then(|body| refusal(&body.to_bytes()));
            let why = why.unwrap_or_else(|| format!("HTTP status {status}"));
            return Err(format!(
                "it refuses the expression of prometheus.{field} ({why}): try it on the source's own page"
            ));
        }
        let read = body.and_then(|body| read_answer(&body.to_bytes()));
        read.map_err(str::to_owned)
    }
}

/// Returns why there is no TLS connection. What rustls says has names in it, which the other side may have chosen.
fn without_names(error: &io::Error) -> &'static str {
    use CertificateError::{
        BadSignature, Expired, ExpiredContext, NotValidForName, NotValidForNameContext,
        NotValidYet, NotValidYetContext, UnknownIssuer,
    };
    let error = error.get_ref().and_then(|it| it.downcast_ref());
    match error {
        Some(rustls::Error::InvalidCertificate(why)) => match why {
            UnknownIssuer | BadSignature => {
                "none of the authorities that the Secret names has signed its certificate"
            }
            NotValidForName | NotValidForNameContext { .. } => {
                "its certificate is for another name"
            }
            Expired | ExpiredContext { .. } => "its certificate has expired",
            NotValidYet | NotValidYetContext { .. } => "its certificate is not valid yet",
            _ => "its certificate cannot be verified",
        },
        Some(_) => "it violates the TLS protocol",
        None => "it ended the TLS handshake",
    }
}

/// A file of at most this many bytes; `None` if there is none.
fn read(folder: &Path, file: &str, most: u64) -> Result<Option<String>, String> {
    let failed = |why| of_secret(file, &format!(" cannot be read: {}", describe(&why)));
    let opened = match std::fs::File::open(folder.join(file)) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let mut text = String::new();
    let read = opened.take(most + 1).read_to_string(&mut text);
    read.map_err(failed)?;
    let length = u64::try_from(text.len()).unwrap_or(u64::MAX);
    if length > most {
        Err(of_secret(file, " is too long"))
    } else {
        Ok(Some(text))
    }
}

/// The URL below which a source has its API.
fn base(text: &str) -> Option<Uri> {
    let url: Uri = text.parse().ok().filter(|_| !text.contains('#'))?;
    let by_http = url.scheme() == Some(&Scheme::HTTP) || url.scheme() == Some(&Scheme::HTTPS);
    let named = url
        .authority()
        .is_some_and(|it| !it.as_str().contains('@') && !it.host().is_empty());
    (by_http && named && url.query().is_none()).then_some(url)
}

fn bearer(token: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
        .ok()
        .filter(|_| !token.is_empty())?;
    value.set_sensitive(true);
    Some(value)
}

/// Returns what asks for this expression, below the URL of a source. One series is as good as a thousand.
fn query(expression: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs([
        ("limit", "1"),
        ("timeout", EVALUATION),
        ("query", expression),
    ]);
    format!("/api/v1/query?{}", query.finish())
}

#[cfg(test)]
mod tests;
