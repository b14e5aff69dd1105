//! Proof that our admission rules are in force: dry-run writes that only they refuse.

use brupop_api::BottlerocketShadow;
use brupop_api::names::canary::{NODE_ANNOTATION, STATUS_MESSAGE};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use kube::core::{PartialObjectMeta, Status};
use kube::{Client, Error};
use serde_json::json;

/// What a dry-run write met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Met {
    /// Our own rule refused it.
    Refusal,
    /// Something else: this.
    Else(String),
    /// No answer that tells.
    Nothing(String),
}

/// What both dry-run writes met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The one that only the webhook refuses.
    pub webhook: Met,
    /// The one that only the policy refuses.
    pub policy: Met,
}

impl Finding {
    /// Are our rules in force?
    ///
    /// # Errors
    /// What was seen instead, in a sentence.
    pub fn enforced(&self) -> Result<(), String> {
        let sentence = |rule: &str, met: &Met| match met {
            Met::Refusal => None,
            Met::Else(what) => Some(format!("{rule} did not refuse what it must: {what}")),
            Met::Nothing(why) => Some(format!("whether {rule} is in force is not known: {why}")),
        };
        let missing = [
            sentence("the validating webhook", &self.webhook),
            sentence("the ValidatingAdmissionPolicy of the reconciler", &self.policy),
        ];
        match missing.into_iter().flatten().collect::<Vec<_>>() {
            sentences if sentences.is_empty() => Ok(()),
            sentences => Err(sentences.join("; ")),
        }
    }

    /// Was there no answer to either? Then what was found before stands for a while.
    pub fn is_unknown(&self) -> bool {
        matches!(self.webhook, Met::Nothing(_)) || matches!(self.policy, Met::Nothing(_))
    }
}

/// Makes both dry-run writes, on a shadow and a Node that exist.
pub async fn try_out(client: Client, namespace: String, shadow: String, node: String) -> Finding {
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    let message = Patch::Merge(json!({"status": {"message": STATUS_MESSAGE}}));
    let annotation = Patch::Merge(json!({"metadata": {"annotations": {NODE_ANNOTATION: "refuse me"}}}));
    let shadows = Api::<PartialObjectMeta<BottlerocketShadow>>::namespaced(client.clone(), &namespace);
    let nodes = Api::<PartialObjectMeta<Node>>::all(client);
    let (status, node) = tokio::join!(
        shadows.patch_status(&shadow, &params, &message),
        nodes.patch(&node, &params, &annotation)
    );
    Finding {
        webhook: met(status.map(drop), |message| {
            message.contains("admission webhook") && message.contains("denied")
        }),
        policy: met(node.map(drop), |message| {
            message.contains("ValidatingAdmissionPolicy") && message.contains("denied")
        }),
    }
}

fn met(answer: Result<(), Error>, ours: impl Fn(&str) -> bool) -> Met {
    match answer {
        Ok(()) => Met::Else("it was let through".to_owned()),
        Err(Error::Api(status)) => refusal(&status, ours),
        Err(error) => Met::Nothing(error.to_string()),
    }
}

fn refusal(status: &Status, ours: impl Fn(&str) -> bool) -> Met {
    match status.code {
        400..500 if ours(&status.message) => Met::Refusal,
        // Not there any more, or too much to do: nothing is told.
        404 | 429 | 503 | 504 => Met::Nothing(status.message.clone()),
        // 500 "failed calling webhook": nothing gets past it, but nothing of an update would, either.
        _ => Met::Else(status.message.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_of_our_own_rule_counts() {
        let status = |code, message: &str| {
            Err(Error::Api(Status { code, message: message.into(), ..Status::default() }.boxed()))
        };
        let webhook = |answer| {
            met(answer, |message| message.contains("admission webhook") && message.contains("denied"))
        };
        let denied =
            r#"admission webhook "shadows.brupop.bottlerocket.aws" denied the request: agent-own-fields"#;
        assert_eq!(webhook(status(403, denied)), Met::Refusal);
        assert!(matches!(webhook(Ok(())), Met::Else(_)));
        assert!(matches!(webhook(status(403, "User cannot patch resource")), Met::Else(_)));
        assert!(matches!(webhook(status(500, "failed calling webhook: connection refused")), Met::Else(_)));
        assert!(matches!(webhook(status(404, "not found")), Met::Nothing(_)));
        assert!(matches!(webhook(status(429, "too many requests")), Met::Nothing(_)));
    }

    #[test]
    fn both_rules_must_be_in_force() {
        let finding = |webhook, policy| Finding { webhook, policy };
        let through = || Met::Else("it was let through".into());
        assert_eq!(finding(Met::Refusal, Met::Refusal).enforced(), Ok(()));
        let why = finding(through(), Met::Refusal).enforced().unwrap_err();
        assert!(why.contains("webhook") && !why.contains("Policy"), "{why}");
        let why = finding(Met::Refusal, through()).enforced().unwrap_err();
        assert!(why.contains("ValidatingAdmissionPolicy"), "{why}");
        assert!(finding(Met::Refusal, Met::Nothing("timeout".into())).is_unknown());
    }
}
