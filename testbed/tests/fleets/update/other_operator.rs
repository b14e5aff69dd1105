//! Somebody has applied ours over upstream's: what has begun is finished, and nothing else begins as long as both are there.

use anyhow::{Context as _, Result, ensure};
use brupop_api::State::Idle;
use brupop_api::conditions::{ConditionStatus, OTHER_OPERATOR};
use brupop_api::names::FLEET;
use brupop_testbed::Fleet;
use brupop_testbed::fleet::NEW;
use brupop_testbed::host::Faults;
use brupop_testbed::operator::NAMESPACE;

use crate::went_well::assert_kind;

const UPSTREAMS: &str = "brupop-controller-deployment";

#[tokio::test(flavor = "multi_thread")]
async fn no_update_starts_beside_upstreams_operator() -> Result<()> {
    let mut fleet = Fleet::quick(3, &[("CHECK_INTERVAL_SECONDS", "1")]).await?;
    let held = fleet.until_ledger("no other operator is here", |status| {
        let condition = status
            .conditions
            .iter()
            .find(|condition| condition.type_ == OTHER_OPERATOR);
        condition.is_some_and(|condition| condition.status == ConditionStatus::False)
    });
    held.await?;
    fleet.set_faults(&Faults {
        reboot_ignored: true,
        ..Faults::default()
    });
    fleet.publish(NEW)?;
    let under_way = "an update is under way";
    fleet
        .until(under_way, |history| {
            history
                .now()
                .any(|(_, seen)| seen.goal != Idle && seen.drained)
        })
        .await?;
    let begun = fleet
        .history()
        .now()
        .find(|(_, seen)| seen.goal != Idle)
        .map(|(node, _)| node.to_owned());
    let begun = begun.context(under_way)?;

    fleet
        .kubectl(&format!(
            "create deployment {UPSTREAMS} -n {NAMESPACE} --image=upstream --replicas=0"
        ))
        .await?;
    fleet
        .wait_for_event(FLEET, "OtherOperator", &format!("{NAMESPACE}/{UPSTREAMS}"))
        .await?;
    fleet.set_faults(&Faults::default());
    fleet.until_runs(&begun, NEW).await?;
    fleet.until_no_slot_is_taken().await?;
    let nodes = || {
        (0..3)
            .map(|number| format!("node-{number}"))
            .filter(|node| *node != begun)
    };
    for node in nodes() {
        fleet
            .until_node(&node, "it says why it waits", |seen| {
                seen.reason == "OtherOperator"
            })
            .await?;
        let moved = fleet.history().has_seen(&node, |seen| {
            seen.goal != Idle || seen.cordoned || seen.marked
        });
        ensure!(!moved, "{node} has begun to move: {:?}", fleet.seen(&node)?);
    }

    fleet
        .wait_for_metrics("reconciler", &["brupop_other_operator 1"])
        .await?;
    fleet
        .kubectl(&format!("delete deployment {UPSTREAMS} -n {NAMESPACE}"))
        .await?;
    fleet.until_updated(NEW).await?;
    fleet
        .wait_for_metrics("reconciler", &["brupop_other_operator 0"])
        .await?;
    assert_kind(&fleet, 1)?;
    fleet.check()
}
