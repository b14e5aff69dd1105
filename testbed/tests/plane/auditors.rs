//! Tests that the audit log has the lines that `docs/security.md` shows.

use crate::raw;
use crate::serving::Bed;
use anyhow::{Context as _, Result, ensure};
use brupop_api::BottlerocketShadow;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::read;
use brupop_testbed::{Options, agents, await_until};
use http::Method;
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};

const AGENT: &str = "system:serviceaccount:brupop-bottlerocket-aws:brupop-agent";
const POLICY: &str = "validation.policy.admission.k8s.io/validation_failure";

/// The JSON that the document shows, by the second word behind its fence: ` ```json refused-by-webhook`.
fn shown(document: &str) -> Result<BTreeMap<String, Json>> {
    let blocks = document.split("\n```json ").skip(1).map(|block| {
        let (name, rest) = block.split_once('\n').context("no line behind a fence")?;
        let (json, _) = rest
            .split_once("\n```")
            .context("a fence that stays open")?;
        Ok((name.to_owned(), serde_json::from_str(json)?))
    });
    blocks.collect()
}

fn status(node: usize) -> String {
    let shadows = BottlerocketShadow::url_path(&(), Some(NAMESPACE));
    format!("{shadows}/brs-node-{node}/status")
}

/// An administrator pretends to be the agent on node-0.
async fn as_if_agent(bed: &Bed) -> Result<()> {
    const TOLD: &str = "extra-authentication.kubernetes.io%2f";
    let uid = bed.nodes[0].uid().context("no UID")?;
    let mut request =
        http::Request::patch(status(0)).header("content-type", "application/merge-patch+json");
    for (key, value) in [
        ("user", AGENT),
        ("group", "system:authenticated"),
        ("group", "system:serviceaccounts"),
        (&format!("{TOLD}node-name"), "node-0"),
        (&format!("{TOLD}node-uid"), &uid),
        (&format!("{TOLD}pod-name"), "pod"),
        (&format!("{TOLD}pod-uid"), "uid"),
    ] {
        request = request.header(format!("impersonate-{key}"), value);
    }
    let request = request.body(json!({"status": {"message": "m"}}).to_string().into())?;
    let client = bed.control_plane.client();
    let answer = client.request::<Json>(request).await;
    answer.map(drop).context("impersonated")
}

/// Does something, and returns the line that it leaves.
async fn line(bed: &Bed, code: u64, does: impl AsyncFnOnce() -> Result<()>) -> Result<Json> {
    let path = bed.control_plane.audit().path().to_owned();
    let before = std::fs::metadata(&path)?.len();
    does().await?;
    let text = std::fs::read(&path)?;
    let text = String::from_utf8_lossy(&text[usize::try_from(before)?..]).into_owned();
    let lines = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Json>(line).ok());
    let mut ours = lines.filter(|line| {
        line["objectRef"]["resource"] == "bottlerocketshadows"
            && line["verb"] == "patch"
            && line["responseStatus"]["code"] == code
    });
    ours.next().context("no line in the audit log")
}

#[tokio::test(flavor = "multi_thread")]
async fn documented_audit_lines_match_the_audit_log() -> Result<()> {
    // By the audit policy that people are told to have.
    let document: &'static str = read("docs/security.md")?.leak();
    let audit_policy: Option<&'static str> = Some(read("docs/audit-policy.yaml")?.leak());
    let options = Options {
        audit_policy,
        ..Options::CLUSTER
    };
    let bed = Bed::webhook(options, 2, &[]).await?;
    for node in &bed.nodes {
        agents::idle_shadow(&bed.control_plane, node).await?;
    }
    let token = agents::token(&bed.control_plane, "node-0").await?;
    let agent = bed.control_plane.client_for_token(&token).await?;
    let report = async |node: usize, fields: &Json| {
        let body = json!({"status": fields});
        raw::request(&agent, Method::PATCH, &status(node), &body).await
    };
    let first = json!({"current_state": "Idle", "current_version": "1.19.4", "boot_id": "b1"});
    await_until("the webhook answers", async || report(0, &first).await.ok()).await?;

    let refused = async |node: usize, fields: Json, rule: &str| {
        let error = report(node, &fields).await.err();
        let message = error.context("it was let through")?.to_string();
        ensure!(message.contains(rule), "{message}");
        Ok(())
    };
    let claim = json!({"reboot_claimed_boot_id": "b1"});
    let lie = json!({"current_version": "6.6.6"});
    let by_webhook = line(&bed, 403, async || refused(0, claim, "agent-claim").await);
    let by_webhook = by_webhook.await?;
    // Until the API server knows the policy, the webhook refuses it.
    await_until("the policy is in force", async || {
        let refusal = report(1, &lie).await.err()?.to_string();
        refusal.contains("ValidatingAdmissionPolicy").then_some(())
    })
    .await?;
    let by_policy = line(&bed, 403, async || refused(1, lie, "agent-own-node").await);
    let found = BTreeMap::from([
        ("refused-by-webhook", by_webhook),
        ("refused-by-policy", by_policy.await?),
        (
            "impersonated",
            line(&bed, 200, async || as_if_agent(&bed).await).await?,
        ),
    ]);
    let shown = shown(document)?;
    ensure!(
        shown.keys().eq(found.keys()),
        "shown: {:?}, made: {:?}",
        shown.keys(),
        found.keys()
    );
    for (name, line) in &found {
        let (said, made) = (&shown[*name], line);
        for at in [
            "/verb",
            "/objectRef/name",
            "/responseStatus/code",
            "/impersonatedUser/username",
        ] {
            let [said, made] = [said, made].map(|line| line.pointer(at));
            ensure!(said == made, "{name}: {at}: {made:?}");
        }
        let keys = |line: &Json| {
            let annotations = line["annotations"].as_object().into_iter().flatten();
            annotations
                .map(|(key, _)| key.clone())
                .collect::<BTreeSet<_>>()
        };
        ensure!(keys(said) == keys(made), "{name}: {made:#}");
        // What is explained is the same.
        let ours = |key: &String| key == POLICY || key.starts_with("shadows.brupop.");
        for key in keys(made).iter().filter(|key| ours(key)) {
            let [said, made] = [said, made].map(|line| &line["annotations"][key]);
            ensure!(said == made, "{name}: {key}: {made:#}");
        }
    }
    Ok(())
}
