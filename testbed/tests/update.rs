//! Whole updates: the shipped programs and manifests on a real control plane, with simulated hosts.
//!
//! One fleet at a time: each takes both cores of a small machine.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brupop_api::State::{Idle, MonitoringUpdate, RebootedIntoUpdate, StagedAndPerformedUpdate};
use brupop_api::{BottlerocketShadow, State};
use brupop_testbed::audit::Event;
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::history::Seen;
use brupop_testbed::host::{Command, Durations, Faults};
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::sandbox::Signal;
use brupop_testbed::{Fleet, FleetOptions, await_until};
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;
use tokio::sync::{Mutex, MutexGuard};

const DEADLINE: Duration = Duration::from_mins(2);
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// The shipped configuration, with the patience of a test.
fn quick() -> Vec<(String, String)> {
    [
        ("SOAK_SECONDS", "0"),
        ("REFRESH_INTERVAL", "1s"),
        ("START_JITTER", "0s"),
        ("POLL_INTERVAL", "20ms"),
        ("LEASE_DURATION_SECONDS", "3"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

fn with(mut env: Vec<(String, String)>, name: &str, value: &str) -> Vec<(String, String)> {
    env.retain(|(known, _)| known != name);
    env.push((name.to_owned(), value.to_owned()));
    env
}

async fn fleet(nodes: usize, env: Vec<(String, String)>) -> Result<(MutexGuard<'static, ()>, Fleet)> {
    let alone = ONE_AT_A_TIME.lock().await;
    let moment = Duration::from_millis(200);
    let durations = Durations {
        refresh: moment / 4,
        prepare: moment,
        activate: moment,
        deactivate: moment,
        reboot: moment * 3,
    };
    Ok((alone, Fleet::start(&FleetOptions { nodes, env, durations }, |_| ()).await?))
}

/// Every node was rebooted exactly once, and never more of them were away than allowed.
fn assert_kind(fleet: &Fleet, limit: usize) -> Result<()> {
    let history = fleet.history();
    for (node, outcome) in history.outcomes() {
        ensure!(outcome.boots == 2, "{node} was rebooted {} times", outcome.boots - 1);
    }
    ensure!(history.most_unavailable() <= limit, "{} nodes were away at once", history.most_unavailable());
    Ok(())
}

fn seen(fleet: &Fleet, node: &str) -> Option<Seen> {
    fleet.history().now().find(|(name, _)| *name == node).map(|(_, seen)| seen.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_is_updated_two_at_a_time_and_the_ledger_tells() -> Result<()> {
    let (_alone, mut fleet) = fleet(4, with(quick(), "MAX_CONCURRENT_UPDATE", "50%")).await?;
    fleet.deploy("cart", 8, "2").await?;
    fleet.publish(NEW)?;
    fleet.until_updated(NEW, DEADLINE).await?;
    assert_kind(&fleet, 2)?;

    let ledger = fleet.ledger();
    let status = await_until("all slots are given back", DEADLINE, async || {
        ledger.get("fleet").await.ok()?.status.filter(|status| status.slots.is_empty())
    })
    .await?;
    ensure!(status.versions[NEW].succeeded == 4, "{status:?}");
    for node in Api::<Node>::all(fleet.client()).list(&ListParams::default()).await? {
        let spec = node.spec.clone().unwrap_or_default();
        let ours = |taint: &Taint| taint.key.starts_with("brupop");
        ensure!(spec.unschedulable.is_none() && !spec.taints.iter().flatten().any(ours), "{spec:?}");
        ensure!(node.annotations().keys().all(|key| !key.contains("marker")), "{:?}", node.annotations());
    }
    let columns = fleet.control_plane.kubectl(["get", "brs", "-n", NAMESPACE, "brs-node-0"]).await?;
    for column in ["STATE", "TARGET VERSION", "CRASH COUNT", "REASON", NEW, "NoUpdate"] {
        ensure!(columns.contains(column), "{columns}");
    }
    let events = fleet.control_plane.kubectl(["get", "events", "-A"]).await?;
    for told in ["UpdateStarted", "Cordoned", "Drained", "RebootGranted", "Updated"] {
        ensure!(events.contains(told), "{events}");
    }
    metrics_agree(&fleet, 4).await?;
    readme_commands_run(&fleet).await?;
    fleet.check()
}

/// What the README tells people to type for a running cluster does run.
async fn readme_commands_run(fleet: &Fleet) -> Result<()> {
    let readme = include_str!("../../README.md");
    let blocks = readme.split("```sh\n").skip(1).filter_map(|block| block.split("```").next());
    let commands: Vec<&str> = blocks
        .flat_map(str::lines)
        .filter(|line| line.starts_with("kubectl ") && !line.starts_with("kubectl apply"))
        .collect();
    ensure!(commands.len() >= 8, "{commands:?}");
    for command in commands {
        let words = command.split(' ').skip(1).map(|word| word.trim_matches('\''));
        fleet.control_plane.kubectl(words).await.with_context(|| command.to_owned())?;
    }
    Ok(())
}

/// What Prometheus would scrape is what the objects say.
async fn metrics_agree(fleet: &Fleet, nodes: usize) -> Result<()> {
    let mut leading = 0;
    for process in fleet.processes("reconciler") {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{}:8080/proxy/metrics", process.pod);
        let text = fleet.control_plane.kubectl(["get", "--raw", &path]).await?;
        let versions = format!(r#"brupop_hosts_version{{bottlerocket_version="{NEW}"}} {nodes}"#);
        let states = format!(r#"brupop_hosts_state{{state="Idle"}} {nodes}"#);
        ensure!(text.contains(&versions) && text.contains(&states), "{text}");
        leading +=
            usize::from(text.lines().any(|line| line.starts_with("brupop_leader") && line.ends_with(" 1")));
    }
    ensure!(leading == 1, "{leading} reconcilers lead");
    let mut reviewed = false;
    for process in fleet.processes("webhook") {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{}:8080/proxy/metrics", process.pod);
        let text = fleet.control_plane.kubectl(["get", "--raw", &path]).await?;
        ensure!(text.contains("brupop_webhook_certificate_expiry"), "{text}");
        reviewed |= text.contains("brupop_webhook_reviews_total");
    }
    ensure!(reviewed, "no webhook has counted a review");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_holds_a_drain_back_until_it_allows_it() -> Result<()> {
    let (_alone, mut fleet) = fleet(3, quick()).await?;
    fleet.deploy("cart", 6, "0").await?;
    fleet.publish(NEW)?;
    fleet
        .until("one node is cordoned and waits for the budget", DEADLINE, |history| {
            history.now().any(|(_, seen)| seen.cordoned && seen.marked && seen.reason == "Draining")
        })
        .await?;
    // The refusals are seen: the drain asks again and is told again.
    let mut audit = fleet.control_plane.audit().from_now();
    let refused = |event: &Event| {
        event.code() == 429
            && event.object_ref.as_ref().is_some_and(|object| object.subresource == "eviction")
    };
    for _ in 0..2 {
        audit.wait_for("an eviction refused by the budget", DEADLINE, refused).await?;
    }
    ensure!(
        fleet.history().outcomes().values().all(|outcome| outcome.boots == 1),
        "a node was rebooted undrained"
    );
    ensure!(fleet.history().most_unavailable() == 1);

    fleet.allow_unavailable("cart", 2).await?;
    fleet.until_updated(NEW, DEADLINE).await?;
    assert_kind(&fleet, 1)?;
    fleet.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_may_be_killed_in_every_state() -> Result<()> {
    let (_alone, mut fleet) = fleet(1, quick()).await?;
    let agent = || fleet.processes("agent").pop().context("no agent runs");
    let moments: [(State, State); 6] = [
        (Idle, Idle),
        (StagedAndPerformedUpdate, Idle),
        (StagedAndPerformedUpdate, StagedAndPerformedUpdate),
        (RebootedIntoUpdate, StagedAndPerformedUpdate),
        (RebootedIntoUpdate, RebootedIntoUpdate),
        (MonitoringUpdate, MonitoringUpdate),
    ];
    // A soak gives the last moment its time.
    for (round, (goal, reached)) in moments.into_iter().enumerate() {
        let version = format!("1.20.{round}");
        let boots = fleet.history().outcomes()["node-0"].boots;
        fleet.publish(&version)?;
        let process = if goal == Idle {
            agent()?
        } else {
            await_until(format!("{goal} is wanted and {reached} reached"), DEADLINE, async || {
                let past = fleet.history().has_seen("node-0", |seen| {
                    seen.target.as_deref() == Some(version.as_str())
                        && seen.goal == goal
                        && seen.reached == Some(reached)
                });
                if past { agent().ok() } else { None }
            })
            .await?
        };
        fleet.kubelets.signal(NAMESPACE, &process.pod, Signal::KILL);
        fleet
            .until_updated(&version, DEADLINE)
            .await
            .with_context(|| format!("killed at {goal}, {reached}"))?;
        let now = fleet.history().outcomes()["node-0"].boots;
        ensure!(now == boots + 1, "killed at {goal}, {reached}: {} reboots", now - boots);
    }
    fleet.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn reconcilers_may_be_killed_and_frozen_in_mid_roll_out() -> Result<()> {
    let (_alone, mut fleet) = fleet(4, quick()).await?;
    fleet.deploy("cart", 4, "2").await?;
    fleet.publish(NEW)?;
    let leader = async || -> Option<String> {
        let lease = fleet.control_plane.kubectl([
            "get",
            "lease",
            "-n",
            NAMESPACE,
            "-o",
            "jsonpath={.items[*].spec.holderIdentity}",
        ]);
        let holder = lease.await.ok()?;
        fleet
            .processes("reconciler")
            .into_iter()
            .map(|process| process.pod)
            .find(|pod| holder.contains(pod.as_str()))
    };
    let updated = |count: usize| {
        move |history: &brupop_testbed::history::History| {
            let moving = history.now().any(|(_, seen)| !matches!(seen.goal, Idle));
            let done = history.now().filter(|(_, seen)| seen.version.as_deref() == Some(NEW)).count();
            moving && done >= count
        }
    };
    // Killed while a node is under way.
    fleet.until("the first node moves", DEADLINE, updated(0)).await?;
    let first = await_until("a leader", DEADLINE, leader).await?;
    fleet.kubelets.signal(NAMESPACE, &first, Signal::KILL);

    // Frozen for longer than its lease, and thawed when another one leads.
    fleet.until("the second node moves", DEADLINE, updated(1)).await?;
    let frozen = await_until("a leader", DEADLINE, leader).await?;
    fleet.kubelets.signal(NAMESPACE, &frozen, Signal::STOP);
    await_until("another leader", DEADLINE, async || leader().await.filter(|pod| *pod != frozen)).await?;
    fleet.kubelets.signal(NAMESPACE, &frozen, Signal::CONT);

    fleet.until_updated(NEW, DEADLINE).await?;
    assert_kind(&fleet, 1)?;
    let status = fleet.ledger().get("fleet").await?.status.context("a ledger")?;
    ensure!(status.term >= Some(3), "every leader has a term of its own: {status:?}");
    fleet.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_falls_back_or_fails_costs_its_own_update_only() -> Result<()> {
    let (_alone, mut fleet) = fleet(3, quick()).await?;
    fleet.deploy("cart", 3, "1").await?;
    fleet.hosts[0].set_faults(Faults { falls_back_on_boot: true, ..Faults::default() });
    fleet.hosts[1].set_faults(Faults::failing(Command::Prepare, "no space left on device"));
    fleet.publish(NEW)?;
    fleet
        .until("the third node is updated, the others are given up", DEADLINE, |history| {
            history.now().all(|(node, seen)| {
                let version = if node == "node-2" { NEW } else { OLD };
                let tried = node == "node-2" || seen.reason == "BackingOff";
                seen.is_idle() && !seen.is_unavailable() && seen.version.as_deref() == Some(version) && tried
            })
        })
        .await?;
    let boots = fleet.history().outcomes().into_values().map(|outcome| outcome.boots).collect::<Vec<_>>();
    ensure!(boots == [2, 1, 2], "{boots:?}");
    for (node, reason, says) in
        [("node-0", "FellBack", "fell back to 1.19.4"), ("node-1", "StepFailed", "no space left on device")]
    {
        let shadow = fleet.shadows().get(&format!("brs-{node}")).await?;
        let status = shadow.status.unwrap_or_default();
        let failures = shadow.spec.failures.context("no failure is noted")?;
        ensure!((failures.count, failures.reason.as_str()) == (1, reason), "{failures:?}");
        ensure!(status.crash_count == Some(1), "{status:?}");
        ensure!(status.message.as_deref().is_some_and(|message| message.contains(says)), "{status:?}");
    }
    // Only what the Node itself shows counts against the version.
    let ledger = fleet.ledger();
    let status = await_until("all slots are given back", DEADLINE, async || {
        ledger.get("fleet").await.ok()?.status.filter(|status| status.slots.is_empty())
    })
    .await?;
    let failed: Vec<_> = status.versions[NEW].failures.iter().map(|failure| failure.node.as_str()).collect();
    ensure!(failed == ["node-0"] && status.versions[NEW].succeeded == 1, "{status:?}");
    fleet.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_that_cannot_be_read_stops_nobody_else() -> Result<()> {
    let (_alone, mut fleet) = fleet(2, quick()).await?;
    // No schema any more: anything can be stored.
    let anything = json!({"spec": {"versions": [{
        "name": "v2", "served": true, "storage": true, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
    }]}});
    fleet
        .control_plane
        .kubectl([
            "patch",
            "crd",
            "bottlerocketshadows.brupop.bottlerocket.aws",
            "--type=merge",
            "-p",
            &anything.to_string(),
        ])
        .await?;
    let nonsense = Patch::Merge(json!({"spec": {"state": {"not": "a state"}}}));
    await_until("the nonsense is stored", DEADLINE, async || {
        let api = Api::<kube::core::DynamicObject>::namespaced_with(
            fleet.client(),
            NAMESPACE,
            &kube::discovery::ApiResource::erase::<BottlerocketShadow>(&()),
        );
        api.patch("brs-node-0", &PatchParams::default(), &nonsense).await.ok()
    })
    .await?;
    fleet.publish(NEW)?;
    fleet
        .until("the other node is updated", DEADLINE, |history| {
            history.now().any(|(node, seen)| {
                node == "node-1" && seen.is_idle() && seen.version.as_deref() == Some(NEW)
            })
        })
        .await?;
    let skipped = await_until("it is counted", DEADLINE, async || {
        for process in fleet.processes("reconciler") {
            let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{}:8080/proxy/metrics", process.pod);
            let text = fleet.control_plane.kubectl(["get", "--raw", &path]).await.ok()?;
            let line = text
                .lines()
                .find(|line| line.starts_with("brupop_") && line.contains("skipped") && line.ends_with(" 1"));
            if let Some(line) = line {
                return Some(line.to_owned());
            }
        }
        None
    })
    .await;
    skipped?;
    ensure!(seen(&fleet, "node-0").is_some_and(|seen| seen.boot_id == fleet.hosts[0].boot_id()));
    fleet.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_fleet_asks_nothing_of_the_api_server() -> Result<()> {
    const QUIET: Duration = Duration::from_mins(1);
    let (_alone, mut fleet) = fleet(3, with(quick(), "REFRESH_INTERVAL", "10s")).await?;
    let ours = |event: &Event| {
        event.user.username.starts_with(&format!("system:serviceaccount:{NAMESPACE}:"))
            && !event.user.username.contains("webhook")
    };
    // Watches are renewed after some minutes; leases and canaries have clocks of their own.
    let allowed = |event: &Event| {
        event.verb == "watch"
            || event.object_ref.as_ref().is_some_and(|object| object.resource == "leases")
            || event.request_uri.contains("dryRun=All")
    };
    let mut audit = fleet.control_plane.audit().from_now();
    let mut quiet_since = tokio::time::Instant::now();
    let quiet = await_until("60 s without a request", DEADLINE, async || {
        let events = audit.read().ok()?;
        if events.iter().any(|event| ours(event) && !allowed(event)) {
            quiet_since = tokio::time::Instant::now();
        }
        (quiet_since.elapsed() >= QUIET).then_some(())
    });
    quiet.await?;
    fleet.check()
}
