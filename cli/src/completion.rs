//! Completes words behind `kubectl brupop` for kubectl's own completion, in each shell: it asks `kubectl_complete-brupop`, whose last
//! word is what has been typed of the next one.
//! <https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/>

use std::ffi::{OsStr, OsString};
use std::iter;
use std::time::Duration;

use brupop_api::crds::is_version;
use brupop_api::names::{is_object_name, node_of_shadow};
use brupop_api::{BottlerocketShadow, Item};
use brupop_core::pool::Pool;
use clap::{Arg, CommandFactory as _, FromArgMatches as _};
use clap_complete::engine::{self, ArgValueCompleter, CompletionCandidate};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::arguments::{Arguments, Target, is_plain};
use crate::connection::{PROGRAM, connect};
use crate::error::Error;
use crate::gather::{OperatorApi, list};
use crate::steer::backs_off;

/// The program that kubectl looks for.
pub(crate) const SCRIPT: &str = include_str!("../kubectl_complete-brupop");
/// Nobody waits for names longer than this.
const LONGEST_WAIT: Duration = Duration::from_secs(3);

/// Returns the candidates for the last of these words, in the form that kubectl understands. The shell evaluates what it is
/// offered, so words of other than plain characters are left out. Must be called where it may block.
///
/// # Errors
/// There are no words.
pub(crate) fn complete(words: &[String]) -> Result<String, Error> {
    let words = words.iter().map(String::as_str);
    let words: Vec<OsString> = iter::once(PROGRAM).chain(words).map(Into::into).collect();
    let last = words.len() - 1;
    let target = target(&words[..last]);
    let named = |argument: Arg, of_failed: bool| {
        let id = match argument.get_id().as_str() {
            "node" if of_failed => "failed-node",
            "node" => "node",
            "pool" => "pool",
            "version" => "version",
            _ => return argument,
        };
        let target = target.clone();
        let names = move |typed: &OsStr| names(id, target.as_ref(), typed);
        argument.add(ArgValueCompleter::new(names))
    };
    let mut command = Arguments::command().mut_subcommands(|command| {
        let of_failed = command.get_name() == "retry";
        command.mut_args(|argument| named(argument, of_failed))
    });
    let is_option = words[last].as_encoded_bytes().starts_with(b"-");
    let folder = std::env::current_dir().ok();
    let found = engine::complete(&mut command, words, last, folder.as_deref())?;
    let line = |it: &CompletionCandidate| {
        let word = it.get_value().to_str()?;
        let help = it.get_help().map(ToString::to_string).unwrap_or_default();
        let is_offered = is_plain(word) && (is_option || !word.starts_with('-'));
        is_offered.then(|| format!("{word}\t{help}").trim_end().to_owned() + "\n")
    };
    let lines: String = found.iter().filter_map(line).collect();
    // The shell adds no files of its own, and no blank after a folder.
    let no_blank = lines.contains("/\n");
    Ok(lines + if no_blank { ":6\n" } else { ":4\n" })
}

/// Returns which cluster these words name, however few they are.
fn target(before: &[OsString]) -> Option<Target> {
    let command = Arguments::command().ignore_errors(true);
    let parsed = command.try_get_matches_from(before).ok()?;
    Target::from_arg_matches(&parsed).ok()
}

/// Returns names in the cluster that begin with what is typed.
fn names(id: &str, target: Option<&Target>, typed: &OsStr) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    if typed.starts_with('-') {
        return vec![];
    }
    let found = async { named(&connect(target?).await.ok()?, id).await.ok() };
    let found = Handle::current().block_on(timeout(LONGEST_WAIT, found));
    let found = found.ok().flatten().unwrap_or_default();
    let fitting = found.into_iter().filter(|name| name.starts_with(&*typed));
    fitting.map(CompletionCandidate::new).collect()
}

