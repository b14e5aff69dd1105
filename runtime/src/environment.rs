//! Knows which environment variables are settings, of which program, and in which `ConfigMap` they stand. A variable that is neither
//! a setting nor of the container's environment is refused at start.

use std::error::Error;
use std::process::ExitCode;

use brupop_api::printable::printable;
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
/// Not written by people: the manifests of the pods set them.
const OF_PODS: [&str; 1] = ["POD_NAME"];
const OF_AGENT: &str = "BOOT_ID_FILE BOTTLEROCKET_API_SOCKET HOST_TIMEOUT POLL_INTERVAL PREFETCH \
    REBOOT_REPEAT_INTERVAL REFRESH_INTERVAL REFUSED_DEADLINE START_JITTER";
const OF_RECONCILER: &str = "AUTO_LABEL BACK_OFF_BASE_SECONDS CHECK_INTERVAL_SECONDS CORDONED_BY_OTHERS_SECONDS \
    DRAIN_DEADLINE_SECONDS EXCLUDE_FROM_LB_WAIT_TIME_IN_SEC GATE_INTERVAL_SECONDS GATE_SOURCES HEALTH_ADDRESS \
    LEASE_DURATION_SECONDS MAX_CONCURRENT_UPDATE METRICS_ADDRESS MIN_NODE_AGE_SECONDS POD_NAME \
    REBOOT_DEADLINE_SECONDS SCHEDULER_CRON_EXPRESSION SCHEDULER_TIME_ZONE SCHEDULER_WINDOW_DURATION \
    SETTLE_DEADLINE_SECONDS SOAK_SECONDS STAGE_DEADLINE_SECONDS WORKLOADS_DEADLINE_SECONDS";
const OF_WEBHOOK: &str = "ADMISSION_ADDRESS CERTIFICATES CERTIFICATE_LIFETIME HEALTH_ADDRESS LINGER_SECONDS \
    METRICS_ADDRESS REQUIRE_CALLER_TOKEN WEBHOOK_CERTIFICATES WEBHOOK_CONFIGURATION WEBHOOK_SERVICE";
brupop_api::words! {
    /// One of the operator's programs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Program {
        Agent => "agent",
        Reconciler => "reconciler",
        Webhook => "webhook",
    }
}

impl Program {
    /// The variables that it reads, without those of the logs, in the order of the alphabet.
    pub fn settings(self) -> Vec<&'static str> {
        let names = match self {
            Self::Agent => OF_AGENT,
            Self::Reconciler => OF_RECONCILER,
            Self::Webhook => OF_WEBHOOK,
        };
        names.split(' ').collect()
    }

    /// The `ConfigMap` that holds its settings, as it is called before a hash is added to its name.
    pub fn config_map(self) -> &'static str {
        match self {
            Self::Agent => "brupop-agent-configuration",
            Self::Reconciler => "brupop-configuration",
            Self::Webhook => "brupop-webhook-configuration",
        }
    }

    /// Returns whose setting this variable is, if it is another program's and not this one's.
    pub fn misplaced(self, name: &str) -> Option<Self> {
        let reads = |program: &Self| program.settings().contains(&name);
        if reads(&self) || OF_PODS.contains(&name) {
            None
        } else {
            Self::ALL.into_iter().find(reads)
        }
    }
}

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
