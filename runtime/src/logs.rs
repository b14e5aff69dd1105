//! Structured logs, adjusted by upstream's environment variables.
//!
//! Only our own crates are heard. What libraries log may hold whole responses of the API server (kube's client does that
//! when it cannot read one), and so other people's secrets; each caller of ours logs what became of its call.
//!
//! Whatever a field holds, an event is one line of limited length (`pretty`: one line a field): each value is made
//! printable, and cut to [`VALUE_MAX`] bytes.

mod directives;
mod fields;
mod json;
mod quota;

use fields::Fields;
use json::Json;
use thiserror::Error;
use tracing::Dispatch;
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry;

pub use fields::VALUE_MAX;
pub use quota::Quota;

/// One of `full`, `compact`, `pretty`, `json`; `full` if unset.
pub const FORMATTER: &str = "LOGGING_FORMATTER";
/// `true` or `false`: colours; `false` if unset.
pub const ANSI_ENABLED: &str = "LOGGING_ANSI_ENABLED";
/// A level, and levels of our own modules, such as `info,brupop_agent=debug`; `info` if unset.
pub const FILTER_DIRECTIVE: &str = "TRACING_FILTER_DIRECTIVE";

/// Why logging could not be set up.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LogError {
    /// A variable holds what it must not.
    #[error("{variable} is {value:?}: write {valid} instead")]
    Invalid {
        /// Name of the environment variable.
        variable: &'static str,
        /// What it holds.
        value: String,
        /// What it may hold.
        valid: &'static str,
    },
    /// Something else in this process took the place of the global subscriber.
    #[error("logging was set up twice in this process")]
    AlreadySetUp,
}

/// Sets up the logs of this process, to `writer`, from its environment.
///
/// # Errors
/// A variable holds something else than it may, or logging was set up before.
pub fn init<W>(writer: W) -> Result<(), LogError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let environment =
        |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    let dispatch = dispatch(environment, writer)?;
    tracing::dispatcher::set_global_default(dispatch).map_err(|_| LogError::AlreadySetUp)
}

/// Logs to `writer`, with settings by `variable`, which is the environment or a stand-in. An empty variable counts as unset.
///
/// # Errors
/// A variable holds something else than it may.
pub fn dispatch<W>(
    variable: impl Fn(&str) -> Option<String>,
    writer: W,
) -> Result<Dispatch, LogError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let get = |name| {
        variable(name)
            .map(|value| value.trim().to_owned())
            .filter(|value| !value.is_empty())
    };
    let ansi = match get(ANSI_ENABLED).as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => return Err(invalid(ANSI_ENABLED, other, "true or false")),
    };
    let filter = directives::targets(get(FILTER_DIRECTIVE).as_deref().unwrap_or("info"))?;
    let layer = fmt::layer()
        .with_ansi(ansi)
        .with_writer(writer)
        .fmt_fields(Fields(" "));
    let layer = match get(FORMATTER).as_deref() {
        None | Some("full") => layer.boxed(),
        Some("compact") => layer.event_format(fmt::format().compact()).boxed(),
        Some("pretty") => layer.fmt_fields(Fields("\n    ")).boxed(),
        Some("json") => layer.fmt_fields(Json).event_format(Json).boxed(),
        Some(other) => return Err(invalid(FORMATTER, other, "full, compact, pretty or json")),
    };
    Ok(Dispatch::new(registry().with(filter).with(layer)))
}

fn invalid(variable: &'static str, value: &str, valid: &'static str) -> LogError {
    LogError::Invalid {
        variable,
        value: value.to_owned(),
        valid,
    }
}

#[cfg(test)]
mod tests;
