//! Asks the sources of gates. The sources are the administrator's: files of a Secret, for each a URL, and perhaps an authority and
//! a token. They are read for each query, and never shown; nor is what is answered. Neither redirects nor proxies are used. The
//! answer and the time for it are bounded.

mod error;

use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use brupop_core::gates::{ANSWER_MAX, GateAnswer, GateAnswerError, read_answer, refusal};
use brupop_core::rules::GateQuery;
use brupop_runtime::client;
use brupop_runtime::errors::describe;
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

pub use error::AskError;

/// Longest time for all of a query.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time that the source is to spend on an expression.
const EVALUATION: &str = "5s";
/// Longest URL, authority and token, in bytes.
const URL_MAX: u64 = 1024;
const AUTHORITY_MAX: u64 = 256 * 1024;
const TOKEN_MAX: u64 = 16 * 1024;

/// The folder with the files of all sources.
#[derive(Clone, Debug)]
pub struct Sources(Arc<Path>);

impl Sources {
    /// The sources in this folder.
    pub fn new(folder: &Path) -> Self {
        Self(folder.into())
    }

    /// Asks.
    ///
    /// # Errors
    /// There is no answer, or it says nothing.
    pub async fn ask(&self, query: &GateQuery) -> Result<GateAnswer, AskError> {
        tokio::time::timeout(TIMEOUT, answer(&self.0, query))
            .await
            .map_err(|_| AskError::TimedOut)?
    }
}

async fn answer(folder: &Path, query: &GateQuery) -> Result<GateAnswer, AskError> {
    let source = Source::read(folder, &query.source)?;
    let client = source.client()?;
    let requires = OptionFuture::from(
        query
            .requires
            .as_deref()
            .map(|it| source.find(&client, "requires", it)),
    );
    let (query, requires) =
        tokio::join!(source.find(&client, "query", &query.expression), requires);
    Ok(GateAnswer::of(query?, requires.transpose()?))
}

/// A source, as it is now.
struct Source {
    name: String,
    url: Uri,
    authority: Option<String>,
    token: Option<HeaderValue>,
}

impl Source {
    fn read(folder: &Path, name: &str) -> Result<Self, AskError> {
        // Kubelets replace all files of a Secret at once, by replacing this link.
        let folder: PathBuf =
            std::fs::canonicalize(folder.join("..data")).unwrap_or_else(|_| folder.into());
        let file = |kind: &str| format!("{name}.{kind}");
        let url = read(&folder, &file("url"), URL_MAX)?
            .ok_or_else(|| AskError::NoSource(name.to_owned()))?;
        let url = base(url.trim()).ok_or_else(|| AskError::Url(file("url")))?;
        let token = read(&folder, &file("token"), TOKEN_MAX)?;
        if token.is_some() && url.scheme() != Some(&Scheme::HTTPS) {
            return Err(AskError::TokenInClear(file("token")));
        }
        let token =
            token.map(|token| bearer(token.trim()).ok_or_else(|| AskError::Token(file("token"))));
        let authority = read(&folder, &file("ca"), AUTHORITY_MAX)?;
        Ok(Self {
            name: name.to_owned(),
            url,
            authority,
            token: token.transpose()?,
        })
    }

    /// A client for one query: nothing is kept of it, so what changes in the Secret counts at once.
    fn client(&self) -> Result<Client, AskError> {
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

    fn authority_unusable(&self) -> AskError {
        AskError::Authority(format!("{}.ca", self.name))
    }

    /// Why a request has no answer.
    fn unanswered(&self, error: &kube::Error) -> AskError {
        let mut cause: Option<&(dyn Error + 'static)> = Some(error);
        let why = loop {
            let Some(error) = cause else {
                return AskError::BrokeOff;
            };
            cause = error.source();
            let client = error.downcast_ref::<legacy::Error>();
            if let Some(why) = cause.filter(|_| client.is_some_and(legacy::Error::is_connect)) {
                break why;
            }
        };
        let io = why.downcast_ref::<io::Error>();
        if io.is_some_and(|it| it.kind() == io::ErrorKind::TimedOut) {
            return AskError::TimedOut;
        }
        // The error of the handshake is within one of the connector.
        let handshake = io.and_then(|it| it.get_ref()?.downcast_ref::<io::Error>());
        match handshake {
            Some(error) => AskError::Tls(without_names(error)),
            None => AskError::Unreachable {
                host: self.url.host().unwrap_or_default().to_owned(),
                why: describe(why),
            },
        }
    }

    /// Returns whether the expression of this field finds a series.
    async fn find(
        &self,
        client: &Client,
        field: &'static str,
        expression: &str,
    ) -> Result<bool, AskError> {
        let mut request = Request::get(query(expression)).header(ACCEPT, "application/json");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(Body::empty()).map_err(|_| AskError::Ours)?;
        let answer = client
            .send(request)
            .await
            .map_err(|error| self.unanswered(&error))?;
        let status = answer.status();
        let refuses = [StatusCode::BAD_REQUEST, StatusCode::UNPROCESSABLE_ENTITY].contains(&status);
        if status != StatusCode::OK && !refuses {
            return Err(AskError::Status(status));
        }
        let body = Limited::new(answer.into_body(), ANSWER_MAX)
            .collect()
            .await
            .map_err(|error| {
                if error.is::<LengthLimitError>() {
                    GateAnswerError::TooLong.into()
                } else {
                    AskError::BrokeOff
                }
            });
        if refuses {
            let why = body.ok().and_then(|body| refusal(&body.to_bytes()));
            let why = why.unwrap_or_else(|| format!("HTTP status {status}"));
            return Err(AskError::Refused { field, why });
        }
        Ok(read_answer(&body?.to_bytes())?)
    }
}

/// Why there is no TLS connection. What rustls says has names in it, which the other side may have chosen.
fn without_names(error: &io::Error) -> &'static str {
    use CertificateError::{
        BadSignature, Expired, ExpiredContext, NotValidForName, NotValidForNameContext,
        NotValidYet, NotValidYetContext, UnknownIssuer,
    };
    match error
        .get_ref()
        .and_then(|it| it.downcast_ref::<rustls::Error>())
    {
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
        Some(_) => "it does not speak TLS as it should",
        None => "it ended the TLS handshake",
    }
}

/// A file of at most this many bytes; `None` if there is none.
fn read(folder: &Path, file: &str, most: u64) -> Result<Option<String>, AskError> {
    let failed = |why| AskError::File {
        file: file.to_owned(),
        why,
    };
    let opened = match std::fs::File::open(folder.join(file)) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let mut text = String::new();
    opened
        .take(most + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    let length = u64::try_from(text.len()).unwrap_or(u64::MAX);
    if length > most {
        Err(AskError::TooLong(file.to_owned()))
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

/// What asks for this expression, below the URL of a source. One series is as good as a thousand.
fn query(expression: &str) -> String {
    let mut path = format!("/api/v1/query?limit=1&timeout={EVALUATION}&query=");
    for byte in expression.bytes() {
        if byte.is_ascii_alphanumeric() {
            path.push(char::from(byte));
        } else {
            // A String takes everything.
            let _ = write!(path, "%{byte:02X}");
        }
    }
    path
}

#[cfg(test)]
mod tests;
