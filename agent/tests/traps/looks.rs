//! Looks for updates that fail on an idle host are said, and taken back by the next one that succeeds.

use brupop_testbed::host::{Answer, Call, Command, Faults};

use crate::solo::{NEW, Solo};

#[tokio::test(start_paused = true)]
async fn whatever_makes_a_look_fail_stands_in_the_message_until_one_succeeds() {
    let refresh = Call::Action(Command::Refresh);
    let rows = [
        (Faults::failing(Command::Refresh, "no route"), "refresh failed with exit status 1: no route"),
        (
            Faults { vanishing: [Command::Refresh].into(), ..Faults::default() },
            "refresh failed with no exit status: ",
        ),
        (
            Faults { lost: [Command::Refresh].into(), ..Faults::default() },
            "refresh failed: the host does not say how it ended",
        ),
        (
            Faults::answer(refresh, Answer::Refused("disk on fire".into())),
            "Bottlerocket API: refresh was refused: disk on fire",
        ),
        (
            Faults::answer(refresh, Answer::NotFound("no such action".into())),
            "Bottlerocket API: refresh was refused: no such action",
        ),
        (
            Faults::answer(refresh, Answer::NotAllowed("not now".into())),
            "Bottlerocket API: refresh was refused: not now",
        ),
    ];
    for (faults, sentence) in rows {
        let solo = Solo::idle().await;
        solo.faults(faults);
        let status = solo.until(sentence, |status| status.message.as_deref() == Some(sentence)).await;
        assert_eq!(status.target_version.as_deref(), Some(NEW), "{sentence}: what it found before stays");
        let words = solo.statuses().len();
        solo.never("the same is said again", || solo.statuses().len() > words).await;
        solo.faults(Faults::default());
        solo.until(&format!("no message after {sentence}"), |status| status.message.is_none()).await;
        assert_eq!(solo.status().crash_count.unwrap_or(0), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn two_things_that_are_wrong_are_not_said_in_turn_without_end() {
    let solo = Solo::idle().await;
    solo.faults(Faults::failing(Command::Refresh, "no route"));
    solo.until("the first", |status| status.message.is_some()).await;
    let words = solo.statuses().len();
    solo.faults(Faults::answer(Call::Action(Command::Refresh), Answer::Refused("disk on fire".into())));
    let told = |message: &String| message.ends_with("disk on fire");
    solo.until("the second", |status| status.message.as_ref().is_some_and(told)).await;
    solo.never("a flood", || solo.statuses().len() > words + 2).await;
}
