//! Two versions of the operator in one cluster: today's, and that of an earlier commit.
//!
//! Both are installed as their manifests say, but for the commands of the earlier one's containers, by which the
//! kubelets tell whose program to run.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::binaries::earlier_operator;
use crate::control_plane::ControlPlane;
use crate::fleet::Fleet;
use crate::kubelet::{PodProcess, Program};
use crate::operator::{NAMESPACE, binaries, programs, rendered, unexpected_warnings};
use crate::waiting::await_until;

const DEADLINE: Duration = Duration::from_mins(2);
const OVERLAY: &str = "kustomize/overlays/default";
/// Stands before the commands of the earlier operator's containers.
const EARLIER: &str = "/earlier";

/// One of the operator's three workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// The `DaemonSet` of the agents.
    Agent,
    /// The Deployment of the reconcilers.
    Reconciler,
    /// The Deployment of the webhook.
    Webhook,
}

impl Component {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Agent, Self::Reconciler, Self::Webhook];

    /// As `kubectl` calls it.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Agent => "daemonset/brupop-agent",
            Self::Reconciler => "deployment/brupop-reconciler",
            Self::Webhook => "deployment/brupop-webhook",
        }
    }

    /// As its pods' label says.
    fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Reconciler => "reconciler",
            Self::Webhook => "webhook",
        }
    }

    /// The workload that an object is, if it is one.
    fn of(object: &Json) -> Option<Self> {
        let kind = object["kind"].as_str()?.to_lowercase();
        let resource = format!("{kind}/{}", object["metadata"]["name"].as_str()?);
        Self::ALL.into_iter().find(|component| component.resource() == resource)
    }
}

/// The default overlay of one version.
#[derive(Clone, Debug)]
pub struct Version {
    name: &'static str,
    objects: Vec<Json>,
    programs: PathBuf,
}

impl Version {
    /// This checkout's.
    ///
    /// # Errors
    /// It cannot be rendered.
    pub async fn today(control_plane: &ControlPlane) -> Result<Self> {
        let repository = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let objects = rendered(control_plane, &repository.join(OVERLAY)).await?;
        Ok(Self { name: "today", objects, programs: todays_programs()? })
    }

    /// The earlier one.
    ///
    /// # Errors
    /// It cannot be built or rendered, or has other workloads than the three.
    pub async fn earlier(control_plane: &ControlPlane) -> Result<Self> {
        let programs = earlier_operator().await?;
        let mut objects = rendered(control_plane, &programs.join(OVERLAY)).await?;
        let mut named = 0;
        for object in objects.iter_mut().filter(|object| Component::of(object).is_some()) {
            let command = &mut object["spec"]["template"]["spec"]["containers"][0]["command"][0];
            *command = json!(format!("{EARLIER}{}", command.as_str().context("no command")?));
            named += 1;
        }
        ensure!(named == Component::ALL.len(), "{named} workloads");
        Ok(Self { name: "earlier", objects, programs })
    }

    /// Applies all of it but the workloads, and these of them.
    ///
    /// # Errors
    /// kubectl fails or warns.
    pub async fn apply(&self, control_plane: &ControlPlane, workloads: &[Component]) -> Result<()> {
        let wanted = |object: &&Json| Component::of(object).is_none_or(|found| workloads.contains(&found));
        let items: Vec<_> = self.objects.iter().filter(wanted).collect();
        let file = list(control_plane, self.name, &items)?;
        let applied =
            control_plane.kubectl_output(["apply".as_ref(), "-f".as_ref(), file.as_os_str()]).await?;
        let warnings = unexpected_warnings(&applied);
        ensure!(
            applied.status.success() && warnings.is_empty(),
            "kubectl apply of {}: {warnings}",
            self.name
        );
        Ok(())
    }

    /// Deletes what this version has and the other one has not.
    ///
    /// # Errors
    /// kubectl fails.
    pub async fn delete_what_is_not_in(&self, other: &Self, control_plane: &ControlPlane) -> Result<()> {
        let name = |object: &Json| (object["kind"].clone(), object["metadata"]["name"].clone());
        let kept: Vec<_> = other.objects.iter().map(name).collect();
        let items: Vec<_> = self.objects.iter().filter(|object| !kept.contains(&name(object))).collect();
        let file = list(control_plane, self.name, &items)?;
        control_plane.kubectl(["delete".as_ref(), "-f".as_ref(), file.as_os_str()]).await?;
        Ok(())
    }

    /// Awaits that these workloads have replaced all of their pods, and that nothing but this version's programs runs for
    /// them any more.
    ///
    /// # Errors
    /// It takes too long.
    pub async fn rolled_out(&self, fleet: &Fleet, workloads: &[Component]) -> Result<()> {
        for workload in workloads {
            let status = ["-n", NAMESPACE, "rollout", "status", "--timeout=120s", workload.resource()];
            fleet.control_plane.kubectl(status).await?;
            // Those that are replaced take their time to end.
            let only = format!("nothing but {} runs for {}", self.name, workload.resource());
            await_until(only, DEADLINE, async || {
                let processes = fleet.processes(workload.as_str());
                let program = |pid| std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
                let ours = |process: &PodProcess| program(process.pid).starts_with(&self.programs);
                (!processes.is_empty() && processes.iter().all(ours)).then_some(())
            })
            .await?;
        }
        Ok(())
    }
}

fn list(control_plane: &ControlPlane, name: &str, items: &[&Json]) -> Result<PathBuf> {
    let file = control_plane.dir().join(format!("{name}.json"));
    std::fs::write(&file, json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string())?;
    Ok(file)
}

/// What runs for the containers of both versions. `env` as in [`programs`].
///
/// # Errors
/// The earlier programs cannot be built, or today's are not.
pub async fn programs_of_both(env: &[(&str, &str)]) -> Result<Vec<(String, Program)>> {
    let earlier = programs(&earlier_operator().await?, env)
        .into_iter()
        .map(|(command, program)| (format!("{EARLIER}{command}"), Program { kubeconfig: true, ..program }));
    Ok(programs(&todays_programs()?, env).into_iter().chain(earlier).collect())
}

fn todays_programs() -> Result<PathBuf> {
    Ok(binaries(&["brupop-agent", "brupop-reconciler", "brupop-webhook"])?.canonicalize()?)
}
