//! `make demo POOLS=true`: a canary goes first, then a pool follows it, while another one waits for its window.

use std::time::Duration;

use anyhow::{Context as _, Result};
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::{Fleet, await_until};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};

use crate::{bad_image, table};

/// Fewer nodes do not make three pools.
pub const NODES_MIN: u16 = 4;
/// How many nodes of `web` at once.
const WEB_AT_ONCE: usize = 2;

/// The tier of a node: the first is the canary, the last the database.
fn tier(number: usize, nodes: usize) -> &'static str {
    match number {
        0 => "canary",
        last if last + 1 == nodes => "db",
        _ => "web",
    }
}

/// Three pools as a person would write them; that of the database has a window that opens in twelve hours.
fn manifest() -> String {
    let opens = (Timestamp::now() + SignedDuration::from_hours(12)).to_zoned(TimeZone::UTC);
    let schedule = format!("{} {} * * *", opens.minute(), opens.hour());
    let pool = |name: &str, more: &str| {
        format!(
            "apiVersion: brupop.bottlerocket.aws/v1alpha1\nkind: BottlerocketPool\nmetadata:\n  name: {name}\nspec:\n  \
             nodeSelector: {{matchLabels: {{tier: {name}}}}}\n  soak: {{readyFor: 0s}}\n{more}"
        )
    };
    [
        pool("canary", ""),
        pool("web", &format!("  maxUnavailable: {WEB_AT_ONCE}\n  after:\n  - {{pool: canary, soak: 5s}}\n")),
        pool("db", &format!("  windows:\n  - {{schedule: \"{schedule}\", duration: 1h}}\n")),
    ]
    .join("---\n")
}

/// Rolls out a release by pools; is all of it as it should be?
pub async fn show(fleet: &Fleet, nodes: usize, deadline: Duration) -> Result<bool> {
    let of = |wanted: &'static str| {
        (0..nodes).filter(move |number| tier(*number, nodes) == wanted).map(|number| format!("node-{number}"))
    };
    for number in 0..nodes {
        let label = format!("tier={}", tier(number, nodes));
        fleet.control_plane.kubectl(["label", "node", &format!("node-{number}"), &label]).await?;
    }
    let file = fleet.control_plane.dir().join("pools.yaml");
    let manifest = manifest();
    println!("-- three pools, by the label tier:\n{}", manifest.trim_end());
    tokio::fs::write(&file, &manifest).await?;
    kubectl(fleet, &["apply", "-f", file.to_str().context("a path")?]).await?;
    await_until("the pools have their nodes", deadline, async || {
        let counts = ["get", "brp", "-n", NAMESPACE, "-o", "jsonpath={.items[*].status.nodes}"];
        let counts = fleet.control_plane.kubectl(counts).await.ok()?;
        let nodes_of: usize = counts.split_whitespace().filter_map(|count| count.parse::<usize>().ok()).sum();
        (nodes_of == nodes).then_some(())
    })
    .await?;

    println!("-- publishing Bottlerocket {NEW}: every host runs {OLD}");
    fleet.publish(NEW)?;
    let waits: Vec<String> = of("db").collect();
    table::show_until(fleet, "canary and web are updated, and db waits", deadline, |now| {
        now.iter().all(
            |(node, seen)| {
                if waits.contains(node) { seen.reason == "OutsideWindow" } else { seen.runs(NEW) }
            },
        )
    })
    .await?;
    let wait = ["wait", "--for=condition=Updated", "brp/web", "-n", NAMESPACE, "--timeout=60s"];
    fleet.control_plane.kubectl(wait).await?;
    println!();
    kubectl(fleet, &["get", "brp", "-o", "wide"]).await?;

    let history = fleet.history();
    let canary_ended = of("canary").filter_map(|node| history.updates(&node).first()?.1).max();
    let web_began = of("web").filter_map(|node| Some(history.updates(&node).first()?.0)).min();
    let soaked =
        canary_ended.zip(web_began).is_some_and(|(ended, began)| ended + Duration::from_secs(5) <= began);
    let at_once = history.most_slots_of("web");
    let checks = [
        (soaked, "web began five seconds after the canary was done, and not before".to_owned()),
        (at_once <= WEB_AT_ONCE, format!("at most {at_once} of web at once, {WEB_AT_ONCE} allowed")),
        (of("db").all(|node| history.updates(&node).is_empty()), "db waits for its window".to_owned()),
    ];
    println!();
    for (holds, what) in &checks {
        println!("{} {what}", if *holds { "ok  " } else { "FAIL" });
    }
    Ok(checks.iter().all(|(holds, _)| *holds))
}

async fn kubectl(fleet: &Fleet, arguments: &[&str]) -> Result<()> {
    bad_image::kubectl(fleet, &[arguments, &["-n", NAMESPACE]].concat()).await
}
