//! Structured logs on standard output, adjusted by upstream's environment variables.

use thiserror::Error;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{fmt, registry};

/// One of `full`, `compact`, `pretty`, `json`; `full` if unset.
pub const FORMATTER: &str = "LOGGING_FORMATTER";
/// `true` or `false`: colours; `false` if unset.
pub const ANSI_ENABLED: &str = "LOGGING_ANSI_ENABLED";
/// A level, or directives by module such as `info,brupop_agent=debug`. Directives by span are not among them:
/// their automata would take memory on each node.
pub const FILTER_DIRECTIVE: &str = "TRACING_FILTER_DIRECTIVE";

/// kube's client logs each failed call as an error. That is switched off: whoever made the call logs what it means, once.
const DEFAULT_FILTER: &str = "info,kube_client::client::builder=off";

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

/// Layout of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Formatter {
    Full,
    Compact,
    Pretty,
    Json,
}

#[derive(Debug, PartialEq)]
struct Settings {
    formatter: Formatter,
    ansi: bool,
    filter: Targets,
}

/// Sets up the logs of this process from its environment.
///
/// # Errors
/// A variable holds something else than it may, or logging was set up before.
pub fn init() -> Result<(), LogError> {
    let settings = settings(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))?;
    let layer = fmt::layer().with_ansi(settings.ansi);
    let filtered = registry().with(settings.filter);
    match settings.formatter {
        Formatter::Full => filtered.with(layer).try_init(),
        Formatter::Compact => filtered.with(layer.compact()).try_init(),
        Formatter::Pretty => filtered.with(layer.pretty()).try_init(),
        Formatter::Json => filtered.with(layer.json().flatten_event(true)).try_init(),
    }
    .map_err(|_| LogError::AlreadySetUp)
}

/// Reads the settings by `variable`, which is the environment or a stand-in. An empty variable counts as unset.
fn settings(variable: impl Fn(&str) -> Option<String>) -> Result<Settings, LogError> {
    let get = |name| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
    let formatter = match get(FORMATTER).as_deref() {
        None | Some("full") => Formatter::Full,
        Some("compact") => Formatter::Compact,
        Some("pretty") => Formatter::Pretty,
        Some("json") => Formatter::Json,
        Some(other) => {
            return Err(LogError::Invalid {
                variable: FORMATTER,
                value: other.to_owned(),
                valid: "full, compact, pretty or json",
            });
        }
    };
    let ansi = match get(ANSI_ENABLED).as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => {
            return Err(LogError::Invalid {
                variable: ANSI_ENABLED,
                value: other.to_owned(),
                valid: "true or false",
            });
        }
    };
    let filter = filter(get(FILTER_DIRECTIVE).as_deref().unwrap_or(DEFAULT_FILTER))?;
    Ok(Settings { formatter, ansi, filter })
}

/// Reads directives. A name that cannot be a module's would match no event, so it is refused rather than ignored.
fn filter(value: &str) -> Result<Targets, LogError> {
    let module = |name: &str| name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | ':' | '-'));
    let directives = || value.split(',').map(|directive| directive.split('=').next().unwrap_or_default());
    let parsed = value.parse().ok().filter(|_| directives().all(|name| !name.is_empty() && module(name)));
    parsed.ok_or_else(|| LogError::Invalid {
        variable: FILTER_DIRECTIVE,
        value: value.to_owned(),
        valid: "a level (off, error, warn, info, debug, trace) or levels by module such as \
                info,brupop_agent=debug (no [spans])",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    fn read(values: &[(&str, &str)]) -> Result<Settings, LogError> {
        settings(|name| values.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn unset_and_empty_mean_the_default() {
        let default =
            Settings { formatter: Formatter::Full, ansi: false, filter: DEFAULT_FILTER.parse().unwrap() };
        assert_eq!(read(&[]).unwrap(), default);
        assert_eq!(read(&[(FORMATTER, ""), (ANSI_ENABLED, " "), (FILTER_DIRECTIVE, "")]).unwrap(), default);
    }

    #[test]
    fn upstreams_values_are_understood() {
        for (value, formatter) in [
            ("full", Formatter::Full),
            ("compact", Formatter::Compact),
            ("pretty", Formatter::Pretty),
            ("json", Formatter::Json),
        ] {
            assert_eq!(read(&[(FORMATTER, value)]).unwrap().formatter, formatter);
        }
        assert!(read(&[(ANSI_ENABLED, "true")]).unwrap().ansi);
        let filter =
            read(&[(FILTER_DIRECTIVE, "info,brupop_agent=debug,kube_client::client=off")]).unwrap().filter;
        for (module, level, logged) in [
            ("hyper", Level::INFO, true),
            ("hyper", Level::DEBUG, false),
            ("brupop_agent::host", Level::DEBUG, true),
            ("brupop_agent::host", Level::TRACE, false),
            ("kube_client::client::builder", Level::ERROR, false),
        ] {
            assert_eq!(filter.would_enable(module, &level), logged, "{module} {level}");
        }
    }

    #[test]
    fn a_bad_value_is_refused_with_what_to_write() {
        for (variable, value, hint) in [
            (FORMATTER, "xml", "full, compact, pretty or json"),
            (ANSI_ENABLED, "maybe", "true or false"),
            (FILTER_DIRECTIVE, "info,=,", "a level"),
            (FILTER_DIRECTIVE, "info,", "a level"),
            (FILTER_DIRECTIVE, "brupop_agent=loud", "info,brupop_agent=debug"),
            (FILTER_DIRECTIVE, "info,[agent{node=a}]=debug", "no [spans]"),
            (FILTER_DIRECTIVE, "[agent]", "no [spans]"),
        ] {
            let sentence = read(&[(variable, value)]).unwrap_err().to_string();
            assert!(sentence.contains(variable) && sentence.contains(hint), "{sentence}");
        }
    }
}
