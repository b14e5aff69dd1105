//! API servers cannot reach the webhook from the first, so nobody may create a shadow. That the webhook goes away later is in
//! `update/recovery.rs`.

use anyhow::{Result, ensure};
use brupop_api::conditions::{Condition, ConditionStatus};
use brupop_testbed::fleet::NEW;
use brupop_testbed::operator::{apply_overlay, programs};
use brupop_testbed::{Fleet, FleetOptions};

#[tokio::test(flavor = "multi_thread")]
async fn an_install_whose_webhook_cannot_be_reached_says_so() -> Result<()> {
    let options = FleetOptions::quick(1, &[]);
    let install = async |control_plane: &_, env: &[(&str, &str)]| {
        apply_overlay(control_plane, "default").await?;
        programs(env)
    };
    let mut fleet = Fleet::bare(&options, install).await?;
    fleet.control_plane.reach_services(false);
    fleet.watch();
    fleet.join(0, options.durations).await?;
    until_it_says(
        &fleet,
        ConditionStatus::False,
        "a shadow could not be created: ",
    )
    .await?;
    until_it_says(&fleet, ConditionStatus::False, "failed calling webhook").await?;
    ensure!(!fleet.seen("node-0")?.has_shadow);

    fleet.control_plane.reach_services(true);
    until_it_says(&fleet, ConditionStatus::True, "refused the dry runs").await?;
    fleet.publish(NEW)?;
    fleet.until_updated(NEW).await?;
    fleet.check()
}

/// Awaits that the fleet's condition has this status, and these words.
async fn until_it_says(fleet: &Fleet, status: ConditionStatus, words: &str) -> Result<()> {
    let so = |condition: &Condition| {
        condition.type_ == "AdmissionEnforced"
            && condition.status == status
            && condition.message.contains(words)
    };
    let what = format!("AdmissionEnforced is {status:?}: {words}");
    fleet
        .until_ledger(&what, |status| status.conditions.iter().any(so))
        .await
        .map(drop)
}
