//! Looks for updates that fail on an idle host are said, and taken back by the next one that succeeds.

use std::time::Duration;

use brupop_agent_core::step::{Command as Typed, HostCall};
use brupop_api::State;
use brupop_host::{Answer, Call, Choice, Command, Durations, Faults, Unused};

use crate::solo::{NEW, Solo};

#[tokio::test(start_paused = true)]
async fn a_refresh_failure_shows_until_one_succeeds() {
    let answers = |answer| Faults::answer(Call::Action(Command::Refresh), answer);
    let vanishing = Faults { vanishing: [Command::Refresh].into(), ..Faults::default() };
    let lost = Faults { lost: [Command::Refresh].into(), ..Faults::default() };
    let rows = [
        (Faults::failing(Command::Refresh, "no route"), "refresh failed with exit status 1: no route"),
        (vanishing, "refresh failed with no exit status: "),
        (lost, "refresh failed: the host does not say how it ended"),
        (answers(Answer::Refused("disk on fire".into())), "refresh was refused: disk on fire"),
        (answers(Answer::NotFound("no such action".into())), "refresh was refused: no such action"),
        (answers(Answer::NotAllowed("not now".into())), "refresh was refused: not now"),
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
async fn two_problems_are_not_reported_in_turn() {
    let solo = Solo::idle().await;
    solo.faults(Faults::failing(Command::Refresh, "no route"));
    solo.until("the first", |status| status.message.is_some()).await;
    let words = solo.statuses().len();
    solo.faults(Faults::answer(Call::Action(Command::Refresh), Answer::Refused("disk on fire".into())));
    let told = |message: &String| message.ends_with("disk on fire");
    solo.until("the second", |status| status.message.as_ref().is_some_and(told)).await;
    solo.never("a flood", || solo.statuses().len() > words + 2).await;
}

/// The document of a host that was asked once in this boot, and whose command was killed, names no update.
#[tokio::test(start_paused = true)]
async fn a_killed_first_refresh_withdraws_no_known_target() {
    let solo = Solo::idle().await;
    let boot = solo.place.host.boot_id();
    solo.faults(Faults { lost: [Command::Refresh].into(), ..Faults::default() });
    solo.place.host.reboot_now();
    solo.until_booted(&boot).await;
    let told = "refresh failed: the host does not say how it ended";
    let status = solo.until(told, |status| status.message.as_deref() == Some(told)).await;
    assert_eq!(status.target_version.as_deref(), Some(NEW));
    solo.never("no target", || solo.status().target_version.is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn slow_failing_refreshes_are_reported_once() {
    let refresh = Duration::from_secs(20);
    let solo = Solo::idle_with(Durations { refresh, ..Durations::default() }, &[]).await;
    solo.faults(Faults::failing(Command::Refresh, "no route"));
    solo.until("said", |status| status.message.is_some()).await;
    let words = solo.statuses().len();
    solo.never("it is taken back in between", || solo.statuses().len() > words).await;
}

#[tokio::test(start_paused = true)]
async fn overlong_failing_refreshes_are_reported_once() {
    let mut solo =
        Solo::new(Durations { refresh: Duration::from_mins(15), ..Durations::default() }, &[]).await;
    solo.faults(Faults::failing(Command::Refresh, "no route"));
    solo.start();
    let told = "refresh failed with exit status 1: no route";
    solo.until(told, |status| status.message.as_deref() == Some(told)).await;
    let words = solo.statuses().len();
    solo.never("it is said in turn with another", || solo.statuses().len() > words).await;
}

/// One problem takes the place of the other: in between it would look as if an update could begin.
#[tokio::test(start_paused = true)]
async fn failed_refreshes_outlast_an_absent_api() {
    let solo = Solo::idle().await;
    solo.faults(Faults::failing(Command::Refresh, "no route"));
    let told = "refresh failed with exit status 1: no route";
    solo.until(told, |status| status.message.as_deref() == Some(told)).await;
    let words = solo.statuses().len();
    let away = Faults::answer(Call::Status, Answer::Refused("no memory".into()));
    solo.faults(away);
    let gone = "GET /updates/status was answered with 500: no memory";
    solo.until(gone, |status| status.message.as_ref().is_some_and(|it| it.ends_with(gone))).await;
    solo.faults(Faults::failing(Command::Refresh, "no route"));
    solo.until(told, |status| status.message.as_deref() == Some(told)).await;
    let since = solo.statuses().split_off(words);
    assert!(since.iter().all(|status| status.message.is_some()), "{since:#?}");
}

/// The refresh is a success, and yet the host did not get to choosing.
#[tokio::test(start_paused = true)]
async fn an_available_update_not_chosen_is_named() {
    let lock = |version: &str| Choice { version_lock: Some(version.into()), ..Choice::default() };
    for choice in [Choice { unused: Some(Unused::Settings), ..Choice::default() }, lock("1.19.4")] {
        let refresh = Duration::from_secs(20);
        let mut solo = Solo::new(Durations { refresh, ..Durations::default() }, &[]).await;
        solo.place.host.publish("1.18.0").unwrap();
        solo.faults(Faults::choice(choice));
        solo.start();
        let told = |message: &String| {
            message.starts_with("the host chooses no update, although 1.20.1 is available")
        };
        let status = solo.until("named", |status| status.message.as_ref().is_some_and(told)).await;
        assert_eq!((status.target_version, status.crash_count), (None, Some(0)));
        let words = solo.statuses().len();
        solo.never("the same is said again", || solo.statuses().len() > words).await;
        solo.faults(Faults::default());
        assert_eq!(solo.until_idle_with_update().await.message, None);
    }
    let mut solo = Solo::new(Durations::default(), &[]).await;
    solo.place.host.withdraw(NEW);
    solo.place.host.publish("1.19.4").unwrap();
    solo.place.host.publish("1.18.0").unwrap();
    solo.start();
    solo.until_called("refresh-updates", 1).await;
    assert_eq!(solo.status().message, None, "what is older is no update");
}

#[tokio::test(start_paused = true)]
async fn a_long_held_lock_is_reported_when_idle() {
    for (ours, told) in [
        (true, "refresh failed: it has not ended for more than 10 minutes"),
        (false, "refresh failed: another update command has held the host's lock for more than 10 minutes"),
    ] {
        let long = Duration::from_hours(2);
        let durations = if ours {
            Durations { refresh: long, ..Durations::default() }
        } else {
            Durations { prepare: long, ..Durations::default() }
        };
        let mut solo = Solo::new(durations, &[]).await;
        solo.start();
        if !ours {
            solo.until_idle_with_update().await;
            let api = brupop_agent::host::Host::new(solo.place.socket(), long);
            api.call(HostCall::Command(Typed::Prepare)).await.unwrap();
        }
        let status = solo.until(told, |status| status.message.as_deref() == Some(told)).await;
        assert_eq!((status.current_state, status.crash_count), (Some(State::Idle), Some(0)));
        let words = solo.statuses().len();
        solo.never("the same is said again", || solo.statuses().len() > words).await;
        solo.until("it has ended", |status| status.message.is_none()).await;
    }
}
