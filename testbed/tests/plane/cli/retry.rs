//! `retry`: the end of a back-off, after one attempt.

use anyhow::{Context as _, Result, ensure};
use brupop_api::names::RETRY_ANNOTATION;
use brupop_testbed::Fleet;
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::host::Faults;
use brupop_testbed::sandbox::Signal;
use serde_json::json;

use super::annotation;
use super::person::Person;

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_retry_backs_off_again_under_any_leader() -> Result<()> {
    let mut fleet = Fleet::quick(1, &[("BACK_OFF_BASE_SECONDS", "3600")]).await?;
    fleet
        .change(json!({"failureThreshold": {"unproven": 8, "proven": 8}}))
        .await?;
    let admin = Person {
        kubeconfig: fleet.control_plane.kubeconfig(),
    };
    admin
        .says(
            "retry node-0",
            &["does not back off: no attempt has failed"],
        )
        .await?;
    fleet.set_faults(&Faults {
        falls_back_on_boot: true,
        ..Faults::default()
    });
    fleet.publish(NEW)?;
    let failed = async |count| {
        let so = |seen: &brupop_testbed::history::Seen| {
            seen.reason == "BackingOff" && seen.crashes == count
        };
        fleet.until_node("node-0", "backs off", so).await?;
        let failures = fleet.failures("node-0").await?.context("no failure")?;
        ensure!(
            (failures.count, failures.attempt) == (count, count),
            "{failures:?}"
        );
        let said = fleet.progressing("node-0").await?.message;
        ensure!(said.ends_with(": `kubectl brupop retry node-0`"), "{said}");
        anyhow::Ok(())
    };
    failed(1).await?;
    admin
        .says("why node-0", &["--context testbed retry node-0`"])
        .await?;
    admin
        .says("retry node-0", &["after its attempt 1 is ended: "])
        .await?;
    failed(2).await?;
    // Meanwhile the next attempt does not begin.
    admin.says("pause node-0", &["is paused"]).await?;
    admin
        .says("retry node-0", &["after its attempt 2 is ended: "])
        .await?;
    admin
        .says("retry node-0", &["after its attempt 2 is ended already"])
        .await?;
    admin
        .says("resume node-0", &["is no longer paused"])
        .await?;
    failed(3).await?;
    ensure!(
        annotation(&fleet, "node-0", RETRY_ANNOTATION)
            .await?
            .is_none(),
        "it did not go with the marker"
    );

    // The annotation of another attempt ends nothing for the next leader either.
    let before = fleet.term().await?;
    fleet.signal("reconciler", Signal::KILL);
    fleet.next_term(before).await?;
    failed(3).await?;
    let drained = fleet.history().updates("node-0").len();
    ensure!(
        drained == 3 && fleet.seen("node-0")?.runs(OLD),
        "{drained} attempts"
    );
    fleet.set_faults(&Faults::default());
    admin
        .says("retry node-0", &["after its attempt 3 is ended: "])
        .await?;
    fleet.until_runs("node-0", NEW).await?;
    fleet.check()
}
