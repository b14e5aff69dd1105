//! The client of the host's API against a simulated host.

use std::time::{Duration, Instant};

use brupop_agent::host::{Host, HostError};
use brupop_agent_core::step::{Command, HostCall};
use brupop_host::{Answer, Call, Command as Simulated, Durations, Faults, HostPower};

use crate::place::Place;

const DEADLINE: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_millis(500);

type Check = fn(&HostError) -> bool;

#[tokio::test]
async fn whatever_goes_wrong_is_an_error_in_time() {
    let place = Place::new(Durations {
        reboot: Duration::from_secs(4000),
        ..Durations::default()
    });
    let client = Host::new(place.socket(), TIMEOUT);
    let rows: [(Answer, Check); 5] = [
        (Answer::Hang, |error| {
            matches!(
                error,
                HostError::TimedOut {
                    call: "GET /updates/status",
                    ..
                }
            )
        }),
        (Answer::Half, |error| {
            matches!(error, HostError::Broken { .. })
        }),
        (Answer::Nonsense("{\"update_state\": 7}".into()), |error| {
            matches!(error, HostError::Nonsense { .. })
        }),
        (Answer::Nonsense(" ".repeat(5 << 20)), |error| {
            matches!(error, HostError::Broken { .. })
        }),
        (Answer::Refused("no".into()), |error| {
            matches!(error, HostError::Unexpected { status: 500, .. })
        }),
    ];
    for (answer, check) in rows {
        place
            .host
            .set_faults(Faults::answer(Call::Status, answer.clone()));
        let begun = Instant::now();
        let error = client.status().await.unwrap_err();
        assert!(check(&error), "{error:?}");
        assert!(
            begun.elapsed() < TIMEOUT + Duration::from_secs(2),
            "{error}"
        );
        // The other calls are none the worse for it.
        assert_eq!(client.os().await.unwrap(), "1.19.4");
    }
    let refresh = HostCall::Command(Command::Refresh);
    let idle = Answer::Nonsense(r#"{"update_state": "Idle"}"#.into());
    for answer in [None, Some(Answer::Locked), Some(idle)] {
        place
            .host
            .set_faults(answer.map_or_else(Faults::default, |answer| {
                Faults::answer(Call::Status, answer)
            }));
        client.status().await.unwrap();
    }
    for (call, made, answer) in [
        (Call::Action(Simulated::Refresh), refresh, Answer::Locked),
        (
            Call::Reboot,
            HostCall::Reboot,
            Answer::NotFound("no".into()),
        ),
        (
            Call::Reboot,
            HostCall::Reboot,
            Answer::NotAllowed("no".into()),
        ),
        (Call::Reboot, HostCall::Reboot, Answer::Refused("no".into())),
    ] {
        place.host.set_faults(Faults::answer(call, answer));
        client.call(made).await.unwrap();
    }
    place.host.set_faults(Faults::default());
    client.call(refresh).await.unwrap();
    let mut power = place.host.power();
    place.host.reboot_now();
    tokio::time::timeout(DEADLINE, power.wait_for(|power| *power == HostPower::Down))
        .await
        .unwrap()
        .unwrap();
    let error = client.os().await.unwrap_err();
    assert!(matches!(error, HostError::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains("api.sock"), "{error}");
}
