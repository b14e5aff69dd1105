//! From upstream's operator to ours and back, by the commands of docs/migrating.md.

mod left;
mod obstacles;
mod upstream;

use anyhow::{Context as _, Result, ensure};
use brupop_api::names::{EXCLUDE_FROM_LB_LABEL, FLEET, MARKER_ANNOTATION};
use brupop_testbed::audit::AuditReader;
use brupop_testbed::documents::{self, MIGRATING, read, section};
use brupop_testbed::fleet::NEW;
use brupop_testbed::history::{History, Seen};
use brupop_testbed::operator::{NAMESPACE, programs};
use brupop_testbed::{ControlPlane, Fleet, FleetOptions};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::Api;
use left::{Host, Left, Stays};
use upstream::By;

const LIMIT: usize = 3;

/// A node of each kind that upstream may leave.
const LEFT: [Left; 16] = [
    Left::v2("Idle", "Idle", Host::Old),
    // Its agent was killed after the activation and before it said so.
    Left::v2("StagedAndPerformedUpdate", "Idle", Host::Activated),
    Left::v2(
        "StagedAndPerformedUpdate",
        "StagedAndPerformedUpdate",
        Host::Activated,
    ),
    // In mid-drain: its pods are still there.
    Left::v2(
        "RebootedIntoUpdate",
        "StagedAndPerformedUpdate",
        Host::Activated,
    )
    .cordoned()
    .excluded(),
    Left::v2("RebootedIntoUpdate", "StagedAndPerformedUpdate", Host::New).cordoned(),
    Left::v2("RebootedIntoUpdate", "RebootedIntoUpdate", Host::New).cordoned(),
    Left::v2("MonitoringUpdate", "RebootedIntoUpdate", Host::New)
        .cordoned()
        .excluded(),
    Left::v2("MonitoringUpdate", "MonitoringUpdate", Host::New),
    // Its controller has put the spec back; its agent would uncordon next.
    Left::v2("Idle", "ErrorReset", Host::Old)
        .cordoned()
        .excluded(),
    // The drain was cut when the apiserver went; the controller did not hear of it.
    Left::v2("RebootedIntoUpdate", "ErrorReset", Host::Activated)
        .cordoned()
        .excluded(),
    Left::v2("StagedAndPerformedUpdate", "ErrorReset", Host::Old),
    Left::v1("PerformedUpdate", "StagedUpdate").cordoned(),
    // Upstream does neither before it wants a reboot.
    Left::v2("StagedAndPerformedUpdate", "Idle", Host::Old)
        .cordoned()
        .excluded()
        .by_a_person(),
    Left::v1("Idle", "Idle").cordoned().by_a_person(),
    // Not ours any more, so that nothing is done to it.
    Left::v2(
        "RebootedIntoUpdate",
        "StagedAndPerformedUpdate",
        Host::Activated,
    )
    .cordoned()
    .excluded()
    .unlabelled(),
    Left::v2("MonitoringUpdate", "RebootedIntoUpdate", Host::New)
        .cordoned()
        .excluded()
        .unlabelled(),
];

