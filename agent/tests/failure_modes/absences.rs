//! Nobody listens on the socket: for a moment, until there is a new container, or for good.

use std::time::Duration;

use brupop_api::State;
use brupop_testbed::host::{Answer, Call, Durations, Faults};

use crate::solo::{NEW, Solo};

const STAGED: State = State::StagedAndPerformedUpdate;

async fn idle(mounted: bool) -> Solo {
    let mut solo = Solo::new(Durations::default(), &[]).await;
    if mounted {
        solo.mount();
    }
    solo.start();
    solo.until_idle_with_update().await;
    solo
}

async fn until_nobody_answers(solo: &Solo) {
    let beginning = "nobody answers on ";
    solo.until(beginning, |status| status.message.as_ref().is_some_and(|it| it.starts_with(beginning))).await;
}

#[tokio::test(start_paused = true)]
async fn a_restarted_host_api_needs_a_new_container() {
    let solo = idle(true).await;
    solo.place.host.restart_api(Duration::from_secs(1));
    until_nobody_answers(&solo).await;
    solo.stage(1);
    solo.until_at(1, STAGED).await;
    assert_eq!(solo.ends(), 1);
    let status = solo.until("no message", |status| status.message.is_none()).await;
    assert_eq!(status.crash_count.unwrap_or(0), 0);
    assert_eq!((solo.count("prepare-update"), solo.count("activate-update")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_short_absence_ends_nothing() {
    let solo = idle(false).await;
    for seconds in [1, 20, 40] {
        solo.place.host.restart_api(Duration::from_secs(seconds));
        let looked = solo.count("refresh-updates");
        solo.until_called("refresh-updates", looked).await;
    }
    assert_eq!(solo.ends(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_silent_host_api_is_waited_for() {
    let solo = idle(false).await;
    solo.faults(Faults::answer(Call::Status, Answer::Hang));
    solo.stage(1);
    solo.never("it ends", || solo.ends() > 0).await;
    solo.faults(Faults::default());
    solo.until_at(1, STAGED).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_without_api_is_retried_quietly() {
    let solo = idle(false).await;
    solo.place.host.restart_api(Duration::from_hours(2));
    until_nobody_answers(&solo).await;
    let words = solo.statuses().len();
    solo.never("another word", || solo.statuses().len() > words).await;
    assert!((20..=60).contains(&solo.ends()), "{}", solo.ends());
    solo.until("it is there again", |status| status.message.is_none()).await;
}

/// The host's API ends before the host does, and perhaps before the agent.
#[tokio::test(start_paused = true)]
async fn a_restart_during_shutdown_reboots_only_once() {
    let reboot = Duration::from_mins(10);
    let mut solo = Solo::new(Durations { reboot, ..Durations::default() }, &[]).await;
    solo.mount();
    solo.start();
    solo.until_idle_with_update().await;
    solo.stage(1);
    solo.until_at(1, STAGED).await;
    solo.grant();
    let status = solo.until_at(1, State::RebootedIntoUpdate).await;
    assert!(solo.ends() > 1, "{}", solo.ends());
    assert_eq!((solo.count("reboot"), status.current_version.as_deref()), (1, Some(NEW)));
    for status in solo.statuses() {
        assert_eq!(status.crash_count.unwrap_or(0), 0, "{status:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_container_repeats_a_missing_reboot() {
    let solo = idle(true).await;
    solo.stage(1);
    solo.until_at(1, STAGED).await;
    solo.faults(Faults { reboot_ignored: true, ..Faults::default() });
    solo.grant();
    solo.until_called("reboot", 0).await;
    solo.place.host.restart_api(Duration::from_mins(3));
    solo.faults(Faults::default());
    let status = solo.until_at(1, State::RebootedIntoUpdate).await;
    assert!(solo.ends() > 0);
    assert_eq!((solo.count("reboot"), status.crash_count.unwrap_or(0)), (2, 0));
}
