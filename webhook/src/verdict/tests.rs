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

/// Returns what is wrong with a verdict, if anything is: another rule, or a refusal that tells a person nothing.
fn wrong(verdict: &Verdict, rule: &str, says: &str) -> Option<String> {
    let allows = ["agent-report", "reconciler-steer", "outsider"].contains(&rule);
    let fits = verdict.rule().as_str() == rule && verdict.outcome.is_ok() == allows;
    let sentence = verdict
        .outcome
        .as_ref()
        .err()
        .map(ToString::to_string)
        .unwrap_or_default();
    let field = verdict
        .outcome
        .as_ref()
        .err()
        .map(|refusal| refusal.field.as_str())
        .unwrap_or_default();
    let names = fields(verdict.rule())
        .iter()
        .any(|known| match known.strip_suffix('*') {
            Some(half) => field.starts_with(half) && field.len() > half.len(),
            None => field == *known,
        });
    let begins = if field.is_empty() {
        format!("{rule}: ")
    } else {
        format!("{rule} ({field}): ")
    };
    let tells =
        allows || (sentence.starts_with(&begins) && sentence.len() > begins.len() + 10 && names);
    (!fits || !tells).then(|| format!("{says}: not {rule}, but {:?}", verdict.outcome))
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
        Rule::AgentManagedFields => &["metadata.managedFields"],
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
        let rule = row.rule().unwrap_or("no rule");
        failures.extend(wrong(&judge(&review), rule, &row.says));
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
        let Err(refusal) = judge(&review).outcome else {
            continue;
        };
        if refusal.rule != Rule::AgentTransition {
            continue;
        }
        let goal = review["request"]["object"]["spec"]["state"]
            .as_str()
            .unwrap();
        let allowed = if goal == "Idle" {
            "Idle only".to_owned()
        } else {
            format!("{goal} or ErrorReset")
        };
        let says = format!("the spec asks for {goal}, so it may become {allowed}");
        assert!(
            refusal.to_string().ends_with(&says),
            "{}: {refusal}",
            row.says
        );
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
