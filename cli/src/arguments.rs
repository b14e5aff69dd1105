//! The command line of `kubectl brupop`.

mod target;

use brupop_api::crds::{is_variant, is_version};
use brupop_api::names::{DEFAULT_POOL, is_object_name};
use clap::{Args, Parser, Subcommand, ValueEnum};

pub use target::Target;
pub(crate) use target::is_plain;

/// Shows what the Bottlerocket update operator does with a fleet and why, and steers it
#[derive(Clone, Debug, Parser)]
#[command(
    name = "kubectl-brupop",
    bin_name = "kubectl brupop",
    version,
    after_help = "Put the program kubectl-brupop into PATH, and kubectl finds it. Plain kubectl can show and do the same: \
                  `kubectl brupop help COMMAND` says how."
)]
pub struct Arguments {
    /// The cluster and namespace of the operator.
    #[command(flatten)]
    pub target: Target,
    /// Format of the output
    #[arg(long, short, global = true, value_enum, default_value = "table")]
    pub output: Output,
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// Format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Tables and sentences for people
    Table,
    /// JSON, for programs to read
    Json,
    /// YAML, for programs and people
    Yaml,
}

/// The commands, of which [`SteeringCommand`] has those that change something.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Show the fleet at a glance: which nodes are being updated, which wait, and why
    ///
    /// With plain kubectl: `kubectl get brf,brs -n NAMESPACE` (`-w`), and `kubectl describe` for the sentences.
    Status {
        /// Show every change; on a terminal, arrows scroll and q ends
        #[arg(long, short)]
        watch: bool,
        /// Show the nodes of this pool only
        #[arg(long, value_parser = object_name)]
        pool: Option<String>,
    },
    /// Show why a node is updated or waits, and what to do about it
    ///
    /// With plain kubectl: `kubectl describe brs brs-NODE -n NAMESPACE` and `kubectl events -n default --for node/NODE`.
    /// docs/reference.md has a table of what to do about each reason.
    Why {
        /// Name of the node to explain
        #[arg(value_parser = node_name)]
        node: String,
    },
    /// Show which nodes would be updated, in which order, and why the others would not
    ///
    /// The plan names the pauses, windows, freezes and gates that hold updates now, and goes on as if nothing held them. This runs
    /// `kubectl exec -n NAMESPACE deploy/brupop-reconciler -- /brupop-reconciler plan`, because the answer depends on the
    /// reconciler's settings.
    Plan {
        /// Show what starts now, with all pauses, windows, freezes and gates
        #[arg(long)]
        now: bool,
    },
    /// Show the results of each version, and the operator's Events
    ///
    /// API servers keep Events for an hour by default. With plain kubectl: `status.versions` in
    /// `kubectl get brf fleet -n NAMESPACE -o yaml`, `kubectl events -n default` about nodes, and `kubectl events -n NAMESPACE`.
    History {
        /// Show the Events of this node only
        #[arg(value_parser = node_name)]
        node: Option<String>,
    },
    /// Show the versions of this plugin and of the operator's programs
    ///
    /// With plain kubectl: `kubectl get daemonset,deploy -n NAMESPACE -o wide`.
    Version,
    /// A command that changes something.
    #[command(flatten)]
    Steer(SteeringCommand),
    /// Print a program that lets kubectl complete `kubectl brupop` in every shell
    ///
    /// Run `kubectl brupop completion >kubectl_complete-brupop`, make the file executable, and put it into PATH. The shell needs
    /// kubectl's own completion (`kubectl completion --help`). Names of nodes, pools and halted versions are completed, too.
    Completion,
    /// Print the completions of these words, for `kubectl_complete-brupop`
    #[command(name = "__complete", hide = true, disable_help_flag = true)]
    Complete {
        /// The words after `kubectl brupop`, the last one as far as it is typed
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

/// A command that changes something.
#[derive(Clone, Debug, Subcommand)]
pub enum SteeringCommand {
    /// Pause the fleet, a pool, or one node
    ///
    /// While the fleet or a pool is paused, no update starts there. Updates that have not cordoned their node are given up; the
    /// others are finished. A node that is paused in mid-update is put back into service, unless its reboot has begun.
    /// With plain kubectl:
    /// `kubectl patch brf fleet -n NAMESPACE --type=merge -p '{"spec":{"paused":true}}'`, and
    /// `kubectl annotate node NODE brupop.bottlerocket.aws/pause=true`.
    Pause {
        /// The nodes; without any, the whole fleet.
        #[command(flatten)]
        nodes: Option<Nodes>,
        /// Pause this pool instead of the fleet
        #[arg(long, conflicts_with = "Nodes", value_parser = paused_pool)]
        pool: Option<String>,
    },
    /// Resume the fleet, a pool, one node, or a halted version
    ///
    /// If another node fails while you resume a version, the version stays halted. With plain kubectl: the command at the end of the
    /// fleet's condition Halted (`kubectl describe brf fleet -n NAMESPACE`); to end a pause,
    /// `kubectl patch brf fleet -n NAMESPACE --type=merge -p '{"spec":{"paused":false}}'`, and
    /// `kubectl annotate node NODE brupop.bottlerocket.aws/pause-`.
    Resume {
        /// The nodes; without any, the whole fleet.
        #[command(flatten)]
        nodes: Option<Nodes>,
        /// Resume this pool instead of the fleet
        #[arg(long, conflicts_with = "Nodes", value_parser = object_name)]
        pool: Option<String>,
        /// Resume this halted version; pauses stay
        #[arg(long, conflicts_with_all = ["Nodes", "pool"], value_parser = version)]
        version: Option<String>,
        /// Resume the version for this variant only
        #[arg(long, requires = "version", value_parser = variant)]
        variant: Option<String>,
    },
    /// Request a node's update now, before others and even outside the maintenance window
    ///
    /// The request ends with the node's next update, even if that fails once the node is out of service. With plain kubectl:
    /// `kubectl annotate node NODE brupop.bottlerocket.aws/update-now=true`, and to cancel it
    /// `brupop.bottlerocket.aws/update-now-`.
    #[command(mut_group("Nodes", |nodes| nodes.required(true)))]
    UpdateNow {
        /// Nodes, by name or label.
        #[command(flatten)]
        nodes: Nodes,
        /// Cancel the request for an update
        #[arg(long)]
        cancel: bool,
    },
    /// End the back-off of a node whose update failed
    ///
    /// Repair the cause first: if the next attempt fails, too, the node backs off for longer. With plain kubectl:
    /// `kubectl annotate node NODE --overwrite brupop.bottlerocket.aws/retry=ATTEMPT`, with the number that
    /// `kubectl get brs brs-NODE -n NAMESPACE -o jsonpath={.spec.attempt}` prints.
    #[command(mut_group("Nodes", |nodes| nodes.required(true)))]
    Retry {
        /// Nodes, by name or label.
        #[command(flatten)]
        nodes: Nodes,
    },
}

/// The nodes that a command changes.
#[derive(Clone, Debug, Args)]
#[group(multiple = false)]
pub struct Nodes {
    /// Names of nodes, as NODE or node/NODE
    #[arg(id = "node", value_name = "NODE", value_parser = node_name)]
    pub names: Vec<String>,
    /// Nodes with these labels, as for kubectl's -l
    #[arg(long, short = 'l')]
    pub selector: Option<String>,
}

fn node_name(text: &str) -> Result<String, &'static str> {
    let name = ["node/", "nodes/", "no/"].map(|kind| text.strip_prefix(kind));
    object_name(name.into_iter().flatten().next().unwrap_or(text))
}

