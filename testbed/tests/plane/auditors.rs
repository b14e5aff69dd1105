//! Tests that the audit log has the lines that `docs/security.md` shows.

use crate::raw;
use anyhow::{Context as _, Result, ensure};
use brupop_api::BottlerocketShadow;
use brupop_testbed::documents::{SECURITY, read};
use brupop_testbed::operator::{NAMESPACE, apply_overlay, only};
use brupop_testbed::{ControlPlane, Kubelets, Options, agents, await_until, make_nodes};
use http::Method;
use k8s_openapi::api::core::v1::Node;
use kube::Resource as _;
use kube::{Client, ResourceExt as _};
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};

const POLICY: &str = "validation.policy.admission.k8s.io/validation_failure";

/// The JSON that the document shows, by the second word behind its fence: ` ```json refused-by-webhook`.
fn shown(document: &str) -> Result<BTreeMap<String, Json>> {
    let mut blocks = document.split("\n```json ").skip(1).map(|block| {
        let (name, rest) = block.split_once('\n').context("no line behind a fence")?;
        let (json, _) = rest
            .split_once("\n```")
            .context("a fence that stays open")?;
        Ok((
            name.to_owned(),
            serde_json::from_str(json).with_context(|| name.to_owned())?,
        ))
    });
    blocks.by_ref().collect()
}

struct Bed {
    control_plane: ControlPlane,
    agent: Client,
    nodes: Vec<Node>,
}

impl Bed {
    fn status(node: usize) -> String {
        format!(
            "{}/brs-node-{node}/status",
            BottlerocketShadow::url_path(&(), Some(NAMESPACE))
        )
    }

    /// An agent's token, and a shadow for each node.
    async fn new(control_plane: ControlPlane, nodes: Vec<Node>) -> Result<Self> {
        let token = agents::token(&control_plane, "node-0").await?;
        let agent = control_plane.client_for_token(&token).await?;
        for node in &nodes {
            agents::idle_shadow(&control_plane, node).await?;
        }
        Ok(Self {
            control_plane,
            agent,
            nodes,
        })
    }

    async fn as_agent(&self, node: usize, status: Json) -> Result<Json, kube::Error> {
        raw::request(
            &self.agent,
            Method::PATCH,
            &Self::status(node),
            &json!({"status": status}),
        )
        .await
    }

    /// An administrator pretends to be the agent on node-0.
    async fn as_if_agent(&self, status: Json) -> Result<()> {
        let uid = self.nodes[0].uid().context("no UID")?;
        let account = format!("system:serviceaccount:{NAMESPACE}:brupop-agent");
        let mut request = http::Request::patch(Self::status(0))
            .header("content-type", "application/merge-patch+json");
        for (key, value) in [
            ("user", account.as_str()),
            ("group", "system:authenticated"),
            ("group", "system:serviceaccounts"),
        ] {
            request = request.header(format!("impersonate-{key}"), value);
        }
        let extra = [
            ("node-name", "node-0"),
            ("node-uid", uid.as_str()),
            ("pod-name", "pod"),
            ("pod-uid", "uid"),
        ];
        for (claim, value) in extra {
            request = request.header(
                format!("impersonate-extra-authentication.kubernetes.io%2f{claim}"),
                value,
            );
        }
        let request = request.body(json!({"status": status}).to_string().into_bytes())?;
        self.control_plane
            .client()
            .request::<Json>(request)
            .await
            .context("impersonated")?;
        Ok(())
    }

    /// Does something, and returns the line that it leaves.
    async fn line(&self, code: u64, does: impl AsyncFnOnce() -> Result<()>) -> Result<Json> {
        let path = self.control_plane.audit().path().to_owned();
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
}

#[tokio::test(flavor = "multi_thread")]
async fn documented_audit_lines_match_the_audit_log() -> Result<()> {
    // By the audit policy that people are told to have.
    let document: &'static str = read(SECURITY)?.leak();
    let audit_policy: Option<&'static str> = Some(read("docs/audit-policy.yaml")?.leak());
    let control_plane = ControlPlane::start(Options {
        audit_policy,
        ..Options::CLUSTER
    })
    .await?;
    apply_overlay(&control_plane, "default").await?;
    let nodes = make_nodes(&control_plane.client(), 2).await?;
    let _kubelets = Kubelets::start(&control_plane, only(&["brupop-webhook"], &[])?);
    let bed = Bed::new(control_plane, nodes).await?;
    let report = json!({"current_state": "Idle", "current_version": "1.19.4", "boot_id": "b1"});
    await_until("the webhook answers", async || {
        bed.as_agent(0, report.clone()).await.ok()
    })
    .await?;

    let refused = async |node: usize, status: Json, rule: &str| {
        let message = bed
            .as_agent(node, status)
            .await
            .err()
            .map(|error| error.to_string());
        let message = message.context("it was let through")?;
        ensure!(message.contains(rule), "{message}");
        Ok(())
    };
    let claim = json!({"reboot_claimed_boot_id": "b1"});
    let lie = json!({"current_version": "6.6.6"});
    let found = BTreeMap::from([
        (
            "refused-by-webhook",
            bed.line(403, async || refused(0, claim, "agent-claim").await)
                .await?,
        ),
        (
            "refused-by-policy",
            bed.line(403, async || refused(1, lie, "agent-own-node").await)
                .await?,
        ),
        (
            "impersonated",
            bed.line(200, async || bed.as_if_agent(json!({"message": "m"})).await)
                .await?,
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
