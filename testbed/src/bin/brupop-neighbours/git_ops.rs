//! Engines that apply or compare the objects in Git repeatedly, while the fleet is updated.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::fleet::NEW;
use brupop_testbed::operator::{NAMESPACE, apply_overlay, programs, throw_away_overlay};
use brupop_testbed::run::Check;
use brupop_testbed::{ControlPlane, Fleet, FleetOptions};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::report::{check, rests};

const NODES: usize = 5;

/// The engines' view of an object.
#[derive(Debug, Deserialize)]
struct Line {
    object: String,
    #[serde(default)]
    action: String,
    #[serde(default)]
    modified: bool,
    #[serde(default)]
    diff: String,
}

/// The engine of one of them, and what is in Git.
struct Engine<'a> {
    program: &'static str,
    path: PathBuf,
    control_plane: &'a ControlPlane,
    git: &'a str,
}

impl<'a> Engine<'a> {
    fn new(
        program: &'static str,
        neighbours: &Path,
        control_plane: &'a ControlPlane,
        git: &'a str,
    ) -> Self {
        let path = neighbours.join(program);
        Self {
            program,
            path,
            control_plane,
            git,
        }
    }

    /// Applies or compares everything; returns what was told of each object.
    async fn run(&self) -> Result<Vec<Line>> {
        let mut child = Command::new(&self.path)
            .arg(self.control_plane.kubeconfig())
            .env_clear()
            .env("HOME", self.control_plane.dir())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| self.path.display().to_string())?;
        let mut stdin = child.stdin.take().context("no standard input")?;
        let write = async {
            stdin.write_all(self.git.as_bytes()).await?;
            drop(stdin);
            anyhow::Ok(())
        };
        let (written, output) = tokio::join!(write, child.wait_with_output());
        let Output {
            status,
            stdout,
            stderr,
        } = output?;
        ensure!(
            status.success(),
            "{}: {}",
            self.program,
            String::from_utf8_lossy(&stderr)
        );
        written?;
        let lines = String::from_utf8(stdout)?;
        lines
            .lines()
            .map(|line| Ok(serde_json::from_str(line)?))
            .collect()
    }
}

/// A fleet and its only pool, as people keep them in Git.
const STEERING: &str = r"
apiVersion: brupop.bottlerocket.aws/v1alpha1
kind: BottlerocketFleet
metadata:
  name: fleet
  namespace: brupop-bottlerocket-aws
  annotations: {kustomize.toolkit.fluxcd.io/ssa: Merge}
spec:
  maxUnavailable: 100%
---
apiVersion: brupop.bottlerocket.aws/v1alpha1
kind: BottlerocketPool
metadata:
  name: others
  namespace: brupop-bottlerocket-aws
  annotations: {kustomize.toolkit.fluxcd.io/ssa: Merge}
spec:
  nodeSelector: {}
  priority: 0
  verify: {readyFor: 0s}
";

/// The fleet and its only pool, with all else that ships.
async fn in_git(control_plane: &ControlPlane) -> Result<(PathBuf, String)> {
    let steering = json!({"resources": ["../steering/steering.yaml"]});
    let steering = throw_away_overlay(control_plane, "steering", steering)?;
    std::fs::write(steering.join("steering.yaml"), STEERING)?;
    let kustomization = json!({"resources": ["kustomize/overlays/default", "../steering"]});
    let folder = throw_away_overlay(control_plane, "git", kustomization)?;
    let text = control_plane
        .kubectl(["kustomize".as_ref(), folder.as_os_str()])
        .await?;
    Ok((folder, text))
}

