//! Which environment variables are settings, of which program, and in which `ConfigMap` they stand. A variable that nobody
//! reads is most likely a mistake: what looks like one is refused at start, the rest is logged.

use std::error::Error;
use std::process::ExitCode;

use brupop_api::printable::printable;

use crate::logs;

/// The most bytes of a name that are repeated.
const NAME_MAX: usize = 64;
/// The most mistakes, or unknown names, that are listed.
const LISTED_MAX: usize = 8;
/// A name that begins with a known one, or with which a known one begins, must have this many bytes in common with it.
const BEGINNING: usize = 8;

/// Settings of all programs.
const OF_LOGS: [&str; 3] = [logs::FORMATTER, logs::ANSI_ENABLED, logs::FILTER_DIRECTIVE];
/// Not written by people: the manifests of the pods set them.
const OF_PODS: [&str; 1] = ["POD_NAME"];
const OF_AGENT: &str = "BOOT_ID_FILE BOTTLEROCKET_API_SOCKET HOST_TIMEOUT POD_NAME POLL_INTERVAL \
    PREFETCH REBOOT_REPEAT_INTERVAL REFRESH_INTERVAL REFUSED_DEADLINE START_JITTER";
const OF_RECONCILER: &str = "AUTO_LABEL BACK_OFF_BASE_SECONDS CHECK_INTERVAL_SECONDS CORDONED_BY_OTHERS_SECONDS \
    DRAIN_DEADLINE_SECONDS EXCLUDE_FROM_LB_WAIT_TIME_IN_SEC GATE_INTERVAL_SECONDS GATE_SOURCES HEALTH_ADDRESS \
    LEASE_DURATION_SECONDS MAX_CONCURRENT_UPDATE METRICS_ADDRESS MIN_NODE_AGE_SECONDS POD_NAME \
    REBOOT_DEADLINE_SECONDS SCHEDULER_CRON_EXPRESSION SCHEDULER_TIME_ZONE SCHEDULER_WINDOW_DURATION \
    SETTLE_DEADLINE_SECONDS SOAK_SECONDS STAGE_DEADLINE_SECONDS WORKLOADS_DEADLINE_SECONDS";
const OF_WEBHOOK: &str = "ADMISSION_ADDRESS CERTIFICATES CERTIFICATE_LIFETIME HEALTH_ADDRESS LINGER_SECONDS \
    METRICS_ADDRESS REQUIRE_CALLER_TOKEN WEBHOOK_CERTIFICATES WEBHOOK_CONFIGURATION WEBHOOK_SERVICE";
/// Variables that are no settings any more, and what to do instead.
const REMOVED: [(&str, &str); 8] = [
    (
        "DRAIN_ON_DEADLINE",
        "write spec.drain.onTimeout of a BottlerocketPool",
    ),
    (
        "EXTRA_CERTIFICATE_NAMES",
        "nothing takes its place: the certificate names the webhook's Service",
    ),
    (
        "MAX_FAILURES",
        "write spec.failureThreshold.proven of the BottlerocketFleet",
    ),
    (
        "MAX_FAILURES_OF_NEW_VERSION",
        "write spec.failureThreshold.unproven of the BottlerocketFleet",
    ),
    (
        "MY_NODE_NAME",
        "nothing takes its place: the agent's token names the node",
    ),
    (
        "PAUSE_BETWEEN_UPDATES_SECONDS",
        "write spec.verify.readyFor of a BottlerocketPool: a node keeps its slot for so long after its update",
    ),
    (
        "RESPECT_DO_NOT_DISRUPT",
        "write spec.drain.respectDoNotDisrupt of a BottlerocketPool",
    ),
    (
        "SCHEDULER_MIN_REMAINING_SECONDS",
        "nothing takes its place: an update without a cordon is given up when the window closes",
    ),
];

brupop_api::words! {
    /// One of the operator's programs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Program {
        /// `brupop-agent`.
        Agent => "agent",
        /// `brupop-reconciler`.
        Reconciler => "reconciler",
        /// `brupop-webhook`.
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

    /// Whose setting this variable is, if it is another program's and not this one's.
    pub fn misplaced(self, name: &str) -> Option<Self> {
        let reads = |program: &Self| program.settings().contains(&name);
        if reads(&self) || OF_PODS.contains(&name) {
            None
        } else {
            Self::ALL.into_iter().find(reads)
        }
    }
}

/// Why the environment is refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum EnvironmentError {
    /// Variables are misspelt, misplaced or removed: a sentence on each.
    #[error("{}", .0.join("; "))]
    Mistakes(Vec<String>),
    /// Logging cannot be set up.
    #[error(transparent)]
    Logs(#[from] logs::LogError),
}

