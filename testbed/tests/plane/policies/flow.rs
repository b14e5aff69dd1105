//! Tests the priority levels of requests, and who waits when agents ask for too much.

use super::bed::{Actor, Bed};
use anyhow::{Context as _, Result, bail, ensure};
use brupop_api::BottlerocketShadow;
use brupop_testbed::await_until;
use futures::StreamExt as _;
use http::Method;
use kube::Resource as _;
use serde_json::Value as Json;
use std::time::{Duration, Instant};

/// Number of concurrent requests, each of which takes 3 s.
const FLOOD: usize = 100;
/// Agents' nominal seats: 10 of 255 shares of the API server's 600, rounded up. Up to 80 % of them are lent while
/// agents are idle. The API server shares seats out every ten seconds, so a flood has fewer until then.
const SEATS: u64 = 24;
/// A request behind the flood waits for nine seconds or more; the rest is for a loaded machine.
const AT_ONCE: Duration = Duration::from_secs(5);

/// Agents come in by their own flow schema and level, and nobody else does.
pub async fn requests_are_classified(bed: &Bed) -> Result<()> {
    let uid = async |kind: &str, name: &str| -> Result<String> {
        let path = format!("/apis/flowcontrol.apiserver.k8s.io/v1/{kind}/{name}");
        let object = bed.must(Method::GET, &path, &Json::Null).await?;
        Ok(object["metadata"]["uid"]
            .as_str()
            .context("no UID")?
            .to_owned())
    };
    let agent = (bed.named)("brupop-agent");
    let rows = [
        (Actor::Agent, agent.as_str(), agent.as_str()),
        (Actor::Reconciler, "service-accounts", "workload-low"),
        (Actor::Webhook, "service-accounts", "workload-low"),
        (Actor::Admin, "exempt", "exempt"),
    ];
    let shadows = bed.ours(&BottlerocketShadow::api_version(&()), "bottlerocketshadows");
    for (actor, schema, level) in rows {
        let expected = (
            uid("flowschemas", schema).await?,
            uid("prioritylevelconfigurations", level).await?,
        );
        for path in [shadows.as_str(), "/api/v1/nodes", "/version"] {
            let classified = await_until(format!("{actor:?} by {schema}"), async || {
                let answer = bed.get(actor, path).await.ok()?;
                (answer.flow == expected).then_some(())
            });
            classified.await?;
        }
    }
    Ok(())
}

/// Figures of the agents' level: requests that wait, and seats that are taken.
async fn agents_level(bed: &Bed) -> Result<(u64, u64)> {
    let request = http::Request::get("/metrics").body(vec![])?;
    let text = bed.control_plane.client().request_text(request).await?;
    let level = format!("priority_level=\"{}\"", (bed.named)("brupop-agent"));
    let figure = |name: &str| {
        let lines = text
            .lines()
            .filter(|line| line.starts_with(&format!("{name}{{")) && line.contains(&level));
        lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
            .sum()
    };
    Ok((
        figure("apiserver_flowcontrol_current_inqueue_requests"),
        figure("apiserver_flowcontrol_current_executing_seats"),
    ))
}

/// A stolen token of an agent asks for what takes long, a hundred times at once: for a state that is not there yet.
pub async fn agents_keep_each_other_waiting_and_nobody_else(bed: &Bed) -> Result<()> {
    let shadows = bed.ours(&BottlerocketShadow::api_version(&()), "bottlerocketshadows");
    let list = bed.must(Method::GET, &shadows, &Json::Null).await?;
    let version: u64 = list["metadata"]["resourceVersion"]
        .as_str()
        .context("no version")?
        .parse()?;
    let future = format!(
        "{shadows}?resourceVersion={}&resourceVersionMatch=NotOlderThan",
        version + 1_000_000
    );
    let flood = futures::stream::iter(0..)
        .map(async |_| bed.get(Actor::Agent, &future).await)
        .buffer_unordered(FLOOD)
        .for_each(async |_| ());

    let others = async {
        await_until("agents wait for agents", async || {
            let (waiting, taken) = agents_level(bed).await.ok()?;
            (waiting > 0 && taken > 0).then_some(())
        })
        .await?;
        for actor in [Actor::Reconciler, Actor::Webhook, Actor::Admin] {
            let began = Instant::now();
            let answer = bed.get(actor, "/version").await?;
            let took = began.elapsed();
            ensure!(
                answer.code == 200 && took < AT_ONCE,
                "{actor:?}: {took:?}: {answer:?}"
            );
        }
        let (waiting, taken) = agents_level(bed).await?;
        println!("of {FLOOD} agents' requests {waiting} wait, {taken} seats are taken");
        ensure!(waiting > 0 && (1..=SEATS).contains(&taken));
        Ok(())
    };
    tokio::select! {
        () = flood => bail!("the flood ended"),
        result = others => result,
    }
}
