//! A fleet in three pools, by the label `tier`: a canary, what follows it, and a database that waits for its window.

use anyhow::Result;
use brupop_api::BottlerocketPool;
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use kube::Resource as _;

use crate::objects::with_file;
use crate::operator::NAMESPACE;
use crate::{Fleet, await_until};

/// Fewer nodes do not make three pools.
pub const NODES_MIN: u16 = 4;
/// Limit of the pool `web`.
pub const WEB_AT_ONCE: usize = 2;

/// The tier of a node: the first is the canary, the last the database.
pub fn tier(number: usize, nodes: usize) -> &'static str {
    match number {
        0 => "canary",
        last if last + 1 == nodes => "db",
        _ => "web",
    }
}

/// The nodes of a tier.
pub fn nodes_of(wanted: &'static str, nodes: usize) -> impl Iterator<Item = String> {
    (0..nodes)
        .filter(move |number| tier(*number, nodes) == wanted)
        .map(|number| format!("node-{number}"))
}

/// Three pools as a person would write them; that of the database has a window that opens in twelve hours, and `more`.
pub fn manifest(more: &str) -> String {
    let opens = (Timestamp::now() + SignedDuration::from_hours(12)).to_zoned(TimeZone::UTC);
    let schedule = format!("{} {} * * *", opens.minute(), opens.hour());
    let pool = |name: &str, more: &str| {
        format!(
            "apiVersion: {}\nkind: BottlerocketPool\nmetadata:\n  name: {name}\nspec:\n  \
             nodeSelector: {{matchLabels: {{tier: {name}}}}}\n  verify: {{readyFor: 0s}}\n{more}",
            BottlerocketPool::api_version(&())
        )
    };
    [
        pool("canary", ""),
        pool(
            "web",
            &format!(
                "  maxUnavailable: {WEB_AT_ONCE}\n  dependsOn:\n  - {{pool: canary, soak: 5s}}\n"
            ),
        ),
        pool(
            "db",
            &format!("  windows:\n  - {{schedule: \"{schedule}\", duration: 1h}}\n{more}"),
        ),
    ]
    .join("---\n")
}

/// Labels the nodes, applies the pools, and returns when all nodes are in one.
pub async fn apply(fleet: &Fleet, nodes: usize, manifest: &str) -> Result<()> {
    for number in 0..nodes {
        let tier = tier(number, nodes);
        fleet
            .kubectl(&format!("label node node-{number} tier={tier}"))
            .await?;
    }
    with_file(&fleet.control_plane, &["apply", "-n", NAMESPACE], manifest).await?;
    let counts = format!("get brp -n {NAMESPACE} -o jsonpath={{.items[*].status.nodes}}");
    await_until("the pools have their nodes", async || {
        let counts = fleet.kubectl(&counts).await.ok()?;
        let nodes_of: usize = counts
            .split_whitespace()
            .filter_map(|count| count.parse::<usize>().ok())
            .sum();
        (nodes_of == nodes).then_some(())
    })
    .await
}
