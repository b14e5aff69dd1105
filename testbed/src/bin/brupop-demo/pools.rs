//! `make demo POOLS=true`: a canary goes first, then a pool follows it, while another one waits for its window.

use std::time::Duration;

use anyhow::Result;
use brupop_testbed::Fleet;
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::run::told;
use brupop_testbed::tiers::{self, WEB_AT_ONCE};

use crate::{kubectl, table};

/// Rolls out a release by pools. Returns whether all checks hold.
pub async fn show(fleet: &Fleet, nodes: usize, deadline: Duration) -> Result<bool> {
    let of = |wanted: &'static str| tiers::nodes_of(wanted, nodes);
    let manifest = tiers::manifest("");
    println!(
        "-- three pools, by the label tier:\n{}",
        manifest.trim_end()
    );
    tiers::apply(fleet, nodes, &manifest).await?;

    println!("-- publishing Bottlerocket {NEW}: every host runs {OLD}");
    fleet.publish(NEW)?;
    let waits: Vec<String> = of("db").collect();
    table::show_until(
        fleet,
        "canary and web are updated, and db waits",
        deadline,
        |now| {
            now.iter().all(|(node, seen)| {
                if waits.contains(node) {
                    seen.reason == "OutsideWindow"
                } else {
                    seen.runs(NEW)
                }
            })
        },
    )
    .await?;
    fleet
        .kubectl(&format!(
            "wait --for=condition=Updated brp/web -n {NAMESPACE} --timeout=60s"
        ))
        .await?;
    println!();
    kubectl(fleet, &["get", "brp", "-o", "wide"]).await?;

    let history = fleet.history();
    let canary_ended = of("canary")
        .filter_map(|node| history.updates(&node).first()?.1)
        .max();
    let web_began = of("web")
        .filter_map(|node| Some(history.updates(&node).first()?.0))
        .min();
    let soaked = canary_ended
        .zip(web_began)
        .is_some_and(|(ended, began)| ended + Duration::from_secs(5) <= began);
    let at_once = history.most_slots_of("web");
    let checks = [
        (
            soaked,
            "web began five seconds after the canary was done, and not before".to_owned(),
        ),
        (
            at_once <= WEB_AT_ONCE,
            format!("at most {at_once} of web at once, {WEB_AT_ONCE} allowed"),
        ),
        (
            of("db").all(|node| history.updates(&node).is_empty()),
            "db waits for its window".to_owned(),
        ),
    ];
    println!();
    Ok(told(&checks))
}
