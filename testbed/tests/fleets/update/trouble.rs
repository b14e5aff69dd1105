//! What goes wrong on one node stays there.

use anyhow::{Context as _, Result, ensure};
use brupop_api::BottlerocketShadow;
use brupop_testbed::fleet::NEW;
use brupop_testbed::fleet::Records as _;
use brupop_testbed::host::Faults;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::{Fleet, await_until};
use kube::Resource as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

/// The release that mends [`NEW`].
const FIXED: &str = "1.20.1";

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_image_halts_its_version() -> Result<()> {
    let mut fleet = Fleet::quick(3, &[]).await?;
    fleet.set_faults(&Faults {
        falls_back_on_boot: true,
        ..Faults::default()
    });
    fleet.publish(NEW)?;
    fleet
        .until("the version is halted", |history| {
            let reasons: Vec<_> = history.now().map(|(_, seen)| seen.reason.clone()).collect();
            reasons
                .iter()
                .filter(|reason| *reason == "VersionHalted")
                .count()
                >= 2
                && history
                    .now()
                    .all(|(_, seen)| seen.is_idle() && !seen.is_unavailable())
        })
        .await?;
    let boots = |fleet: &Fleet| {
        fleet
            .history()
            .outcomes()
            .values()
            .map(|outcome| outcome.boots - 1)
            .sum::<usize>()
    };
    ensure!(boots(&fleet) == 1, "{} reboots", boots(&fleet));
    let (first, resumes_first) = halted(&fleet, "").await?;

    // A person takes the risk: it is tried once more, and halted by the next node that fails.
    fleet.paste(&resumes_first).await?;
    fleet
        .until("one more has tried", |history| {
            let tried = history
                .outcomes()
                .values()
                .map(|outcome| outcome.boots - 1)
                .sum::<usize>()
                == 2;
            tried
                && history
                    .now()
                    .all(|(_, seen)| seen.is_idle() && !seen.is_unavailable())
        })
        .await?;
    let (second, resumes_second) = halted(&fleet, &first).await?;

    // What was said of the first halt says nothing of the second, also when it is said again.
    fleet.change(json!({"resumedVersions": []})).await?;
    fleet.paste(&resumes_first).await?;
    fleet.pause(true).await?;
    fleet.set_faults(&Faults::default());
    fleet.publish(FIXED)?;
    fleet
        .until("the pause is seen, which came after that", |history| {
            history.now().any(|(_, seen)| seen.reason == "FleetPaused")
        })
        .await?;
    let status = fleet
        .ledger()
        .get("fleet")
        .await?
        .status
        .unwrap_or_default();
    let record = status.record(NEW);
    ensure!(record.halted_at.as_deref() == Some(&second), "{record:?}");
    fleet.paste(&resumes_second).await?;
    fleet
        .until_ledger("the second halt ends, too", |status| {
            status.halted_versions.is_none()
                && status.record(NEW).halted_at.is_none()
                && status.record(NEW).failures.is_empty()
        })
        .await?;

    fleet.pause(false).await?;
    fleet
        .until(
            "the nodes that do not back off run the new release",
            |history| {
                history
                    .now()
                    .filter(|(_, seen)| seen.version.as_deref() == Some(FIXED))
                    .count()
                    >= 1
                    && history.now().all(|(_, seen)| {
                        seen.is_idle()
                            && !seen.is_unavailable()
                            && (seen.version.as_deref() == Some(FIXED)
                                || seen.reason == "BackingOff")
                    })
            },
        )
        .await?;
    fleet.check()
}

/// Awaits a halt that is later than this, and returns its time, and what the fleet says ends it.
async fn halted(fleet: &Fleet, earlier: &str) -> Result<(String, String)> {
    let ledger = fleet.ledger();
    let told = await_until(format!("a halt after {earlier:?}"), async || {
        let status = ledger.get("fleet").await.ok()?.status?;
        let (at, halted) = (status.record(NEW).halted_at?, status.halted_versions);
        let condition = status
            .conditions
            .into_iter()
            .find(|condition| condition.type_ == "Halted")?;
        let is_told = halted == Some(vec![NEW.to_owned()])
            && condition.reason == "FailureBudgetSpent"
            && condition.message.contains(&at);
        (at.as_str() > earlier && status.slots.is_empty() && is_told)
            .then_some((at, condition.message))
    });
    let (at, message) = told.await?;
    let (why, command) = message.split_once("kubectl ").context("no command")?;
    ensure!(why.contains("FellBack"), "{message}");
    Ok((at, format!("kubectl {command}")))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_shadow_stops_no_other_node() -> Result<()> {
    let mut fleet = Fleet::quick(2, &[]).await?;
    let boot_id = fleet.hosts[0].boot_id();
    // No schema any more: anything can be stored.
    let anything = json!({"spec": {"versions": [{
        "name": BottlerocketShadow::version(&()), "served": true, "storage": true, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
    }]}});
    fleet
        .kubectl(&format!(
            "patch crd bottlerocketshadows.brupop.bottlerocket.aws --type=merge -p {anything}"
        ))
        .await?;
    let nonsense = Patch::Merge(json!({"spec": {"state": {"not": "a state"}}}));
    await_until("the nonsense is stored", async || {
        let api = Api::<kube::core::DynamicObject>::namespaced_with(
            fleet.client(),
            NAMESPACE,
            &kube::discovery::ApiResource::erase::<BottlerocketShadow>(&()),
        );
        api.patch("brs-node-0", &PatchParams::default(), &nonsense)
            .await
            .ok()
    })
    .await?;
    fleet.publish(NEW)?;
    fleet.until_runs("node-1", NEW).await?;
    fleet
        .wait_for_metrics(
            "reconciler",
            &["brupop_skipped_objects{kind=\"BottlerocketShadow\"} 1"],
        )
        .await?;
    ensure!(
        fleet.hosts[0].boot_id() == boot_id,
        "a host was rebooted for a shadow that nobody can read"
    );
    ensure!(!fleet.seen("node-0")?.is_unavailable());
    fleet.check()
}
