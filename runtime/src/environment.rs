//! Checks the environment at start: a mistaken setting, and another program's, are refused.

use std::error::Error;
use std::process::ExitCode;

use brupop_api::printable::printable;
use brupop_api::settings::{OF_PODS, Program};
use tracing_subscriber::fmt::MakeWriter;

use crate::errors::describe;
use crate::logs;

/// The most bytes of a name that are repeated.
const NAME_MAX: usize = 64;
/// The most mistakes, and the most names of others, that are listed.
const LISTED_MAX: usize = 8;

const OF_LOGS: [&str; 3] = [logs::FORMATTER, logs::ANSI_ENABLED, logs::FILTER_DIRECTIVE];
/// Prefixes of the settings that people write.
const FAMILIES: &str = "EXCLUDE_ LOGGING_ MAX_ REFRESH_ REQUIRE_ SCHEDULER_ TRACING_";

/// Checks the names of this process's environment, and sets up its logs, which go to `writer`.
///
/// # Errors
/// A name is mistaken or misplaced, or logging cannot be set up. Says so, and returns the code with which to end.
pub fn prepare<W>(program: Program, writer: W) -> Result<(), ExitCode>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    let prepared = check(program, names).and_then(|others| {
        logs::init(writer)?;
        if !others.is_empty() {
            let names = others.join(" ");
            tracing::warn!(
                names,
                "these environment variables are not settings, and have no effect"
            );
        }
        Ok(())
    });
    prepared.map_err(|error| {
        eprintln!("{error}");
        ExitCode::from(2)
    })
}

/// The code with which a process ends that has come to this. Logs an error as the reason for `what`.
pub fn ended(
    what: &'static str,
    result: Result<(), impl Into<Box<dyn Error + Send + Sync>>>,
) -> ExitCode {
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    tracing::error!(error = describe(&*error.into()), "{what}");
    ExitCode::FAILURE
}

/// Checks the names in the environment of a program. Returns those that are nobody's: webhooks put variables of their own into
/// pods, so only one that begins like a setting is taken for a mistake.
///
/// # Errors
/// Some names are mistaken or misplaced: a sentence on each.
pub fn check(
    program: Program,
    names: impl IntoIterator<Item = String>,
) -> Result<Vec<String>, String> {
    let mut settings = program.settings();
    settings.extend(OF_LOGS);
    let is_known = |name: &str| settings.contains(&name) || OF_PODS.contains(&name);
    let (mut mistakes, mut others) = (Vec::new(), Vec::new());
    for name in names.into_iter().filter(|name| !is_known(name)) {
        let shown = printable(&name, NAME_MAX);
        if let Some(of) = program.misplaced(&name) {
            let map = of.config_map();
            mistakes.push(format!(
                "{name} is a setting of the {of}: move it to the ConfigMap {map}"
            ));
        } else if FAMILIES.split(' ').any(|family| name.starts_with(family)) {
            mistakes.push(format!("{shown} is not a setting: remove it"));
        } else if !is_of_others(&name) {
            others.push(shown.into_owned());
        }
    }
    others.sort_unstable();
    others.truncate(LISTED_MAX);
    if mistakes.is_empty() {
        return Ok(others);
    }
    mistakes.truncate(LISTED_MAX);
    settings.retain(|name| !OF_PODS.contains(name));
    Err(format!(
        "{}; the settings in the ConfigMap {} are {}",
        mistakes.join("; "),
        program.config_map(),
        settings.join(", ")
    ))
}

/// Whether container runtimes, kubelets or shells set this variable, or libraries read it.
fn is_of_others(name: &str) -> bool {
    const NAMES: &str = "HOME HOSTNAME LANG NO_COLOR OLDPWD PATH PWD RUST_BACKTRACE RUST_LIB_BACKTRACE \
        SERVICE_ACCOUNT_FOLDER SHLVL SSL_CERT_DIR SSL_CERT_FILE TERM TZ USER _";
    NAMES.split(' ').any(|other| other == name)
        || name.starts_with("KUBERNETES_")
        || name.starts_with("LC_")
        || name.to_ascii_uppercase().ends_with("_PROXY")
}

#[cfg(test)]
mod tests;
