//! Bottlerocket's updater loads the repository in every command, also in those that only change the partition table. So an
//! activate may fail with a whole image, and an armed host cannot always be disarmed.

use std::time::Duration;

use brupop_api::{Problem, State};
use brupop_host::{Answer, Call, Command, Ending, Faults};
use serde_json::json;
use tokio::time::Instant;

use crate::solo::{NEW, STAGED, Solo};

const DOWNLOAD: Duration = Duration::from_mins(30);
const FAILS: &str = "activate failed with exit status 1: Failed to fetch";

async fn solo(flags: &[&str]) -> Solo {
    Solo::idle_with(|it| it.prepare = DOWNLOAD, flags).await
}

/// The repository goes away between the last look for updates and the activate.
async fn activate_fails(solo: &Solo) {
    solo.faults(Faults::failing(Command::Activate, "Failed to fetch"));
    solo.stage(1);
    solo.until_told(FAILS).await;
}

#[tokio::test(start_paused = true)]
async fn an_activate_that_goes_on_failing_ends_the_attempt() {
    // The time of the look before the first activate stands in the status only if the image was downloaded ahead.
    let ahead = &["--prefetch"][..];
    for (flags, away, deleted) in [
        (ahead, false, false),
        (ahead, true, false),
        (&[], false, false),
        (&[], false, true),
    ] {
        let solo = solo(flags).await;
        if !flags.is_empty() {
            solo.until("downloaded ahead", |status| status.staged.is_some())
                .await;
        }
        activate_fails(&solo).await;
        let began = Instant::now();
        if away {
            solo.faults(Faults {
                unreachable: true,
                ..Faults::default()
            });
        }
        let status = solo.until_at(1, State::ErrorReset).await;
        let took = began.elapsed();
        assert!((270..=400).contains(&took.as_secs()), "{took:?}");
        assert!(
            status.message.is_some_and(
                |message| message.contains("failed with exit status 1: Failed to fetch")
            )
        );
        assert_eq!(
            (solo.count("prepare-update"), status.crash_count),
            (1, Some(1)),
            "no second download"
        );
        assert!(solo.count("activate-update") < 20, "{:?}", solo.actions());
        // Nobody knows what keeps it from being activated: the next attempt has an image of its own.
        solo.faults(Faults::default());
        let next = if deleted { 1 } else { 2 };
        if deleted {
            solo.recreate();
        } else {
            solo.spec(&json!({"state": "Idle"}));
            solo.until_at(1, State::Idle).await;
        }
        solo.stage(next);
        solo.until_at(next, STAGED).await;
        assert_eq!(solo.count("prepare-update"), 2);
    }
}

/// While a command of ours is refused or hangs, a person's prepare may damage the image, and his refresh hides that.
#[tokio::test(start_paused = true)]
async fn an_image_touched_before_its_activate_is_downloaded_again() {
    for (command, answer, name) in [
        (Command::Activate, Answer::Locked, "activate-update"),
        (Command::Refresh, Answer::Hang, "refresh-updates"),
    ] {
        let solo = solo(&[]).await;
        solo.stage(1);
        solo.until_called("prepare-update", 0).await;
        solo.faults(Faults::answer(Call::Action(command), answer));
        // The second call shows that the first was refused, or got no answer.
        for _ in 0..2 {
            solo.until_called(name, solo.count(name)).await;
        }
        for command in [Command::Prepare, Command::Refresh] {
            solo.place.host.has_run(command).unwrap();
        }
        solo.faults(Faults::default());
        solo.until_at(1, STAGED).await;
        assert_eq!(solo.count("prepare-update"), 2, "{name}");
    }
}

/// The dispatcher is killed after the updater has written the partition table: the set is armed and cannot be armed again,
/// while the status document says that it is not.
#[tokio::test(start_paused = true)]
async fn a_set_that_is_armed_unsaid_is_downloaded_over() {
    let solo = solo(&[]).await;
    solo.faults(Faults::ending(Command::Activate, Ending::KilledLate(9)));
    solo.stage(1);
    solo.until_called("activate-update", 0).await;
    solo.until_problem(Problem::StepFailed).await;
    solo.faults(Faults::default());
    let status = solo.until_at(1, State::ErrorReset).await;
    assert!(
        status
            .message
            .is_some_and(|message| message.contains("already marked"))
    );
    let status = solo.second_attempt().await;
    assert_eq!(status.current_version.as_deref(), Some(NEW));
}

/// A look that fails holds the node back, so the next one does not wait as long as the image would let it.
#[tokio::test(start_paused = true)]
async fn a_failed_look_is_repeated_soon_though_an_image_waits() {
    let solo = solo(&["--prefetch"]).await;
    solo.until("downloaded ahead", |status| status.staged.is_some())
        .await;
    solo.faults(Faults::failing(Command::Refresh, "Failed to fetch"));
    solo.until_problem(Problem::RefreshFailed).await;
    let failed = Instant::now();
    solo.faults(Faults::default());
    solo.until_well().await;
    let took = failed.elapsed();
    assert!(took < Duration::from_mins(12), "{took:?}");
}
