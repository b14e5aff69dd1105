//! The cluster and namespace of the operator.

use std::path::PathBuf;
use std::time::Duration;

use brupop_api::names::DEFAULT_NAMESPACE;
use clap::Args;
use jiff::SignedDuration;

use super::object_name;

/// The cluster and namespace of the operator.
#[derive(Clone, Debug, Args)]
pub struct Target {
    /// Namespace that the operator is in
    #[arg(long, short, global = true, default_value = DEFAULT_NAMESPACE, value_parser = object_name)]
    pub namespace: String,
    /// Context of the kubeconfig, instead of the current one
    #[arg(long, global = true)]
    pub context: Option<String>,
    /// Kubeconfig file, instead of KUBECONFIG and ~/.kube/config
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Cluster of the kubeconfig, instead of the context's
    #[arg(long, global = true)]
    pub cluster: Option<String>,
    /// User of the kubeconfig, instead of the context's
    #[arg(long, global = true)]
    pub user: Option<String>,
    /// User to impersonate, as for kubectl
    #[arg(long = "as", global = true, value_name = "USER")]
    pub as_user: Option<String>,
    /// Group to impersonate, with --as; can be given several times
    #[arg(long = "as-group", global = true, value_name = "GROUP")]
    pub as_groups: Vec<String>,
    /// Longest wait for each answer, such as 5s; 0 = no limit [default: 30s]
    #[arg(long, global = true, value_name = "DURATION", value_parser = request_timeout)]
    pub request_timeout: Option<Duration>,
}

impl Target {
    /// Returns the flags that name the cluster, as they were given, for commands that are pasted. Impersonation is left out: the
    /// command may be for somebody with more rights.
    pub fn flags(&self) -> String {
        let flags = self.cluster_flags().into_iter();
        let flags = flags.map(|(flag, value)| format!(" --{flag} {}", quoted(&value)));
        flags.collect()
    }

    /// Returns all flags as kubectl takes them.
    pub fn kubectl(&self) -> Vec<String> {
        let mut flags = self.cluster_flags();
        flags.push(("namespace", self.namespace.clone()));
        flags.extend(self.as_user.clone().map(|user| ("as", user)));
        let groups = self.as_groups.iter().cloned();
        flags.extend(groups.map(|group| ("as-group", group)));
        let limit = self.request_timeout.filter(|limit| *limit < Duration::MAX);
        flags.extend(limit.map(|limit| ("request-timeout", format!("{}ms", limit.as_millis()))));
        let flags = flags
            .iter()
            .map(|(flag, value)| format!("--{flag}={value}"));
        flags.collect()
    }

    fn cluster_flags(&self) -> Vec<(&'static str, String)> {
        let file = self.kubeconfig.as_ref();
        let file = file.map(|file| file.display().to_string());
        let flags = [
            ("kubeconfig", &file),
            ("context", &self.context),
            ("cluster", &self.cluster),
            ("user", &self.user),
        ];
        let flags = flags.map(|(flag, value)| Some((flag, value.clone()?)));
        flags.into_iter().flatten().collect()
    }
}

/// Returns the word as shells read it.
fn quoted(word: &str) -> String {
    if is_plain(word) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Whether shells read this word as it is.
pub(crate) fn is_plain(word: &str) -> bool {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "-_./:@=+,%".contains(it);
    !word.is_empty() && word.chars().all(is_plain)
}

/// Returns how long to wait for an answer, as kubectl reads it: `0`, a number of seconds, or a duration.
fn request_timeout(text: &str) -> Result<Duration, &'static str> {
    let seconds = text.parse().map(Duration::from_secs).ok();
    let duration = || Duration::try_from(text.parse::<SignedDuration>().ok()?).ok();
    match seconds.or_else(duration) {
        Some(Duration::ZERO) => Ok(Duration::MAX),
        Some(limit) => Ok(limit),
        None => Err("write a number of seconds, or a duration such as 5s or 1m30s"),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::Arguments;

    #[test]
    fn timeouts_are_as_kubectl_reads_them() {
        for (text, limit) in [
            ("0", Some(Duration::MAX)),
            ("0s", Some(Duration::MAX)),
            ("5", Some(Duration::from_secs(5))),
            ("1m30s", Some(Duration::from_secs(90))),
            ("-5s", None),
            ("soon", None),
        ] {
            assert_eq!(request_timeout(text).ok(), limit, "{text}");
        }
    }

    #[test]
    fn kubectl_takes_all_flags() {
        let flags = |words: &str| {
            let words = ["kubectl-brupop", "plan"]
                .into_iter()
                .chain(words.split(' '));
            Arguments::try_parse_from(words)
                .unwrap()
                .target
                .kubectl()
                .join(" ")
        };
        assert_eq!(
            flags("-n ns --context c --as jane --as-group a --as-group b --request-timeout 5"),
            "--context=c --namespace=ns --as=jane --as-group=a --as-group=b --request-timeout=5000ms"
        );
        let default = "--namespace=brupop-bottlerocket-aws";
        assert_eq!(flags("--request-timeout 0"), default);
    }

    #[test]
    fn pasted_commands_name_the_cluster() {
        let flags = |words: &[&str]| {
            let words = ["kubectl-brupop", "status"].iter().chain(words);
            Arguments::try_parse_from(words).unwrap().target.flags()
        };
        assert_eq!(flags(&["-n", "ns", "--as", "jane"]), "");
        assert_eq!(
            flags(&[
                "--context",
                "arn:aws:eks:x:1:cluster/prod",
                "--kubeconfig",
                "it's",
                "--user",
                "a"
            ]),
            r" --kubeconfig 'it'\''s' --context arn:aws:eks:x:1:cluster/prod --user a"
        );
    }
}
