//! Certificates are rotated and replicas are restarted in turn while agents report: no report is lost to that.

use anyhow::{Context as _, Result, ensure};
use brupop_api::{BottlerocketShadow, names};
use brupop_testbed::kubelet::is_ready;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::{ControlPlane, Options, agents, await_until};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value as Json, from_value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::serving::Bed;

const AGENTS: usize = 8;
const REPORTS: usize = 5_000;
const ROTATIONS: usize = 5;
const RESTARTS: usize = 4;
/// One report in mid-request may be cut off in this many restarts. A replica that ends asks for eight seconds that nobody comes
/// back over the same connection, and then closes those that were not used; on one of these the API server may have begun to
/// write at that very moment. It sends again what it had not begun to write, and nothing else.
const CUT_OFF_ONCE_IN: usize = 10;
/// A third before its end a certificate is renewed: every 12 seconds. Between two rotations API servers keep their
/// connections, and what was replaced in the meantime lingers to its end.
const LIFETIME: &str = "18s";
/// Between two reports of an agent: all of them take about as long as the rotations.
const PACE: Duration = Duration::from_millis(70);

/// An agent that reports on its node by its pod's token. Its client tries nothing twice.
struct Agent {
    shadows: Api<BottlerocketShadow>,
    name: String,
    uid: String,
    generation: i64,
}

impl Agent {
    async fn of(control_plane: &ControlPlane, node: &Node) -> Result<Self> {
        let shadow = agents::idle_shadow(control_plane, node).await?;
        let name = shadow.name_any();
        let all = Api::<BottlerocketShadow>::namespaced(control_plane.client(), NAMESPACE);
        let status =
            Patch::Merge(json!({"status": {"current_state": "Idle", "current_version": "1.19.4"}}));
        all.patch_status(&name, &PatchParams::default(), &status)
            .await?;
        let token = agents::token(control_plane, &node.name_any()).await?;
        let shadows = Api::namespaced(
            control_plane.impatient_client(Some(&token)).await?,
            NAMESPACE,
        );
        let (uid, generation) = (shadow.uid(), shadow.metadata.generation);
        Ok(Self {
            shadows,
            name,
            uid: uid.context("uid")?,
            generation: generation.context("generation")?,
        })
    }

    /// As the agent sends it: with tests.
    async fn report(&self, message: &str) -> Result<(), kube::Error> {
        let patch: Json = json!([
            {"op": "test", "path": "/metadata/uid", "value": self.uid},
            {"op": "test", "path": "/metadata/generation", "value": self.generation},
            {"op": "add", "path": "/status/message", "value": message},
        ]);
        let patch = Patch::<()>::Json(from_value(patch).map_err(kube::Error::SerdeError)?);
        self.shadows
            .patch_status(&self.name, &PatchParams::default(), &patch)
            .await
            .map(drop)
    }

    /// Reports until it is told to end; every report that did not get through, but for those that were cut off.
    async fn go_on(self, done: Arc<Done>, enough: Arc<AtomicBool>) -> Vec<String> {
        let mut failed = Vec::new();
        let mut ticks = interval(PACE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let began = Instant::now();
        for n in 0_usize.. {
            ticks.tick().await;
            if enough.load(Ordering::Relaxed) {
                break;
            }
            match self.report(&format!("report {n}")).await {
                Ok(()) => drop(done.reports.fetch_add(1, Ordering::Relaxed)),
                Err(error) if is_cut_off(&error) => {
                    println!("{}: {error}", self.name);
                    done.cut_off.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    let at = began.elapsed().as_secs_f32();
                    failed.push(format!("{} after {at:.1} s: {error}", self.name));
                }
            }
        }
        failed
    }
}

/// Numbers of agents' reports, and of those that were cut off.
#[derive(Default)]
struct Done {
    reports: AtomicUsize,
    cut_off: AtomicUsize,
}

/// Whether the API server had begun to write when the connection ended.
fn is_cut_off(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    status.message.contains("failed to call webhook")
        && status.message.ends_with("write: broken pipe")
}

fn of(component: &str) -> ListParams {
    ListParams::default().labels(&format!("{}={component}", names::COMPONENT_LABEL))
}

/// Restarts replicas as people do, and notes which processes there were.
struct Restarts<'a> {
    bed: &'a Bed,
    pods: Api<Pod>,
    seen: BTreeSet<u32>,
}