/// Flux: a sync in mid-update changes nothing, and pauses survive it.
pub async fn flux(neighbours: &Path, plugin: &Path) -> Result<Vec<Check>> {
    const PROGRAM: &str = "flux-apply";
    let mut git = String::new();
    let install = async |control_plane: &ControlPlane, env: &[(&str, &str)]| {
        git = in_git(control_plane).await?.1;
        Engine::new(PROGRAM, neighbours, control_plane, &git)
            .run()
            .await?;
        programs(env)
    };
    let fleet = Fleet::start_with(&FleetOptions::quick(NODES, &[]), install).await?;
    let control_plane = &fleet.control_plane;
    let engine = Engine::new(PROGRAM, neighbours, control_plane, &git);
    let mut checks = vec![];

    let paused = async |object: &str| {
        let get = format!("get {object} -n {NAMESPACE} -o jsonpath={{.spec.paused}}");
        anyhow::Ok(fleet.kubectl(&get).await? == "true")
    };
    let patch = async |object: &str, paused: Json| {
        let patch = json!({"spec": {"paused": paused}});
        let words = format!("patch {object} -n {NAMESPACE} --type=merge -p {patch}");
        fleet.kubectl(&words).await
    };
    for (object, arguments) in [
        ("brf/fleet", &["pause"][..]),
        ("brp/others", &["pause", "--pool", "others"]),
    ] {
        for by in ["kubectl brupop", "kubectl patch"] {
            if by == "kubectl brupop" {
                control_plane.run_plugin(plugin, arguments).await?;
            } else {
                patch(object, json!(true)).await?;
            }
            ensure!(paused(object).await?, "{object} is not paused by {by}");
            engine.run().await?;
            let still = paused(object).await?;
            let found = if still { "paused" } else { "undone" };
            let what = format!("{object}, paused by {by}, after a sync: paused");
            checks.push(check(PROGRAM, &what, found, still));
            patch(object, Json::Null).await?;
        }
    }

    let mut changed = vec![];
    let syncs = during_update(&fleet, &engine, |line| {
        if !matches!(line.action.as_str(), "unchanged" | "skipped") {
            changed.push(format!("{} {}", line.object, line.action));
        }
    })
    .await?;
    changed.dedup();
    checks.push(drift(PROGRAM, syncs, &changed));
    checks.push(rests(PROGRAM, control_plane.audit()).await?);
    Ok(checks)
}

/// Argo CD: nothing differs from Git, before, in and after an update.
pub async fn argo_cd(neighbours: &Path) -> Result<Vec<Check>> {
    const PROGRAM: &str = "argocd-diff";
    let mut git = String::new();
    let install = async |control_plane: &ControlPlane, env: &[(&str, &str)]| {
        let (folder, text) = in_git(control_plane).await?;
        git = text;
        // Fleet and pool need their definitions first.
        apply_overlay(control_plane, "default").await?;
        apply_overlay(control_plane, folder).await?;
        programs(env)
    };
    let fleet = Fleet::start_with(&FleetOptions::quick(NODES, &[]), install).await?;
    let control_plane = &fleet.control_plane;
    let engine = Engine::new(PROGRAM, neighbours, control_plane, &git);
    let mut differs = vec![];
    let comparisons = during_update(&fleet, &engine, |line| {
        if line.modified {
            differs.push(format!("{}: {}", line.object, line.diff));
        }
    })
    .await?;
    differs.dedup();
    Ok(vec![drift(PROGRAM, comparisons, &differs)])
}

/// Updates the fleet, and lets the engine go over everything before, meanwhile and after that. Returns how often.
async fn during_update(
    fleet: &Fleet,
    engine: &Engine<'_>,
    mut see: impl FnMut(Line),
) -> Result<usize> {
    engine.run().await?.into_iter().for_each(&mut see);
    fleet.publish(NEW)?;
    let mut times = 1;
    let mut updated = std::pin::pin!(fleet.until_updated(NEW));
    let mut done = false;
    loop {
        let after = done;
        let mut lines = std::pin::pin!(engine.run());
        let lines = loop {
            tokio::select! {
                ended = &mut updated, if !done => {
                    ended?;
                    done = true;
                }
                lines = &mut lines => break lines?,
            }
        };
        times += 1;
        lines.into_iter().for_each(&mut see);
        if after {
            return Ok(times);
        }
    }
}

fn drift(program: &str, times: usize, changed: &[String]) -> Check {
    let found = match changed {
        [] => format!("none in {times} times over all objects"),
        [first, ..] => format!("{} times, the first: {first}", changed.len()),
    };
    check(
        program,
        "drift before, in and after an update: none",
        found,
        changed.is_empty(),
    )
}
