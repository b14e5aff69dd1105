//! Proof that our admission rules are in force: dry-run writes that only they refuse.

use brupop_api::BottlerocketShadow;
use brupop_api::names::canary::{NODE_ANNOTATION, POLICY_RULE, STATUS_MESSAGE, WEBHOOK_RULE};
use brupop_runtime::errors::{describe, status_message};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use kube::core::{PartialObjectMeta, Status};
use kube::{Client, Error};
use serde_json::json;

/// The answer to a dry-run write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Met {
    /// Our own rule refused it.
    Refusal,
    /// It was let through, or refused by something else: this.
    Else(String),
    /// No answer, or one that says nothing about the rule.
    Nothing(String),
}

/// The answers to both dry-run writes.
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

    /// Is an answer missing, while the other shows no rule to be out of force? Then the finding before stays valid for
    /// a while.
    pub fn is_unknown(&self) -> bool {
        let both = [&self.webhook, &self.policy];
        both.iter().any(|met| matches!(met, Met::Nothing(_)))
            && !both.iter().any(|met| matches!(met, Met::Else(_)))
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
    Finding { webhook: met(status.map(drop), is_our_webhook), policy: met(node.map(drop), is_our_policy) }
}

/// `admission webhook "<name>" denied the request: <rule> (<field>): …`
fn is_our_webhook(message: &str) -> bool {
    ["admission webhook", "denied", WEBHOOK_RULE].iter().all(|part| message.contains(part))
}

/// `… ValidatingAdmissionPolicy '<name>' with binding '<name>' denied request: <rule>: …`
fn is_our_policy(message: &str) -> bool {
    ["ValidatingAdmissionPolicy", "denied", POLICY_RULE].iter().all(|part| message.contains(part))
}

fn met(answer: Result<(), Error>, ours: impl Fn(&str) -> bool) -> Met {
    match answer {
        Ok(()) => Met::Else("it was let through".to_owned()),
        Err(Error::Api(status)) => refusal(&status, ours),
        Err(error) => Met::Nothing(describe(&error)),
    }
}

fn refusal(status: &Status, ours: impl Fn(&str) -> bool) -> Met {
    match status.code {
        400..500 if ours(&status.message) => Met::Refusal,
        // The object is gone, or the server is too busy: this says nothing about the rule.
        404 | 429 | 503 | 504 => Met::Nothing(status_message(status).into_owned()),
        // This includes 500, "failed calling webhook": no write gets past it, but then no write of an update would,
        // either.
        _ => Met::Else(status_message(status).into_owned()),
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
        let webhook = |answer| met(answer, is_our_webhook);
        let denied = |by: &str, rule: &str| {
            status(
                403,
                &format!(r#"admission webhook "{by}" denied the request: {rule} (status.message): x"#),
            )
        };
        assert_eq!(
            webhook(denied("shadows.brupop.bottlerocket.aws", "reconciler-conditions-only")),
            Met::Refusal
        );
        assert!(matches!(
            webhook(denied("shadows.brupop.bottlerocket.aws", "agent-own-fields")),
            Met::Else(_)
        ));
        assert!(matches!(webhook(denied("no-dry-runs.example.org", "ask the platform team")), Met::Else(_)));
        assert!(matches!(webhook(Ok(())), Met::Else(_)));
        assert!(matches!(webhook(status(403, "User cannot patch resource")), Met::Else(_)));
        assert!(matches!(webhook(status(500, "failed calling webhook: connection refused")), Met::Else(_)));
        assert!(matches!(webhook(status(404, "not found")), Met::Nothing(_)));
        assert!(matches!(webhook(status(429, "too many requests")), Met::Nothing(_)));

        let policy = |rule: &str| {
            let message = format!(
                r#"nodes "n" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: {rule}: x"#
            );
            met(status(403, &message), is_our_policy)
        };
        assert_eq!(policy("reconciler-node-annotations"), Met::Refusal);
        assert!(matches!(policy("nodes-are-frozen"), Met::Else(_)));
    }

    #[test]
    fn the_policy_that_is_shipped_says_the_rule() {
        let shipped = include_str!("../../manifests/reconciler-policy.yaml");
        assert!(shipped.contains(&format!("{POLICY_RULE}: ")), "{POLICY_RULE}");
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
    }

    #[test]
    fn bad_news_of_one_half_is_no_less_known_for_a_silent_other() {
        let nothing = || Met::Nothing("timeout".into());
        let through = || Met::Else("it was let through".into());
        for (webhook, policy, unknown) in [
            (nothing(), nothing(), true),
            (Met::Refusal, nothing(), true),
            (nothing(), Met::Refusal, true),
            (through(), nothing(), false),
            (nothing(), through(), false),
            (Met::Refusal, through(), false),
            (Met::Refusal, Met::Refusal, false),
        ] {
            let finding = Finding { webhook, policy };
            assert_eq!(finding.is_unknown(), unknown, "{finding:?}");
        }
    }
}
