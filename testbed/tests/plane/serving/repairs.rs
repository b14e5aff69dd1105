//! Damage to `caBundle` or the Secret is repaired, and told.

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::operator::{NAMESPACE, apply_overlay};
use brupop_testbed::sandbox::Signal;
use brupop_testbed::scrape::{READER, Scraper};
use brupop_testbed::{Options, await_until};
use k8s_openapi::ByteString;
use rcgen::{CertificateParams, KeyPair};
use serde_json::json;

use crate::serving::Bed;

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_ca_bundle_or_secret_is_repaired() -> Result<()> {
    let bed = Bed::start(Options::CLUSTER, &["brupop-webhook"], &[], async |plane| {
        apply_overlay(plane, "default").await.map(drop)
    })
    .await?;
    let agent = bed.agent().await?;
    agent.gets_through("the webhook is there").await?;
    // A replica that still starts would take the damage for a beginning, and count no repair.
    bed.control_plane
        .until_rolled_out(NAMESPACE, "deployment/brupop-webhook")
        .await?;
    let processes = bed.processes("webhook", 2).await?;
    let good = bed.bundle().await?;
    ensure!(!good.is_empty());

    let key = KeyPair::generate()?;
    let elses = CertificateParams::new(vec!["somebody.else".to_owned()])?
        .self_signed(&key)?
        .pem();
    let mut repaired = 0;
    for (says, damage) in [
        ("wiped", String::new()),
        ("somebody else's", elses.clone()),
        ("both", elses),
    ] {
        let mut damage = damage.into_bytes();
        if says == "both" {
            damage.extend(&good);
        }
        bed.configure("/clientConfig/caBundle", json!(ByteString(damage)))
            .await?;
        let as_before = async || (bed.bundle().await.ok()? == good).then_some(());
        await_until(format!("caBundle ({says}) is repaired"), as_before).await?;
        agent.gets_through(says).await?;
        repaired += 1;
        let reader = Scraper::start(&bed.control_plane, Some(READER)).await?;
        let mut told = Vec::new();
        let counted = await_until("the repair is counted", async || {
            told.clear();
            let mut counted = 0;
            for process in &processes {
                let text = reader
                    .scrape(process)
                    .await
                    .unwrap_or_else(|error| format!("{error:#}"));
                let line = text
                    .lines()
                    .find(|line| line.contains("ca_bundle_repairs_total"))
                    .unwrap_or(&text);
                told.push(line.to_owned());
                counted += line.rsplit(' ').next()?.parse::<u32>().ok()?;
            }
            (counted >= repaired).then_some(counted)
        })
        .await;
        let logs = || {
            processes
                .iter()
                .map(|process| bed.control_plane.log(&process.pod))
                .collect::<String>()
        };
        let counted =
            counted.with_context(|| format!("{repaired} repairs, but {told:?}: {}", logs()))?;
        ensure!(counted == repaired, "one of the two repairs it, not both");
    }
    let logs: String = processes
        .iter()
        .map(|process| bed.control_plane.log(&process.pod))
        .collect();
    ensure!(
        logs.contains("somebody else had changed caBundle"),
        "{logs}"
    );

    // Of the Secret, replicas that run need nothing for now; one that starts does.
    let garbage =
        json!({"data": {"generations.json": ByteString(b"[{\"authority\": \"x\"}]".to_vec())}});
    let patch = garbage.to_string();
    let secret = "brupop-webhook-certificates";
    bed.control_plane
        .kubectl(["patch", "secret", secret, "-n", NAMESPACE, "-p", &patch])
        .await?;
    agent.gets_through("while the Secret is damaged").await?;
    let first = processes.first().context("no replica")?;
    bed.kubelets.signal(NAMESPACE, &first.pod, Signal::KILL);
    let renewed = async || {
        let bundle = bed.bundle().await.ok()?;
        (bundle != good && !bundle.is_empty()).then_some(())
    };
    await_until("another authority is published", renewed).await?;
    let served = await_until("both replicas serve by the new one", async || {
        let processes = bed.processes("webhook", 2).await.ok()?;
        let logs = processes
            .iter()
            .map(|process| bed.control_plane.log(&process.pod));
        logs.map(|log| {
            let served = log
                .lines()
                .rfind(|line| line.contains("serving certificate"))?;
            Some(
                served
                    .split("not_after=")
                    .nth(1)?
                    .split(' ')
                    .next()?
                    .to_owned(),
            )
        })
        .collect::<Option<std::collections::BTreeSet<_>>>()
        .filter(|expiries| expiries.len() == 1)
    });
    served.await?;
    agent.gets_through("after the Secret was repaired").await
}
