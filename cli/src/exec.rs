//! `plan`: the reconciler's own subcommand, run in the pod that leads, for it depends on that pod's settings.

use brupop_api::crds::MESSAGE_MAX;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, AttachParams, AttachedProcess};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::Error;
use crate::access::Right;
use crate::arguments::Output;
use crate::gather::OperatorApi;
use crate::page::write_out;
use crate::words::shown;

/// The container of a reconciler's pod.
const CONTAINER: &str = "reconciler";
/// What it is asked to run.
const COMMAND: [&str; 4] = ["/brupop-reconciler", "plan", "--output", "json"];
/// From Kubernetes 1.35 on `create` is asked for, before that `get`.
const RIGHT: &str = "get and create";
/// Most bytes of an answer: a plan of 5,000 nodes has less than half of it.
const ANSWER_MAX: u64 = 16 << 20;

/// Prints the plan of the reconciler that leads.
pub(crate) async fn plan(server: &OperatorApi, output: Output) -> Result<(), Error> {
    let pod = server.leader().await?;
    let pods: Api<Pod> = server.ours();
    let words = if output == Output::Table {
        &COMMAND[..2]
    } else {
        &COMMAND[..]
    };
    let streams = AttachParams {
        container: Some(CONTAINER.to_owned()),
        ..AttachParams::default()
    };
    let process = pods.exec(&pod, words.iter().copied(), &streams).await;
    let process = process.map_err(|error| Right::of(RIGHT, &pods).below("exec").failed(error))?;
    let said = finish(process).await.map_err(|why| Error::Plan {
        pod: pod.clone(),
        why,
    })?;
    match output {
        Output::Table | Output::Json => write_out(&escaped(&said)),
        Output::Yaml => write_out(&serde_yaml_ng::to_string(&serde_json::from_str::<Value>(
            &said,
        )?)?),
    }
}

/// What the process wrote to standard output; `Err` is what it says is wrong.
async fn finish(mut process: AttachedProcess) -> Result<String, String> {
    let (status, out, err) = (process.take_status(), process.stdout(), process.stderr());
    let (out, err) = tokio::join!(read(out), read(err));
    let ended = match status {
        Some(status) => status.await,
        None => None,
    };
    match ended {
        Some(status) if status.status.as_deref() == Some("Success") => Ok(out),
        Some(status) if err.trim().is_empty() => {
            Err(shown(&status.message.unwrap_or_default(), MESSAGE_MAX))
        }
        Some(_) => Err(shown(err.trim(), MESSAGE_MAX)),
        None => Err("the connection ended before the program did".to_owned()),
    }
}

async fn read(stream: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = vec![];
    if let Some(stream) = stream {
        // What has arrived before an error is worth to be shown; how the program ended says whether it is all.
        let _ = stream.take(ANSWER_MAX).read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The text in its lines, with all else escaped that would drive a terminal.
fn escaped(text: &str) -> String {
    text.split('\n')
        .map(|line| shown(line, usize::MAX))
        .collect::<Vec<_>>()
        .join("\n")
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
