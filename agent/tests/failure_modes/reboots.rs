//! The reboot: only the granted boot, refused, or promised and not kept.

use std::time::Duration;

use brupop_api::{Problem, State};
use brupop_host::{Answer, Call, Command, Faults};
use serde_json::json;

use crate::solo::{NEW, STAGED, Solo};

async fn staged() -> Solo {
    let reboot = Duration::from_mins(3);
    let solo = Solo::slow(|it| it.reboot = reboot).await;
    solo.stage(1);
    solo.until_at(1, STAGED).await;
    solo
}

#[tokio::test(start_paused = true)]
async fn an_inhibited_reboot_fails_quoting_the_host() {
    let noise = "\n\0\u{1b}[2J no\n".repeat(60_000);
    for (more, accepted) in [("", false), (&*noise, false), ("", true)] {
        let solo = staged().await;
        let boot = solo.place.host.boot_id();
        if accepted {
            solo.faults(Faults {
                reboot_ignored: true,
                ..Faults::default()
            });
            solo.grant();
            solo.until_called("reboot", 0).await;
        }
        solo.faults(Faults::answer(
            Call::Reboot,
            Answer::Refused(format!("inhibited by a shell{more}")),
        ));
        solo.grant();
        let status = solo.until_at(1, State::ErrorReset).await;
        let claim = status.reboot_claimed_boot_id;
        assert_eq!(claim, None, "the claim is taken back");
        let message = status.message.unwrap();
        let refuses = message.starts_with("the host refuses to reboot: ");
        assert!(
            refuses && message.contains("inhibited by a shell"),
            "{message}"
        );
        assert!(solo.count("reboot") > 1, "it was tried more than once");
        assert_eq!(solo.place.host.boot_id(), boot);
        // Given up: what we activated is not booted by accident.
        solo.spec(&json!({"state": "Idle", "reboot_granted_boot_id": null}));
        solo.until_at(1, State::Idle).await;
        assert_eq!(solo.actions().last().unwrap(), "deactivate-update");
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_reboot_is_repeated_in_this_boot() {
    let solo = staged().await;
    solo.faults(Faults {
        reboot_ignored: true,
        ..Faults::default()
    });
    solo.grant();
    let began = tokio::time::Instant::now();
    solo.until_called("reboot", 3).await;
    assert!(began.elapsed() >= Duration::from_mins(2), "not in a flood");
    assert_eq!(solo.status().crash_count.unwrap_or(0), 0);
    let claim = solo.status().reboot_claimed_boot_id.unwrap();
    assert_eq!(
        claim,
        solo.place.host.boot_id(),
        "it may come at any moment"
    );
    solo.faults(Faults::default());
    let status = solo.until_at(1, State::RebootedIntoUpdate).await;
    assert_eq!(status.current_version.as_deref(), Some(NEW));
    let reboots = solo.count("reboot");
    solo.never("it asks in the next boot, too", || {
        solo.count("reboot") > reboots
    })
    .await;
}

/// A person has deactivated the image: a reboot would come to nothing.
fn deactivate(solo: &Solo) -> (usize, tokio::time::Instant) {
    solo.place.host.has_run(Command::Deactivate).unwrap();
    (solo.count("reboot"), tokio::time::Instant::now())
}

/// The problem from before the boot explains the failure.
#[tokio::test(start_paused = true)]
async fn why_a_host_fell_back_survives_its_boot() {
    for restarted in [false, true] {
        let mut solo = staged().await;
        solo.faults(Faults {
            reboot_ignored: true,
            ..Faults::default()
        });
        solo.grant();
        solo.until_called("reboot", 0).await;
        deactivate(&solo);
        solo.until_problem(Problem::NotNextToBoot).await;
        let before = solo.place.host.boot_id();
        solo.place.host.reboot_now();
        if restarted {
            solo.until_booted(&before).await;
            solo.start();
        }
        let status = solo.until_at(1, State::ErrorReset).await;
        let told =
            "the host came back with 1.19.4 when it rebooted: the host would not boot 1.20.1 next";
        assert_eq!(
            (status.problem, status.message.as_deref()),
            (Some(Problem::NotNextToBoot), Some(told))
        );
        assert_eq!(
            (status.crash_count, status.boot_id == Some(before)),
            (Some(1), false)
        );
    }
}
