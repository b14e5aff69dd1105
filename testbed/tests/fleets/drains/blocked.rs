//! A drain that a budget holds up: what goes all the same, what people are told, and when it is given up.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::audit::{AuditReader, Event};
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::objects::budget;
use brupop_testbed::sandbox::Signal;
use brupop_testbed::{Fleet, await_until};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use serde_json::json;

use crate::drains::{evicted_by_us, marker};

/// See [`Fleet::hold_next_drain`].
const HOLD: (&str, &str) = ("EXCLUDE_FROM_LB_WAIT_TIME_IN_SEC", "5");
/// Of the drain.
const LIMIT: SignedDuration = SignedDuration::from_secs(75);
/// Between two requests for the same pod.
const PACE: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_drain_is_explained_and_times_out() -> Result<()> {
    let limit = LIMIT.as_secs().to_string();
    let mut fleet = Fleet::quick(2, &[("DRAIN_DEADLINE_SECONDS", &limit), HOLD]).await?;
    fleet.pause_node("node-1", true).await?;
    fleet.deploy("cart", 2, "1").await?;
    // Without a budget: one that allows more has others of its namespace asked for again.
    fleet
        .kubectl("create deployment mail --image=none --replicas=2 -n shop")
        .await?;
    await_until("a pod of it is there", async || {
        (!on_node(&fleet, "mail").await.ok()?.is_empty()).then_some(())
    })
    .await?;
    let cart = on_node(&fleet, "cart").await?;
    ensure!(cart.len() == 1, "{cart:?}");
    let mut audit = fleet.control_plane.audit().from_now();
    fleet.publish(NEW)?;
    // One more of its pods is away then, so that the budget allows none, and might again.
    fleet.hold_next_drain("cart").await?;
    fleet
        .until_node("node-0", "it drains", |seen| seen.reason == "Draining")
        .await?;

    // One that is blocked holds up no other for longer than a third of the time.
    await_until("the others are gone", async || {
        on_node(&fleet, "mail").await.ok()?.is_empty().then_some(())
    })
    .await?;
    ensure!(
        on_node(&fleet, "cart").await? == cart,
        "the budget was not kept"
    );
    until_it_says(
        &fleet,
        &[&format!("shop/{}", cart[0]), "disruption budget cart"],
    )
    .await?;
    warned(&fleet, "DrainBlocked", "disruption budget cart").await?;
    own_pace(&mut audit, &cart[0]).await?;
    let words = sentences(&fleet)?;
    ensure!(words.len() == 1, "what it says does not stay: {words:?}");

    // Whatever else holds it up is said, too.
    fleet
        .apply(&[budget("shop", "second", "cart", &json!(1))])
        .await?;
    until_it_says(&fleet, &["more than one PodDisruptionBudget"]).await?;
    fleet.kubectl("delete pdb second -n shop").await?;

    // The next leader reads the drain's clock in the marker.
    let began: Timestamp = marker(&fleet, "node-0")
        .await?
        .context("no marker")?
        .drain_started_at
        .context("no drain")?
        .parse()?;
    let killed = fleet.processes("reconciler");
    let ran = Timestamp::now().duration_since(began);
    ensure!(
        ran < LIMIT,
        "{ran:?} had passed before the reconcilers were killed in mid-drain"
    );
    fleet.signal("reconciler", Signal::KILL);
    fleet.until_waits("node-0", "BackingOff").await?;
    let alive = fleet.processes("reconciler");
    ensure!(
        !alive.iter().any(|process| killed.contains(process)),
        "{killed:?} were not killed: {alive:?}"
    );
    let failures = fleet.failures("node-0").await?.context("no failure")?;
    let took = failures.at.parse::<Timestamp>()?.duration_since(began);
    // A clock that the next leader had started again would have ended no earlier than this.
    let again = ran + LIMIT;
    ensure!(
        failures.reason == "DrainBlocked" && took >= LIMIT && took < again,
        "{failures:?} {took:?}"
    );
    println!(
        "the drain was given up after {took:?}, of {LIMIT:?}; a clock started again ends after {again:?}"
    );

    let now = fleet.seen("node-0")?;
    ensure!(
        !now.is_unavailable() && !now.excluded && now.version.as_deref() == Some(OLD),
        "{now:?}"
    );
    ensure!(marker(&fleet, "node-0").await?.is_none() && on_node(&fleet, "cart").await? == cart);
    ensure!(
        fleet.history().outcomes()["node-0"].boots == 1,
        "it was rebooted undrained"
    );
    warned(
        &fleet,
        "UpdateAborted",
        "a budget allowed none of the disruptions",
    )
    .await?;
    // The next one may begin, once the budget allows it.
    fleet.allow_unavailable("cart", 2).await?;
    fleet.pause_node("node-1", false).await?;
    fleet
        .until_node("node-1", "its turn has come", |seen| {
            seen.target.as_deref() == Some(NEW)
        })
        .await?;
    fleet.check()
}

