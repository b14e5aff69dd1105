//! Structured logs on standard output, adjusted by upstream's environment variables.

use thiserror::Error;
use tracing_subscriber::{EnvFilter, fmt, util::SubscriberInitExt};

/// One of `full`, `compact`, `pretty`, `json`; `full` if unset.
pub const FORMATTER: &str = "LOGGING_FORMATTER";
/// `true` or `false`: colours; `false` if unset.
pub const ANSI_ENABLED: &str = "LOGGING_ANSI_ENABLED";
/// A filter of `tracing-subscriber`, such as `info` or `info,brupop_agent=debug`.
pub const FILTER_DIRECTIVE: &str = "TRACING_FILTER_DIRECTIVE";

/// kube's client logs each failed call as an error of its own; who made the call says what it means, once.
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

#[derive(Debug, PartialEq, Eq)]
struct Settings {
    formatter: Formatter,
    ansi: bool,
    filter: String,
}

/// Sets up the logs of this process from its environment.
///
/// # Errors
/// A variable holds something else than it may, or logging was set up before.
pub fn init() -> Result<(), LogError> {
    let settings = settings(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))?;
    let filter = EnvFilter::try_new(&settings.filter).map_err(|_| invalid_filter(&settings.filter))?;
    let builder = fmt().with_env_filter(filter).with_ansi(settings.ansi);
    match settings.formatter {
        Formatter::Full => builder.finish().try_init(),
        Formatter::Compact => builder.compact().finish().try_init(),
        Formatter::Pretty => builder.pretty().finish().try_init(),
        Formatter::Json => builder.json().flatten_event(true).finish().try_init(),
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
    let filter = get(FILTER_DIRECTIVE).unwrap_or_else(|| DEFAULT_FILTER.to_owned());
    EnvFilter::try_new(&filter).map_err(|_| invalid_filter(&filter))?;
    Ok(Settings { formatter, ansi, filter })
}

fn invalid_filter(value: &str) -> LogError {
    LogError::Invalid {
        variable: FILTER_DIRECTIVE,
        value: value.to_owned(),
        valid: "a level (error, warn, info, debug, trace) or directives such as info,brupop_agent=debug",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[(&str, &str)]) -> Result<Settings, LogError> {
        settings(|name| values.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn unset_and_empty_mean_the_default() {
        let default = Settings { formatter: Formatter::Full, ansi: false, filter: DEFAULT_FILTER.to_owned() };
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
        assert_eq!(read(&[(FILTER_DIRECTIVE, "warn")]).unwrap().filter, "warn");
    }

    #[test]
    fn a_bad_value_is_refused_with_what_to_write() {
        for (variable, value, hint) in [
            (FORMATTER, "xml", "full, compact, pretty or json"),
            (ANSI_ENABLED, "maybe", "true or false"),
            (FILTER_DIRECTIVE, "info,=,", "a level"),
        ] {
            let sentence = read(&[(variable, value)]).unwrap_err().to_string();
            assert!(sentence.contains(variable) && sentence.contains(hint), "{sentence}");
        }
    }
}