#[tokio::test(flavor = "multi_thread")]
async fn upstreams_updates_are_taken_over_in_any_state() -> Result<()> {
    let mut fleet = upstreams(By::Create, &LEFT).await?;
    take_over(&mut fleet, async |fleet, block| {
        // It says that it may be run again.
        fleet.paste(block).await?;
        let said = fleet.paste(block).await?;
        if block.contains("-L bottlerocket.aws") {
            nodes_without_label_are_listed(&said)
        } else {
            Ok(())
        }
    })
    .await?;

    fleet
        .until(&format!("every node runs {NEW}, Idle"), |history| {
            let updated =
                |seen: &Seen| seen.is_idle() && seen.ready && seen.version.as_deref() == Some(NEW);
            let done = |(at, left): (usize, &Left)| {
                let is_done = |seen: &Seen| {
                    if left.stays == Stays::Everything {
                        !seen.has_shadow
                    } else {
                        updated(seen)
                    }
                };
                history.of(&format!("node-{at}")).is_some_and(is_done)
            };
            LEFT.iter().enumerate().all(done)
        })
        .await?;
    fleet.until_no_slot_is_taken().await?;
    let history = fleet.history().clone();
    for (number, left) in LEFT.iter().enumerate() {
        let node = format!("node-{number}");
        if left.stays == Stays::Everything {
            let touched = history.has_seen(&node, |seen| {
                seen.has_node && (!seen.cordoned || !seen.excluded || seen.marked || !seen.ready)
            });
            ensure!(!touched, "{node} has no label: {:#?}", history.past(&node));
            continue;
        }
        let reboots = history.outcomes()[&node].boots - 1;
        ensure!(
            reboots == usize::from(left.host != Host::New),
            "{node} was rebooted {reboots} times"
        );
        ensure!(
            !is_rebooted_undrained(&history, &node),
            "{node}: {:#?}",
            history.past(&node)
        );
        if left.stays == Stays::OutOfService {
            let undone = history.has_seen(&node, |seen| seen.has_node && !seen.cordoned);
            ensure!(!undone, "{node}: a person's cordon was undone");
        } else {
            fleet.assert_node_is_clean(&node).await?;
        }
    }
    let most = most_slots(fleet.control_plane.audit().from_start())?;
    ensure!(most == LIMIT, "{most} slots were taken at once");
    let persons = || {
        LEFT.iter()
            .enumerate()
            .filter(|(_, left)| left.stays == Stays::OutOfService)
    };
    for (number, left) in persons() {
        let node = Api::<Node>::all(fleet.client())
            .get(&format!("node-{number}"))
            .await?;
        let (labels, annotations) = (node.labels(), node.annotations());
        let as_before = labels.contains_key(EXCLUDE_FROM_LB_LABEL) == left.excluded
            && !annotations.contains_key(MARKER_ANNOTATION);
        ensure!(as_before, "{}: {labels:?} {annotations:?}", node.name_any());
    }
    // Not of each: an Event may go with the reconciler that was evicted before it had told it.
    let events = fleet.kubectl("get events -A").await?;
    ensure!(events.contains("UpdateAdopted"), "{events}");
    let columns = fleet.kubectl(&format!("get brs -n {NAMESPACE}")).await?;
    let labelled = LEFT
        .iter()
        .filter(|left| left.stays != Stays::Everything)
        .count();
    ensure!(
        columns.contains("REASON") && columns.matches(NEW).count() >= labelled,
        "{columns}"
    );
    fleet.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_a_way_back() -> Result<()> {
    let mut fleet = upstreams(
        By::Apply,
        &[
            LEFT[3],
            Left::v1("Idle", "Idle"),
            Left::v2("Idle", "Idle", Host::Old),
        ],
    )
    .await?;
    let absent = obstacles::AbsentNode::take_down(&fleet, 2).await?;
    take_over(&mut fleet, obstacles::run_despite_obstacles).await?;
    fleet
        .until_node("node-0", "its cordon is adopted", |seen| seen.marked)
        .await?;
    absent.bring_back(&fleet).await?;

    for block in blocks("Back")? {
        fleet.paste(block).await?;
    }
    for node in ["node-0", "node-1", "node-2"] {
        fleet.assert_node_is_clean(node).await?;
    }
    let left = fleet
        .kubectl(&format!("get {OURS} -o name -l {PART_OF}"))
        .await?;
    ensure!(left.is_empty(), "{left}");
    let left = upstream::what_is_left(&fleet.control_plane).await?;
    ensure!(left.is_empty(), "{left:?}");

    By::Apply.installs_it(&fleet.control_plane).await?;
    let crd = crd(&fleet).await?;
    let versions: Vec<_> = crd
        .spec
        .versions
        .iter()
        .map(|version| (version.name.as_str(), version.served))
        .collect();
    ensure!(versions == [("v2", true), ("v1", true)], "{versions:?}");
    ensure!(crd.spec.conversion.context("no conversion")?.strategy == "Webhook");
    // As its agents make them.
    for (number, left) in [(0, Left::v2("Idle", "Idle", Host::New)), (1, LEFT[0])] {
        left.shadow(&fleet, number).await?;
    }
    fleet
        .kubectl(&format!("get brs -n {NAMESPACE} brs-node-0 brs-node-1"))
        .await?;
    fleet
        .control_plane
        .until_rolled_out(NAMESPACE, "daemonset/brupop-agent")
        .await?;

    // And where there is no shadow at all, there is a way here all the same.
    fleet
        .kubectl(&format!("delete brs -n {NAMESPACE} --all"))
        .await?;
    for block in before_ours()?.1 {
        fleet.paste(block).await?;
    }
    let stored = stored_versions(&fleet).await?;
    ensure!(stored == ["v2"], "{stored:?}");
    fleet.control_plane.check()
}

/// Of the nodes that upstream was updating, those with the label have it in the last column.
fn nodes_without_label_are_listed(said: &str) -> Result<()> {
    for (number, left) in LEFT
        .iter()
        .enumerate()
        .filter(|(_, left)| left.wanted != "Idle" && left.reached != "ErrorReset")
    {
        let node = format!("node-{number}");
        let line = said
            .lines()
            .find(|line| line.split_whitespace().next() == Some(node.as_str()));
        let line = line.with_context(|| format!("{node} is not listed: {said}"))?;
        ensure!(
            line.ends_with("2.0.0") != (left.stays == Stays::Everything),
            "{left:?}: {line}"
        );
    }
    Ok(())
}

/// What of ours has no namespace, by a label that all of it has.
const OURS: &str = "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,\
    validatingwebhookconfigurations,flowschemas,prioritylevelconfigurations,priorityclasses,crds,namespaces";
const PART_OF: &str = "app.kubernetes.io/part-of=brupop";

/// A cluster with upstream's operator in it, and with nodes as it leaves them.
async fn upstreams(by: By, left: &[Left]) -> Result<Fleet> {
    let limit = LIMIT.to_string();
    let options = FleetOptions::quick(left.len(), &[("MAX_CONCURRENT_UPDATE", limit.as_str())]);
    let install = async |plane: &ControlPlane, env: &[(&str, &str)]| {
        upstream::install_others(plane).await?;
        by.installs_the_first_crd(plane).await?;
        Ok(programs(env)?
            .into_iter()
            .chain(upstream::programs())
            .collect())
    };
    let mut fleet = Fleet::bare(&options, install).await?;
    for number in 0..left.len() {
        fleet.join(number, options.durations).await?;
    }
    fleet.publish(NEW)?;
    fleet.deploy("cart", 2 * left.len(), "4").await?;
    let numbered = || left.iter().enumerate();
    for (number, left) in numbered().filter(|(_, left)| left.stored == "v1") {
        left.shadow(&fleet, number).await?;
    }
    by.installs_it(&fleet.control_plane).await?;
    for (number, left) in numbered().filter(|(_, left)| left.stored == "v2") {
        left.shadow(&fleet, number).await?;
    }
    for workload in [
        "deployment/brupop-apiserver",
        "deployment/brupop-controller-deployment",
        "daemonset/brupop-agent",
    ] {
        fleet
            .control_plane
            .until_rolled_out(NAMESPACE, workload)
            .await?;
    }
    for (number, left) in numbered() {
        left.on_its_node(&fleet, number).await?;
    }
    let stored = stored_versions(&fleet).await?;
    ensure!(stored == ["v1", "v2"], "{stored:?}");
    let unread = fleet.kubectl(&format!("get brs -n {NAMESPACE}")).await;
    ensure!(
        unread.is_err(),
        "shadows stored as v1 were read, although nobody converts them: {unread:?}"
    );
    Ok(fleet)
}

/// What the document tells people to type under this heading, block by block.
fn blocks(heading: &str) -> Result<Vec<&'static str>> {
    let document: &'static str = read(MIGRATING)?.leak();
    let blocks = documents::blocks(section(document, &format!("## {heading}"))?, "sh");
    ensure!(!blocks.is_empty(), "no commands under {heading}");
    Ok(blocks)
}

