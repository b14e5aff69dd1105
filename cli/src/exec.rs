//! `plan`: the reconciler's own subcommand, run in its pod by `kubectl exec`, because the answer depends on its settings.

use std::io::ErrorKind;

use brupop_api::crds::MESSAGE_MAX;
use serde_json::Value;
use tokio::process::Command;

use crate::arguments::{Output, Target};
use crate::error::Error;
use crate::gather::OperatorApi;
use crate::leads::Leads;
use crate::page::write_out;
use crate::words::shown;

/// The command that kubectl runs in a pod of the Deployment.
const PLAN: &str =
    "deploy/brupop-reconciler --container=reconciler -- /brupop-reconciler plan --output";

/// Prints the plan of the reconciler.
///
/// # Errors
/// No reconciler leads, or kubectl is not in `PATH`, or it fails; its own words say why.
pub(crate) async fn plan(
    server: &OperatorApi,
    target: &Target,
    now: bool,
    output: Output,
) -> Result<(), Error> {
    let leads = server.leads().await;
    if let (Leads::No(_), Some(warning)) = (&leads, leads.warning()) {
        return Err(Error::Plan(warning));
    }
    let format = match output {
        Output::Table => "table",
        Output::Json | Output::Yaml => "json",
    };
    let (mut kubectl, flags) = (Command::new("kubectl"), target.kubectl());
    kubectl
        .arg("exec")
        .args(flags)
        .args(PLAN.split(' '))
        .arg(format)
        .args(now.then_some("--now"));
    let ended = kubectl.kill_on_drop(true).output().await;
    let ended = ended.map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::Plan("kubectl is not in PATH".to_owned()),
        _ => error.into(),
    })?;
    if !ended.status.success() {
        let why = String::from_utf8_lossy(&ended.stderr);
        return Err(Error::Plan(shown(why.trim(), 4 * MESSAGE_MAX)));
    }
    let plan = String::from_utf8_lossy(&ended.stdout);
    match output {
        Output::Table | Output::Json => write_out(&escaped(&plan)),
        Output::Yaml => write_out(&serde_yaml_ng::to_string(&serde_json::from_str::<Value>(
            &plan,
        )?)?),
    }
}

/// Returns the text in its lines, with everything else escaped that drives a terminal.
fn escaped(text: &str) -> String {
    let lines = text.split('\n').map(|line| shown(line, usize::MAX));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_line_breaks_stay() {
        assert_eq!(
            escaped("NODE\tX\n\u{1b}[2Jnode-0 é\r\n"),
            "NODE\\tX\n\\u{1b}[2Jnode-0 é\\r\n"
        );
    }
}
