//! The repository changes between a look for updates and the prepare after it. The prepare writes what it finds then, or
//! nothing, and the host labels it with what the look had chosen. The prepare may say what it wrote.

use std::time::Duration;

use brupop_agent_core::step::Command as Typed;
use brupop_api::{BottlerocketShadowStatus, State};
use brupop_host::{Answer, Call, Command, Durations, Ending, Faults};
use serde_json::json;

use crate::solo::{NEW, STAGED, Solo, is_ahead};

const NEWER: &str = "1.20.2";

/// What happens in the repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// A newer image is published.
    Published,
    /// The image is withdrawn.
    Withdrawn,
}

fn change(solo: &Solo, change: Change) {
    match change {
        Change::Published => solo.place.host.publish(NEWER).unwrap(),
        Change::Withdrawn => solo
            .place
            .host
            .change_repository(|repository| repository.withdraw(NEW)),
    }
}

/// The host does not let its prepare begin, so that there is time for a change.
fn hold(solo: &Solo) {
    solo.faults(Faults::answer(
        Call::Action(Command::Prepare),
        Answer::Locked,
    ));
}

#[tokio::test(start_paused = true)]
async fn a_mislabelled_image_is_never_activated() {
    for (what, says) in [Change::Published, Change::Withdrawn]
        .into_iter()
        .flat_map(|it| [(it, false), (it, true)])
    {
        let solo = Solo::idle().await;
        hold(&solo);
        solo.stage(1);
        solo.until_called("prepare-update", 0).await;
        change(&solo, what);
        let silent = Faults::ending(Command::Prepare, Ending::Saying(String::new()));
        solo.faults(if says { Faults::default() } else { silent });
        let target = (what == Change::Published).then_some(NEWER);
        let moved = |status: &BottlerocketShadowStatus| {
            status.target_version.as_deref() == target && status.staged.is_none()
        };
        solo.until(&format!("{what:?}: another target"), moved)
            .await;
        let prepared = solo.count("prepare-update");
        solo.never("it is activated, or prepared in a loop", || {
            solo.count("activate-update") > 0 || solo.count("prepare-update") > prepared
        })
        .await;
        assert_eq!(
            solo.status().crash_count.unwrap_or(0),
            0,
            "nothing has failed"
        );
        // The reconciler gives up; then what was wanted is there again.
        solo.spec(&json!({"state": "Idle"}));
        solo.until_at(1, State::Idle).await;
        match what {
            Change::Published => {
                solo.place
                    .host
                    .change_repository(|repository| repository.withdraw(NEWER));
            }
            Change::Withdrawn => solo.place.host.publish(NEW).unwrap(),
        }
        solo.until_idle_with_update().await;
        solo.stage(2);
        solo.until_at(2, STAGED).await;
        solo.grant();
        let status = solo.until_at(2, State::RebootedIntoUpdate).await;
        assert_eq!(status.current_version.as_deref(), Some(NEW), "{what:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_refresh_repeats_without_another_download() {
    let prepare = Duration::from_hours(2);
    let mut solo = Solo::idle_with(
        Durations {
            prepare,
            ..Durations::default()
        },
        &[],
    )
    .await;
    solo.stage(1);
    solo.until_called("prepare-update", 0).await;
    solo.faults(Faults::failing(Command::Refresh, "no route"));
    let message = "refresh failed with exit status 1: no route";
    solo.until(message, |status| status.message.as_deref() == Some(message))
        .await;
    let (looks, words) = (solo.count("refresh-updates"), solo.statuses().len());
    solo.never("it fails, or is downloaded again", || {
        solo.count("prepare-update") > 1 || solo.status().current_state == Some(State::ErrorReset)
    })
    .await;
    assert!(
        (10..=120).contains(&(solo.count("refresh-updates") - looks)),
        "{:?}",
        solo.actions()
    );
    assert!(solo.statuses().len() - words <= 120, "no flood of reports");
    // Another process goes on with it.
    solo.until_ended("refresh-updates").await;
    solo.start();
    let looks = solo.count("refresh-updates");
    solo.until_called("refresh-updates", looks).await;
    solo.faults(Faults::default());
    let status = solo.until_at(1, STAGED).await;
    assert_eq!(status.message, None);
    assert_eq!(
        (solo.count("prepare-update"), solo.count("activate-update")),
        (1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_prefetch_of_another_version_is_replaced() {
    for (what, told) in [
        (
            Change::Published,
            "prefetch failed: prepare wrote 1.20.2, not 1.20.1",
        ),
        (
            Change::Withdrawn,
            "prefetch failed: prepare wrote no image: it found no update",
        ),
    ] {
        let flags = ["--prefetch", "--start-jitter=24h"];
        let mut solo = Solo::new(Durations::default(), &flags);
        solo.person(&[Typed::Refresh]).await;
        change(&solo, what);
        solo.start();
        let status = solo
            .until(told, |status| status.message.as_deref() == Some(told))
            .await;
        assert_eq!(status.staged, None);
        if what == Change::Withdrawn {
            solo.place.host.publish(NEW).unwrap();
        }
        let version = if what == Change::Published {
            NEWER
        } else {
            NEW
        };
        let status = solo
            .until("downloaded again", |status| is_ahead(status, version))
            .await;
        assert_eq!((status.message, status.crash_count), (None, Some(0)));
    }
}
