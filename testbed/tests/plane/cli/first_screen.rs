//! What holds a roll-out up stands on the first screen of `kubectl brupop status`.

use anyhow::{Context as _, Result, ensure};
use brupop_api::BottlerocketPool;
use brupop_testbed::fleet::NEW;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::sandbox::Signal;
use brupop_testbed::{Fleet, FleetOptions, await_until};
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value as Json, json};

use super::Person;

/// The height of a usual terminal.
const LINES: usize = 24;

#[tokio::test(flavor = "multi_thread")]
async fn the_first_screen_says_what_is_wrong() -> Result<()> {
    let options = FleetOptions::quick(
        3,
        &[("EXCLUDE_FROM_LB_WAIT_TIME_IN_SEC", "2"), ("LEASE_DURATION_SECONDS", "15")],
    );
    let mut fleet = Fleet::start(&options, |_| ()).await?;
    let admin = Person::admin(&fleet.control_plane);
    admin.is_refused("status -n nosuch", &["there is no namespace nosuch"]).await?;
    wrong_pools(&fleet, &admin).await?;

    // One pod of three may be away, and is: by a spare one.
    fleet.deploy("cart", 3, "1").await?;
    fleet.deploy_spare("cart").await?;
    fleet.publish(NEW)?;
    shows(&admin, &["BudgetAllowsNone", "shop/cart allows no disruption"]).await?;

    // The agents' processes stand still before one of them is asked for anything.
    fleet.pause(true).await?;
    shows(&admin, &["Paused", "FleetPaused"]).await?;
    fleet.signal("agent", Signal::STOP);
    fleet.allow_unavailable("cart", 2).await?;
    fleet.pause(false).await?;
    shows(&admin, &["Starting", "has not taken it up yet"]).await?;
    fleet.signal("agent", Signal::CONT);

    fleet.hold_next_drain("cart").await?;
    let drained = await_until("a node is drained", async || {
        let history = fleet.history();
        history.now().find(|(_, seen)| seen.reason == "Draining").map(|(node, _)| node.to_owned())
    });
    let drained = drained.await?;
    fleet.pause_node(&drained, true).await?;
    shows(&admin, &["NodePaused", &drained]).await?;

    fleet.control_plane.reach_services(false);
    shows(&admin, &["Nothing starts: AdmissionEnforced", "failed calling webhook"]).await?;
    fleet.control_plane.reach_services(true);
    fleet.allow_unavailable("cart", 3).await?;
    fleet.pause_node(&drained, false).await?;
    fleet.until_updated(NEW).await?;
    fleet.check()
}

/// Awaits that the first screen has all of these words.
async fn shows(admin: &Person, words: &[&str]) -> Result<()> {
    let shown = await_until(format!("{words:?} on the first screen"), async || {
        let (_, said) = admin.run("status").await.ok()?;
        let screen = said.lines().take(LINES).collect::<Vec<_>>().join("\n");
        words.iter().all(|word| screen.contains(word)).then_some(())
    });
    let Err(error) = shown.await else { return Ok(()) };
    Err(error).context(admin.run("status").await?.1)
}

/// What one pool shows by itself is refused; what it shows beside others stands in its line.
async fn wrong_pools(fleet: &Fleet, admin: &Person) -> Result<()> {
    let pools = Api::<BottlerocketPool>::namespaced(fleet.client(), NAMESPACE);
    let pool = |name: &str, mut spec: Json| -> Result<BottlerocketPool> {
        spec["nodeSelector"] = json!({});
        Ok(serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?)
    };
    for (spec, sentence) in [
        (json!({"versions": {"atLeast": "1.21.0", "below": "1.20.0"}}), "spec.versions"),
        (json!({"windows": [{"schedule": "0 2 30 2 *", "duration": "1h"}]}), "it never fires"),
    ] {
        let refused = pools.create(&PostParams::default(), &pool("wrong", spec)?).await;
        let refused = refused.err().with_context(|| format!("{sentence}: it is stored"))?.to_string();
        ensure!(refused.contains(sentence), "{refused}");
    }
    let gate =
        json!([{"name": "quiet", "type": "Prometheus", "prometheus": {"source": "main", "query": "up"}}]);
    let groups: [(&[_], &str); 4] = [
        (&[("one", json!({"priority": 9})), ("two", json!({"priority": 9}))], "PoolConflict"),
        (&[("late", json!({"after": [{"pool": "nobody"}]}))], "there is no BottlerocketPool of this name"),
        (
            &[
                ("egg", json!({"after": [{"pool": "hen"}]})),
                ("hen", json!({"after": [{"pool": "egg"}], "priority": 2})),
            ],
            "these pools wait for each other",
        ),
        (&[("gated", json!({"gates": gate}))], "names no such source"),
    ];
    for (group, words) in groups {
        for (name, spec) in group {
            pools.create(&PostParams::default(), &pool(name, spec.clone())?).await?;
        }
        shows(admin, &[group[0].0, words]).await?;
        for (name, _) in group {
            pools.delete(name, &DeleteParams::default()).await?;
        }
    }
    Ok(())
}
