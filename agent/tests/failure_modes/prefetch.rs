//! Downloads ahead of the turn.

use std::time::Duration;

use brupop_agent_core::step::Command as Typed;
use brupop_api::{BottlerocketShadowStatus, State};
use brupop_host::{Answer, Call, Command, Durations, Ending, Faults};
use serde_json::json;
use tokio::time::Instant;

use crate::solo::{NEW, STAGED, Solo, is_ahead};

const DOWNLOAD: Duration = Duration::from_mins(30);

fn solo() -> Solo {
    let mut solo = Solo::new(
        Durations {
            prepare: DOWNLOAD,
            ..Durations::default()
        },
        &["--prefetch"],
    );
    solo.start();
    solo
}

async fn downloaded(solo: &Solo, version: &str) -> BottlerocketShadowStatus {
    solo.until("downloaded ahead", |status| is_ahead(status, version))
        .await
}

/// Takes the turn; returns how long it took.
async fn turn(solo: &Solo) -> Duration {
    let began = Instant::now();
    solo.stage(1);
    solo.until_at(1, STAGED).await;
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_turn_does_not_wait_for_the_prefetch() {
    let solo = solo();
    downloaded(&solo, NEW).await;
    assert!(
        solo.statuses()
            .iter()
            .all(|status| status.message.is_none()),
        "a download takes its time"
    );
    assert_eq!(solo.count("activate-update"), 0);
    assert!(turn(&solo).await < Duration::from_mins(1));
    assert_eq!(
        (solo.count("prepare-update"), solo.count("activate-update")),
        (1, 1)
    );
    let staged = solo.status().staged.unwrap();
    assert!(
        !staged.prefetched,
        "from now on it is the attempt's, which is undone when that is given up"
    );
    // Given up, what this attempt activated is undone.
    solo.spec(&json!({"state": "Idle"}));
    solo.until_at(1, State::Idle).await;
    solo.until_called("deactivate-update", 0).await;
}

#[tokio::test(start_paused = true)]
async fn without_the_option_nothing_is_downloaded_ahead() {
    let solo = Solo::idle_with(
        Durations {
            prepare: DOWNLOAD,
            ..Durations::default()
        },
        &[],
    )
    .await;
    solo.never("a download", || solo.count("prepare-update") > 0)
        .await;
    assert!(turn(&solo).await >= DOWNLOAD);
}

#[tokio::test(start_paused = true)]
async fn waits_for_days_quietly_and_through_restarts() {
    let mut solo = solo();
    downloaded(&solo, NEW).await;
    let (reports, looked) = (solo.statuses().len(), solo.count("refresh-updates"));
    let began = Instant::now();
    solo.until_called("refresh-updates", looked + 10).await;
    solo.until_ended("refresh-updates").await;
    assert!(
        began.elapsed() > Duration::from_hours(16),
        "{:?}",
        began.elapsed()
    );
    assert!(
        solo.statuses().len() - reports <= 12,
        "one report for each look"
    );
    for _ in 0..3 {
        solo.start();
        solo.until_ended("refresh-updates").await;
    }
    assert!(is_ahead(&solo.status(), NEW));
    assert!(turn(&solo).await < Duration::from_mins(1));
    assert_eq!(solo.count("prepare-update"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_unseen_failed_prepare_is_not_activated() {
    let solo = solo();
    downloaded(&solo, NEW).await;
    solo.faults(Faults::failing(Command::Prepare, "connection reset"));
    solo.person(&[Typed::Prepare, Typed::Refresh]).await;
    solo.faults(Faults::default());
    assert!(turn(&solo).await >= DOWNLOAD);
    solo.grant();
    let status = solo.until_at(1, State::RebootedIntoUpdate).await;
    assert_eq!(
        status.current_version.as_deref(),
        Some(NEW),
        "a damaged image would not have come up"
    );
}

#[tokio::test(start_paused = true)]
async fn a_person_is_left_alone() {
    // Who staged before there was time to download, with an updater that does not say what it wrote.
    let mut solo = Solo::new(Durations::default(), &["--prefetch"]);
    solo.faults(Faults::ending(
        Command::Prepare,
        Ending::Saying(String::new()),
    ));
    solo.person(&[Typed::Refresh, Typed::Prepare]).await;
    solo.start();
    solo.until_idle_with_update().await;
    let told = |message: &String| {
        message.starts_with("prefetch waits: the inactive partition holds an image")
    };
    solo.until("why", |status| status.message.as_ref().is_some_and(told))
        .await;
    let words = solo.statuses().len();
    solo.never("a download over a person's", || {
        solo.count("prepare-update") > 1
    })
    .await;
    assert_eq!(solo.statuses().len(), words, "it is said once");
    // Who activates what was downloaded.
    let mut solo = self::solo();
    downloaded(&solo, NEW).await;
    solo.person(&[Typed::Activate]).await;
    solo.start();
    solo.until("no longer ours", |status| status.staged.is_none())
        .await;
    solo.never("it is undone", || {
        solo.count("deactivate-update") + solo.count("prepare-update") > 1
    })
    .await;
    // Who then reboots.
    let boot = solo.place.host.boot_id();
    solo.place.host.reboot_now();
    solo.until_booted(&boot).await;
    let status = solo
        .until("the new version", |status| {
            status.current_version.as_deref() == Some(NEW)
        })
        .await;
    assert_eq!(status.staged, None);
}

#[tokio::test(start_paused = true)]
async fn failed_prefetches_are_reported_once_and_become_rare() {
    let solo = solo();
    solo.faults(Faults::failing(Command::Prepare, "no route"));
    let told = "prefetch failed with exit status 1: no route";
    solo.until(told, |status| status.message.as_deref() == Some(told))
        .await;
    let began = Instant::now();
    solo.until_called("prepare-update", 5).await;
    assert!(
        began.elapsed() > Duration::from_hours(4),
        "{:?}",
        began.elapsed()
    );
    let messages: Vec<_> = solo
        .statuses()
        .into_iter()
        .map(|status| status.message)
        .collect();
    let first = messages.iter().position(Option::is_some).unwrap();
    assert!(
        messages[first..]
            .iter()
            .all(|message| message.as_deref() == Some(told)),
        "{messages:#?}"
    );
    assert_eq!(messages.len() - first, 1, "and once only: {messages:#?}");
    assert_eq!(
        (solo.status().crash_count, solo.status().current_state),
        (Some(0), Some(State::Idle))
    );
    solo.faults(Faults::default());
    assert_eq!(downloaded(&solo, NEW).await.message, None);
}

#[tokio::test(start_paused = true)]
async fn a_host_refusing_to_download_is_asked_rarely() {
    let solo = solo();
    solo.faults(Faults::answer(
        Call::Action(Command::Prepare),
        Answer::NotAllowed("not now".into()),
    ));
    solo.until_called("prepare-update", 0).await;
    let began = Instant::now();
    solo.until_called("prepare-update", 4).await;
    assert!(
        began.elapsed() > Duration::from_hours(2),
        "{:?}",
        began.elapsed()
    );
    solo.faults(Faults::default());
    downloaded(&solo, NEW).await;
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_halted_is_not_downloaded() {
    let mut solo = Solo::new(Durations::default(), &["--prefetch"]);
    solo.condition("VersionHalted");
    solo.start();
    solo.until_idle_with_update().await;
    solo.never("a download", || solo.count("prepare-update") > 0)
        .await;
    solo.condition("LimitReached");
    downloaded(&solo, NEW).await;
}

/// A window that is shorter than download and drain: night after night the update is given up before its cordon.
#[tokio::test(start_paused = true)]
async fn the_image_of_an_update_given_up_is_kept() {
    for flags in [&[][..], &["--prefetch"]] {
        let mut solo = Solo::idle_with(
            Durations {
                prepare: DOWNLOAD,
                ..Durations::default()
            },
            flags,
        )
        .await;
        for night in 1..=3 {
            solo.stage(night);
            solo.until_at(night, STAGED).await;
            solo.spec(&json!({"state": "Idle"}));
            solo.until_at(night, State::Idle).await;
            assert!(
                is_ahead(&solo.status(), NEW),
                "{flags:?}: {:#?}",
                solo.status()
            );
            // The day brings looks for updates, and another process.
            solo.start();
            let looked = solo.count("refresh-updates");
            solo.until_called("refresh-updates", looked + 2).await;
        }
        assert!(
            solo.statuses()
                .iter()
                .all(|status| status.problem.is_none()),
            "{:#?}",
            solo.statuses()
        );
        assert_eq!(
            (
                solo.count("prepare-update"),
                solo.count("deactivate-update")
            ),
            (1, 3),
            "{flags:?}"
        );
        // A person takes it at last.
        solo.person(&[Typed::Activate]).await;
        solo.start();
        solo.until("no longer ours", |status| status.staged.is_none())
            .await;
        solo.never("it is undone", || solo.count("deactivate-update") > 3)
            .await;
    }
}
