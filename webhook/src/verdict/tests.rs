//! The table of cases, row by row, on the verdict alone. On the API server it is run by the test bed.

use super::{Change, Rule, ShadowRequest, Verdict, agent, verdict};
use brupop_admission_cases::{review, table};
use brupop_api::definitions;
use serde::Deserialize as _;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn judge(review: &Value) -> Verdict {
    let request: ShadowRequest = serde_json::from_value(review["request"].clone()).unwrap();
    verdict(&request, &Change::of(&request))
}

/// Whether a verdict is by this rule, and a refusal tells a person its field and more.
fn fits(verdict: &Verdict, rule: &str) -> bool {
    let allows = ["agent-report", "reconciler-steer", "outsider"].contains(&rule);
    let tells = verdict.outcome.as_ref().map_or_else(
        |refusal| {
            let (sentence, field) = (refusal.to_string(), refusal.field.as_str());
            let begins = if field.is_empty() {
                format!("{rule}: ")
            } else {
                format!("{rule} ({field}): ")
            };
            let says = sentence.strip_prefix(&begins);
            let known = fields(refusal.rule);
            let names = known.contains(&field) || (known == ["*"] && !field.is_empty());
            !allows && names && says.is_some_and(|says| says.len() > 10)
        },
        |_| allows,
    );
    verdict.rule().as_str() == rule && tells
}

/// The fields that a refusal by this rule may name; `*` stands for any, the empty one for the request as a whole.
fn fields(rule: Rule) -> &'static [&'static str] {
    match rule {
        Rule::AgentReport | Rule::ReconcilerSteer | Rule::Outsider => &[],
        Rule::AgentIdentity
        | Rule::ReconcilerCheck
        | Rule::AgentStatusOnly
        | Rule::WebhookNothing
        | Rule::UnknownAccount
        | Rule::UnknownKind
        | Rule::UnknownRequest => &[""],
        Rule::AgentOwnNode => &["metadata.name"],
        Rule::AgentNodeUid | Rule::ReconcilerOwner => &["metadata.ownerReferences"],
        Rule::AgentOwnFields | Rule::ReconcilerMetadata => &["*"],
        Rule::AgentAttempt => &["status.attempt"],
        Rule::AgentTransition => &["status.current_state"],
        Rule::AgentClaim => &["status.reboot_claimed_boot_id"],
        Rule::ReconcilerCreate => &["metadata.ownerReferences", "spec.state"],
        Rule::ReconcilerTransition => &["spec.state"],
        Rule::ReconcilerAttempt => &["spec.attempt", "spec.version", "spec.baseline_boot_id"],
        Rule::ReconcilerGrant => &["spec.reboot_granted_boot_id"],
        Rule::Unreadable => &["spec", "status"],
    }
}

#[test]
fn every_row_is_decided_by_its_rule() {
    let (mut names, mut rules) = (BTreeSet::new(), BTreeSet::new());
    let mut failures = Vec::new();
    for row in table() {
        assert!(names.insert(row.says.clone()), "twice: {}", row.says);
        let Some(review) = review(&row) else { continue };
        let (rule, verdict) = (row.rule().unwrap_or("no rule"), judge(&review));
        if !fits(&verdict, rule) {
            failures.push(format!("{}: not {rule}, but {verdict:?}", row.says));
        }
        rules.insert(rule);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(rules, Rule::ALL.map(Rule::as_str).into());
}

/// Each field of a status but the reconciler's two is an agent's, for the webhook and for the policy.
#[test]
fn agents_fields_are_those_of_the_type() {
    let shadow = json!(definitions::all()[0]);
    let schema = &shadow["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let fields = schema["properties"]["status"]["properties"]
        .as_object()
        .unwrap();
    let mut fields: BTreeSet<_> = fields.keys().map(String::as_str).collect();
    for theirs in ["pool", "conditions"] {
        assert!(fields.remove(theirs), "{theirs}");
    }
    assert_eq!(fields, agent::OWN_FIELDS.into());
    let policies = include_str!("../../../manifests/policies.yaml");
    let policy = serde_yaml_ng::Deserializer::from_str(policies)
        .map(|document| Value::deserialize(document).unwrap())
        .find(|policy| policy["metadata"]["name"] == "brupop-agent")
        .unwrap();
    let variables = policy["spec"]["variables"].as_array().unwrap();
    let own = variables
        .iter()
        .find(|variable| variable["name"] == "own")
        .unwrap();
    let own: Vec<String> = serde_yaml_ng::from_str(own["expression"].as_str().unwrap()).unwrap();
    assert_eq!(own, agent::OWN_FIELDS);
}

#[test]
fn a_refused_state_is_answered_with_those_that_are_allowed() {
    let mut goals = BTreeSet::new();
    for row in table() {
        let Some(review) = review(&row) else { continue };
        let refused = judge(&review).outcome.err();
        let Some(refusal) = refused.filter(|refusal| refusal.rule == Rule::AgentTransition) else {
            continue;
        };
        let goal = row.spec["state"].as_str().unwrap();
        let allowed = match goal {
            "Idle" => "Idle only",
            goal => &format!("{goal} or ErrorReset"),
        };
        let says = format!("the spec asks for {goal}, so it may become {allowed}");
        let sentence = refusal.to_string();
        assert!(sentence.ends_with(&says), "{}: {sentence}", row.says);
        goals.insert(goal.to_owned());
    }
    assert!(goals.len() >= 4, "{goals:?} only");
}

#[test]
fn a_dry_run_makes_no_difference() {
    for row in table() {
        let Some(mut review) = review(&row) else {
            continue;
        };
        let verdict = judge(&review);
        review["request"]["dryRun"] = Value::Bool(!row.dry_run);
        assert_eq!(judge(&review), verdict, "{}", row.says);
    }
}