/// Returns names in the cluster, but for those that are not of their type.
async fn named(server: &OperatorApi, id: &str) -> Result<Vec<String>, Error> {
    if id == "version" {
        let status = server.fleet_object().await?.object.status;
        let mut halted = status.and_then(|it| it.halted_versions).unwrap_or_default();
        halted.retain(|version| is_version(version));
        return Ok(halted);
    }
    let mut found: Vec<String> = if id == "pool" {
        let pools = list::<Item<Pool>>(&server.ours(), "").await?;
        pools.iter().map(|pool| pool.name().to_owned()).collect()
    } else {
        let shadows = list::<Item<BottlerocketShadow>>(&server.ours(), "").await?;
        let is_meant = |it: &&Item<_>| id == "node" || it.ok().is_some_and(backs_off);
        let meant = shadows.iter().filter(is_meant);
        let nodes = meant.filter_map(|it| node_of_shadow(it.name()));
        nodes.map(str::to_owned).collect()
    };
    found.retain(|name| is_object_name(name));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn offered(line: &str) -> Vec<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let told = complete(&words).unwrap();
        let lines = told
            .lines()
            .map(|line| line.split('\t').next().unwrap().to_owned());
        lines.collect()
    }

    #[test]
    fn each_place_has_its_words() {
        for (line, expected) in [
            ("his", &["history", ":4"][..]),
            ("status -o ", &["table", "json", "yaml", ":4"]),
            ("status --output=y", &["--output=yaml", ":4"]),
            ("status --context ", &[":4"]),
            ("update-now --can", &["--cancel", ":4"]),
            ("pause --can", &[":4"]),
            ("--kubeconfig Car", &["Cargo.toml", ":4"]),
            ("status --kubeconfig sr", &["src/", ":6"]),
            ("status --kubeconfig src/rep", &["src/report/", ":6"]),
        ] {
            assert_eq!(offered(line), expected, "{line}");
        }
        let commands = offered("");
        assert!(
            commands.contains(&"resume".to_owned()) && !commands.contains(&"__complete".to_owned()),
            "{commands:?}"
        );
        let options = offered("pause --");
        assert!(
            ["--pool", "--context", "--as-group"]
                .iter()
                .all(|it| options.contains(&(*it).to_owned())),
            "{options:?}"
        );
        let told = complete(&["his".to_owned()]).unwrap();
        assert_eq!(
            told,
            "history\tShow the results of each version, and the operator's Events\n:4\n"
        );
    }

    #[tokio::test]
    async fn only_words_of_their_type_are_offered() {
        let halted = json!(["$(touch x)", "1.20.0"]);
        let fleet = json!({"metadata": {"name": "fleet"}, "spec": {}, "status": {"haltedVersions": halted}});
        let says = |reason: &str| {
            json!([{"type": "Progressing", "status": "False", "reason": reason, "message": "m",
            "lastTransitionTime": "2026-11-21T03:00:00Z"}])
        };
        let shadow = |name: &str, reason: &str| json!({"metadata": {"name": name}, "spec": {"state": "Idle"}, "status": {"conditions": says(reason)}});
        let (failed, other) = (shadow("brs-a", "BackingOff"), shadow("brs-b", "NoUpdate"));
        let shadows = json!({"metadata": {"resourceVersion": "1"}, "items": [failed, other, shadow("brs-$(touch x)", "BackingOff")]});
        let pools = json!({"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": "web"}, "spec": {}}, {"metadata": {"name": "`x`"}, "spec": {}}]});
        let server = OperatorApi::answering(move |path| {
            Some(match path.rsplit('/').next()? {
                "fleet" => fleet.clone(),
                "bottlerocketpools" => pools.clone(),
                _ => shadows.clone(),
            })
        });
        for (id, expected) in [
            ("version", &["1.20.0"][..]),
            ("node", &["a", "b"]),
            ("failed-node", &["a"]),
            ("pool", &["web"]),
        ] {
            assert_eq!(named(&server, id).await.unwrap(), expected, "{id}");
        }
    }

    #[test]
    fn cluster_flags_stand_anywhere() {
        let target = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            target(&words).unwrap()
        };
        let (namespace, context) = (
            "kubectl-brupop pause -n ns --pool",
            "kubectl-brupop --context=c why",
        );
        assert_eq!(target(namespace).namespace, "ns");
        assert_eq!(target(context).context.as_deref(), Some("c"));
    }
}
