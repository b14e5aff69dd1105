//! Why a query has no answer.

use std::io;

use brupop_core::gates::GateAnswerError;
use http::StatusCode;

use super::TIMEOUT;

/// Why a query has no answer. No sentence has a word of a certificate or a token; of a URL it has the host, and of an answer that
/// the expression is none.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The administrator has named no such source.
    #[error("the Secret brupop-gate-sources names no such source: it has no key {0}.url")]
    NoSource(String),
    /// A file of the source is there, and cannot be read.
    #[error("{file} of the Secret brupop-gate-sources cannot be read")]
    File {
        /// Its name.
        file: String,
        #[source]
        why: io::Error,
    },
    /// A file is too long.
    #[error("{0} of the Secret brupop-gate-sources is too long")]
    TooLong(String),
    /// The URL is none.
    #[error(
        "{0} of the Secret brupop-gate-sources: write a URL such as https://prometheus.monitoring.svc:9090, without user, \
         query and fragment"
    )]
    Url(String),
    /// There is no authority to tell the source by.
    #[error(
        "{0} of the Secret brupop-gate-sources has to hold the authorities for an https URL, as PEM"
    )]
    Authority(String),
    /// The token would be sent in clear text.
    #[error("{0} of the Secret brupop-gate-sources is sent by TLS only: write an https URL")]
    TokenInClear(String),
    /// The token is no token.
    #[error("{0} of the Secret brupop-gate-sources is no token")]
    Token(String),
    /// There is no connection to this host.
    #[error("the host {host} cannot be reached: {why}")]
    Unreachable {
        /// Its name.
        host: String,
        /// Why, in the words of the operating system.
        why: String,
    },
    /// It is not who it should be, or does not speak TLS.
    #[error("it cannot be reached: {0}")]
    Tls(&'static str),
    /// It took too long.
    #[error("it did not answer in {} s", TIMEOUT.as_secs())]
    TimedOut,
    /// It does not like the expression of this field.
    #[error(
        "it refuses the expression of prometheus.{field} ({why}): try it on the source's own page"
    )]
    Refused {
        /// Which one.
        field: &'static str,
        why: String,
    },
    /// It answered with something else.
    #[error("it answers with the HTTP status {0}")]
    Status(StatusCode),
    /// It sent no whole answer, or too long a head.
    #[error("its answer broke off, is not HTTP, or has too long a head")]
    BrokeOff,
    /// Its answer says nothing.
    #[error(transparent)]
    GateAnswerError(#[from] GateAnswerError),
    /// Our own fault.
    #[error("it could not be asked, because of a fault of this program")]
    Ours,
}
