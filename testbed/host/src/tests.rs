use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::*;

const DEADLINE: Duration = Duration::from_secs(10);

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("brupop-host-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn start(place: &Place, durations: Durations) -> Host {
    let host = Host::start(HostOptions {
        socket: place.0.join("api.sock"),
        socket_group: None,
        version: "1.19.4".into(),
        variant: "aws-k8s-1.29".into(),
        boot_id_file: place.0.join("boot_id"),
        durations,
    })
    .unwrap();
    host.publish("1.20.1").unwrap();
    host
}

async fn exchange(place: &Place, method: &str, path: &str) -> String {
    let mut stream = UnixStream::connect(place.0.join("api.sock")).await.unwrap();
    let request =
        format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(DEADLINE, stream.read_to_string(&mut answer))
        .await
        .unwrap()
        .unwrap();
    answer
}

async fn code(place: &Place, method: &str, path: &str) -> u16 {
    let answer = exchange(place, method, path).await;
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Asks for a command and for the status until it is there.
async fn run(place: &Place, action: &str) {
    assert_eq!(
        code(place, "POST", &format!("/actions/{action}")).await,
        204,
        "{action}"
    );
    let unlocked = async {
        while code(place, "GET", "/updates/status").await == 423 {
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, unlocked).await.unwrap();
}

#[tokio::test]
async fn an_update_over_the_socket() {
    let place = Place::new("update");
    let host = start(&place, Durations::default());
    let first = host.boot_id();
    assert_eq!(
        std::fs::read_to_string(place.0.join("boot_id")).unwrap(),
        format!("{first}\n")
    );
    assert!(
        exchange(&place, "GET", "/os")
            .await
            .contains(r#""version_id":"1.19.4""#)
    );
    assert_eq!(code(&place, "GET", "/updates/status").await, 404);
    assert_eq!(code(&place, "POST", "/actions/prepare-update").await, 409);
    for action in ["refresh-updates", "prepare-update", "activate-update"] {
        run(&place, action).await;
    }
    let status = exchange(&place, "GET", "/updates/status").await;
    let (_, body) = status.split_once("\r\n\r\n").unwrap();
    let status: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(status["update_state"], "Ready");
    assert_eq!(status["staging_partition"]["image"]["version"], "1.20.1");
    assert_eq!(status["staging_partition"]["next_to_boot"], true);
    assert_eq!(status["most_recent_command"]["cmd_type"], "activate");
    assert_eq!(status["most_recent_command"]["cmd_status"], "Success");

    let mut power = host.power();
    power.mark_unchanged();
    assert_eq!(code(&place, "POST", "/actions/reboot").await, 204);
    let up =
        |power: &HostPower| matches!(power, HostPower::Up { boot_id, .. } if *boot_id != first);
    timeout(DEADLINE, power.wait_for(up))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(host.version(), "1.20.1");
    assert_eq!(host.pretty_name(), "Bottlerocket OS 1.20.1 (aws-k8s-1.29)");
    assert_eq!(code(&place, "GET", "/updates/status").await, 404);
    assert_eq!((host.count("reboot"), host.count("prepare-update")), (1, 2));
}

#[tokio::test]
async fn commands_need_the_lock_and_a_host_up() {
    let place = Place::new("down");
    let long = Duration::from_secs(4000);
    let host = start(
        &place,
        Durations {
            refresh: long,
            reboot: long,
            ..Durations::default()
        },
    );
    assert_eq!(code(&place, "POST", "/actions/refresh-updates").await, 204);
    assert_eq!(code(&place, "GET", "/updates/status").await, 423);
    for action in [
        "refresh-updates",
        "prepare-update",
        "activate-update",
        "deactivate-update",
    ] {
        assert_eq!(
            code(&place, "POST", &format!("/actions/{action}")).await,
            423,
            "{action}"
        );
    }
    assert_eq!(
        code(&place, "GET", "/os").await,
        200,
        "the lock is of updates only"
    );
    let mut power = host.power();
    host.reboot_now();
    timeout(DEADLINE, power.wait_for(|power| *power == HostPower::Down))
        .await
        .unwrap()
        .unwrap();
    let refused = UnixStream::connect(place.0.join("api.sock"))
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn a_call_whose_answer_is_lost_is_carried_out() {
    let place = Place::new("lost");
    let host = start(&place, Durations::default());
    host.set_faults(Faults::answer(Call::Action(Command::Refresh), Answer::Lost));
    let lost = code(&place, "POST", "/actions/refresh-updates");
    let refreshed = async {
        while !exchange(&place, "GET", "/updates/status")
            .await
            .contains("\"refresh\"")
        {}
    };
    tokio::select! {
        code = lost => panic!("answered with {code}"),
        done = timeout(DEADLINE, refreshed) => done.unwrap(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_command_that_takes_longer_keeps_the_lock() {
    let place = Place::new("lasting");
    let host = start(&place, Durations::default());
    let lasting = [(Command::Refresh, Duration::from_secs(30))].into();
    host.set_faults(Faults {
        lasting,
        ..Faults::default()
    });
    assert_eq!(code(&place, "POST", "/actions/refresh-updates").await, 204);
    host.set_faults(Faults::default());
    assert_eq!(
        code(&place, "GET", "/updates/status").await,
        423,
        "it has been started"
    );
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(code(&place, "GET", "/updates/status").await, 200);
}
