//! Looks for updates that fail on an idle host are said, and taken back by the next one that succeeds.

use std::time::Duration;

use brupop_agent_core::step::{Command as Typed, HostCall};
use brupop_api::State;
use brupop_host::{Answer, Call, Command, Durations, Ending, Faults};

use crate::solo::{NEW, Solo};

#[tokio::test(start_paused = true)]
async fn a_refresh_failure_shows_until_one_succeeds() {
    let answers = |answer| Faults::answer(Call::Action(Command::Refresh), answer);
    let ends = |ending| Faults::ending(Command::Refresh, ending);
    let rows = [
        (
            Faults::failing(Command::Refresh, "no route"),
            "refresh failed with exit status 1: no route",
        ),
        (
            ends(Ending::Unknown),
            "refresh failed with no exit status: ",
        ),
        (
            ends(Ending::Lost),
            "refresh failed: the host does not say how it ended",
        ),
        (
            answers(Answer::Refused("disk on fire".into())),
            "refresh was refused: disk on fire",
        ),
        (
            answers(Answer::NotFound("no such action".into())),
            "refresh was refused: no such action",
        ),
        (
            answers(Answer::NotAllowed("not now".into())),
            "refresh was refused: not now",
        ),
    ];
    for (faults, sentence) in rows {
        let solo = Solo::idle().await;
        solo.faults(faults);
        let status = solo
            .until(sentence, |status| {
                status.message.as_deref() == Some(sentence)
            })
            .await;
        assert_eq!(
            status.target_version.as_deref(),
            Some(NEW),
            "{sentence}: what it found before stays"
        );
        let words = solo.statuses().len();
        solo.never("the same is said again", || solo.statuses().len() > words)
            .await;
        solo.faults(Faults::default());
        solo.until(&format!("no message after {sentence}"), |status| {
            status.message.is_none()
        })
        .await;
        assert_eq!(solo.status().crash_count.unwrap_or(0), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_held_lock_is_reported_when_idle() {
    for (ours, told) in [
        (
            true,
            "refresh failed: it has not ended for more than 10 minutes",
        ),
        (
            false,
            "refresh failed: another update command has held the host's lock for more than 10 minutes",
        ),
    ] {
        let long = Duration::from_hours(2);
        let durations = if ours {
            Durations {
                refresh: long,
                ..Durations::default()
            }
        } else {
            Durations {
                prepare: long,
                ..Durations::default()
            }
        };
        let mut solo = Solo::new(durations, &[]);
        solo.start();
        if !ours {
            solo.until_idle_with_update().await;
            let api = brupop_agent::host::Host::new(solo.place.socket(), long);
            api.call(HostCall::Command(Typed::Prepare)).await.unwrap();
        }
        let status = solo
            .until(told, |status| status.message.as_deref() == Some(told))
            .await;
        assert_eq!(
            (status.current_state, status.crash_count),
            (Some(State::Idle), Some(0))
        );
        let words = solo.statuses().len();
        solo.never("the same is said again", || solo.statuses().len() > words)
            .await;
        solo.until("it has ended", |status| status.message.is_none())
            .await;
    }
}
