//! What kubectl's own completion offers behind `kubectl brupop`, in each shell: it asks `kubectl_complete-brupop`, whose last
//! word is what has been typed of the next one.
//! <https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/>

use std::time::Duration;

use brupop_api::{BottlerocketPool, BottlerocketShadow, names};
use clap::{Arg, Command, CommandFactory as _, Parser as _};
use kube::ResourceExt as _;
use kube::api::ListParams;
use tokio::time::timeout;

use crate::arguments::Arguments;
use crate::connection::connect;
use crate::gather::OperatorApi;

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
    Pools,
    HaltedVersions,
    Files,
    /// Something that only the caller knows.
    Anything,
}

/// The candidates for the last of these words, in the form that kubectl understands.
pub(crate) async fn complete(words: &[String]) -> String {
    let (typed, before) = words.split_last().map_or(("", &[][..]), |(last, before)| (last.as_str(), before));
    let candidates = match next(before, typed) {
        Next::Files => return FILES.to_owned(),
        Next::Anything => vec![],
        Next::Words(words) => words,
        of_cluster => {
            let named =
                timeout(LONGEST_WAIT, named(before, &of_cluster)).await.ok().flatten().unwrap_or_default();
            named.into_iter().map(|name| (name, String::new())).collect()
        }
    };
    let fitting = candidates.iter().filter(|(word, _)| word.starts_with(typed));
    let lines = fitting.map(|(word, about)| format!("{word}\t{about}").trim_end().to_owned() + "\n");
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
        let options = command.get_arguments().filter(|argument| !argument.is_hide_set());
        let long = |option: &Arg| Some((format!("--{}", option.get_long()?), about(option.get_help())));
        return Next::Words(options.filter_map(long).collect());
    }
    if command.has_subcommands() {
        let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set());
        return Next::Words(shown.map(|sub| (sub.get_name().to_owned(), about(sub.get_about()))).collect());
    }
    command.get_positionals().nth(positions).map_or(Next::Anything, value)
}

/// The option that this word names.
fn option<'c>(command: &'c Command, word: &str) -> Option<&'c Arg> {
    let (long, short) = (word.strip_prefix("--"), word.strip_prefix('-'));
    let name = long.map(|long| long.split('=').next().unwrap_or(long));
    let mut short = short.into_iter().flat_map(str::chars);
    let letter = short.next().filter(|_| long.is_none() && short.next().is_none());
    command.get_arguments().find(|argument| {
        name.is_some_and(|name| argument.get_long() == Some(name))
            || letter.is_some_and(|letter| argument.get_short() == Some(letter))
    })
}

fn value(argument: &Arg) -> Next {
    let words = argument.get_possible_values();
    match argument.get_id().as_str() {
        "node" => Next::Nodes,
        "pool" => Next::Pools,
        "version" => Next::HaltedVersions,
        "kubeconfig" => Next::Files,
        _ if words.is_empty() => Next::Anything,
        _ => Next::Words(
            words.iter().map(|word| (word.get_name().to_owned(), about(word.get_help()))).collect(),
        ),
    }
}

fn about(help: Option<&clap::builder::StyledStr>) -> String {
    help.map(ToString::to_string).unwrap_or_default()
}

/// Names in the cluster that these words say.
async fn named(before: &[String], names: &Next) -> Option<Vec<String>> {
    let server = connect(&Arguments::try_parse_from(of_target(before)).ok()?.target).await.ok()?;
    match names {
        Next::Nodes => {
            let shadows = server.ours::<BottlerocketShadow>().list_metadata(&ListParams::default()).await;
            let shadows = shadows.ok()?.items;
            let node = |shadow: &str| names::node_of_shadow(shadow).map(str::to_owned);
            Some(shadows.iter().filter_map(|shadow| node(&shadow.name_any())).collect())
        }
        Next::Pools => {
            let pools = server.ours::<BottlerocketPool>().list_metadata(&ListParams::default()).await;
            Some(pools.ok()?.items.iter().map(kube::ResourceExt::name_any).collect())
        }
        Next::HaltedVersions => halted_versions(&server).await,
        Next::Words(_) | Next::Files | Next::Anything => None,
    }
}

async fn halted_versions(server: &OperatorApi) -> Option<Vec<String>> {
    let versions = server.fleet_object().await.ok()?.object.status?.versions;
    let halted = versions.into_iter().filter(|(_, record)| record.halted.is_some());
    Some(halted.map(|(version, _)| version).collect())
}

/// A whole command line with those of these words that say where the operator is.
fn of_target(before: &[String]) -> Vec<String> {
    let mut root = Arguments::command();
    root.build();
    let mut kept = vec![crate::PROGRAM.to_owned(), "history".to_owned()];
    let mut words = before.iter();
    while let Some(word) = words.next() {
        let Some(option) = option(&root, word).filter(|option| option.get_action().takes_values()) else {
            continue;
        };
        let value = if word.contains('=') { None } else { words.next() };
        if option.get_id() != "pool" {
            kept.push(word.clone());
            kept.extend(value.cloned());
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).filter(|word| !word.is_empty()).collect()
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
            ("resume-version", Next::HaltedVersions),
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
            commands.contains(&"resume-version".to_owned()) && !commands.contains(&"__complete".to_owned())
        );
        assert_eq!(next("status -o", ""), ["table", "json", "yaml"]);
        let options = next("pause", "--");
        assert!(["--pool", "--context", "--as-group"].iter().all(|it| options.contains(&(*it).to_owned())));
        assert!(!options.contains(&"--cancel".to_owned()));
    }

    #[tokio::test]
    async fn kubectl_is_told_words_and_what_they_do() {
        let told = complete(&words("his")).await;
        assert_eq!(told, "history\tShow the outcome of each version, and the operator's Events\n:4\n");
        assert_eq!(complete(&words("why --kubeconfig x")).await, FILES);
    }

    #[test]
    fn where_the_operator_is_stands_anywhere() {
        let target = |line| Arguments::try_parse_from(of_target(&words(line))).unwrap().target;
        assert_eq!(target("pause -n ns --pool web").namespace, "ns");
        assert_eq!(target("--context=c why").context.as_deref(), Some("c"));
    }
}
