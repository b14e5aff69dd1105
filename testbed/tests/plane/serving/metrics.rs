//! `/metrics` is for those who may read it.

use anyhow::{Result, ensure};
use brupop_testbed::operator::{NAMESPACE, apply_overlay};
use brupop_testbed::scrape::{READER, Scraper};
use brupop_testbed::{Options, await_until};

use crate::serving::Bed;

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_for_those_who_may_read_them() -> Result<()> {
    let bed = Bed::start(
        Options::CLUSTER,
        1,
        &["brupop-webhook", "brupop-reconciler"],
        &[],
        async |plane| apply_overlay(plane, "default").await.map(drop),
    )
    .await?;
    // The webhook has something to serve when an agent gets through.
    bed.agent()
        .await?
        .gets_through("the webhook is there")
        .await?;
    let reader = Scraper::start(&bed.control_plane, Some(READER)).await?;
    let stranger = Scraper::start(&bed.control_plane, None).await?;
    for (component, metric) in [
        ("webhook", "brupop_webhook_reviews_total"),
        ("reconciler", "brupop_leader"),
    ] {
        let processes = bed.processes(component, 2).await?;
        let mut told = String::new();
        for process in &processes {
            let ready = async || (reader.status(process).await.ok()? == 200).then_some(());
            await_until(format!("{} can be scraped", process.pod), ready).await?;
            for (says, scraper, expected) in [
                ("no token", &Scraper::without_token(), 401),
                ("a made-up token", &Scraper::with_token("made-up"), 401),
                ("an account that may not", &stranger, 403),
                ("an account that may", &reader, 200),
            ] {
                let status = scraper.status(process).await?;
                ensure!(status == expected, "{}: {says}: {status}", process.pod);
            }
            let text = reader.scrape(process).await?;
            let refused = |reason, count| {
                text.lines().any(|line| {
                    line.contains("refused_scrapes_total")
                        && line.contains(reason)
                        && line.ends_with(count)
                })
            };
            ensure!(
                refused("unauthenticated", " 2") && refused("forbidden", " 1"),
                "{text}"
            );
            for port in ["health", "metrics"] {
                let dropped = format!(r#"dropped_connections_total{{port="{port}"}} 0"#);
                ensure!(text.contains(&dropped), "{text}");
            }
            told += &text;

            // The plain port is the kubelet's, and tells nothing else.
            let page = async |path: &str| {
                let path = format!(
                    "/api/v1/namespaces/{NAMESPACE}/pods/{}:8080/proxy/{path}",
                    process.pod
                );
                bed.control_plane.kubectl(["get", "--raw", &path]).await
            };
            ensure!(page("livez").await? == "ok\n");
            ensure!(
                page("metrics")
                    .await
                    .is_err_and(|error| error.to_string().contains("NotFound"))
            );
        }
        ensure!(told.contains(metric), "{told}");
    }
    Ok(())
}
