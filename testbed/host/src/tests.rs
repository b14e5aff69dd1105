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
        arch: "x86_64".into(),
        boot_id_file: place.0.join("boot_id"),
        durations,
        faults: Faults::default(),
    })
    .unwrap();
    host.publish("1.20.1").unwrap();
    host
}

async fn exchange(place: &Place, method: &str, path: &str) -> String {
    let mut stream = UnixStream::connect(place.0.join("api.sock")).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(DEADLINE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    answer
}

async fn code(place: &Place, method: &str, path: &str) -> u16 {
    let answer = exchange(place, method, path).await;
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Asks for a command and for the status until it is there.
async fn run(place: &Place, action: &str) {
    assert_eq!(code(place, "POST", &format!("/actions/{action}")).await, 204, "{action}");
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
    assert_eq!(std::fs::read_to_string(place.0.join("boot_id")).unwrap(), format!("{first}\n"));
    assert!(exchange(&place, "GET", "/os").await.contains(r#""version_id":"1.19.4""#));
    let narrowed = exchange(&place, "GET", "/os?prefix=version").await;
    assert!(narrowed.ends_with(r#"{"version_id":"1.19.4"}"#), "{narrowed}");
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
    let up = |power: &HostPower| matches!(power, HostPower::Up { boot_id, .. } if *boot_id != first);
    timeout(DEADLINE, power.wait_for(up)).await.unwrap().unwrap();
    assert_eq!(host.version(), "1.20.1");
    assert_eq!(host.pretty_name(), "Bottlerocket OS 1.20.1 (aws-k8s-1.29)");
    assert_eq!(code(&place, "GET", "/updates/status").await, 404);
    let last = host.calls().pop().unwrap();
    assert_eq!((last.method.as_str(), last.path.as_str()), ("GET", "/updates/status"));
}

#[tokio::test]
async fn commands_need_the_lock_and_a_host_up() {
    let place = Place::new("down");
    let long = Duration::from_secs(4000);
    let host = start(&place, Durations { refresh: long, reboot: long, ..Durations::default() });
    assert_eq!(code(&place, "POST", "/actions/refresh-updates").await, 204);
    assert_eq!(code(&place, "GET", "/updates/status").await, 423);
    for action in ["refresh-updates", "prepare-update", "activate-update", "deactivate-update"] {
        assert_eq!(code(&place, "POST", &format!("/actions/{action}")).await, 423, "{action}");
    }
    assert_eq!(code(&place, "GET", "/os").await, 200, "the lock is of updates only");
    let mut power = host.power();
    host.reboot_now();
    timeout(DEADLINE, power.wait_for(|power| *power == HostPower::Down)).await.unwrap().unwrap();
    let refused = UnixStream::connect(place.0.join("api.sock")).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn faults_take_the_place_of_answers() {
    let place = Place::new("faults");
    let host = start(&place, Durations::default());
    host.set_faults(Faults::answer(Call::Os, Answer::Refused("the sky fell".into())));
    let answer = exchange(&place, "GET", "/os").await;
    assert!(answer.starts_with("HTTP/1.1 500") && answer.ends_with("the sky fell"), "{answer}");
    host.set_faults(Faults::answer(Call::Status, Answer::Nonsense("<html>".into())));
    assert!(exchange(&place, "GET", "/updates/status").await.ends_with("\r\n\r\n<html>"));
    host.set_faults(Faults::answer(Call::Status, Answer::Locked));
    assert_eq!(code(&place, "GET", "/updates/status").await, 423);
    let answer = exchange(&place, "GET", "/updates/status").await;
    assert!(
        answer.contains("text/plain") && answer.ends_with("another update command is running"),
        "{answer}"
    );
    for (false_answer, status) in [
        (Answer::NotFound("no chosen update".into()), 404),
        (Answer::NotAllowed("not now".into()), 409),
        (Answer::Refused("inhibited".into()), 500),
    ] {
        host.set_faults(Faults::answer(Call::Action(Command::Prepare), false_answer));
        assert_eq!(code(&place, "POST", "/actions/prepare-update").await, status);
    }
    host.set_faults(Faults::answer(Call::Status, Answer::Half));
    let half = exchange(&place, "GET", "/updates/status").await;
    assert!(half.contains("content-length: 4096") && half.len() < 200, "{half}");

    host.set_faults(Faults::failing(Command::Refresh, "no route"));
    run(&place, "refresh-updates").await;
    let status = exchange(&place, "GET", "/updates/status").await;
    assert!(status.contains(r#""cmd_status":"Failed""#) && status.contains("no route"), "{status}");

    host.set_faults(Faults { vanishing: [Command::Refresh].into(), ..Faults::default() });
    run(&place, "refresh-updates").await;
    let status = exchange(&place, "GET", "/updates/status").await;
    assert!(status.contains(r#""cmd_status":"Unknown""#) && status.contains(r#""stderr":null"#), "{status}");

    host.set_faults(Faults { reboot_ignored: true, ..Faults::default() });
    let boot = host.boot_id();
    assert_eq!(code(&place, "POST", "/actions/reboot").await, 204);
    assert_eq!(code(&place, "GET", "/os").await, 200);
    assert_eq!(host.boot_id(), boot);
}

#[tokio::test(start_paused = true)]
async fn a_second_request_is_refused_while_a_reboot_is_under_way() {
    let place = Place::new("again");
    let host = start(&place, Durations::default());
    host.set_faults(Faults { reboot_delay: Duration::from_mins(1), ..Faults::default() });
    let first = host.boot_id();
    for expected in [204, 500, 500] {
        assert_eq!(code(&place, "POST", "/actions/reboot").await, expected);
    }
    let mut power = host.power();
    let up = |power: &HostPower| matches!(power, HostPower::Up { boot_id, .. } if *boot_id != first);
    timeout(Duration::from_mins(2), power.wait_for(up)).await.unwrap().unwrap();
    assert_eq!(code(&place, "POST", "/actions/reboot").await, 204, "in the next boot");
}

#[tokio::test]
async fn a_host_without_dispatcher_refuses_each_command() {
    let place = Place::new("standalone");
    let host = start(&place, Durations::default());
    host.set_faults(Faults { no_dispatcher: true, ..Faults::default() });
    let answer = exchange(&place, "POST", "/actions/refresh-updates").await;
    assert!(
        answer.starts_with("HTTP/1.1 500") && answer.ends_with("Unable to start the update dispatcher"),
        "{answer}"
    );
    assert_eq!(code(&place, "GET", "/updates/status").await, 404);
}

#[tokio::test]
async fn a_hanging_call_gets_nothing_at_all() {
    let place = Place::new("hang");
    let host = start(&place, Durations::default());
    host.set_faults(Faults::answer(Call::Os, Answer::Hang));
    let mut stream = UnixStream::connect(place.0.join("api.sock")).await.unwrap();
    stream.write_all(b"GET /os HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let received = async {
        while host.calls().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, received).await.unwrap();
    let mut byte = [0];
    assert!(timeout(Duration::from_millis(100), stream.read(&mut byte)).await.is_err());

    // The same, but the host does what it is asked.
    let unanswered = [Call::Action(Command::Refresh)].into();
    host.set_faults(Faults { unanswered, ..Faults::default() });
    let mut stream = UnixStream::connect(place.0.join("api.sock")).await.unwrap();
    stream.write_all(b"POST /actions/refresh-updates HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let refreshed =
        async { while !exchange(&place, "GET", "/updates/status").await.contains("\"refresh\"") {} };
    timeout(DEADLINE, refreshed).await.unwrap();
    assert!(timeout(Duration::from_millis(100), stream.read(&mut byte)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn reading_the_status_takes_the_lock_too() {
    let place = Place::new("shared");
    let host = start(&place, Durations { status: Duration::from_secs(1), ..Durations::default() });
    let asks = exchange(&place, "GET", "/updates/status");
    let commands = async {
        while host.calls().is_empty() {
            tokio::task::yield_now().await;
        }
        code(&place, "POST", "/actions/refresh-updates").await
    };
    let (_, locked) = tokio::join!(asks, commands);
    assert_eq!(locked, 423);
    assert_eq!(code(&place, "POST", "/actions/refresh-updates").await, 204);
}

#[tokio::test(start_paused = true)]
async fn a_command_that_takes_longer_keeps_the_lock() {
    let place = Place::new("lasting");
    let host = start(&place, Durations::default());
    let lasting = [(Command::Refresh, Duration::from_secs(30))].into();
    host.set_faults(Faults { lasting, ..Faults::default() });
    assert_eq!(code(&place, "POST", "/actions/refresh-updates").await, 204);
    host.set_faults(Faults::default());
    assert_eq!(code(&place, "GET", "/updates/status").await, 423, "it has been started");
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(code(&place, "GET", "/updates/status").await, 200);
}
