//! `plan`: the reconciler's own subcommand, run in its pod by `kubectl exec`, because the answer depends on its settings.

use std::io::ErrorKind;

use brupop_api::crds::{MESSAGE_MAX, NAME_MAX};
use serde::Serialize;
use serde_json::Value;
use tokio::process::Command;

use crate::arguments::Target;
use crate::error::Error;
use crate::gather::OperatorApi;
use crate::leads::Leads;
use crate::page::{Page, View};
use crate::table::{Cell, facts, section};
use crate::words::shown;

/// The command that kubectl runs in a pod of the Deployment.
const PLAN: &str = "deploy/brupop-reconciler --container=reconciler -- /brupop-reconciler plan";

/// The plan of the reconciler as it prints it, fit to be shown.
#[derive(Debug, Serialize)]
pub(crate) struct Plan(Value);

/// Returns the plan of the reconciler.
///
/// # Errors
/// No reconciler leads, or kubectl is not in `PATH`, or it fails; its own words say why.
pub(crate) async fn plan(server: &OperatorApi, target: &Target, now: bool) -> Result<Plan, Error> {
    let leads = server.leads().await;
    if let (Leads::No(_), Some(warning)) = (&leads, leads.warning()) {
        return Err(Error::Plan(warning));
    }
    let mut kubectl = Command::new("kubectl");
    kubectl.arg("exec").args(target.kubectl());
    kubectl.args(PLAN.split(' ')).args(now.then_some("--now"));
    let ended = kubectl.kill_on_drop(true).output().await;
    let ended = ended.map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::Plan("kubectl is not in PATH".to_owned()),
        _ => error.into(),
    })?;
    if !ended.status.success() {
        let why = String::from_utf8_lossy(&ended.stderr);
        return Err(Error::Plan(shown(why.trim(), 4 * MESSAGE_MAX)));
    }
    let plan = serde_json::from_slice(&ended.stdout);
    plan.map(|plan| Plan(clean(plan)))
        .map_err(|error| Error::Plan(error.to_string()))
}

impl View for Plan {
    fn text(&self, page: &Page) -> String {
        let list = |key: &str| self.0[key].as_array().into_iter().flatten();
        let lines = |key, label| list(key).map(move |it| (label, text(it), None));
        let slots = format!("{} of {}", text(&self.0["inUse"]), text(&self.0["limit"]));
        let head = [("Slots in use:", slots, None)].into_iter();
        let head = head
            .chain(lines("held", "Held now:"))
            .chain(lines("halted", "Halted:"));
        let rows = list("nodes").map(|row| {
            let keys = [
                "node", "pool", "version", "target", "next", "reason", "message",
            ];
            let cells = keys.map(|key| page.sentence(&text(&row[key])));
            cells.map(Cell::new).to_vec()
        });
        let ranks = [0, 4, 1, 2, 0, 0, 3];
        let columns = "NODE|POOL|FROM|TO|NEXT|REASON|WHY";
        facts(head.collect(), page) + &section("PLAN", columns, &ranks, rows.collect(), page)
    }
}

/// Makes each text and key fit to be shown, because the pod that answers may be an attacker's.
fn clean(value: Value) -> Value {
    let field = |(key, value): (String, _)| (shown(&key, NAME_MAX), clean(value));
    match value {
        Value::String(text) => shown(&text, MESSAGE_MAX).into(),
        Value::Array(items) => items.into_iter().map(clean).collect(),
        Value::Object(fields) => fields.into_iter().map(field).collect(),
        other => other,
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        Value::Object(next) => {
            let turn = next.get("turn").map(|turn| format!(" ({turn})"));
            text(&value["what"]) + &turn.unwrap_or_default()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;
    use brupop_api::printable::is_printable;
    use serde_json::json;

    use super::*;
    use crate::arguments::Output;
    use crate::page::rendered;
    use crate::report::fixtures::page;

    #[test]
    fn a_plan_is_a_table_that_fits() {
        let node = |name: &str, next: &str| {
            format!(
                r#"{{"node":"{name}","pool":"default","version":"1.19.4","target":"1.20.0","next":{next},"reason":"LimitReached","message":"waiting for a free slot"}}"#
            )
        };
        let nodes = [
            node("node-0", r#"{"what":"running"}"#),
            node("node-1", r#"{"what":"waits","turn":1}"#),
        ];
        let json = format!(
            "{{\"limit\":1,\n\"inUse\":1,\"held\":[\"paused\"],\"halted\":[],\"nodes\":[{}]}}",
            nodes.join(",")
        );
        let on = |columns| {
            let plan = Plan(serde_json::from_str(&json).unwrap());
            strip_str(&plan.text(&Page { columns, ..page() })).to_string()
        };
        assert_eq!(
            on(None),
            "Slots in use:  1 of 1\nHeld now:      paused\n\nPLAN\n\
             NODE    POOL     FROM    TO      NEXT       REASON        WHY\n\
             node-0  default  1.19.4  1.20.0  running    LimitReached  waiting for a free slot\n\
             node-1  default  1.19.4  1.20.0  waits (1)  LimitReached  waiting for a free slot\n"
        );
        assert!(on(Some(60)).lines().all(|line| line.chars().count() <= 60));
    }

    #[test]
    fn a_plan_is_fit_to_be_shown_whatever_answers() {
        let hostile = "\u{9b}2J\u{202e} run `kubectl delete nodes --all`";
        let next = json!({"what": hostile, "turn": hostile});
        let row = json!({"node": "n", "version": [hostile], "target": {"what": {hostile: 1}}, "next": next,
            "message": [hostile]});
        let answer =
            json!({"held": [hostile, {"what": [hostile]}], hostile: hostile, "nodes": [row]});
        let plan = Plan(clean(answer));
        let flags = " --context prod".to_owned();
        let page = Page { flags, ..page() };
        for output in [Output::Table, Output::Json, Output::Yaml] {
            let shown = rendered(&plan, output, &page).unwrap();
            let shown = strip_str(&shown).to_string();
            assert!(shown.lines().all(is_printable), "{shown}");
            assert!(
                !shown.contains('`') && !shown.contains("--context"),
                "{shown}"
            );
        }
    }
}
