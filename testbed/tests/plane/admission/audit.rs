//! What the API server's audit log tells of the rows. What its lines look like is in the test of docs/security.md.

use anyhow::{Context as _, Result, ensure};
use brupop_admission_cases::{Row, Verdict};
use brupop_testbed::audit::Event;

/// The log names the rule of each row that came before the gates: of a refusal in the answer, of what was let through in
/// the webhook's annotation. Rows call themselves by what they say.
///
/// Of nearly all: the API server may first try with a stale object from its cache, ask the webhook about that, and ask
/// again with a fresh one. Its log keeps the first annotations. The answer is the last one's, and that is the row's.
pub fn rules_are_in_the_audit_log(events: &[Event], table: &[Row]) -> Result<()> {
    let (mut named, mut stale) = (0, Vec::new());
    for row in table.iter().filter(|row| row.is_for_the_api_server()) {
        // Accounts of other namespaces are asked about by nobody.
        if row.actor.account().is_none() {
            continue;
        }
        let line = || {
            let event = events.iter().find(|event| event.user_agent == row.says);
            event.with_context(|| format!("no line of: {}", row.says))
        };
        match row.verdict {
            Verdict::Allowed if row.rule().is_some() => {
                let noted = line()?
                    .annotations
                    .get("shadows.brupop.bottlerocket.aws/rule");
                let noted = noted.with_context(|| format!("{}: no annotation", row.says))?;
                if row.rule() == Some(noted) {
                    named += 1;
                } else {
                    stale.push((&row.says, noted));
                }
            }
            Verdict::ByWebhook(rule) | Verdict::ByBoth(rule) => {
                let event = line()?;
                ensure!(event.message().contains(rule), "{}: {event:?}", row.says);
                named += 1;
            }
            _ => {}
        }
    }
    println!(
        "the audit log names the rules of {named} rows, and another of {}: {stale:?}",
        stale.len()
    );
    ensure!(
        named >= 150 && stale.len() * 20 < named,
        "of too many rows another rule is named"
    );
    Ok(())
}