fn object_name(text: &str) -> Result<String, &'static str> {
    let is_name = is_object_name(text).then(|| text.to_owned());
    is_name.ok_or("a name in Kubernetes consists of lower case letters, digits, '-' and '.'")
}

fn version(text: &str) -> Result<String, &'static str> {
    let is_version = is_version(text).then(|| text.to_owned());
    is_version.ok_or("a version is written as 1.20.0")
}

fn variant(text: &str) -> Result<String, &'static str> {
    let is_variant = is_variant(text).then(|| text.to_owned());
    is_variant.ok_or("a variant is written as aws-k8s-1.36-arm64")
}

/// The default pool has no object that could be paused.
fn paused_pool(text: &str) -> Result<String, &'static str> {
    let name = Some(object_name(text)?).filter(|name| name != DEFAULT_POOL);
    name.ok_or("the pool default has no pause of its own: pause the fleet, without --pool")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_name_that_is_none_is_refused() {
        for words in [
            "why ../nodes",
            "why a?watch=1",
            "pause a/b",
            "resume a#",
            "update-now a,b",
            "retry a;b",
            "resume --version $(x)",
            "resume --version 1.20.0 --variant a/b",
            "resume --version 1.20.0 --pool web",
            "resume node-0 --version 1.20.0",
            "resume --variant aws-k8s-1.36",
            "pause --pool ../x",
            "pause --pool default",
            "pause node-0 --pool web",
            "pause node-0 -l a=b",
            "update-now",
            "retry --cancel",
            "why",
            "-n ../../x status",
        ] {
            let parsed = Arguments::try_parse_from(
                std::iter::once("kubectl-brupop").chain(words.split(' ')),
            );
            assert!(parsed.is_err(), "{words}");
        }
    }

    #[test]
    fn several_nodes_are_named_at_once() {
        let parse = |words: &str| {
            let words = std::iter::once("kubectl-brupop").chain(words.split(' '));
            let command = Arguments::try_parse_from(words).unwrap().command;
            let Command::Steer(SteeringCommand::Pause { nodes, .. }) = command else {
                panic!("{command:?}");
            };
            nodes.map(|nodes| (nodes.names.join(","), nodes.selector))
        };
        let named = |names: &str, selector: Option<&str>| {
            Some((names.to_owned(), selector.map(str::to_owned)))
        };
        assert_eq!(parse("pause"), None);
        assert_eq!(parse("pause a node/b no/c"), named("a,b,c", None));
        assert_eq!(parse("pause -l role=web"), named("", Some("role=web")));
    }

    #[test]
    fn everything_has_a_help_text() {
        let mut command = Arguments::command();
        command.build();
        let mut about: Vec<(String, bool)> = vec![];
        for command in std::iter::once(&command).chain(command.get_subcommands()) {
            about.push((command.get_name().to_owned(), command.get_about().is_some()));
            let of = |argument: &clap::Arg| {
                (
                    format!("{} {}", command.get_name(), argument.get_id()),
                    argument.get_help().is_some(),
                )
            };
            about.extend(command.get_arguments().map(of));
        }
        assert!(about.len() > 50, "{about:?}");
        about.retain(|(_, told)| !told);
        assert_eq!(about, []);
    }
}
