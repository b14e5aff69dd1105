//! `make demo`: a fleet of simulated Bottlerocket hosts is updated by the shipped operator on a real control plane.

mod bad_image;
mod gates;
mod pools;
mod summary;
mod table;

use std::io::stdin;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use brupop_api::crds::is_version;
use brupop_api::pool::Limit;
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::host::{Durations, Faults};
use brupop_testbed::objects::merge_status;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::sandbox::Sandbox;
use brupop_testbed::{Fleet, FleetOptions, run, tiers};
use clap::{Parser, ValueEnum};
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Updates a fleet of simulated Bottlerocket hosts by the shipped programs, on a real control plane.
#[derive(Clone, Debug, Parser)]
#[command(name = "brupop-demo", version)]
struct Arguments {
    /// Number of simulated nodes to update
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=200))]
    nodes: u16,
    /// Limit of nodes that are updated at once: an integer, a percentage, or `unlimited`
    #[arg(long, default_value = "1", value_parser = limit)]
    max_concurrent_update: String,
    /// Pods of the workload on each node; 0 = nothing to drain
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(0..=50))]
    pods_per_node: u16,
    /// Seconds that a reboot takes
    #[arg(long, default_value_t = 3.0)]
    reboot_seconds: f64,
    /// Seconds that a download takes; the other commands of a host take a tenth
    #[arg(long, default_value_t = 1.0)]
    download_seconds: f64,
    /// Seconds between exclusion from load balancers and drain; 0 = no exclusion
    #[arg(long, default_value_t = 0)]
    exclude_from_lb_seconds: u64,
    /// Fault to show: with `bad-image`, no host comes up with the new version
    #[arg(long)]
    fault: Option<Fault>,
    /// Update three pools: a canary, one that follows it, and one outside of its window; with four nodes or more
    #[arg(long, conflicts_with = "fault")]
    pools: bool,
    /// Leave the cluster running when the fleet is updated, until Ctrl-C
    #[arg(long)]
    stay: bool,
}

/// A fault that the demo shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Fault {
    /// The new image does not come up on any host: each falls back to the old one.
    BadImage,
}

impl Arguments {
    fn durations(&self) -> Durations {
        let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let short = seconds(self.download_seconds / 10.0);
        Durations {
            refresh: short,
            prepare: seconds(self.download_seconds),
            activate: short,
            deactivate: short,
            reboot: seconds(self.reboot_seconds),
        }
    }

