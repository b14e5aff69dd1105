//! Another image of the operator is rolled out in mid-update, one program after the other, each of the three first. Until there
//! is a release both images run the programs of this version.

use crate::went_well::went_well;
use anyhow::{Context as _, Result, ensure};
use brupop_api::State::{Idle, RebootedIntoUpdate};
use brupop_api::names::COMPONENT_LABEL;
use brupop_testbed::audit::AuditReader;
use brupop_testbed::fleet::NEW;
use brupop_testbed::history::Seen;
use brupop_testbed::host::{Answer, Call, Command, Faults, Host};
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::{Fleet, await_until};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use serde_json::json;

const NODES: usize = 4;
const LIMIT: usize = 3;
const NEXT_IMAGE: &str = "brupop:next";

const AGENT: &str = "agent";
const RECONCILER: &str = "reconciler";
const WEBHOOK: &str = "webhook";

#[tokio::test(flavor = "multi_thread")]
async fn agents_may_be_upgraded_first() -> Result<()> {
    upgrade([AGENT, RECONCILER, WEBHOOK]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reconciler_may_be_upgraded_first() -> Result<()> {
    upgrade([RECONCILER, WEBHOOK, AGENT]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_webhook_may_be_upgraded_first() -> Result<()> {
    upgrade([WEBHOOK, AGENT, RECONCILER]).await
}

/// One node downloads and two wait for their reboot when the components get the next image, in this order. After each of
/// them a node goes on, and is updated by programs of both images.
async fn upgrade(components: [&str; 3]) -> Result<()> {
    let limit = LIMIT.to_string();
    let env = [
        ("MAX_CONCURRENT_UPDATE", limit.as_str()),
        ("REBOOT_REPEAT_INTERVAL", "1s"),
    ];
    let mut fleet = Fleet::quick(NODES, &env).await?;
    fleet
        .change(json!({"failureThreshold": {"unproven": 8}}))
        .await?;
    fleet.deploy("cart", NODES, "2").await?;
    let [downloading, first, second] = one_downloads_and_two_wait_for_their_reboot(&fleet).await?;

    // Not what was written before there was a webhook.
    let audit = fleet.control_plane.audit().from_now();
    for (component, rebooting) in components.into_iter().zip([&first, &second, &second]) {
        roll_out(&fleet, component).await?;
        for node in [&downloading, rebooting] {
            host(&fleet, node)?.set_faults(Faults::default());
        }
        fleet.until_runs(rebooting, NEW).await?;
        fleet.until_runs(&downloading, NEW).await?;
    }
    fleet.set_faults(&Faults::default());
    fleet.until_updated(NEW).await?;
    went_well(&fleet, LIMIT).await?;
    nobody_was_refused(audit)?;
    fleet.check()
}

/// Gives a component the next image, and awaits that nothing of the image before runs for it.
async fn roll_out(fleet: &Fleet, component: &str) -> Result<()> {
    let kind = if component == AGENT {
        "daemonset"
    } else {
        "deployment"
    };
    let workload = format!("{kind}/brupop-{component}");
    let image = format!("*={NEXT_IMAGE}");
    fleet
        .kubectl(&format!("-n {NAMESPACE} set image {workload} {image}"))
        .await?;
    fleet
        .control_plane
        .until_rolled_out(NAMESPACE, &workload)
        .await?;
    let pods = Api::<Pod>::namespaced(fleet.client(), NAMESPACE);
    let of_component = ListParams::default().labels(&format!("{COMPONENT_LABEL}={component}"));
    let is_next = |pod: &Pod| {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        containers
            .into_iter()
            .all(|container| container.image.as_deref() == Some(NEXT_IMAGE))
    };
    // Those that are replaced take their time to end.
    await_until(
        format!("only {NEXT_IMAGE} runs for {workload}"),
        async || {
            let next: Vec<_> = pods
                .list(&of_component)
                .await
                .ok()?
                .into_iter()
                .filter(is_next)
                .collect();
            let processes = fleet.processes(component);
            let is_of_next = |name: &String| next.iter().any(|pod| pod.name_any() == *name);
            (!processes.is_empty() && processes.iter().all(|process| is_of_next(&process.pod)))
                .then_some(())
        },
    )
    .await
}

fn host<'a>(fleet: &'a Fleet, node: &str) -> Result<&'a Host> {
    let number = node
        .strip_prefix("node-")
        .and_then(|number| number.parse::<usize>().ok());
    number
        .and_then(|number| fleet.hosts.get(number))
        .with_context(|| format!("no host of {node}"))
}

/// All slots are taken. The last two of these nodes are drained, and their agents have claimed the reboot and ask for it; on
/// the first one, as on those that come later, the image cannot be activated yet.
async fn one_downloads_and_two_wait_for_their_reboot(fleet: &Fleet) -> Result<[String; LIMIT]> {
    fleet.set_faults(&Faults {
        reboot_ignored: true,
        ..Faults::answer(Call::Action(Command::Activate), Answer::Locked)
    });
    fleet.publish(NEW)?;
    let moving = await_until("all slots are in use", async || {
        let history = fleet.history();
        let moving = history
            .now()
            .filter(|(_, seen)| seen.goal != Idle)
            .map(|(node, _)| node.to_owned());
        <[String; LIMIT]>::try_from(moving.collect::<Vec<_>>()).ok()
    })
    .await?;
    let hosts = moving[1..]
        .iter()
        .map(|node| host(fleet, node))
        .collect::<Result<Vec<_>>>()?;
    for host in &hosts {
        host.set_faults(Faults {
            reboot_ignored: true,
            ..Faults::default()
        });
    }
    fleet
        .until("two nodes wait for their reboot", |history| {
            let waits =
                |seen: &Seen| seen.goal == RebootedIntoUpdate && seen.cordoned && seen.drained;
            let asks = |host: &&Host| host.count("reboot") > 0;
            history.now().filter(|(_, seen)| waits(seen)).count() == hosts.len()
                && hosts.iter().all(asks)
        })
        .await?;
    Ok(moving)
}

/// No write was refused, and none found no webhook. A conditional write that came too late (409, 422) is nothing to speak
/// of.
fn nobody_was_refused(mut audit: AuditReader) -> Result<()> {
    let mut refused = audit.read()?;
    refused.retain(|event| {
        event.user.username.contains(":brupop-")
            && event.is_write()
            && (event.code() == 403 || event.message().contains("failed calling webhook"))
    });
    ensure!(refused.is_empty(), "{refused:#?}");
    Ok(())
}
