//! What kubectl's own completion offers behind `kubectl brupop`, in each shell: it asks `kubectl_complete-brupop`, whose last
//! word is what has been typed of the next one.
//! <https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/>

use std::time::Duration;

use brupop_api::crds::is_version;
use brupop_api::names::is_object_name;
use brupop_api::{BottlerocketPool, BottlerocketShadow, Item, names};
use clap::{Arg, Command, CommandFactory as _, Parser as _};
use kube::api::ListParams;
use tokio::time::timeout;

use crate::arguments::Arguments;
use crate::connection::connect;
use crate::gather::OperatorApi;
use crate::steer;

/// The program that kubectl looks for.
pub(crate) const SCRIPT: &str = include_str!("../kubectl_complete-brupop");
/// Nobody waits for names longer than this.
const LONGEST_WAIT: Duration = Duration::from_secs(3);
/// Tells kubectl to offer no files.
const NO_FILES: &str = ":4\n";
/// Tells kubectl that files may be meant.
const FILES: &str = ":0\n";

/// What can come next.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Next {
    /// One of these words, each with what it does.
    Words(Vec<(String, String)>),
    Nodes,
    /// Nodes that back off.
    FailedNodes,
    Pools,
    HaltedVersions,
    Files,
    /// Something that only the caller knows.
    Anything,
}

/// The candidates for the last of these words, in the form that kubectl understands.
pub(crate) async fn complete(words: &[String]) -> String {
    let (typed, before) = words
        .split_last()
        .map_or(("", &[][..]), |(last, before)| (last.as_str(), before));
    let candidates = match next(before, typed) {
        Next::Files => return FILES.to_owned(),
        Next::Anything => vec![],
        Next::Words(words) => words,
        of_cluster => {
            let offered = timeout(LONGEST_WAIT, offered(before, &of_cluster))
                .await
                .ok()
                .flatten();
            offered
                .unwrap_or_default()
                .into_iter()
                .map(|name| (name, String::new()))
                .collect()
        }
    };
    let fitting = candidates
        .iter()
        .filter(|(word, _)| word.starts_with(typed));
    let lines =
        fitting.map(|(word, about)| format!("{word}\t{about}").trim_end().to_owned() + "\n");
    lines.collect::<String>() + NO_FILES
}

/// What can follow these words, where this much of the next one is typed.
fn next(before: &[String], typed: &str) -> Next {
    let mut root = Arguments::command();
    root.build();
    let (mut command, mut positions) = (&root, 0);
    let mut words = before.iter();
    while let Some(word) = words.next() {
        if let Some(option) = option(command, word) {
            if option.get_action().takes_values() && !word.contains('=') && words.next().is_none() {
                return value(option);
            }
        } else if let Some(sub) = command.find_subcommand(word) {
            command = sub;
        } else {
            positions += 1;
        }
    }
    if typed.starts_with('-') {
        let options = command
            .get_arguments()
            .filter(|argument| !argument.is_hide_set());
        let long = |option: &Arg| {
            Some((
                format!("--{}", option.get_long()?),
                about(option.get_help()),
            ))
        };
        return Next::Words(options.filter_map(long).collect());
    }
    if command.has_subcommands() {
        let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set());
        return Next::Words(
            shown
                .map(|sub| (sub.get_name().to_owned(), about(sub.get_about())))
                .collect(),
        );
    }
    command
        .get_positionals()
        .nth(positions)
        .map_or(Next::Anything, value)
}

/// The option that this word names.
fn option<'c>(command: &'c Command, word: &str) -> Option<&'c Arg> {
    let (long, short) = (word.strip_prefix("--"), word.strip_prefix('-'));
    let name = long.map(|long| long.split('=').next().unwrap_or(long));
    let mut short = short.into_iter().flat_map(str::chars);
    let letter = short
        .next()
        .filter(|_| long.is_none() && short.next().is_none());
    command.get_arguments().find(|argument| {
        name.is_some_and(|name| argument.get_long() == Some(name))
            || letter.is_some_and(|letter| argument.get_short() == Some(letter))
    })
}

fn value(argument: &Arg) -> Next {
    let words = argument.get_possible_values();
    match argument.get_id().as_str() {
        "node" => Next::Nodes,
        "failed-node" => Next::FailedNodes,
        "pool" => Next::Pools,
        "version" => Next::HaltedVersions,
        "kubeconfig" => Next::Files,
        _ if words.is_empty() => Next::Anything,
        _ => Next::Words(
            words
                .iter()
                .map(|word| (word.get_name().to_owned(), about(word.get_help())))
                .collect(),
        ),
    }
}

fn about(help: Option<&clap::builder::StyledStr>) -> String {
    help.map(ToString::to_string).unwrap_or_default()
}

/// Names in the cluster that these words name.
async fn offered(before: &[String], names: &Next) -> Option<Vec<String>> {
    let server = connect(&Arguments::try_parse_from(of_target(before)).ok()?.target)
        .await
        .ok()?;
    named(&server, names).await
}

