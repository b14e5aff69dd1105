//! Asks the sources of gates, each query on a thread of its own. The sources are the administrator's: files of a Secret, for
//! each a URL, and perhaps an authority and a token. They are read for each query, and never shown; nor is what is
//! answered. What a source sends is bounded from its first byte on, so that nothing it does holds up anything else.

mod error;

use std::fmt::Write as _;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use brupop_core::gates::answer::{self, ANSWER_MAX, GateAnswer, GateAnswerError};
use brupop_core::rules::GateQuery;
use brupop_runtime::OwnThread;
use futures::future::OptionFuture;
use http::header::{ACCEPT, AUTHORIZATION, HOST, USER_AGENT};
use http::uri::Scheme;
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, join};
use tokio_rustls::TlsConnector;
use tower::Service as _;

pub use error::AskError;

/// Longest time for all of a query.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time that the source is to spend on an expression.
const EVALUATION: &str = "5s";
/// Most bytes that are read for an expression: a TLS handshake, whatever precedes the answer, its head and [`ANSWER_MAX`].
const READ_MAX: u64 = 256 * 1024;
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
        // When this ends, in whatever way, so does the thread.
        let thread = OwnThread::start("gate").map_err(|_| AskError::Ours)?;
        let answer = thread.spawn(answer(Arc::clone(&self.0), query.clone()));
        let answer = tokio::time::timeout(TIMEOUT, answer)
            .await
            .map_err(|_| AskError::TimedOut)?;
        answer.map_err(|_| AskError::Ours)?
    }
}

async fn answer(folder: Arc<Path>, query: GateQuery) -> Result<GateAnswer, AskError> {
    let source = Source::read(&folder, &query.source)?;
    let tls = TlsConnector::from(Arc::new(source.tls()?));
    let requires = OptionFuture::from(
        query
            .requires
            .as_deref()
            .map(|it| source.find(&tls, "requires", it)),
    );
    let (query, requires) = tokio::join!(source.find(&tls, "query", &query.expression), requires);
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

    /// By which authorities it is told.
    fn tls(&self) -> Result<ClientConfig, AskError> {
        let mut roots = RootCertStore::empty();
        if self.url.scheme() == Some(&Scheme::HTTPS) {
            let unusable = || AskError::Authority(format!("{}.ca", self.name));
            let pem = self.authority.as_ref().ok_or_else(unusable)?;
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                certificate
                    .ok()
                    .and_then(|it| roots.add(it).ok())
                    .ok_or_else(unusable)?;
            }
            if roots.is_empty() {
                return Err(unusable());
            }
        }
        Ok(ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth())
    }

    /// A connection for one expression: nothing is kept of it, so what changes in the Secret counts at once.
    async fn connect(&self, tls: &TlsConnector) -> Result<SendRequest<Empty<Bytes>>, AskError> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        let stream = tcp
            .call(self.url.clone())
            .await
            .map_err(|error| AskError::Unreachable {
                host: self.url.host().unwrap_or_default().to_owned(),
                why: error.into(),
            })?;
        let (reads, writes) = stream.into_inner().into_split();
        let stream = join(reads.take(READ_MAX), writes);
        if self.url.scheme() != Some(&Scheme::HTTPS) {
            return converse(stream).await;
        }
        // An address of IPv6 is in brackets.
        let host = self
            .url
            .host()
            .unwrap_or_default()
            .trim_matches(['[', ']'])
            .to_owned();
        let name =
            ServerName::try_from(host).map_err(|_| AskError::Url(format!("{}.url", self.name)))?;
        converse(
            tls.connect(name, stream)
                .await
                .map_err(|error| AskError::Tls(without_names(&error)))?,
        )
        .await
    }

    /// Does the expression of this field find a series?
    async fn find(
        &self,
        tls: &TlsConnector,
        field: &'static str,
        expression: &str,
    ) -> Result<bool, AskError> {
        let mut request = Request::get(query(&self.url, expression).ok_or(AskError::Ours)?)
            .header(HOST, self.url.authority().map_or("", |it| it.as_str()))
            .header(ACCEPT, "application/json")
            .header(
                USER_AGENT,
                concat!("brupop-reconciler/", env!("CARGO_PKG_VERSION")),
            );
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(Empty::new()).map_err(|_| AskError::Ours)?;
        let answer = self
            .connect(tls)
            .await?
            .send_request(request)
            .await
            .map_err(|_| AskError::BrokeOff)?;
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
            let why = body.ok().and_then(|body| answer::refusal(&body.to_bytes()));
            let why = why.unwrap_or_else(|| format!("HTTP status {status}"));
            return Err(AskError::Refused { field, why });
        }
        Ok(answer::read(&body?.to_bytes())?)
    }
}

/// Begins to speak HTTP.
async fn converse<S>(stream: S) -> Result<SendRequest<Empty<Bytes>>, AskError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (requests, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|_| AskError::BrokeOff)?;
    // It ends with the thread. The receiver of the answer learns, too, why it ends early.
    tokio::spawn(connection);
    Ok(requests)
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

/// What asks for this expression, at the source of this URL. One series is as good as a thousand.
fn query(base: &Uri, expression: &str) -> Option<Uri> {
    let mut path = format!(
        "{}/api/v1/query?limit=1&timeout={EVALUATION}&query=",
        base.path().trim_end_matches('/')
    );
    for byte in expression.bytes() {
        if byte.is_ascii_alphanumeric() {
            path.push(char::from(byte));
        } else {
            // A String takes everything.
            let _ = write!(path, "%{byte:02X}");
        }
    }
    path.parse().ok()
}

#[cfg(test)]
mod tests;
