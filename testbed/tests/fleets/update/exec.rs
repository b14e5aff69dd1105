//! Runs the commands of `kubectl exec` into a reconciler's pod here with a token of its own: so what it asks for is told apart.

use anyhow::{Context as _, Result, ensure};
use brupop_api::names::RECONCILER_ACCOUNT;
use brupop_testbed::audit::Event;
use brupop_testbed::operator::{NAMESPACE, binaries};
use brupop_testbed::{Bearer, DEADLINE, Fleet};
use tokio::process::Command;
use tokio::time::timeout;

/// Runs a subcommand of the reconciler to its end, with a token of the pod's own; what it printed, and whether it went
/// well. It has read, and written nothing.
pub(crate) async fn exec(fleet: &Fleet, arguments: &[&str]) -> Result<(String, bool)> {
    let plane = &fleet.control_plane;
    let pod = fleet
        .processes("reconciler")
        .pop()
        .context("no reconciler")?
        .pod;
    let bearer = Bearer::of_pod(plane, NAMESPACE, RECONCILER_ACCOUNT, &pod).await?;
    let mut audit = plane.audit().from_now();
    let output = Command::new(binaries(&["brupop-reconciler"])?.join("brupop-reconciler"))
        .args(arguments)
        .env_clear()
        .envs(bearer.variables())
        .env("POD_NAME", pod)
        .env("MIN_NODE_AGE_SECONDS", "0")
        .env("SOAK_SECONDS", "0")
        .kill_on_drop(true)
        .output();
    let output = timeout(DEADLINE, output)
        .await
        .context("it does not end")??;
    let mut asked = audit.read()?;
    asked.retain(|event| bearer.asked(event));
    ensure!(
        asked.iter().any(is_a_list_of_shadows),
        "what it asked for is not in the audit log: {asked:?}"
    );
    let reads = |event: &Event| ["get", "list", "watch"].contains(&event.verb.as_str());
    let more: Vec<&Event> = asked
        .iter()
        .filter(|event| !reads(event) || event.code() >= 400)
        .collect();
    ensure!(
        more.is_empty(),
        "it does more than read what it may read: {more:#?}"
    );
    Ok((String::from_utf8(output.stdout)?, output.status.success()))
}

fn is_a_list_of_shadows(event: &Event) -> bool {
    event.object.resource == "bottlerocketshadows"
        && ["list", "watch"].contains(&event.verb.as_str())
}