/// Names in the cluster. The shell evaluates what it is offered, so what is not of the type is left out.
async fn named(server: &OperatorApi, names: &Next) -> Option<Vec<String>> {
    let all = ListParams::default();
    let nodes = |shadows: Vec<String>| {
        shadows
            .iter()
            .filter_map(|shadow| names::node_of_shadow(shadow))
            .map(str::to_owned)
            .collect()
    };
    let is_word = if *names == Next::HaltedVersions {
        is_version
    } else {
        is_object_name
    };
    let found: Vec<String> = match names {
        Next::Nodes => {
            let shadows = server
                .ours::<BottlerocketShadow>()
                .list_metadata(&all)
                .await
                .ok()?
                .items;
            nodes(shadows.iter().map(kube::ResourceExt::name_any).collect())
        }
        Next::FailedNodes => {
            let shadows = server
                .ours::<Item<BottlerocketShadow>>()
                .list(&all)
                .await
                .ok()?
                .items;
            let failed = shadows
                .iter()
                .filter(|shadow| shadow.ok().is_some_and(steer::backs_off));
            nodes(failed.map(|shadow| shadow.name().to_owned()).collect())
        }
        Next::Pools => {
            let pools = server
                .ours::<BottlerocketPool>()
                .list_metadata(&all)
                .await
                .ok()?
                .items;
            pools.iter().map(kube::ResourceExt::name_any).collect()
        }
        Next::HaltedVersions => {
            let status = server.fleet_object().await.ok()?.object.status?;
            status.halted_versions.unwrap_or_default()
        }
        Next::Words(_) | Next::Files | Next::Anything => return None,
    };
    Some(found.into_iter().filter(|word| is_word(word)).collect())
}

/// A whole command line with those of these words that say where the operator is.
fn of_target(before: &[String]) -> Vec<String> {
    let mut root = Arguments::command();
    root.build();
    let mut kept = vec![crate::PROGRAM.to_owned(), "history".to_owned()];
    let mut words = before.iter();
    while let Some(word) = words.next() {
        let Some(option) = option(&root, word).filter(|option| option.get_action().takes_values())
        else {
            continue;
        };
        let value = if word.contains('=') {
            None
        } else {
            words.next()
        };
        if option.get_id() != "pool" {
            kept.push(word.clone());
            kept.extend(value.cloned());
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ')
            .map(str::to_owned)
            .filter(|word| !word.is_empty())
            .collect()
    }

    #[test]
    fn each_place_has_its_words() {
        for (before, expected) in [
            ("why", Next::Nodes),
            ("-n ns why", Next::Nodes),
            ("why node-0", Next::Anything),
            ("pause --pool", Next::Pools),
            ("pause", Next::Nodes),
            ("update-now --cancel", Next::Nodes),
            ("retry", Next::FailedNodes),
            ("resume --version", Next::HaltedVersions),
            ("status --kubeconfig", Next::Files),
            ("--kubeconfig=f pause", Next::Nodes),
            ("status --context", Next::Anything),
        ] {
            assert_eq!(next(&words(before), ""), expected, "{before}");
        }
        let next = |before: &str, typed| match next(&words(before), typed) {
            Next::Words(words) => words.into_iter().map(|(word, _)| word).collect::<Vec<_>>(),
            other => panic!("{before}: {other:?}"),
        };
        let commands = next("", "");
        assert!(
            commands.contains(&"resume".to_owned()) && !commands.contains(&"__complete".to_owned())
        );
        assert_eq!(next("status -o", ""), ["table", "json", "yaml"]);
        let options = next("pause", "--");
        assert!(
            ["--pool", "--context", "--as-group"]
                .iter()
                .all(|it| options.contains(&(*it).to_owned()))
        );
        assert!(!options.contains(&"--cancel".to_owned()));
    }

    #[tokio::test]
    async fn kubectl_is_told_words_and_what_they_do() {
        let told = complete(&words("his")).await;
        assert_eq!(
            told,
            "history\tShow the outcome of each version, and the operator's Events\n:4\n"
        );
        assert_eq!(complete(&words("why --kubeconfig x")).await, FILES);
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
        let shadows = json!({"metadata": {}, "items": [failed, other, shadow("brs-$(touch x)", "BackingOff")]});
        let server = OperatorApi::answering(move |path| {
            if path.ends_with("/fleet") {
                Some(fleet.clone())
            } else {
                Some(shadows.clone())
            }
        });
        for (next, expected) in [
            (Next::HaltedVersions, &["1.20.0"][..]),
            (Next::Nodes, &["a", "b"]),
            (Next::FailedNodes, &["a"]),
        ] {
            assert_eq!(named(&server, &next).await.unwrap(), expected, "{next:?}");
        }
    }

    #[test]
    fn where_the_operator_is_stands_anywhere() {
        let target = |line| {
            Arguments::try_parse_from(of_target(&words(line)))
                .unwrap()
                .target
        };
        assert_eq!(target("pause -n ns --pool web").namespace, "ns");
        assert_eq!(target("--context=c why").context.as_deref(), Some("c"));
    }
}
