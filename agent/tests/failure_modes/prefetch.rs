//! Downloads ahead of the turn.

use std::time::Duration;

use brupop_agent_core::step::Command as Typed;
use brupop_api::{BottlerocketShadowStatus, State};
use brupop_host::{Command, Faults};
use serde_json::json;
use tokio::time::Instant;

use crate::solo::{NEW, STAGED, Solo, is_ahead};

const DOWNLOAD: Duration = Duration::from_mins(30);

fn solo() -> Solo {
    let mut solo = Solo::slowly(|it| it.prepare = DOWNLOAD, &["--prefetch"]);
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

/// A window that is shorter than download and drain: night after night the update is given up before its cordon.
#[tokio::test(start_paused = true)]
async fn the_image_of_an_update_given_up_is_kept() {
    for flags in [&[][..], &["--prefetch"]] {
        let mut solo = Solo::idle_with(|it| it.prepare = DOWNLOAD, flags).await;
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
