//! Commands that take long, are refused, fail, or are never heard of again.

use std::time::Duration;

use brupop_agent_core::step::{Command as Typed, HostCall};
use brupop_api::{Problem, State};
use brupop_host::{Answer, Call, Command, Durations, Faults};
use serde_json::json;

use crate::solo::{OLD, STAGED, Solo};

/// Nothing was called a failure on the way.
fn assert_well(solo: &Solo) {
    for status in solo.statuses() {
        assert_eq!(status.crash_count.unwrap_or(0), 0, "{status:#?}");
        assert_ne!(status.current_state, Some(State::ErrorReset), "{status:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_download_of_eight_hours_is_awaited_by_whichever_agent() {
    let prepare = Duration::from_hours(8);
    for killed in [false, true] {
        let mut solo = Solo::slow(|it| it.prepare = prepare).await;
        solo.stage(1);
        solo.until_called("prepare-update", 0).await;
        if killed {
            solo.start();
        }
        assert_eq!(solo.until_at(1, STAGED).await.message, None);
        assert_well(&solo);
        assert_eq!(solo.count("prepare-update"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_held_for_minutes_is_no_failure() {
    for command in [Command::Refresh, Command::Prepare, Command::Activate] {
        let solo = Solo::idle().await;
        solo.faults(Faults::answer(Call::Action(command), Answer::Locked));
        let name = ["refresh-updates", "prepare-update", "activate-update", ""][command as usize];
        let before = solo.count(name);
        solo.stage(1);
        solo.until_called(name, before + 5).await;
        solo.faults(Faults::default());
        solo.until_at(1, STAGED).await;
        assert_well(&solo);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hosts_refusal_enters_and_leaves_the_message() {
    let [refresh, prepare] = [Command::Refresh, Command::Prepare].map(Call::Action);
    let refused = |words: &str| Answer::Refused(words.into());
    let not_found = |words: &str| Answer::NotFound(words.into());
    let not_allowed = |words: &str| Answer::NotAllowed(words.into());
    let (evil, escaped) = (
        "\u{1b}[2J\0\nnot\u{202e} now",
        r"\u{1b}[2J\u{0} not\u{202e} now",
    );
    let (noise, cut) = (
        "\u{9b}no\u{feff} ".repeat(10_000),
        r"500: \u{9b}no\u{feff} \u{9b}",
    );
    let nonsense = |words: &str| Answer::Nonsense(words.into());
    let of_refresh = [(refused("on fire"), "refresh was refused: on fire")];
    let of_prepare = [
        (not_found("none"), "prepare was refused: none"),
        (not_allowed("not now"), "prepare was refused: not now"),
        (not_allowed(evil), escaped),
        (Answer::Half, "was cut off"),
        (Answer::Hang, "got no answer within 10 s"),
    ];
    let of_status = [
        (refused("no memory"), "was answered with 500: no memory"),
        (refused(&noise), cut),
        (nonsense(&" ".repeat(5 << 20)), "was cut off"),
        (Answer::Half, "answer to GET /updates/status was cut off"),
        (
            Answer::Hang,
            "GET /updates/status got no answer within 10 s",
        ),
        (nonsense("<html>"), "cannot be understood"),
    ];
    let of_refresh = of_refresh.map(|row| (refresh, row));
    let of_prepare = of_prepare.map(|row| (prepare, row));
    let of_status = of_status.map(|row| (Call::Status, row));
    let rows = of_refresh.into_iter().chain(of_prepare).chain(of_status);
    for (call, (answer, sentence)) in rows {
        let solo = Solo::idle().await;
        solo.faults(Faults::answer(call, answer));
        solo.stage(1);
        let problem = solo.until_told(sentence).await.problem;
        let is_of_api = problem.is_some_and(Problem::is_of_host_api);
        assert!(is_of_api, "{sentence}: {problem:?}");
        solo.faults(Faults::default());
        solo.until_at(1, STAGED).await;
        solo.until_well().await;
        assert_well(&solo);
    }
}

#[tokio::test(start_paused = true)]
async fn a_command_refused_for_good_ends_the_attempt() {
    let none = Answer::NotFound("none".into());
    let not_now = Answer::NotAllowed("not now".into());
    let fire = Answer::Refused("on fire".into());
    let locked = "prepare was refused: Update lock held: another update command is running";
    for (command, answer, words) in [
        (Command::Prepare, none, "prepare was refused: none"),
        (Command::Prepare, not_now, "prepare was refused: not now"),
        (Command::Activate, fire, "activate was refused: on fire"),
        // Although the host says that nothing runs.
        (Command::Prepare, Answer::Locked, locked),
    ] {
        let solo = Solo::idle().await;
        solo.faults(Faults::answer(Call::Action(command), answer));
        solo.stage(1);
        let status = solo.until_at(1, State::ErrorReset).await;
        let told = format!("the host refuses the commands of the update: {words}");
        assert_eq!(status.message, Some(told));
        let actions = solo.actions();
        let count = actions.len();
        assert!(count < 300, "{count}: the host is asked without pause");
        solo.never("anything more is tried", || solo.actions() != actions)
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_hiding_its_version_is_reported() {
    let mut solo = Solo::new(&[]);
    let refused = Answer::Refused("no os-release".into());
    let latest = Answer::Nonsense(r#"{"version_id": "latest"}"#.into());
    for (answer, sentence) in [
        (refused, "GET /os was answered with 500: no os-release"),
        (latest, "\"latest\" is not a version"),
        (Answer::Hang, "GET /os got no answer"),
        (Answer::Half, "the answer to GET /os was cut off"),
    ] {
        solo.faults(Faults::answer(Call::Os, answer));
        solo.start();
        let status = solo.until_told(sentence).await;
        let made_up = (status.current_version, status.current_state);
        assert_eq!(made_up, (None, None));
    }
    solo.faults(Faults::default());
    let status = solo.until_idle_with_update().await;
    assert_eq!(
        (status.current_version.as_deref(), status.message),
        (Some(OLD), None)
    );
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_command_is_not_sent_twice() {
    let prepare = Duration::from_hours(1);
    for command in [Command::Refresh, Command::Prepare, Command::Activate] {
        let solo = Solo::slow(|it| it.prepare = prepare).await;
        let before = solo.count("refresh-updates");
        solo.faults(Faults::answer(Call::Action(command), Answer::Lost));
        solo.stage(1);
        if command == Command::Refresh {
            // It changes nothing, so it may be asked for again.
            solo.until_called("refresh-updates", before).await;
            solo.faults(Faults::default());
        }
        solo.until_at(1, STAGED).await;
        assert_eq!(solo.staged(), (1, 1), "{command:?}");
        let statuses = solo.statuses().into_iter();
        let told: Vec<_> = statuses.filter_map(|status| status.message).collect();
        let is_silent = command == Command::Refresh || told.is_empty();
        assert!(is_silent, "it had begun, and was there: {told:?}");
        assert_well(&solo);
    }
}

#[tokio::test(start_paused = true)]
async fn a_boot_in_mid_update_begins_it_again() {
    for command in ["prepare-update", "activate-update"] {
        let long = Duration::from_mins(10);
        let solo = Solo::slow(|it| (it.prepare, it.activate) = (long, long)).await;
        let boot = solo.place.host.boot_id();
        solo.stage(1);
        solo.until_called(command, 0).await;
        solo.place.host.reboot_now();
        solo.until_booted(&boot).await;
        solo.until_at(1, STAGED).await;
        // What was staged before the boot is not trusted.
        assert_eq!(solo.count("prepare-update"), 2);
        assert_eq!(solo.place.host.version(), OLD);
        assert_well(&solo);
    }
}

#[tokio::test(start_paused = true)]
async fn an_image_without_dispatcher_has_no_in_place_updates() {
    let mut solo = Solo::new(&[]);
    let no_dispatcher =
        "Unable to start the update dispatcher: No such file or directory (os error 2)";
    solo.faults(Faults::answer(
        Call::Action(Command::Refresh),
        Answer::Refused(no_dispatcher.into()),
    ));
    solo.start();
    let has_none = |problem| problem == Some(Problem::NoInPlaceUpdates);
    let status = solo
        .until("no in-place updates", |status| has_none(status.problem))
        .await;
    assert_eq!(
        status.message,
        Some(format!("refresh was refused: {no_dispatcher}"))
    );
    solo.never("another word", || !has_none(solo.status().problem))
        .await;
    solo.faults(Faults::default());
    solo.until_idle_with_update().await;
    solo.until("all is well", |status| status.problem.is_none())
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_host_with_one_partition_set_has_no_in_place_updates() {
    for prefetch in [false, true] {
        let mut solo = Solo::new(if prefetch { &["--prefetch"][..] } else { &[] });
        solo.faults(Faults::failing(
            Command::Prepare,
            "Could not find inactive partition set",
        ));
        solo.start();
        solo.until_idle_with_update().await;
        if !prefetch {
            solo.stage(1);
            solo.until_at(1, State::ErrorReset).await;
            solo.spec(&json!({"state": "Idle"}));
            solo.until_at(1, State::Idle).await;
        }
        let has_none = |problem| problem == Some(Problem::NoInPlaceUpdates);
        let status = solo
            .until("no in-place updates", |status| has_none(status.problem))
            .await;
        assert!(
            status
                .message
                .unwrap()
                .ends_with(": Could not find inactive partition set")
        );
        let looked = solo.count("refresh-updates");
        solo.never("another word", || !has_none(solo.status().problem))
            .await;
        assert!(
            solo.count("refresh-updates") > looked,
            "although it looks for updates, and finds one"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_held_lock_is_reported_when_idle() {
    for (ours, told) in [
        (true, "it has not ended"),
        (false, "another update command has held the host's lock"),
    ] {
        let long = Duration::from_hours(2);
        let lasts = |it: &mut Durations| {
            if ours {
                it.refresh = long;
            } else {
                it.prepare = long;
            }
        };
        let mut solo = Solo::slowly(lasts, &[]);
        solo.start();
        if !ours {
            solo.until_idle_with_update().await;
            let api = brupop_agent::host::Host::new(solo.place.socket(), long);
            api.call(HostCall::Command(Typed::Prepare)).await.unwrap();
        }
        let told = format!("refresh failed: {told} for more than 10 minutes");
        let status = solo.until_told(&told).await;
        assert_eq!(
            (status.current_state, status.crash_count),
            (Some(State::Idle), Some(0))
        );
        let words = solo.statuses().len();
        solo.never("the same is said again", || solo.statuses().len() > words)
            .await;
        solo.until_well().await;
    }
}
