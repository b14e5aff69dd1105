//! `make image CHECK=true`: do the programs of an unpacked image find and trust an API server, with nothing around them but
//! the image and what a kubelet mounts into a pod? A real API server is asked by its name, from within the image's root.

mod name_server;
mod pod;

use anyhow::{Context as _, Error, Result, bail, ensure};
use brupop_testbed::operator::apply_overlay;
use brupop_testbed::{ControlPlane, Options, make_nodes, run};
use clap::Parser;
use pod::{API_SERVER, Pod};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitCode;

/// The API server's name in a cluster's name server. Pods find it only by their search list.
const FULL_NAME: &str = "kubernetes.default.svc.cluster.local";

/// Runs the programs of an unpacked image against a real API server that they know by name. Needs root.
#[derive(Debug, Parser)]
struct Arguments {
    /// The image's root; what a kubelet mounts is written into it
    root: PathBuf,
}

#[tokio::main]
async fn main() -> ExitCode {
    run::run(async { check(&Arguments::parse()).await.map(|()| ExitCode::SUCCESS) }).await
}

async fn check(arguments: &Arguments) -> Result<()> {
    let plane = ControlPlane::start(Options::API).await?;
    apply_overlay(&plane, "default").await?;
    make_nodes(&plane.client(), 1).await?;
    // An address of this machine on which nobody else serves names.
    let [.., high, low] = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, 77, high, low);
    let pod = Pod::new(&arguments.root, &plane, address)?;
    pod.bears_token_of("brupop-reconciler").await?;

    fails_for("failed to lookup address", pod.plan().await?)?;
    pod.has_hosts(&format!("127.0.0.1 localhost {API_SERVER}"))?;
    pod.plan()
        .await?
        .map_err(Error::msg)
        .context("by /etc/hosts")?;
    pod.has_hosts("127.0.0.1 localhost")?;

    let _answering = name_server::serve(address, FULL_NAME).await?;
    pod.plan()
        .await?
        .map_err(Error::msg)
        .context("by the name server")?;

    pod.trusts(
        &rcgen::generate_simple_self_signed(["another".to_owned()])?
            .cert
            .pem(),
    )?;
    fails_for("invalid peer certificate", pod.plan().await?)?;

    pod.trusts(&std::fs::read_to_string(
        &plane.server().certificate_authority,
    )?)?;
    for program in ["brupop-agent", "brupop-webhook"] {
        pod.bears_token_of(program).await?;
        pod.reaches_the_api_server(program).await?;
    }
    println!(
        "names are found by name server, search list and /etc/hosts; only the pod's own authority is trusted"
    );
    Ok(())
}

fn fails_for(reason: &str, result: Result<(), String>) -> Result<()> {
    let Err(said) = result else {
        bail!("this should have failed: {reason}")
    };
    ensure!(said.contains(reason), "not because of '{reason}': {said}");
    Ok(())
}
