//! The client of the host's API against a simulated host.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use brupop_agent::host::{CommandAnswer, Host, HostError, StatusAnswer};
use brupop_agent::metrics::Metrics;
use brupop_agent_core::step::{Command, HostCall, UpdateState};
use brupop_host::{Answer, Call, Durations, Faults, HostPower};
use common::Place;

const DEADLINE: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_millis(500);

fn client(place: &Place) -> Host {
    Host::new(place.socket(), TIMEOUT)
}

async fn settled(client: &Host) -> StatusAnswer {
    let wait = async {
        loop {
            match client.status().await.unwrap() {
                StatusAnswer::Busy => tokio::task::yield_now().await,
                settled => return settled,
            }
        }
    };
    tokio::time::timeout(DEADLINE, wait).await.unwrap()
}

async fn run(client: &Host, command: Command) -> UpdateState {
    assert_eq!(client.call(HostCall::Command(command)).await.unwrap(), CommandAnswer::Begun);
    match settled(client).await {
        StatusAnswer::Known(status) => {
            let last = status.facts().last.unwrap();
            assert_eq!((last.kind, last.success), (Some(command), true));
            status.facts().state
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_whole_update() {
    let place = Place::new(Durations::default()).await;
    let client = client(&place);
    assert_eq!(client.os().await.unwrap().version, "1.19.4");
    assert_eq!(client.status().await.unwrap(), StatusAnswer::Unknown);
    assert_eq!(run(&client, Command::Refresh).await, UpdateState::Available);
    assert_eq!(run(&client, Command::Prepare).await, UpdateState::Staged);
    assert_eq!(run(&client, Command::Activate).await, UpdateState::Ready);
    assert_eq!(run(&client, Command::Deactivate).await, UpdateState::Staged);
    assert_eq!(run(&client, Command::Activate).await, UpdateState::Ready);
    let mut power = place.host.power();
    let before = place.host.boot_id();
    assert_eq!(client.call(HostCall::Reboot).await.unwrap(), CommandAnswer::Begun);
    let up = |power: &HostPower| matches!(power, HostPower::Up { boot_id, .. } if *boot_id != before);
    tokio::time::timeout(DEADLINE, power.wait_for(up)).await.unwrap().unwrap();
    assert_eq!(client.os().await.unwrap().version, "1.20.1");
    assert_eq!(client.status().await.unwrap(), StatusAnswer::Unknown);
}

#[tokio::test]
async fn refusals_keep_the_hosts_sentence() {
    let hour = Duration::from_secs(4000);
    let place = Place::new(Durations { prepare: hour, ..Durations::default() }).await;
    let client = client(&place);
    let activate = client.call(HostCall::Command(Command::Activate)).await.unwrap();
    assert!(matches!(activate, CommandAnswer::NotAllowed(sentence) if sentence.contains("not allowed")));
    run(&client, Command::Refresh).await;
    assert_eq!(client.call(HostCall::Command(Command::Prepare)).await.unwrap(), CommandAnswer::Begun);
    assert_eq!(client.call(HostCall::Command(Command::Refresh)).await.unwrap(), CommandAnswer::Busy);
    assert_eq!(client.status().await.unwrap(), StatusAnswer::Busy);
    place.host.set_faults(Faults::answer(Call::Reboot, Answer::Refused("inhibited by a shell".into())));
    let reboot = client.call(HostCall::Reboot).await.unwrap();
    assert_eq!(reboot, CommandAnswer::Failed("inhibited by a shell".into()));
}

type Check = fn(&HostError) -> bool;

#[tokio::test]
async fn whatever_goes_wrong_is_an_error_in_time() {
    let place = Place::new(Durations::default()).await;
    let metrics = Metrics::default();
    let mut client = client(&place);
    client.count(metrics.host_calls.clone());
    let rows: [(Answer, Check); 5] = [
        (Answer::Hang, |error| matches!(error, HostError::TimedOut { call: "GET /updates/status", .. })),
        (Answer::Half, |error| matches!(error, HostError::Broken { .. })),
        (Answer::Nonsense("{\"update_state\": 7}".into()), |error| {
            matches!(error, HostError::Nonsense { .. })
        }),
        (Answer::Nonsense(" ".repeat(3 << 20)), |error| matches!(error, HostError::TooLong { .. })),
        (Answer::Refused("no".into()), |error| matches!(error, HostError::Unexpected { status: 500, .. })),
    ];
    for (answer, check) in rows {
        place.host.set_faults(Faults::answer(Call::Status, answer.clone()));
        let begun = Instant::now();
        let error = client.status().await.unwrap_err();
        assert!(check(&error), "{error:?}");
        assert!(begun.elapsed() < TIMEOUT + Duration::from_secs(2), "{error}");
        // The other calls are none the worse for it.
        assert_eq!(client.os().await.unwrap().version, "1.19.4");
    }
    client.call(HostCall::Command(Command::Refresh)).await.unwrap();
    let told = metrics.render();
    let counted = told.lines().filter_map(|line| line.strip_prefix("brupop_agent_host_api_calls_total"));
    let counted: BTreeSet<_> = counted.collect();
    let expected = [
        r#"{call="os",result="ok"} 5"#,
        r#"{call="status",result="timed-out"} 1"#,
        r#"{call="status",result="cut-off"} 1"#,
        r#"{call="status",result="nonsense"} 2"#,
        r#"{call="status",result="unexpected"} 1"#,
        r#"{call="refresh",result="begun"} 1"#,
    ];
    assert_eq!(counted, BTreeSet::from(expected));
}

#[tokio::test]
async fn a_host_that_is_down_is_unreachable() {
    let place = Place::new(Durations { reboot: Duration::from_secs(4000), ..Durations::default() }).await;
    let mut power = place.host.power();
    place.host.reboot_now();
    tokio::time::timeout(DEADLINE, power.wait_for(|power| *power == HostPower::Down)).await.unwrap().unwrap();
    let error = client(&place).os().await.unwrap_err();
    assert!(matches!(error, HostError::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains("api.sock"), "{error}");
}
