//! Nodes that a budget or a pod holds back are passed over, untouched, and said; others go on. And what `plan` prints of it.

use anyhow::{Result, ensure};
use brupop_api::BottlerocketPool;
use brupop_api::names::RECONCILER_ACCOUNT;
use brupop_testbed::Fleet;
use brupop_testbed::audit::Event;
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::objects::bare_pod;
use brupop_testbed::operator::{NAMESPACE, apply_overlay, throw_away_overlay};
use kube::Resource as _;
use serde_json::json;

use crate::update::exec::exec;
use crate::went_well::assert_kind;

#[tokio::test(flavor = "multi_thread")]
async fn what_holds_a_drain_back_is_said_before_any_change() -> Result<()> {
    let mut fleet = Fleet::quick(2, &[]).await?;
    fleet.deploy("cart", 2, "0").await?;
    fleet.publish(NEW)?;
    fleet
        .until("both nodes say why they stay", |history| {
            history
                .now()
                .all(|(_, seen)| seen.is_idle() && seen.reason == "BudgetAllowsNone")
        })
        .await?;
    let said = fleet.progressing("node-0").await?.message;
    ensure!(
        said.contains("PodDisruptionBudget shop/cart allows no disruption"),
        "{said}"
    );

    let (plan, went_well) = exec(&fleet, &["plan"]).await?;
    ensure!(
        went_well && plan.contains("\"inUse\": 0") && plan.matches("BudgetAllowsNone").count() == 2,
        "{plan}"
    );
    // A pod that nothing would bring back holds up its own node only.
    fleet
        .apply(&[bare_pod("default", "debug", "node-0", &json!({}))])
        .await?;
    fleet.allow_unavailable("cart", 1).await?;
    fleet
        .until(
            "the other node is updated, and this one says why it is not",
            |history| {
                history.now().all(|(node, seen)| {
                    let (version, reason) = if node == "node-0" {
                        (OLD, "CannotDrain")
                    } else {
                        (NEW, "NoUpdate")
                    };
                    seen.is_idle()
                        && seen.version.as_deref() == Some(version)
                        && seen.reason == reason
                })
            },
        )
        .await?;
    let said = fleet.progressing("node-0").await?.message;
    ensure!(said.contains("default/debug has no controller"), "{said}");
    ensure!(
        fleet.seen("node-0")?.target.is_none(),
        "an update of it was begun"
    );
    fleet.kubectl("delete pod debug").await?;
    fleet.until_updated(NEW).await?;
    fleet.until_no_slot_is_taken().await?;
    fleet.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn force_deletes_remaining_pods_at_the_deadline() -> Result<()> {
    let mut fleet = Fleet::quick(2, &[("CHECK_INTERVAL_SECONDS", "2")]).await?;
    let pool = json!({
        "apiVersion": BottlerocketPool::api_version(&()), "kind": "BottlerocketPool",
        "metadata": {"name": "forced", "namespace": NAMESPACE},
        "spec": {"nodeSelector": {}, "verify": {"readyFor": "0s"}, "drain": {"timeout": "3s", "onTimeout": "Force"}},
    });
    fleet.apply(&[pool]).await?;
    // Without the right, the pool says so.
    let ready = async |status: &str| {
        let condition = format!("Ready={status}");
        let of = ["brp", "forced", "-n", NAMESPACE];
        fleet
            .control_plane
            .wait_for_condition(&condition, &of)
            .await
    };
    ready("False").await?;
    // The component's overlay, over the one that stands there.
    let forced = json!({
        "resources": ["kustomize/overlays/default"], "components": ["kustomize/components/force-drain"],
    });
    let forced = throw_away_overlay(&fleet.control_plane, "forced", forced)?;
    apply_overlay(&fleet.control_plane, forced).await?;
    ready("True").await?;

    let bare = [("debug", "node-0"), ("debug-too", "node-1")];
    fleet
        .apply(&bare.map(|(name, node)| bare_pod("default", name, node, &json!({}))))
        .await?;
    fleet.deploy("cart", 2, "1").await?;
    // One of its pods is away, so that the budget allows none now; it is not hopeless.
    fleet.deploy_spare("cart").await?;
    let mut audit = fleet.control_plane.audit().from_now();
    fleet.publish(NEW)?;
    fleet.until_updated(NEW).await?;
    let left = fleet.kubectl("get pods -n default -o name").await?;
    ensure!(left.is_empty(), "they still stand: {left}");
    let asked = audit.read()?;
    let of_cart = |verb: &str, subresource: &str, code: u16| {
        let is_request = |event: &&Event| {
            let object = &event.object;
            event.is_by(RECONCILER_ACCOUNT)
                && event.verb == verb
                && event.code() == code
                && object.resource == "pods"
                && object.subresource == subresource
                && object.name.starts_with("cart-")
        };
        asked.iter().filter(is_request).count()
    };
    ensure!(
        of_cart("create", "eviction", 429) > 0,
        "its budget allowed it"
    );
    ensure!(
        of_cart("create", "eviction", 201) == 0,
        "evicted in spite of its budget"
    );
    ensure!(
        of_cart("delete", "", 200) >= 2,
        "{} pods of cart were deleted",
        of_cart("delete", "", 200)
    );
    assert_kind(&fleet, 1)?;
    fleet.check()
}
