//! `--require-caller-token`: reviews for those who bear a token of this cluster.

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::Options;
use brupop_testbed::operator::{NAMESPACE, apply_overlay};
use serde_json::json;

use crate::serving::Bed;

/// The API server's account for the webhook, without any rights.
const API_SERVER: &str = "api-server";

#[tokio::test(flavor = "multi_thread")]
async fn writes_need_the_api_servers_token_when_required() -> Result<()> {
    let options = Options {
        presents_token: true,
        ..Options::CLUSTER
    };
    let env = [("REQUIRE_CALLER_TOKEN", "true")];
    let bed = Bed::start(options, 1, &["brupop-webhook"], &env, async |plane| {
        apply_overlay(plane, "default").await?;
        plane
            .kubectl(["create", "serviceaccount", API_SERVER, "-n", "kube-system"])
            .await?;
        std::fs::write(
            plane.webhook_token(),
            plane.token("kube-system", API_SERVER).await?,
        )?;
        Ok(())
    })
    .await?;
    let agent = bed.agent().await?;
    agent
        .gets_through("the API server presents its token")
        .await?;

    // The same webhook by a port for which the API server has no token.
    let port = json!([{"op": "add", "path": "/spec/ports/-", "value":
        {"name": "other", "port": 444, "targetPort": "admission", "protocol": "TCP"}}]);
    let patch = port.to_string();
    let service = [
        "patch",
        "service",
        "brupop-webhook",
        "-n",
        NAMESPACE,
        "--type=json",
        "-p",
        patch.as_str(),
    ];
    bed.control_plane.kubectl(service).await?;
    bed.configure("/clientConfig/service/port", json!(444))
        .await?;
    // An API server's words for an answer with 401.
    let said = agent
        .is_refused("the server has asked for the client to provide credentials")
        .await?;
    ensure!(said.contains("failed calling webhook"), "{said}");

    bed.configure("/clientConfig/service/port", json!(443))
        .await?;
    agent.gets_through("with the token again").await?;
    let processes = bed.processes("webhook", 2).await?;
    let reader =
        brupop_testbed::Scraper::start(&bed.control_plane, Some(brupop_testbed::scrape::READER))
            .await?;
    let mut refused = 0;
    for process in &processes {
        let text = reader.scrape(process).await?;
        let line = text
            .lines()
            .find(|line| line.contains("refused_callers_total") && line.contains("unauthenticated"))
            .context("no refusals are told")?;
        refused += line
            .rsplit(' ')
            .next()
            .context("a number")?
            .parse::<u32>()?;
    }
    ensure!(refused > 0);
    Ok(())
}
