//! Structured logs, adjusted by upstream's environment variables.
//!
//! Only our own crates are heard. What libraries log may hold whole responses of the API server (kube's client does that
//! when it cannot read one), and so other people's secrets; each caller of ours logs what became of its call.
//!
//! Text from outside is logged as a field that is a `&str` or `?text`: all formats quote those, so no text can forge a line
//! or a field. Messages, `%value` and `&dyn Error` are not quoted, so they hold only our own words; a test checks that. The
//! caller cuts text to a length: [`describe`](crate::errors::describe) does that for errors.

mod quota;

use tracing::Dispatch;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Layer, registry};

pub use quota::Quota;

/// One of `full`, `compact`, `pretty`, `json`; `full` if unset.
pub const FORMATTER: &str = "LOGGING_FORMATTER";
/// `true` or `false`: colours; `false` if unset.
pub const ANSI_ENABLED: &str = "LOGGING_ANSI_ENABLED";
/// A level, and levels of our own modules, such as `info,brupop_agent=debug`; `info` if unset.
pub const FILTER_DIRECTIVE: &str = "TRACING_FILTER_DIRECTIVE";

const CRATES: [&str; 4] = [
    "brupop_agent",
    "brupop_reconciler",
    "brupop_runtime",
    "brupop_webhook",
];
const VALID: &str = "a level (off, error, warn, info, debug, trace), and after it levels of modules such as \
                     info,brupop_agent=debug. Only brupop_agent, brupop_reconciler, brupop_runtime and brupop_webhook \
                     have any: nothing else is ever logged. Write that";

/// Sets up the logs of this process, to `writer`, from its environment.
///
/// # Errors
/// A variable holds something else than it may, or logging was set up before.
pub fn init<W>(writer: W) -> Result<(), String>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let environment =
        |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    let dispatch = dispatch(environment, writer)?;
    tracing::dispatcher::set_global_default(dispatch).map_err(|error| error.to_string())
}

/// Logs to `writer`, with settings by `variable`, which is the environment or a stand-in. An empty variable counts as unset.
///
/// # Errors
/// A variable holds something else than it may.
pub fn dispatch<W>(variable: impl Fn(&str) -> Option<String>, writer: W) -> Result<Dispatch, String>
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
    let filter = targets(get(FILTER_DIRECTIVE).as_deref().unwrap_or("info"))?;
    let layer = fmt::layer().with_ansi(ansi).with_writer(writer);
    let layer = match get(FORMATTER).as_deref() {
        None | Some("full") => layer.boxed(),
        Some("compact") => layer.compact().boxed(),
        Some("pretty") => layer.pretty().boxed(),
        Some("json") => layer.json().flatten_event(true).boxed(),
        Some(other) => return Err(invalid(FORMATTER, other, "full, compact, pretty or json")),
    };
    Ok(Dispatch::new(registry().with(filter).with(layer)))
}

/// Reads directives: a level for all of our crates (`info` if none is given), and levels of modules.
fn targets(value: &str) -> Result<Targets, String> {
    let refused = || invalid(FILTER_DIRECTIVE, value, VALID);
    // The library takes nothing for a level.
    let is_level_missing = value
        .split(',')
        .any(|directive| directive.trim_end().ends_with('=') || directive.trim().is_empty());
    let given: Targets = value.replace(' ', "").parse().map_err(|_| refused())?;
    let is_ours = |module: &str| CRATES.contains(&module.split("::").next().unwrap_or_default());
    if is_level_missing || !given.iter().all(|(module, _)| is_ours(module)) {
        return Err(refused());
    }
    let all = given.default_level().unwrap_or(LevelFilter::INFO);
    let ours = Targets::new().with_targets(CRATES.map(|name| (name, all)));
    Ok(ours.with_targets(given))
}

fn invalid(variable: &str, value: &str, valid: &str) -> String {
    format!("{variable} is {value:?}: write {valid} instead")
}

#[cfg(test)]
mod tests;
