//! The repository changes between a look for updates and the prepare after it. The prepare writes what it finds then, or
//! nothing, and the host labels it with what the look had chosen. The prepare may say what it wrote.

use brupop_api::{BottlerocketShadowStatus, State};
use brupop_host::{Answer, Call, Command, Ending, Faults};
use serde_json::json;

use crate::solo::{NEW, STAGED, Solo};

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
