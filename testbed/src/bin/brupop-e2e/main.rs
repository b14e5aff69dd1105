//! `make e2e`: the image and the default overlay on real kubelets, from `kubectl apply` to a fleet that is updated.

mod as_shipped;
mod cluster;
mod host_network;
mod roll_out;
mod shop;
mod socket;
mod trespass;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use brupop_testbed::machines::namespaces::{self, Unfit};
use brupop_testbed::run;
use clap::Parser;
use cluster::Cluster;
use tokio::time::{Instant, timeout};

/// Updates Bottlerocket hosts by the shipped image, on real kubelets in namespaces of this machine. Needs root.
///
/// The hosts are simulated: behind the socket of Bottlerocket's API, the OS release and the boot id of each machine. All
/// else is real: control plane, kubelets, containerd and runc, kube-proxy, tokens, probes, limits.
#[derive(Clone, Debug, Parser)]
#[command(name = "brupop-e2e", version)]
struct Arguments {
    /// The operator's image, an OCI archive
    #[arg(long, required_unless_present = "check")]
    image: Option<PathBuf>,
    /// Path of kubectl's plugin, kubectl-brupop
    #[arg(long, required_unless_present = "check")]
    plugin: Option<PathBuf>,
    /// Seconds after which it is given up
    #[arg(long, default_value_t = 900)]
    deadline_seconds: u64,
    /// Leave the cluster running when all has been seen, until Ctrl-C
    #[arg(long)]
    stay: bool,
    /// Say only what is missing on this machine; exit status 3 if its kernel does not let us
    #[arg(long)]
    check: bool,
    /// Within its namespaces; set by the program itself
    #[arg(long, hide = true)]
    inside: bool,
}

/// The exit status where the kernel does not let us.
const REFUSED: u8 = 3;

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter("error,kube_client=off")
        .init();
    run::run(start(&Arguments::parse())).await
}

async fn start(arguments: &Arguments) -> Result<ExitCode> {
    if !arguments.inside {
        let (image, plugin) = (arguments.image.clone(), arguments.plugin.clone());
        let (image, plugin, scratch) = (
            image.unwrap_or_default(),
            plugin.unwrap_or_default(),
            std::env::temp_dir(),
        );
        if let Err(error) = namespaces::check(&[&image, &plugin, &scratch]).await {
            eprintln!("Error: {error}");
            let refused = matches!(error, Unfit::Kernel(_));
            return Ok(ExitCode::from(if refused { REFUSED } else { 1 }));
        }
        if arguments.check {
            return Ok(ExitCode::SUCCESS);
        }
    }
    if arguments.inside {
        show(arguments).await.map(|()| ExitCode::SUCCESS)
    } else {
        namespaces::run_inside("--inside").await
    }
}

async fn show(arguments: &Arguments) -> Result<()> {
    let image = arguments.image.as_deref().context("no image")?;
    let plugin = arguments.plugin.as_deref().context("no plugin")?;
    let began = Instant::now();
    let deadline = Duration::from_secs(arguments.deadline_seconds);
    let mut cluster = timeout(deadline, Cluster::start(image)).await??;
    let seen = timeout(
        deadline.saturating_sub(began.elapsed()),
        see(&mut cluster, plugin),
    )
    .await;
    let result = seen.map_err(anyhow::Error::from).flatten();
    if let Err(error) = &result {
        eprintln!("-- {error:#}\n{}", cluster.report().await);
    }
    if arguments.stay {
        println!(
            "-- the cluster stays until Ctrl-C; from another shell: {}",
            cluster.enter()
        );
        std::future::pending::<()>().await;
    }
    result?;
    println!(
        "\nAll of it as it should be, in {} s.",
        began.elapsed().as_secs()
    );
    Ok(())
}

async fn see(cluster: &mut Cluster, plugin: &Path) -> Result<()> {
    cluster.until_agents_report().await?;
    as_shipped::see(cluster, plugin).await?;
    trespass::see(cluster).await?;
    roll_out::see(cluster).await?;
    host_network::see(cluster).await?;
    socket::see(cluster).await
}
