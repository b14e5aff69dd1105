//! What goes wrong on one node stays there.

use anyhow::{Context as _, Result, ensure};
use brupop_api::{BottlerocketShadow, State};
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::history::Seen;
use brupop_testbed::host::{Command, Faults};
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::sandbox::Signal;
use brupop_testbed::scrape::{READER, Scraper};
use brupop_testbed::{Fleet, await_until};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::{DEADLINE, fleet, quick, seen, with};

/// A release that does not exist.
const LIE: &str = "9.9.9";
/// The release that mends [`NEW`].
const FIXED: &str = "1.20.1";

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_falls_back_or_fails_costs_its_own_update_only() -> Result<()> {
    let (_alone, mut fleet) = fleet(3, with(quick(), "MAX_FAILURES_OF_NEW_VERSION", "unlimited")).await?;
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
async fn a_bad_image_stops_after_the_first_node_until_a_person_or_a_new_release_goes_on() -> Result<()> {
    let (_alone, mut fleet) = fleet(3, quick()).await?;
    let bad = |falls_back_on_boot| {
        let faults = Faults { falls_back_on_boot, ..Faults::default() };
        fleet.hosts.iter().for_each(|host| host.set_faults(faults.clone()));
    };
    bad(true);
    fleet.publish(NEW)?;
    fleet
        .until("the version is halted", DEADLINE, |history| {
            let reasons: Vec<_> = history.now().map(|(_, seen)| seen.reason.clone()).collect();
            reasons.iter().filter(|reason| *reason == "VersionHalted").count() >= 2
                && history.now().all(|(_, seen)| seen.is_idle() && !seen.is_unavailable())
        })
        .await?;
    let boots =
        |fleet: &Fleet| fleet.history().outcomes().values().map(|outcome| outcome.boots - 1).sum::<usize>();
    ensure!(boots(&fleet) == 1, "{} reboots", boots(&fleet));
    let ledger = fleet.ledger();
    let told = await_until("the fleet says so", DEADLINE, async || {
        let status = ledger.get("fleet").await.ok()?.status?;
        let condition = status.conditions.into_iter().find(|condition| condition.type_ == "Halted")?;
        (status.halted.as_deref() == Some(NEW) && condition.reason == "FailureBudgetSpent")
            .then_some(condition)
    })
    .await?;
    ensure!(told.message.contains("FellBack"), "{told:?}");

    // A person takes the risk: it is tried once more, and halted by the next node that fails.
    let resume = Patch::Merge(json!({"spec": {"resumeVersions": [NEW]}}));
    ledger.patch("fleet", &PatchParams::default(), &resume).await?;
    fleet
        .until("one more has tried", DEADLINE, |history| {
            let tried = history.outcomes().values().map(|outcome| outcome.boots - 1).sum::<usize>() == 2;
            tried && history.now().all(|(_, seen)| seen.is_idle() && !seen.is_unavailable())
        })
        .await?;
    await_until("it is halted once more", DEADLINE, async || {
        let status = ledger.get("fleet").await.ok()?.status?;
        (status.slots.is_empty() && status.versions[NEW].halted.is_some()).then_some(())
    })
    .await?;

    bad(false);
    fleet.publish(FIXED)?;
    fleet
        .until("the nodes that do not back off run the new release", DEADLINE, |history| {
            history.now().filter(|(_, seen)| seen.version.as_deref() == Some(FIXED)).count() >= 1
                && history.now().all(|(_, seen)| {
                    seen.is_idle()
                        && !seen.is_unavailable()
                        && (seen.version.as_deref() == Some(FIXED) || seen.reason == "BackingOff")
                })
        })
        .await?;
    fleet.check()
}

/// With the token of a frozen agent, everything is said that policy and webhook let an agent say of its own node.
#[tokio::test(flavor = "multi_thread")]
async fn a_lying_agent_costs_its_own_nodes_update_and_nothing_else() -> Result<()> {
    let (_alone, mut fleet) = fleet(3, with(quick(), "SETTLE_DEADLINE_SECONDS", "20")).await?;
    let token = fleet.agents_token("node-0").await?;
    let agent =
        fleet.processes("agent").into_iter().find(|agent| agent.node == "node-0").context("no agent")?;
    fleet.kubelets.signal(NAMESPACE, &agent.pod, Signal::STOP);
    let liar =
        Api::<BottlerocketShadow>::namespaced(fleet.control_plane.client_for_token(&token).await?, NAMESPACE);
    let lie = async |status: serde_json::Value| {
        let patch = Patch::Merge(json!({"status": status}));
        liar.patch_status("brs-node-0", &PatchParams::default(), &patch).await.map(drop)
    };
    // A release that nobody else knows: it gets a slot, for it is the first by name, and takes nobody along.
    lie(json!({"target_version": LIE})).await?;
    fleet
        .until("the lie has a slot", DEADLINE, |history| {
            history.now().any(|(node, seen)| node == "node-0" && seen.target.as_deref() == Some(LIE))
        })
        .await?;
    // A failure that nobody has seen, told at the attempt that was asked for.
    lie(json!({"attempt": 1, "current_state": "ErrorReset", "crash_count": 1, "message": "no host comes up with this"})).await?;
    fleet
        .until("it is given up", DEADLINE, |history| {
            history.now().any(|(node, seen)| node == "node-0" && seen.goal == State::Idle && !seen.marked)
        })
        .await?;
    // The slot is given back though the liar never says that it is Idle.
    fleet.publish(NEW)?;
    fleet
        .until("the others are updated", DEADLINE, |history| {
            let updated = |seen: &Seen| seen.is_idle() && seen.version.as_deref() == Some(NEW);
            history.now().all(|(node, seen)| node == "node-0" || updated(seen))
        })
        .await?;
    let ledger = fleet.ledger();
    let status = await_until("all slots are given back", DEADLINE, async || {
        ledger.get("fleet").await.ok()?.status.filter(|status| status.slots.is_empty())
    })
    .await?;
    ensure!(status.halted.is_none() && !status.versions.contains_key(LIE), "{status:?}");
    ensure!(status.versions[NEW].failures.is_empty() && status.versions[NEW].succeeded == 2, "{status:?}");
    let outcomes = fleet.history().outcomes();
    ensure!(outcomes["node-0"].boots == 1 && !seen(&fleet, "node-0")?.is_unavailable(), "{outcomes:?}");
    // Nor can it claim a reboot that nobody granted.
    let claim = lie(json!({"reboot_requested": fleet.hosts[0].boot_id()})).await;
    ensure!(
        matches!(&claim, Err(kube::Error::Api(status)) if status.message.contains("agent-claim")),
        "{claim:?}"
    );
    fleet.kubelets.signal(NAMESPACE, &agent.pod, Signal::CONT);
    fleet.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_that_cannot_be_read_stops_nobody_else() -> Result<()> {
    let (_alone, mut fleet) = fleet(2, quick()).await?;
    let boot_id = fleet.hosts[0].boot_id();
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
    let scraper = Scraper::start(&fleet.control_plane, Some(READER)).await?;
    let skipped = await_until("it is counted", DEADLINE, async || {
        for process in fleet.processes("reconciler") {
            let text = scraper.scrape(&process).await.ok()?;
            let line = text
                .lines()
                .find(|line| line.starts_with("brupop_") && line.contains("skipped") && line.ends_with(" 1"));
            if let Some(line) = line {
                return Some(line.to_owned());
            }
        }
        None
    });
    skipped.await?;
    ensure!(fleet.hosts[0].boot_id() == boot_id, "a host was rebooted for a shadow that nobody can read");
    ensure!(!seen(&fleet, "node-0")?.is_unavailable());
    fleet.check()
}
