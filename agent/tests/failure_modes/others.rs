//! A person, or another program, at the host's API.

use brupop_agent_core::step::Command as Typed;
use brupop_api::State;
use brupop_host::{Command, Durations, Faults};
use serde_json::json;

use crate::solo::{NEW, STAGED, Solo};

#[tokio::test(start_paused = true)]
async fn what_a_person_staged_is_trusted_if_its_own_words_say_what_it_is() {
    let apply = [Typed::Prepare, Typed::Activate];
    for (commands, prepares) in
        [(&[Typed::Prepare][..], 1), (&[Typed::Prepare, Typed::Refresh], 2), (&apply, 2)]
    {
        let mut solo = Solo::idle().await;
        solo.kill();
        solo.person(commands).await;
        solo.start();
        solo.stage(1);
        solo.until_at(1, STAGED).await;
        assert_eq!(solo.count("prepare-update"), prepares, "{commands:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_image_damaged_by_prepare_is_never_activated() {
    let mut solo = Solo::idle().await;
    solo.kill();
    solo.person(&[Typed::Prepare, Typed::Refresh]).await;
    solo.start();
    solo.faults(Faults::failing(Command::Prepare, "connection reset"));
    solo.stage(1);
    let message = solo.until_at(1, State::ErrorReset).await.message.unwrap();
    assert!(message.contains("connection reset"), "{message}");
    solo.spec(&json!({"state": "Idle"}));
    solo.until_at(1, State::Idle).await;
    // The next attempt finds Staged, and a refresh in place of the word of the failure.
    solo.stage(2);
    solo.until_at(2, State::ErrorReset).await;
    assert_eq!(solo.count("activate-update"), 0);
    solo.spec(&json!({"state": "Idle"}));
    solo.until_at(2, State::Idle).await;
    solo.faults(Faults::default());
    solo.stage(3);
    solo.until_at(3, STAGED).await;
    assert_eq!((solo.count("prepare-update"), solo.count("activate-update")), (4, 1));
}

#[tokio::test(start_paused = true)]
async fn a_manual_activation_stays_while_idle() {
    let mut solo = Solo::idle().await;
    solo.person(&[Typed::Prepare, Typed::Activate]).await;
    solo.never("it is undone", || solo.count("deactivate-update") > 0).await;
    solo.start();
    solo.never("it is undone by another process", || solo.count("deactivate-update") > 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_manual_activation_after_giving_up_stays() {
    let mut solo = Solo::idle().await;
    solo.stage(1);
    solo.until_at(1, STAGED).await;
    solo.spec(&json!({"state": "Idle"}));
    let undone = |status: &brupop_api::BottlerocketShadowStatus| {
        status.current_state == Some(State::Idle)
            && status.staged.as_ref().is_some_and(|staged| staged.prefetched)
    };
    solo.until("undone", undone).await;
    assert_eq!(solo.count("deactivate-update"), 1);
    solo.person(&[Typed::Activate]).await;
    solo.start();
    solo.never("it is undone", || solo.count("deactivate-update") > 1).await;
}

/// etcd is restored from a snapshot under an agent that has nothing to say: what it said after that is said again.
#[tokio::test(start_paused = true)]
async fn a_store_that_has_gone_back_is_believed() {
    let mut solo = Solo::new(Durations::default(), &[]).await;
    let snapshot = solo.snapshot();
    solo.start();
    solo.until_idle_with_update().await;
    solo.restore(snapshot);
    assert_eq!(solo.status().target_version, None);
    solo.until_idle_with_update().await;

    // In the middle of an update, whose attempt is forgotten.
    let snapshot = solo.snapshot();
    solo.stage(1);
    solo.until_at(1, STAGED).await;
    solo.restore(snapshot);
    solo.never("the forgotten attempt is reported", || solo.status().attempt == Some(1)).await;
    solo.update().await;
    assert_eq!(solo.status().current_version.as_deref(), Some(NEW));
}
