//! Bottlerocket's waves: two days of a release, by the clocks of its hosts.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use brupop_api::conditions::{Condition, UPDATED};
use brupop_testbed::Fleet;
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::host::{Choice, Faults, Release, Version};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::{apply, condition, fleet, until_pool, wait_until_updated};

/// The seed of each host, which is the hour of its wave.
const WAVES: [u32; 8] = [24, 1, 6, 6, 12, 36, 48, 48];

fn of_wave(seed: u32) -> Choice {
    Choice {
        seed,
        ..Choice::default()
    }
}

/// Waits until fleet and pool count this number of nodes that are not offered an update, and name them.
async fn until_not_offered(fleet: &Fleet, nodes: u64, named: &str) -> Result<()> {
    let so = |word: &str, message: &str| word == "NotOffered" && message.starts_with(named);
    let told = |conditions: &[Condition]| {
        conditions
            .iter()
            .any(|it| it.type_ == UPDATED && so(&it.reason, &it.message))
    };
    until_pool(fleet, "fix-now", named, |status| {
        status.counts.not_offered_nodes == nodes && told(&status.conditions)
    })
    .await?;
    fleet
        .until_ledger(named, |status| {
            status
                .counts
                .is_some_and(|counts| counts.not_offered == nodes)
                && told(&status.conditions)
        })
        .await
        .map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_is_updated_once_the_last_wave_has_come() -> Result<()> {
    let mut fleet = fleet(&["web"; 8], &[]).await?;
    let published = Timestamp::now();
    let waves = WAVES.map(|hour| (hour, published + SignedDuration::from_hours(hour.into())));
    for (host, seed) in fleet.hosts.iter().zip(WAVES) {
        host.set_faults(Faults::choice(of_wave(seed)));
        let release = Release {
            waves: BTreeMap::from(waves),
            ..Release::new(NEW)?
        };
        host.change_repository(|repository| repository.publish(release));
    }
    let spec = json!({"nodeSelector": {}, "maxUnavailable": 8, "verify": {"readyFor": "0s"}, "versions": {"atLeast": NEW}});
    apply(&fleet, "fix-now", &spec).await?;
    until_not_offered(
        &fleet,
        8,
        "node-0: the host is not offered a version that its pool asks for",
    )
    .await?;

    let mut hour = 0;
    for (until, not_offered, named) in [
        (
            1,
            7,
            "node-0: the host is not offered 1.20.0, which node-1 runs: its wave has not come",
        ),
        (
            6,
            5,
            "node-0: the host is not offered 1.20.0, which node-1 runs",
        ),
        (
            12,
            4,
            "node-0: the host is not offered 1.20.0, which node-1 runs",
        ),
        (
            24,
            3,
            "node-5: the host is not offered 1.20.0, which node-0 runs",
        ),
        (
            36,
            2,
            "node-6: the host is not offered 1.20.0, which node-0 runs",
        ),
    ] {
        for host in &fleet.hosts {
            host.let_pass(Duration::from_hours(until - hour));
        }
        hour = until;
        until_not_offered(&fleet, not_offered, named).await?;
        for (number, wave) in WAVES.into_iter().enumerate() {
            let node = format!("node-{number}");
            let version = if u64::from(wave) <= hour { NEW } else { OLD };
            ensure!(
                fleet.seen(&node)?.runs(version),
                "hour {hour}: {node} does not run {version}"
            );
        }
    }
    // One does not wait for its wave; the other is locked when its wave comes.
    fleet.hosts[7].set_faults(Faults::choice(Choice {
        ignore_waves: true,
        ..of_wave(48)
    }));
    fleet.until_runs("node-7", NEW).await?;
    until_not_offered(&fleet, 1, "node-6").await?;
    let version_lock = Some(Version::parse(OLD)?);
    fleet.hosts[6].set_faults(Faults::choice(Choice {
        version_lock,
        ..of_wave(48)
    }));
    fleet.hosts[6].let_pass(Duration::from_hours(12));
    let locked = until_pool(&fleet, "fix-now", "names the lock", |status| {
        status.counts.locked_nodes == 1
    })
    .await?;
    ensure!(
        condition(&locked, UPDATED) == Some(("False".into(), "NoUpdateChosen".into())),
        "{locked:?}"
    );
    fleet.hosts[6].set_faults(Faults::choice(of_wave(48)));
    fleet.until_runs("node-6", NEW).await?;
    wait_until_updated(&fleet, "fix-now").await?;
    fleet.check()
}
