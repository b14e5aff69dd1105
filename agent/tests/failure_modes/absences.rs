//! Nobody listens on the socket: for a moment, until there is a new container, or for good.

use std::time::Duration;

use brupop_api::{Problem, State};
use brupop_host::{Answer, Call, Command, Faults};
use tokio::time::Instant;

use crate::solo::{STAGED, Solo};

async fn mounted() -> Solo {
    let mut solo = Solo::new(&[]);
    solo.mount();
    solo.start();
    solo.until_idle_with_update().await;
    solo
}

#[tokio::test(start_paused = true)]
async fn a_restarted_host_api_needs_a_new_container() {
    let solo = mounted().await;
    solo.place.host.restart_api(Duration::from_secs(1));
    solo.until_told("nobody answers on ").await;
    solo.stage(1);
    solo.until_at(1, STAGED).await;
    assert_eq!(solo.ends(), 1);
    let status = solo.until_well().await;
    assert_eq!(status.crash_count.unwrap_or(0), 0);
    assert_eq!(solo.staged(), (1, 1));
}

/// Returns since when the host's API has been said to be silent, if it is said.
fn silent_since(solo: &Solo) -> Option<String> {
    let status = solo.status();
    status
        .problem_since
        .filter(|_| status.problem == Some(Problem::HostUnreachable))
}

async fn until_silent(solo: &Solo) -> String {
    solo.until_problem(Problem::HostUnreachable).await;
    silent_since(solo).unwrap()
}

#[tokio::test(start_paused = true)]
async fn silence_in_mid_update_ends_the_attempt() {
    let silent = [
        Call::Status,
        Call::Action(Command::Prepare),
        Call::Action(Command::Activate),
    ];
    for call in silent {
        let solo = Solo::idle().await;
        solo.faults(Faults::answer(call, Answer::Hang));
        solo.stage(1);
        until_silent(&solo).await;
        let since = Instant::now();
        let status = solo.until_at(1, State::ErrorReset).await;
        assert!(
            (3..=6).contains(&(since.elapsed().as_secs() / 60)),
            "{call:?}: {:?}",
            since.elapsed()
        );
        let message = status.message.unwrap();
        assert!(
            message.starts_with("the host's API does not answer: "),
            "{message}"
        );
        assert_eq!(
            (status.problem, status.crash_count),
            (Some(Problem::StepFailed), Some(1))
        );
        assert_eq!(solo.ends(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn silence_after_the_claim_ends_nothing() {
    let solo = Solo::idle().await;
    solo.stage(1);
    solo.until_at(1, STAGED).await;
    solo.faults(Faults {
        reboot_ignored: true,
        ..Faults::default()
    });
    solo.grant();
    solo.until_called("reboot", 0).await;
    solo.faults(Faults::answer(Call::Status, Answer::Hang));
    until_silent(&solo).await;
    solo.never("it fails", || {
        solo.status().current_state == Some(State::ErrorReset)
    })
    .await;
}

/// The API server has died, and with it one agent after the other: only the status remembers for how long.
#[tokio::test(start_paused = true)]
async fn since_when_it_is_silent_survives_agents() {
    let solo = mounted().await;
    solo.faults(Faults {
        lasting: [(Command::Prepare, Duration::from_hours(1))].into(),
        ..Faults::default()
    });
    solo.stage(1);
    solo.until_called("prepare-update", 0).await;
    solo.place.host.restart_api(Duration::from_hours(2));
    let since = until_silent(&solo).await;
    solo.never("it changes", || silent_since(&solo) != Some(since.clone()))
        .await;
    assert!(solo.ends() > 10, "{}", solo.ends());
}