/// The commands that install ours, and those before.
fn before_ours() -> Result<(&'static str, Vec<&'static str>)> {
    let mut blocks = blocks("Take over")?;
    Ok((blocks.pop().context("no commands")?, blocks))
}

/// What the document says, to the end. The history begins when shadows can be read again, before ours comes.
async fn take_over(
    fleet: &mut Fleet,
    through: impl AsyncFn(&Fleet, &'static str) -> Result<()>,
) -> Result<()> {
    let (install, before) = before_ours()?;
    for block in before {
        through(fleet, block).await?;
    }
    fleet.watch();
    fleet.paste(install).await?;
    let left = upstream::what_is_left(&fleet.control_plane).await?;
    ensure!(left == upstream::SHARED, "{left:?}");
    let crd = crd(fleet).await?;
    let versions: Vec<_> = crd
        .spec
        .versions
        .iter()
        .map(|version| version.name.as_str())
        .collect();
    let stored = stored_versions(fleet).await?;
    let conversion = crd.spec.conversion.context("no conversion")?;
    ensure!(
        versions == ["v2"] && stored == ["v2"],
        "{versions:?}, stored {stored:?}"
    );
    ensure!(
        conversion.strategy == "None" && conversion.webhook.is_none(),
        "{conversion:?}"
    );
    Ok(())
}

async fn crd(fleet: &Fleet) -> Result<CustomResourceDefinition> {
    Ok(Api::all(fleet.client())
        .get("bottlerocketshadows.brupop.bottlerocket.aws")
        .await?)
}

/// The versions in which shadows may be stored.
pub(crate) async fn stored_versions(fleet: &Fleet) -> Result<Vec<String>> {
    Ok(crd(fleet)
        .await?
        .status
        .and_then(|status| status.stored_versions)
        .unwrap_or_default())
}

/// Was a boot of this node ever followed by another while it was not seen cordoned and empty?
fn is_rebooted_undrained(history: &History, node: &str) -> bool {
    history.past(node).windows(2).any(|pair| {
        let (before, after) = (&pair[0].1, &pair[1].1);
        before.boot_id != after.boot_id
            && !before.boot_id.is_empty()
            && !(before.cordoned && before.drained)
    })
}

/// The most slots that were ever in the ledger: every answer about it that is in the audit log.
fn most_slots(mut audit: AuditReader) -> Result<usize> {
    let slots = audit
        .read()?
        .into_iter()
        .filter(|event| event.is_about("bottlerocketfleets", FLEET));
    let slots = slots.filter_map(|event| {
        let answer = event.response_object?;
        Some(answer["status"]["slots"].as_object()?.len())
    });
    slots.max().context("nobody has written the ledger")
}
