//! `make pictures` and `make recording`: a roll-out on a real control plane, drawn from the dashboard's queries, and as
//! `kubectl brupop status -w` shows it.

#![allow(clippy::float_cmp, reason = "a line is continued where a value is the very same")]

mod film;
mod marks;
mod plot;
mod recording;
mod scale;
mod svg;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use brupop_testbed::dashboard::Dashboard;
use brupop_testbed::host::Durations;
use brupop_testbed::observed::Observed;
use brupop_testbed::{FleetOptions, await_signal, await_until};
use clap::{Parser, Subcommand};

use svg::Picture;

/// The panels of the dashboard that are drawn.
const PANELS: [&str; 8] = [
    "Nodes by version",
    "Updates in progress",
    "Nodes by reason",
    "Updates that ended",
    "Time by phase",
    "Evictions",
    "Reviews",
    "Requests to the API server",
];
/// How many points a line has, and how many bars there are: what one of them counts is not to be in the next one, too.
const STEPS: u32 = 150;
const BARS: u32 = 25;
/// For so long what it ends with is shown.
const REST: Duration = Duration::from_secs(3);
const DEADLINE: Duration = Duration::from_mins(2);

/// Draws what docs/ shows of a roll-out.
#[derive(Debug, Parser)]
#[command(name = "brupop-pictures", version)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Panels of the dashboard, from the answers of a Prometheus
    Panels {
        /// The file to write to
        to: PathBuf,
        /// How many nodes
        #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u16).range(4..=50))]
        nodes: u16,
    },
    /// What the plugin shows all the time, as a film
    Recording {
        /// The file to write to
        to: PathBuf,
        /// kubectl's plugin
        #[arg(long)]
        plugin: PathBuf,
        /// How many nodes
        #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(4..=20))]
        nodes: u16,
    },
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let _installed = rustls::crypto::ring::default_provider().install_default();
    tokio::select! {
        result = draw(&arguments.what) => result,
        signal = await_signal() => anyhow::bail!("{}; nothing is left behind", signal?.0),
    }
}

async fn draw(what: &What) -> Result<()> {
    let say = |what: &str| println!("-- {what}");
    match what {
        What::Panels { to, nodes } => {
            let mut observed = Observed::start(&options(*nodes, 4), say).await?;
            say("rolling out, while Prometheus watches");
            observed.prepare().await?;
            observed.roll_out().await?;
            tokio::time::sleep(REST).await;
            write(to, &panels(&observed).await?)
        }
        What::Recording { to, plugin, nodes } => {
            let mut observed = Observed::start(&options(*nodes, 3), say).await?;
            say("rolling out, while the plugin watches");
            let frames = Box::pin(recording::record(&mut observed, plugin)).await?;
            write(to, &film::of(&frames))
        }
    }
}

/// Hosts that take a little time, so that there is something to be seen.
fn options(nodes: u16, reboot_seconds: u64) -> FleetOptions {
    let quick = FleetOptions::quick(nodes.into(), &[]);
    let short = Duration::from_millis(300);
    let durations = Durations {
        refresh: short,
        prepare: Duration::from_secs(2),
        activate: short,
        deactivate: short,
        reboot: Duration::from_secs(reboot_seconds),
        status: Duration::ZERO,
    };
    FleetOptions { durations, ..quick }
}

/// Draws the panels, once all of their queries find something.
async fn panels(observed: &Observed) -> Result<String> {
    let dashboard = Dashboard::shipped()?;
    let mut missed = None;
    let drawn = await_until("each query finds something", DEADLINE, async || {
        picture(observed, &dashboard).await.map_err(|error| missed = Some(error)).ok()
    });
    drawn.await.with_context(|| format!("{missed:?}"))
}

async fn picture(observed: &Observed, dashboard: &Dashboard) -> Result<String> {
    let mut picture = Picture::default();
    for title in PANELS {
        let panel = dashboard.panel(title)?;
        let bars = panel.field("custom/drawStyle") == "bars";
        let window = observed.window(if bars { BARS } else { STEPS });
        let lines = panel.ask(&observed.prometheus, window).await?;
        picture.add(panel, &lines, window);
    }
    Ok(picture.finish())
}

fn write(to: &Path, text: &str) -> Result<()> {
    std::fs::write(to, text).with_context(|| to.display().to_string())?;
    println!("-- {} ({} kB)", to.display(), text.len().div_ceil(1000));
    Ok(())
}