/// Checks the names of this process's environment, and sets up its logs. Returns the names that nobody knows
/// ([`log_unknown`]).
///
/// # Errors
/// A name is misspelt, misplaced or removed, or logging cannot be set up. Says so, and returns the code with which to end.
pub fn prepare(program: Program) -> Result<Vec<String>, ExitCode> {
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    let prepared = check(program, names).and_then(|unknown| Ok(logs::init().map(|()| unknown)?));
    prepared.map_err(|error| {
        eprintln!("{error}");
        ExitCode::from(2)
    })
}

/// The code with which a process ends that has come to this. Logs an error as the reason for `what`.
pub fn ended<E: Error + 'static>(what: &str, result: Result<(), E>) -> ExitCode {
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    tracing::error!(error = &error as &dyn Error, "{what}");
    ExitCode::FAILURE
}

/// Logs the names that nobody knows, in one line.
pub fn log_unknown(unknown: &[String]) {
    if !unknown.is_empty() {
        let names = unknown.join(" ");
        tracing::warn!(
            names,
            "these environment variables are not settings, and have no effect"
        );
    }
}

/// The names in an environment that nobody knows.
///
/// # Errors
/// Some names are misspelt, misplaced or removed.
pub fn check(
    program: Program,
    names: impl IntoIterator<Item = String>,
) -> Result<Vec<String>, EnvironmentError> {
    let (mut mistakes, mut unknown) = (Vec::new(), Vec::new());
    for name in names {
        let is_setting = OF_LOGS.contains(&name.as_str())
            || OF_PODS.contains(&name.as_str())
            || Program::ALL
                .iter()
                .any(|program| program.settings().contains(&name.as_str()));
        if let Some(of) = program.misplaced(&name) {
            let map = of.config_map();
            mistakes.push(format!(
                "{name} is a setting of the {of}: move it to the ConfigMap {map}"
            ));
        } else if let Some((_, instead)) = REMOVED.iter().find(|(removed, _)| *removed == name) {
            mistakes.push(format!("{name} is not a setting: remove it; {instead}"));
        } else if is_setting || is_of_others(&name) {
            // It is meant as it is.
        } else if let Some((meant, of)) = nearest(program, &name) {
            let (name, map) = (printable(&name, NAME_MAX), of.config_map());
            mistakes.push(format!(
                "{name} is not a setting: remove it, or write {meant} instead, in the ConfigMap {map}"
            ));
        } else {
            unknown.push(printable(&name, NAME_MAX).into_owned());
        }
    }
    if !mistakes.is_empty() {
        mistakes.truncate(LISTED_MAX);
        return Err(EnvironmentError::Mistakes(mistakes));
    }
    unknown.sort_unstable();
    unknown.truncate(LISTED_MAX);
    Ok(unknown)
}

/// Is this set by container runtimes, kubelets or shells, or is it read by libraries?
fn is_of_others(name: &str) -> bool {
    const NAMES: &str = "HOME HOSTNAME LANG NO_COLOR OLDPWD PATH PWD RUST_BACKTRACE RUST_LIB_BACKTRACE \
        SERVICE_ACCOUNT_FOLDER SHLVL SSL_CERT_DIR SSL_CERT_FILE TERM TZ USER _";
    NAMES.split(' ').any(|other| other == name)
        || name.starts_with("KUBERNETES_")
        || name.starts_with("LC_")
        || name.to_ascii_uppercase().ends_with("_PROXY")
}

/// The setting whose name is most like this one, if one is so like it that it must be meant.
fn nearest(program: Program, name: &str) -> Option<(&'static str, Program)> {
    let written = name.to_ascii_uppercase().replace(['-', '.'], "_");
    let own = std::iter::once(program).chain(Program::ALL);
    let settings = own.flat_map(|of| {
        of.settings()
            .into_iter()
            .chain(OF_LOGS)
            .map(move |known| (known, of))
    });
    let distances = settings
        .filter(|(known, _)| !OF_PODS.contains(known))
        .filter_map(|(known, of)| {
            let distance = strsim::osa_distance(&written, known);
            // One slip in a short name, three in a long one.
            let alike = distance <= (known.len() / 6).clamp(1, 3);
            let begins = written.len().min(known.len()) >= BEGINNING
                && (written.starts_with(known) || known.starts_with(&written));
            (alike || begins).then_some((distance, known, of))
        });
    distances
        .min_by_key(|(distance, ..)| *distance)
        .map(|(_, known, of)| (known, of))
}

#[cfg(test)]
mod tests;
