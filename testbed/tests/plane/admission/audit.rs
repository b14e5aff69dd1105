//! What the API server's audit log tells of refusals, and of agents that are none.

use anyhow::{Context as _, Result, ensure};
use brupop_admission_cases::{Ask, Row, Verdict};
use brupop_testbed::audit::{AuditLog, Event};

/// Both refusals leave their lines in the API server's audit log, with who, whose and why.
pub fn refusals_are_in_the_audit_log(events: &[Event]) -> Result<()> {
    let line = |shadow: &str, word: &str| {
        events
            .iter()
            .find(|event| {
                let status = event.response_status.as_ref();
                event.code() == 403
                    && event.is_about("bottlerocketshadows", shadow)
                    && status.is_some_and(|status| status.message.contains(word))
            })
            .with_context(|| format!("{shadow}: no line with {word} in the audit log"))
    };
    let by_policy = line("brs-node-1", "agent-own-node")?;
    ensure!(by_policy.user.extra["authentication.kubernetes.io/node-name"] == ["node-0"], "{by_policy:?}");
    let noted = by_policy.annotations.get("validation.policy.admission.k8s.io/validation_failure");
    ensure!(noted.is_some_and(|noted| noted.contains("agent-own-node")), "{by_policy:?}");

    let by_webhook = line("brs-node-0", "agent-claim")?;
    let note = |key: &str| {
        by_webhook.annotations.get(&format!("shadows.brupop.bottlerocket.aws/{key}")).map(String::as_str)
    };
    ensure!(note("rule") == Some("agent-claim") && note("node") == Some("node-0"), "{by_webhook:?}");
    ensure!(note("changed") == Some("status.reboot_requested"), "{by_webhook:?}");
    ensure!(note("diff").is_some_and(|diff| diff.contains("/status/reboot_requested")), "{by_webhook:?}");
    Ok(())
}

/// The lines that the audit log has had since, but for those of bodies that are too deep to be read.
pub fn events(log: &AuditLog, since: usize) -> Result<Vec<Event>> {
    let log = std::fs::read(log.path())?;
    let lines = log.get(since..).context("the log is shorter than it was")?.split(|byte| *byte == b'\n');
    Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

/// An agent that an administrator impersonates looks like the real one to all gates; the audit log knows better.
pub fn impersonation_is_in_the_audit_log(events: &[Event], namespace: &str) -> Result<()> {
    let agent = format!("system:serviceaccount:{namespace}:brupop-agent");
    let told = |event: &Event, code: u16, nodes: &[&str]| {
        let node = "authentication.kubernetes.io/node-name";
        let impersonated = event.impersonated_user.as_ref().filter(|user| user.username == agent);
        event.is_about("bottlerocketshadows", "brs-node-0")
            && event.code() == code
            && event.user.username == "admin"
            && impersonated.and_then(|user| user.extra.get(node)).is_some_and(|names| names == nodes)
    };
    let passed = events.iter().find(|event| told(event, 200, &["node-0"]));
    let passed = passed.context("no line of the impersonated agent's write")?;
    let rule = passed.annotations.get("shadows.brupop.bottlerocket.aws/rule");
    ensure!(rule.is_some_and(|rule| rule == "agent-report"), "{passed:?}");
    let refused = events.iter().any(|event| told(event, 403, &["node-0", "node-1"]));
    ensure!(refused, "no line of the agent that was impersonated with two nodes");
    Ok(())
}

/// The log names the rule of each row that came before the gates: of a refusal in the answer, of what was let through in
/// the webhook's annotation. Rows call themselves by what they say.
///
/// Of nearly all: the API server may first try with a stale object from its cache, ask the webhook about that, and ask
/// again with a fresh one. Its log keeps the first annotations. The answer is the last one's, and that is the row's.
pub fn rules_are_in_the_audit_log(events: &[Event], table: &[Row]) -> Result<()> {
    let (mut named, mut stale) = (0, Vec::new());
    for row in table.iter().filter(|row| row.is_for_the_api_server() && row.ask.is_about_a_shadow()) {
        // What is too deep cannot be read here; accounts of other namespaces are asked about by nobody.
        if matches!(row.ask, Ask::Text(_)) || row.actor.account().is_none() {
            continue;
        }
        let line = || {
            let event = events.iter().find(|event| event.user_agent == row.says);
            event.with_context(|| format!("no line of: {}", row.says))
        };
        match row.verdict {
            Verdict::Allowed if row.rule().is_some() => {
                let noted = line()?.annotations.get("shadows.brupop.bottlerocket.aws/rule");
                let noted = noted.with_context(|| format!("{}: no annotation", row.says))?;
                if row.rule() == Some(noted) { named += 1 } else { stale.push((&row.says, noted)) }
            }
            Verdict::ByWebhook(rule) | Verdict::ByBoth(rule) => {
                let event = line()?;
                let status = event.response_status.as_ref();
                ensure!(
                    status.is_some_and(|status| status.message.contains(rule)),
                    "{}: {event:?}",
                    row.says
                );
                named += 1;
            }
            _ => {}
        }
    }
    println!("the audit log names the rules of {named} rows, and another of {}: {stale:?}", stale.len());
    ensure!(named >= 150 && stale.len() * 20 < named, "of too many rows another rule is named");
    Ok(())
}
