//! A pool that means nothing is refused, and one that nobody refused in time holds its nodes.

use anyhow::{Result, ensure};
use brupop_testbed::await_until;
use brupop_testbed::sandbox::Signal;
use serde_json::json;

use super::{apply, condition, fleet, until_pool};

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_means_nothing_is_refused() -> Result<()> {
    let mut fleet = fleet(&["web"], &[]).await?;
    // The tests of the definitions cover the schema's own refusals.
    let never = json!({"nodeSelector": {}, "priority": 7,
        "windows": [{"schedule": "0 2 30 2 *", "duration": "4h"}]});
    let says = "spec.windows[0].schedule: it never fires";
    // The webhook is not there at once: until then, what only it refuses is stored.
    await_until("the webhook refuses", async || {
        let refused = apply(&fleet, "tried", &never).await.err()?;
        format!("{refused:#}").contains(says).then_some(())
    })
    .await?;

    fleet.signal("webhook", Signal::STOP);
    apply(&fleet, "bad", &never).await?;
    let bad = until_pool(&fleet, "bad", "is seen", |status| {
        !status.conditions.is_empty()
    })
    .await?;
    for (type_, status) in [
        ("Accepted", "False"),
        ("Ready", "False"),
        ("Stalled", "True"),
    ] {
        ensure!(
            condition(&bad, type_) == Some((status.into(), "PoolInvalid".into())),
            "{bad:?}"
        );
    }
    fleet.publish(brupop_testbed::fleet::NEW)?;
    fleet.signal("webhook", Signal::CONT);
    fleet.until_waits("node-0", "PoolInvalid").await?;
    let said = fleet.progressing("node-0").await?.message;
    ensure!(said.contains(says), "{said}");
    fleet.check()
}
