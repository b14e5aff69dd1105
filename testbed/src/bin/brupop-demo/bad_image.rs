//! `make demo FAULT=bad-image`: a version that no host comes up with stops after the first node, until a person or a new
//! release goes on.

use std::time::Duration;

use anyhow::Result;
use brupop_testbed::Fleet;
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::history::Seen;
use brupop_testbed::host::Faults;
use brupop_testbed::run::told;

use crate::{kubectl, table};

/// The release that mends it.
const FIXED: &str = "1.20.1";

/// Shows it. Returns whether all checks hold.
pub async fn show(fleet: &Fleet, deadline: Duration) -> Result<bool> {
    println!(
        "-- publishing Bottlerocket {NEW}, with which no host comes up: each falls back to {OLD}"
    );
    fleet.set_faults(&Faults {
        bad_images: [NEW.to_owned()].into(),
        ..Faults::default()
    });
    fleet.publish(NEW)?;
    let halted = |seen: &Seen| seen.is_idle() && !seen.is_unavailable() && is_told(seen);
    table::show_until(fleet, "every node says why it stays", deadline, |now| {
        now.iter().all(|(_, seen)| halted(seen))
    })
    .await?;
    let tried = fleet
        .history()
        .outcomes()
        .values()
        .filter(|outcome| outcome.boots > 1)
        .count();
    println!(
        "-- {tried} of {} nodes tried; the others keep {OLD}, in service",
        fleet.hosts.len()
    );
    kubectl(fleet, &["get", "brf"]).await?;
    let condition = "jsonpath={range .status.conditions[?(@.type==\"Halted\")]}{.reason}: {.message}{\"\\n\"}{end}";
    kubectl(fleet, &["get", "brf", "fleet", "-o", condition]).await?;

    println!("-- publishing {FIXED}, which comes up: another version starts afresh");
    fleet.set_faults(&Faults::default());
    fleet.publish(FIXED)?;
    table::show_until_updated(fleet, FIXED, deadline).await?;
    let checks = [
        (
            tried == 1,
            "one node tried the bad image, and no other".to_owned(),
        ),
        (true, format!("every node runs {FIXED}, in service")),
    ];
    Ok(told(&checks))
}

fn is_told(seen: &Seen) -> bool {
    matches!(seen.reason.as_str(), "VersionHalted" | "BackingOff")
}
