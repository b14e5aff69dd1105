//! Proof that our admission rules are in force: dry-run writes that only they refuse.

use std::pin::pin;

use brupop_api::item::IdentityOnly;
use brupop_api::names;
use brupop_api::names::canary::{NODE_ANNOTATION, POLICY_RULE, STATUS_MESSAGE, WEBHOOK_RULE};
use brupop_api::{BottlerocketShadow, Item};
use brupop_runtime::errors::{describe, status_message};
use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use kube::core::Status;
use kube::{Client, Error};
use serde_json::json;

/// On so many objects the writes are tried at most, as long as the answers say nothing about our rules.
const TRIED_ON: usize = 3;

/// The answer to a dry-run write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Met {
    /// Our own rule refused it.
    Refusal,
    /// It was let through.
    Nobody,
    /// Something else refused it: this.
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

impl crate::checks::Finding for Finding {
    fn holds(&self) -> Result<(), String> {
        let sentence = |rule: &str, met: &Met| match met {
            Met::Refusal => None,
            Met::Nobody => Some(format!("{rule} did not refuse the dry run: the request was allowed")),
            Met::Else(what) => Some(format!("{rule} did not refuse the dry run: {what}")),
            Met::Nothing(why) => Some(format!("it is not known whether {rule} is enforced: {why}")),
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

    /// Is an answer missing, while the other shows no rule to be out of force?
    fn is_unknown(&self) -> bool {
        let both = [&self.webhook, &self.policy];
        both.iter().any(|met| matches!(met, Met::Nothing(_)))
            && !both.iter().any(|met| matches!(met, Met::Else(_) | Met::Nobody))
    }
}

/// Makes both dry-run writes on the shadows and the Nodes of these names, in their order, until an answer says something
/// about our rules. An object may be such that no write of it gets as far as them: a stolen node sees to that for its own.
pub async fn try_out(client: Client, namespace: String, nodes: Vec<String>) -> Finding {
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    let message = Patch::Merge(json!({"status": {"message": STATUS_MESSAGE}}));
    let annotation = Patch::Merge(json!({"metadata": {"annotations": {NODE_ANNOTATION: "refuse me"}}}));
    let shadows = Api::<Item<IdentityOnly<BottlerocketShadow>>>::namespaced(client.clone(), &namespace);
    let nodes_api = Api::<Item<IdentityOnly<Node>>>::all(client);
    let (shadows, nodes_api, params, message, annotation) =
        (&shadows, &nodes_api, &params, &message, &annotation);
    let webhook = stream::iter(nodes.clone()).then(|node| async move {
        let answer = shadows.patch_status(&names::shadow_name(&node), params, message).await;
        met(answer.map(drop), is_our_webhook)
    });
    let policy = stream::iter(nodes).then(|node| async move {
        met(nodes_api.patch(&node, params, annotation).await.map(drop), is_our_policy)
    });
    let (webhook, policy) = tokio::join!(first_conclusive(webhook), first_conclusive(policy));
    Finding { webhook, policy }
}

/// Nodes to try the writes on: a few, from all over the list, and others each time.
pub fn spread<'n>(nodes: &[&'n str], number: usize) -> Vec<&'n str> {
    let tried = nodes.len().min(TRIED_ON);
    (0..tried).map(|nth| nodes[(number + nth * nodes.len() / tried) % nodes.len()]).collect()
}

/// The first answer that is our rule's refusal, or that shows it not to be in force; else the first of the others, for
/// those after it are most likely the same.
async fn first_conclusive(answers: impl Stream<Item = Met>) -> Met {
    let (mut answers, mut other) = (pin!(answers), None);
    while let Some(answer) = answers.next().await {
        match answer {
            met @ (Met::Refusal | Met::Nobody) => return met,
            met => drop(other.get_or_insert(met)),
        }
    }
    other.unwrap_or_else(|| Met::Nothing("there is no node for the dry runs".to_owned()))
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
        Ok(()) => Met::Nobody,
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
    use crate::checks::Finding as _;

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
        assert_eq!(webhook(Ok(())), Met::Nobody);
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

    #[tokio::test]
    async fn one_odd_object_says_nothing_of_the_rules() {
        let odd = || Met::Else("the cost limit is exceeded".into());
        let first = |answers: [Met; 3]| first_conclusive(stream::iter(answers));
        assert_eq!(first([odd(), Met::Refusal, Met::Nobody]).await, Met::Refusal);
        assert_eq!(first([odd(), Met::Nobody, Met::Refusal]).await, Met::Nobody);
        assert_eq!(first([odd(), Met::Nothing(String::new()), odd()]).await, odd());
    }

    #[test]
    fn other_nodes_are_tried_each_time() {
        let nodes = ["a", "b", "c", "d", "e", "f"];
        assert_eq!(spread(&nodes, 0), ["a", "c", "e"]);
        assert_eq!(spread(&nodes, 7), ["b", "d", "f"]);
        assert_eq!(spread(&nodes[..2], 1), ["b", "a"]);
        assert_eq!(spread(&[], 1), [""; 0]);
    }

    #[test]
    fn the_policy_that_is_shipped_says_the_rule() {
        let shipped = include_str!("../../manifests/reconciler-policy.yaml");
        assert!(shipped.contains(&format!("{POLICY_RULE}: ")), "{POLICY_RULE}");
    }

    #[test]
    fn both_rules_must_be_in_force() {
        let finding = |webhook, policy| Finding { webhook, policy };
        let through = || Met::Nobody;
        assert_eq!(finding(Met::Refusal, Met::Refusal).holds(), Ok(()));
        let why = finding(through(), Met::Refusal).holds().unwrap_err();
        assert!(why.contains("webhook") && !why.contains("Policy"), "{why}");
        let why = finding(Met::Refusal, through()).holds().unwrap_err();
        assert!(why.contains("ValidatingAdmissionPolicy"), "{why}");
    }

    #[test]
    fn bad_news_of_one_half_is_enough() {
        let nothing = || Met::Nothing("timeout".into());
        let through = || Met::Nobody;
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
