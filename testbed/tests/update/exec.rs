//! What `kubectl exec` into a reconciler's pod would run: there is no kubelet to ask, so it is run here, as that pod is.

use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use brupop_api::names::RECONCILER_ACCOUNT;
use brupop_testbed::audit::{AuditReader, Event};
use brupop_testbed::operator::{NAMESPACE, binaries};
use brupop_testbed::{Bearer, Fleet, await_progress};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::DEADLINE;

/// A subcommand of the reconciler, which runs with a token of the pod's own.
pub(crate) struct Exec<'f> {
    fleet: &'f Fleet,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    bearer: Bearer,
    audit: AuditReader,
}

impl<'f> Exec<'f> {
    /// Starts it.
    pub(crate) async fn start(fleet: &'f Fleet, arguments: &[&str]) -> Result<Self> {
        let plane = &fleet.control_plane;
        let pod = fleet.processes("reconciler").pop().context("no reconciler")?.pod;
        let token = plane.bound_token(NAMESPACE, RECONCILER_ACCOUNT, &pod).await?;
        let bearer = Bearer::of(plane, &token, NAMESPACE).await?;
        let audit = plane.audit().from_now();
        let mut child = Command::new(binaries(&["brupop-reconciler"])?.join("brupop-reconciler"))
            .args(arguments)
            .env_clear()
            .env("KUBECONFIG", bearer.kubeconfig())
            .env("POD_NAME", pod)
            .env("MIN_NODE_AGE_SECONDS", "0")
            .env("SOAK_SECONDS", "0")
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
        Ok(Self { fleet, child, lines, bearer, audit })
    }

    /// Awaits the next line that it prints; `None` at the end. It may wait as long as the fleet moves.
    pub(crate) async fn line(&mut self) -> Result<Option<String>> {
        let Self { fleet, lines, .. } = self;
        let progress = || fleet.history().last_change();
        let next = async || Some(lines.next_line().await);
        Ok(await_progress("another line of it", DEADLINE, progress, next).await??)
    }

    /// Awaits its end; what it still prints, and whether it went well. It has read, and written nothing.
    pub(crate) async fn end(mut self) -> Result<(String, bool)> {
        let mut text = String::new();
        while let Some(line) = self.line().await? {
            text += &line;
            text.push('\n');
        }
        let status = timeout(DEADLINE, self.child.wait()).await.context("it does not end")??;
        let mut asked = self.audit.read()?;
        asked.retain(|event| self.bearer.asked(event));
        ensure!(
            asked.iter().any(is_a_list_of_shadows),
            "what it asked for is not in the audit log: {asked:?}"
        );
        let reads = |event: &Event| ["get", "list", "watch"].contains(&event.verb.as_str());
        let more: Vec<&Event> = asked.iter().filter(|event| !reads(event) || event.code() >= 400).collect();
        ensure!(more.is_empty(), "it does more than read what it may read: {more:#?}");
        Ok((text, status.success()))
    }
}

/// Runs it to its end.
pub(crate) async fn exec(fleet: &Fleet, arguments: &[&str]) -> Result<(String, bool)> {
    Exec::start(fleet, arguments).await?.end().await
}

fn is_a_list_of_shadows(event: &Event) -> bool {
    let object = event.object_ref.as_ref();
    object.is_some_and(|object| object.resource == "bottlerocketshadows")
        && ["list", "watch"].contains(&event.verb.as_str())
}
