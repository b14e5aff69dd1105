//! A roll-out that goes well, and what is seen of it.

use anyhow::{Context as _, Result, ensure};
use brupop_api::names::DEFAULT_POOL;
use brupop_testbed::Fleet;
use brupop_testbed::await_until;
use brupop_testbed::fleet::NEW;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::scrape::{READER, Scraper};

use crate::documents::{blocks, read};
use crate::update::exec::exec;
use crate::went_well::went_well;

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_is_updated_within_its_limit() -> Result<()> {
    let mut fleet = Fleet::quick(4, &[("MAX_CONCURRENT_UPDATE", "50%")]).await?;
    fleet.deploy("cart", 8, "2").await?;
    fleet.publish(NEW)?;
    fleet.until_updated(NEW).await?;
    went_well(&fleet, 2).await?;
    // The reason for waiting is written after the slot is given back.
    let columns = await_until("the columns tell that it is done", async || {
        let columns = fleet
            .kubectl(&format!("get brs -n {NAMESPACE} brs-node-0 -o wide"))
            .await
            .ok()?;
        columns.contains("NoUpdate").then_some(columns)
    })
    .await?;
    for column in [
        "STATE",
        "TARGET VERSION",
        "CRASH COUNT",
        "POOL",
        "REASON",
        NEW,
        DEFAULT_POOL,
    ] {
        ensure!(columns.contains(column), "{columns}");
    }
    for (namespace, is_there) in [("default", true), (NAMESPACE, false)] {
        let events = fleet.kubectl(&format!("get events -n {namespace}")).await?;
        for word in ["UpdateStarted", "Updated"] {
            ensure!(
                events.contains(word) == is_there,
                "{word} in {namespace}: {events}"
            );
        }
    }
    metrics_agree(&fleet, 4).await?;
    agents_have_no_port(&fleet)?;
    documented_commands_run(&fleet).await?;
    fleet.check()
}

/// None of the sockets that listen, by the kernel's tables, is one of an agent's.
fn agents_have_no_port(fleet: &Fleet) -> Result<()> {
    const LISTENS: &str = "0A";
    for agent in fleet.processes("agent") {
        let process = format!("/proc/{}", agent.pid);
        let files = std::fs::read_dir(format!("{process}/fd"))?.flatten();
        let sockets: Vec<_> = files
            .filter_map(|file| std::fs::read_link(file.path()).ok())
            .map(|file| file.to_string_lossy().into_owned())
            .collect();
        for table in ["tcp", "tcp6"] {
            let table = std::fs::read_to_string(format!("{process}/net/{table}"))?;
            let is_its_own = |line: &str| {
                let fields: Vec<_> = line.split_whitespace().collect();
                fields.get(3) == Some(&LISTENS)
                    && sockets.contains(&format!("socket:[{}]", fields[9]))
            };
            let ports: Vec<_> = table.lines().filter(|line| is_its_own(line)).collect();
            ensure!(ports.is_empty(), "{}: {ports:?}", agent.pod);
        }
    }
    Ok(())
}

/// The documented commands for a running cluster succeed.
async fn documented_commands_run(fleet: &Fleet) -> Result<()> {
    let documents = [read("README.md")?, read("docs/operations.md")?].join("\n");
    let commands: Vec<&str> = blocks(&documents, "sh")
        .into_iter()
        .flat_map(str::lines)
        // Commands that install and uninstall have a path, and the plugin has a test of its own.
        .filter(|line| line.starts_with("kubectl ") && !line.contains(" -k kustomize/"))
        .filter(|line| !line.starts_with("kubectl brupop "))
        .collect();
    ensure!(commands.len() >= 8, "{commands:?}");
    for command in commands {
        if let Some((_, program)) = command.split_once(" -- /brupop-reconciler ") {
            let (said, went_well) = exec(fleet, &program.split(' ').collect::<Vec<_>>()).await?;
            ensure!(went_well, "{command}: {said}");
            continue;
        }
        if command.starts_with("kubectl taint ") {
            // kubectl takes away only what is there.
            kubectl(fleet, command.trim_end_matches('-')).await?;
        }
        kubectl(fleet, command).await?;
    }
    // Among them are those that put a node back into service by hand.
    fleet.assert_node_is_clean("node-0").await
}

async fn kubectl(fleet: &Fleet, command: &str) -> Result<()> {
    let words = command
        .split(' ')
        .skip(1)
        .map(|word| word.trim_matches('\''));
    fleet
        .control_plane
        .kubectl(words)
        .await
        .with_context(|| command.to_owned())
        .map(drop)
}

/// The scraped metrics match the objects.
async fn metrics_agree(fleet: &Fleet, nodes: usize) -> Result<()> {
    let scraper = Scraper::start(&fleet.control_plane, Some(READER)).await?;
    let leads = |text: &String| {
        text.lines()
            .any(|line| line.starts_with("brupop_leader") && line.ends_with(" 1"))
    };
    let text = await_until("one reconciler leads", async || {
        let mut texts = scraped(fleet, &scraper, "reconciler").await.ok()?;
        texts.retain(leads);
        texts.pop().filter(|_| texts.is_empty())
    })
    .await?;
    let versions = format!(r#"brupop_hosts_version{{bottlerocket_version="{NEW}"}} {nodes}"#);
    let states = format!(r#"brupop_hosts_state{{state="Idle"}} {nodes}"#);
    ensure!(text.contains(&versions) && text.contains(&states), "{text}");
    let mut reviewed = false;
    for text in scraped(fleet, &scraper, "webhook").await? {
        ensure!(text.contains("brupop_webhook_certificate_expiry"), "{text}");
        reviewed |= text.contains("brupop_webhook_reviews_total");
    }
    ensure!(reviewed, "no webhook has counted a review");
    Ok(())
}

/// Returns what all processes of this component tell. Their pods may have moved a moment ago.
async fn scraped(fleet: &Fleet, scraper: &Scraper, component: &str) -> Result<Vec<String>> {
    let all = await_until(format!("every {component} is scraped"), async || {
        let mut texts = vec![];
        for process in fleet.processes(component) {
            texts.push(scraper.scrape(&process).await.ok()?);
        }
        (!texts.is_empty()).then_some(texts)
    });
    all.await
}
