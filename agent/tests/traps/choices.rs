//! The repository changes between a look for updates and the prepare after it. The prepare writes what it finds then, or
//! nothing, and the host labels it with what the look had chosen.

use std::time::Duration;

use brupop_api::{BottlerocketShadowStatus, State};
use brupop_testbed::host::{Answer, Call, Command, Durations, Faults};
use serde_json::json;

use crate::solo::{NEW, Solo};

const STAGED: State = State::StagedAndPerformedUpdate;
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
        Change::Withdrawn => solo.place.host.withdraw(NEW),
    }
}

/// The host does not let its prepare begin, so that there is time for a change.
fn hold(solo: &Solo) {
    solo.faults(Faults::answer(Call::Action(Command::Prepare), Answer::Locked));
}

fn let_go(solo: &Solo) {
    solo.faults(Faults::default());
}

fn is_ahead(status: &BottlerocketShadowStatus, version: &str) -> bool {
    status.current_state == Some(State::Idle)
        && status.staged.as_ref().is_some_and(|staged| staged.prefetched && staged.version == version)
}

#[tokio::test(start_paused = true)]
async fn an_image_with_a_wrong_label_is_never_activated() {
    for what in [Change::Published, Change::Withdrawn] {
        let mut solo = Solo::new(Durations::default(), &[]).await;
        solo.start();
        solo.until_idle_with_update().await;
        hold(&solo);
        solo.stage(1);
        solo.until_called("prepare-update", 0).await;
        change(&solo, what);
        let_go(&solo);
        let target = (what == Change::Published).then_some(NEWER);
        let moved = |status: &BottlerocketShadowStatus| {
            status.target_version.as_deref() == target && status.staged.is_none()
        };
        solo.until(&format!("{what:?}: another target"), moved).await;
        let prepared = solo.count("prepare-update");
        solo.never("it is activated, or prepared in a loop", || {
            solo.count("activate-update") > 0 || solo.count("prepare-update") > prepared
        })
        .await;
        assert_eq!(solo.status().crash_count.unwrap_or(0), 0, "nothing has failed");
        // The reconciler gives up; then what was wanted is there again.
        solo.spec(&json!({"state": "Idle"}));
        solo.until_at(1, State::Idle).await;
        match what {
            Change::Published => solo.place.host.withdraw(NEWER),
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

/// An idle agent that has downloaded ahead of its turn, from a repository that changed in the meantime: what is labelled as
/// the update that it chose is another one, or none.
async fn labelled_wrongly(meanwhile: Change) -> Solo {
    let mut solo = Solo::new(Durations::default(), &["--prefetch"]).await;
    hold(&solo);
    solo.start();
    solo.until_called("prepare-update", 0).await;
    change(&solo, meanwhile);
    let_go(&solo);
    solo.until("wrongly labelled", |status| is_ahead(status, NEW)).await;
    solo
}

#[tokio::test(start_paused = true)]
async fn what_was_downloaded_ahead_with_a_wrong_label_is_dropped_and_downloaded_over() {
    for turn_comes_first in [false, true] {
        let solo = labelled_wrongly(Change::Published).await;
        if turn_comes_first {
            solo.stage(1);
            solo.until("dropped", |status| status.staged.is_none()).await;
            solo.until("another target", |status| status.target_version.as_deref() == Some(NEWER)).await;
            solo.spec(&json!({"state": "Idle"}));
        }
        solo.until("downloaded anew", |status| is_ahead(status, NEWER)).await;
        assert_eq!(solo.count("activate-update"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_downloaded_ahead_is_dropped_if_it_was_withdrawn_before() {
    let solo = labelled_wrongly(Change::Withdrawn).await;
    solo.until("dropped", |status| status.staged.is_none() && status.target_version.is_none()).await;
    solo.place.host.publish(NEW).unwrap();
    let prepared = solo.count("prepare-update");
    solo.until("downloaded anew", |status| is_ahead(status, NEW)).await;
    assert_eq!(solo.count("prepare-update"), prepared + 1);
}

#[tokio::test(start_paused = true)]
async fn a_look_that_fails_after_the_download_is_repeated_and_the_download_is_not() {
    let prepare = Duration::from_hours(2);
    let mut solo = Solo::new(Durations { prepare, ..Durations::default() }, &[]).await;
    solo.start();
    solo.until_idle_with_update().await;
    solo.stage(1);
    solo.until_called("prepare-update", 0).await;
    solo.faults(Faults::failing(Command::Refresh, "no route"));
    let said = "refresh failed with exit status 1: no route";
    solo.until(said, |status| status.message.as_deref() == Some(said)).await;
    let (looks, words) = (solo.count("refresh-updates"), solo.statuses().len());
    solo.never("it fails, or is downloaded again", || {
        solo.count("prepare-update") > 1 || solo.status().current_state == Some(State::ErrorReset)
    })
    .await;
    assert!((10..=120).contains(&(solo.count("refresh-updates") - looks)), "{:?}", solo.actions());
    assert!(solo.statuses().len() - words <= 120, "no flood of reports");
    // Another process goes on with it.
    solo.start();
    let looks = solo.count("refresh-updates");
    solo.until_called("refresh-updates", looks).await;
    let_go(&solo);
    let status = solo.until_at(1, STAGED).await;
    assert_eq!(status.message, None);
    assert_eq!((solo.count("prepare-update"), solo.count("activate-update")), (1, 1));
}
