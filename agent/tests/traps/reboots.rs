//! The reboot: only the granted boot, refused, or promised and not kept.

use std::time::Duration;

use brupop_api::State;
use brupop_testbed::host::{Answer, Call, Durations, Faults};
use serde_json::json;

use crate::solo::{NEW, Solo};

async fn staged() -> Solo {
    let reboot = Duration::from_mins(3);
    let mut solo = Solo::new(Durations { reboot, ..Durations::default() }, &[]).await;
    solo.start();
    solo.until_idle_with_update().await;
    solo.stage(1);
    solo.until_at(1, State::StagedAndPerformedUpdate).await;
    solo
}

#[tokio::test(start_paused = true)]
async fn a_grant_for_another_boot_is_ignored() {
    let mut solo = staged().await;
    let earlier = solo.place.host.boot_id();
    solo.place.host.reboot_now();
    solo.until_booted(&earlier).await;
    // By itself the host booted what was next: as good as ours.
    assert_eq!(solo.place.host.version(), NEW);

    solo = staged().await;
    solo.spec(&json!({"state": "RebootedIntoUpdate", "reboot_from_boot_id": earlier}));
    solo.never("it reboots", || solo.count("reboot") > 0 || solo.status().reboot_requested.is_some()).await;
    solo.start();
    solo.never("it reboots when started again", || solo.count("reboot") > 0).await;
    solo.grant();
    solo.until_at(1, State::RebootedIntoUpdate).await;
    assert_eq!(solo.count("reboot"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_reboot_that_is_inhibited_is_given_up_with_the_hosts_words() {
    let solo = staged().await;
    let boot = solo.place.host.boot_id();
    solo.faults(Faults::answer(Call::Reboot, Answer::Refused("inhibited by a shell".into())));
    solo.grant();
    let status = solo.until_at(1, State::ErrorReset).await;
    assert_eq!(status.reboot_requested, None, "the claim is taken back");
    let message = status.message.unwrap();
    assert!(
        message.starts_with("the host refuses to reboot: ") && message.contains("inhibited by a shell"),
        "{message}"
    );
    assert!(solo.count("reboot") > 1, "it was tried more than once");
    assert_eq!(solo.place.host.boot_id(), boot);
    // Given up: what we activated is not booted by accident.
    solo.spec(&json!({"state": "Idle", "reboot_from_boot_id": null}));
    solo.until_at(1, State::Idle).await;
    assert_eq!(solo.actions().last().map(String::as_str), Some("deactivate-update"));
}

#[tokio::test(start_paused = true)]
async fn a_reboot_that_does_not_come_is_asked_for_again_in_this_boot() {
    let solo = staged().await;
    solo.faults(Faults { reboot_ignored: true, ..Faults::default() });
    solo.grant();
    let began = tokio::time::Instant::now();
    solo.until_called("reboot", 3).await;
    assert!(began.elapsed() >= Duration::from_mins(2), "not in a flood");
    assert_eq!(solo.status().crash_count.unwrap_or(0), 0);
    assert_eq!(solo.status().reboot_requested, Some(solo.place.host.boot_id()), "it may come at any moment");
    solo.faults(Faults::default());
    let status = solo.until_at(1, State::RebootedIntoUpdate).await;
    assert_eq!(status.current_version.as_deref(), Some(NEW));
    let reboots = solo.count("reboot");
    solo.never("it asks in the next boot, too", || solo.count("reboot") > reboots).await;
}