    /// The shipped configuration, but for what a demo has no time for.
    fn env(&self) -> Vec<(String, String)> {
        [
            ("MAX_CONCURRENT_UPDATE", self.max_concurrent_update.clone()),
            (
                "EXCLUDE_FROM_LB_WAIT_TIME_IN_SEC",
                self.exclude_from_lb_seconds.to_string(),
            ),
            ("SOAK_SECONDS", "0".to_owned()),
            ("REFRESH_INTERVAL", "2s".to_owned()),
            ("START_JITTER", "0s".to_owned()),
            ("POLL_INTERVAL", "50ms".to_owned()),
            ("CHECK_INTERVAL_SECONDS", "5".to_owned()),
            ("BACK_OFF_BASE_SECONDS", "10".to_owned()),
            ("CORDONED_BY_OTHERS_SECONDS", "3600".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// Returns how many nodes may be out of service at once.
    fn limit(&self) -> usize {
        let nodes = u64::from(self.nodes);
        let limit = self
            .max_concurrent_update
            .parse::<Limit>()
            .map_or(nodes, |limit| limit.of(nodes));
        usize::try_from(limit).unwrap_or(usize::MAX)
    }

    /// Generous: the demo ends by itself also when something hangs.
    fn deadline(&self) -> Duration {
        let durations = self.durations();
        let each = durations.reboot
            + durations.prepare * 2
            + Duration::from_secs(10 + self.exclude_from_lb_seconds);
        each * u32::try_from(usize::from(self.nodes).div_ceil(self.limit().max(1))).unwrap_or(1)
            + Duration::from_secs(30)
    }
}

/// The text, if the reconciler would take it.
fn limit(text: &str) -> Result<String, String> {
    text.parse::<Limit>().map(|_| text.to_owned())
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    run::run(async { demonstrate(&arguments).await.map(run::status) }).await
}

/// Runs the demo. Returns whether all checks hold.
async fn demonstrate(arguments: &Arguments) -> Result<bool> {
    ensure!(
        !arguments.pools || arguments.nodes >= tiers::NODES_MIN,
        "POOLS=true needs {} nodes or more: write NODES={}",
        tiers::NODES_MIN,
        tiers::NODES_MIN
    );
    // The reconciler reads the Secret brupop-gate-sources here.
    let sources = Sandbox::new()?;
    let mut env = arguments.env();
    let folder = sources.dir().display().to_string();
    env.extend([
        ("GATE_SOURCES".to_owned(), folder),
        ("GATE_INTERVAL_SECONDS".to_owned(), "5".to_owned()),
    ]);
    let options = FleetOptions {
        nodes: arguments.nodes.into(),
        env,
        durations: arguments.durations(),
        say: |what| println!("-- {what}"),
        ..FleetOptions::default()
    };
    let fleet = Fleet::start(&options).await?;
    println!("-- look around, in another terminal:");
    println!(
        "   export KUBECONFIG={}",
        fleet.control_plane.kubeconfig().display()
    );
    println!("   kubectl get brs -n {NAMESPACE} -w");

    let replicas = usize::from(arguments.nodes) * usize::from(arguments.pods_per_node);
    if replicas > 0 {
        let budget = (replicas / 4).max(1);
        println!(
            "-- deploying shop/cart: {replicas} pods, of which {budget} may be away at once (PodDisruptionBudget)"
        );
        fleet.deploy("cart", replicas, &budget.to_string()).await?;
    }
    show_refusals(&fleet).await?;

    let passed = if arguments.fault == Some(Fault::BadImage) {
        bad_image::show(&fleet, arguments.deadline()).await?
    } else if arguments.pools {
        pools::show(&fleet, arguments.nodes.into(), arguments.deadline()).await?
    } else {
        roll_out(&fleet, arguments).await?
    };
    if arguments.stay {
        let stays = stay(&fleet);
        tokio::try_join!(stays, gates::mount(&fleet, sources.dir()))?;
    }
    println!(
        "-- next: make demo FAULT=bad-image    # a release that no host boots stops after one node
         make demo POOLS=true         # a canary goes first
         make demo STAY=true          # the cluster stays, and the demo says what to try
         README.md, Install           # on your own cluster"
    );
    Ok(passed)
}

/// Uses an agent's own token for what it may not do: a policy refuses the first, the webhook the second.
async fn show_refusals(fleet: &Fleet) -> Result<()> {
    println!("-- with the token of the agent on node-0:");
    let shadow = fleet.shadows().get_status("brs-node-0").await?;
    let boot = shadow.status.and_then(|status| status.boot_id);
    let shadows = fleet.agents_shadows("node-0").await?;
    let (status, claim) = (
        json!({"current_version": "6.6.6"}),
        json!({"reboot_claimed_boot_id": boot}),
    );
    let tries = [
        ("the status of another node's shadow", "brs-node-1", status),
        (
            "a claim of a reboot that nobody granted",
            "brs-node-0",
            claim,
        ),
    ];
    for (what, shadow, status) in tries.into_iter().skip(usize::from(fleet.hosts.len() == 1)) {
        match merge_status(&shadows, shadow, status).await {
            Err(kube::Error::Api(refusal)) => println!("   {what}: {}", refusal.message),
            done => bail!("{what} is not refused: {done:?}"),
        }
    }
    Ok(())
}

/// Publishes a release, and shows how the fleet gets it.
async fn roll_out(fleet: &Fleet, arguments: &Arguments) -> Result<bool> {
    println!(
        "-- publishing Bottlerocket {NEW}: every host runs {OLD}, at most {} at once",
        arguments.max_concurrent_update
    );
    fleet.publish(NEW)?;
    table::show_until_updated(fleet, NEW, arguments.deadline()).await?;
    Ok(summary::print(
        fleet,
        &arguments.durations(),
        arguments.limit(),
    ))
}

/// Says what to try, and leaves the cluster running; publishes what is asked for.
async fn stay(fleet: &Fleet) -> Result<()> {
    let programs = std::env::current_exe()?;
    println!(
        "-- the cluster stays until Ctrl-C. Here, each line publishes a release:
   1.21.0                                  # no update begins before there is one
   1.22.0 bad                              # with which no host comes up
-- in another terminal:
   export KUBECONFIG={} PATH={}:$PATH
   kubectl brupop status                   # what the fleet does, and why each node waits
   kubectl brupop why node-0               # one node, with its Events
   kubectl brupop history
   kubectl brupop pause                    # and resume; also of one node, or of a pool
   kubectl drain node-1 --ignore-daemonsets --force   # it is updated first; uncordon it yourself
   kubectl brupop plan                     # what the next updates would be
   kubectl get brs,brf,brp -n {NAMESPACE}
   kubectl logs -n {NAMESPACE} deploy/brupop-reconciler",
        fleet.control_plane.kubeconfig().display(),
        programs.parent().context("no folder")?.display(),
    );
    let prometheus = gates::offer(fleet).await;
    if let Err(error) = &prometheus {
        println!("-- without a Prometheus, gates cannot be tried: {error:#}");
    }
    let mut lines = typed();
    while let Some(line) = lines.recv().await {
        let (version, bad) = match line.trim().split_once(' ') {
            Some((version, "bad")) => (version, Some(version.to_owned())),
            _ => (line.trim(), None),
        };
        if !is_version(version) {
            println!("-- type a version, such as 1.21.0 or 1.22.0 bad");
            continue;
        }
        fleet.set_faults(&Faults {
            bad_images: bad.into_iter().collect(),
            ..Faults::default()
        });
        fleet.publish(version)?;
        println!("-- published {version}");
    }
    std::future::pending().await
}

/// The lines that a person types. A thread reads them, because nothing ends such a read.
fn typed() -> UnboundedReceiver<String> {
    let (found, lines) = unbounded_channel();
    thread::spawn(move || {
        let lines = stdin().lines().map_while(Result::ok);
        lines.map(|line| found.send(line)).all(|sent| sent.is_ok())
    });
    lines
}

/// Runs and prints a command as a person would in the operator's namespace.
pub(crate) async fn kubectl(fleet: &Fleet, arguments: &[&str]) -> Result<()> {
    let arguments = [arguments, &["-n", NAMESPACE]].concat();
    println!("   $ kubectl {}", arguments.join(" "));
    let text = fleet.control_plane.kubectl(arguments).await?;
    text.lines().for_each(|line| println!("   {line}"));
    Ok(())
}