/// The pods of this app on node-0 that are not on their way out, by name.
async fn on_node(fleet: &Fleet, app: &str) -> Result<Vec<String>> {
    let params = ListParams::default()
        .labels(&format!("app={app}"))
        .fields("spec.nodeName=node-0");
    let pods = Api::<Pod>::namespaced(fleet.client(), "shop")
        .list(&params)
        .await?
        .items
        .into_iter();
    let stays = pods.filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let mut names: Vec<_> = stays.map(|pod| pod.name_any()).collect();
    names.sort_unstable();
    Ok(names)
}

/// Awaits that the condition says all of this while it drains.
async fn until_it_says(fleet: &Fleet, words: &[&str]) -> Result<()> {
    let mut last = String::new();
    let said = await_until(format!("it says {words:?}"), async || {
        let found = fleet.progressing("node-0").await.ok()?;
        last.clone_from(&found.message);
        (found.reason == "Draining" && words.iter().all(|word| found.message.contains(word)))
            .then_some(())
    });
    said.await.with_context(|| last.clone())
}

/// Awaits a warning about the node.
async fn warned(fleet: &Fleet, reason: &str, says: &str) -> Result<()> {
    let event = fleet.wait_for_event("node-0", reason, says).await?;
    ensure!(event.type_.as_deref() == Some("Warning"), "{event:?}");
    Ok(())
}

/// What was asked for this pod was refused, and not asked again behind our back.
async fn own_pace(audit: &mut AuditReader, pod: &str) -> Result<()> {
    let mut asked: Vec<Event> = vec![];
    audit
        .wait_for("the pod is asked for again and again", |event| {
            if evicted_by_us(event).is_some_and(|evicted| evicted == format!("shop/{pod}")) {
                asked.push(event.clone());
            }
            asked.len() > 1
        })
        .await?;
    ensure!(asked.iter().all(|event| event.code() == 429), "{asked:?}");
    for pair in asked.windows(2) {
        let apart = pair[1]
            .request_received_timestamp
            .duration_since(pair[0].request_received_timestamp);
        ensure!(
            apart.unsigned_abs() >= PACE,
            "asked again after {apart:?}, not {PACE:?}"
        );
    }
    Ok(())
}

/// Every sentence that was written while the drain was blocked.
fn sentences(fleet: &Fleet) -> Result<Vec<String>> {
    let events = fleet.control_plane.audit().from_start().read()?;
    let mut sentences: Vec<String> = events
        .iter()
        .filter(|event| event.is_about("bottlerocketshadows", "brs-node-0") && event.code() == 200)
        .filter_map(|event| {
            event
                .request_object
                .as_ref()?
                .pointer("/status/conditions/0/message")?
                .as_str()
        })
        .filter(|message| message.contains("is not evicted"))
        .map(str::to_owned)
        .collect();
    sentences.dedup();
    Ok(sentences)
}