impl Restarts<'_> {
    /// One round: all of them by a rolling update, then one more by hand.
    async fn round(&mut self) -> Result<()> {
        let (plane, deployment) = (&self.bed.control_plane, "deployment/brupop-webhook");
        plane
            .kubectl(["-n", NAMESPACE, "rollout", "restart", deployment])
            .await?;
        plane.until_rolled_out(NAMESPACE, deployment).await?;
        let ready = self.two_are_ready(None).await?;
        let first = ready.first().context("no replica")?;
        plane
            .kubectl(["-n", NAMESPACE, "delete", "pod", first, "--wait=false"])
            .await?;
        self.two_are_ready(Some(first)).await?;
        Ok(())
    }

    /// Names of two replicas that are ready and stay.
    async fn two_are_ready(&mut self, without: Option<&str>) -> Result<Vec<String>> {
        let ready = await_until("two replicas are ready", async || {
            let pods = self.pods.list(&of("webhook")).await.ok()?;
            let ready = |pod: &Pod| pod.metadata.deletion_timestamp.is_none() && is_ready(pod);
            let names = pods.iter().filter(|pod| ready(pod)).map(Pod::name_any);
            let names: Vec<_> = names
                .filter(|name| without != Some(name.as_str()))
                .collect();
            (names.len() == 2).then_some(names)
        });
        let ready = ready.await?;
        self.seen.extend(self.running());
        Ok(ready)
    }

    fn running(&self) -> BTreeSet<u32> {
        let processes = self.bed.kubelets.processes().into_iter();
        processes.map(|process| process.pid).collect()
    }

    /// Processes that have come to their end.
    fn ended(&self) -> usize {
        self.seen.difference(&self.running()).count()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_report_is_lost_during_rotations_and_restarts() -> Result<()> {
    let env = [("CERTIFICATE_LIFETIME", LIFETIME)];
    let bed = Bed::webhook(Options::CLUSTER, AGENTS, &env).await?;
    let control_plane = &bed.control_plane;
    let mut agents = Vec::new();
    for node in &bed.nodes {
        agents.push(Agent::of(control_plane, node).await?);
    }
    let mut restarts = Restarts {
        bed: &bed,
        pods: Api::namespaced(control_plane.client(), NAMESPACE),
        seen: BTreeSet::new(),
    };
    restarts.two_are_ready(None).await?;
    for agent in &agents {
        await_until("the first report", async || agent.report("here").await.ok()).await?;
    }

    let mut audit = control_plane.audit().from_now();
    let (done, enough) = (Arc::new(Done::default()), Arc::new(AtomicBool::new(false)));
    let mut reporting = JoinSet::new();
    for agent in agents {
        reporting.spawn(agent.go_on(Arc::clone(&done), Arc::clone(&enough)));
    }
    let (began, mut rotations, mut reports) = (Instant::now(), 0, 0);
    while reports < REPORTS || rotations < ROTATIONS || restarts.ended() < RESTARTS {
        // The authorities by which API servers know the webhook; each rotation begins with another one.
        let known = bed.bundle().await?;
        restarts.round().await?;
        await_until("a rotation", async || {
            bed.bundle().await.ok().filter(|bundle| *bundle != known)
        })
        .await?;
        rotations += 1;
        let more = done.reports.load(Ordering::Relaxed);
        ensure!(more > reports, "{reports} reports, and no more in a round");
        reports = more;
    }
    let restarted = restarts.ended();
    enough.store(true, Ordering::Relaxed);
    let failed = reporting.join_all().await.concat();
    let (done, cut_off) = (
        done.reports.load(Ordering::Relaxed),
        done.cut_off.load(Ordering::Relaxed),
    );
    println!(
        "{done} reports, {cut_off} cut off, {rotations} rotations, {restarted} restarts in {:.0} s",
        began.elapsed().as_secs_f32()
    );
    ensure!(
        failed.is_empty(),
        "{} reports failed:\n{}",
        failed.len(),
        failed.join("\n")
    );
    ensure!(
        cut_off * CUT_OFF_ONCE_IN <= restarted,
        "{cut_off} reports were cut off in {restarted} restarts"
    );

    // The API server's own account of it: each one was reviewed by the webhook, and stored.
    let events = audit.read()?;
    let reports = events.iter().filter(|event| {
        event.user.username == format!("system:serviceaccount:{NAMESPACE}:brupop-agent")
            && event.verb == "patch"
    });
    let reviewed = reports.clone().filter(|event| {
        let rule = event
            .annotations
            .get("shadows.brupop.bottlerocket.aws/rule");
        event.code() == 200 && rule.is_some_and(|rule| rule == "agent-report")
    });
    let (asked, reviewed) = (reports.count(), reviewed.count());
    ensure!(
        (asked, reviewed) == (done + cut_off, done),
        "{done} reports, {asked} in the audit log, {reviewed} reviewed"
    );
    Ok(())
}
