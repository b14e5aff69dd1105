//! The shipped agent on a simulated host, against a real API server.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod world;

use brupop_testbed::DEADLINE;
use std::time::Duration;

use brupop_api::{BottlerocketShadowStatus, State};
use brupop_testbed::host::{Answer, Call, Durations, Faults};
use brupop_testbed::operator::binaries;
use brupop_testbed::sandbox::Signal;
use kube::api::DeleteParams;
use serde_json::json;
use world::{SHADOW, World};

fn at(attempt: u64, state: State) -> impl Fn(&BottlerocketShadowStatus) -> bool {
    move |status| status.current_state == Some(state) && status.attempt == Some(attempt)
}

async fn idle_with_update(world: &World) -> BottlerocketShadowStatus {
    world
        .until("Idle, and an update", |status| {
            status.current_state == Some(State::Idle) && status.target_version.as_deref() == Some("1.20.1")
        })
        .await
}

async fn stage(world: &World, attempt: u64) {
    world
        .spec(json!({
            "state": "StagedAndPerformedUpdate", "version": "1.20.1", "attempt": attempt,
            "baseline_boot_id": world.host.boot_id(),
        }))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_update_and_then_silence() {
    let mut world = World::new(Durations::default()).await;
    world.start_agent(&[]);
    world.create_shadow().await;
    let status = idle_with_update(&world).await;
    let first_boot = world.host.boot_id();
    assert_eq!(status.current_version.as_deref(), Some("1.19.4"));
    assert_eq!(status.boot_id, Some(first_boot.clone()));

    stage(&world, 1).await;
    let status = world.until("staged", at(1, State::StagedAndPerformedUpdate)).await;
    assert_eq!(status.staged.map(|staged| staged.version).as_deref(), Some("1.20.1"));
    assert_eq!(world.host.boot_id(), first_boot, "nothing is rebooted without a grant");
    world.spec(json!({"state": "RebootedIntoUpdate"})).await;
    world.spec(json!({"reboot_from_boot_id": first_boot})).await;
    let status = world.until("rebooted", at(1, State::RebootedIntoUpdate)).await;
    assert_eq!(status.reboot_requested, Some(first_boot));
    assert_eq!(status.boot_id, Some(world.host.boot_id()));
    assert_eq!(status.current_version.as_deref(), Some("1.20.1"));
    world.spec(json!({"state": "MonitoringUpdate"})).await;
    world.until("monitoring", at(1, State::MonitoringUpdate)).await;
    world.spec(json!({"state": "Idle"})).await;
    let status = world.until("Idle", at(1, State::Idle)).await;
    assert_eq!((status.staged, status.reboot_requested, status.message), (None, None, None));
    world.until("no update left", |status| status.target_version.is_none()).await;

    // The host is asked again and again; the API server hears nothing, for nothing changes.
    let mut audit = world.control_plane.audit().from_now();
    let refreshes = |world: &World| {
        let calls = world.host.calls();
        calls.iter().filter(|call| call.path == "/actions/refresh-updates").count()
    };
    let before = refreshes(&world);
    brupop_testbed::await_until("three more refreshes", async || {
        (refreshes(&world) >= before + 3).then_some(())
    })
    .await
    .unwrap();
    let requests = audit.read().unwrap();
    let ours: Vec<_> = requests.iter().filter(|event| event.user.username.contains("brupop-agent")).collect();
    assert!(ours.is_empty(), "{ours:#?}");

    assert_eq!(world.listeners(), [""; 0], "it listens nowhere");
    ends_at_once(&mut world).await;

    // Only if it is told to; and as long as it cannot, it looks after its host all the same.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let before = refreshes(&world);
    world.start_agent(&[("METRICS_ADDRESS", &address.to_string())]);
    let more = async || (refreshes(&world) > before).then_some(());
    brupop_testbed::await_until("a refresh without a port", more).await.unwrap();
    assert_eq!(world.listeners(), [""; 0], "the port is taken");
    drop(taken);
    let listens = brupop_testbed::await_until("it listens", async || {
        let listens = world.listeners();
        (!listens.is_empty()).then_some(listens)
    });
    assert_eq!(listens.await.unwrap().len(), 1);
    // Nor does a peer that says nothing keep it from its end.
    let _silent = std::net::TcpStream::connect(address).unwrap();
    ends_at_once(&mut world).await;
}

/// SIGTERM ends the agent at once, and cleanly.
async fn ends_at_once(world: &mut World) {
    let mut agent = world.agent.take().unwrap();
    agent.signal(Signal::TERM).unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(2), agent.wait()).await.unwrap().unwrap();
    assert!(ended.success(), "{ended}");
}

/// The kubelet restarts an agent whose process stands still.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_agent_fails_its_probe() {
    let mut world = World::new(Durations::default()).await;
    let pod = format!("probed-{}", std::process::id());
    world.start_agent(&[("POD_NAME", &pod)]);
    world.create_shadow().await;
    idle_with_update(&world).await;
    let probe = || {
        let mut program =
            std::process::Command::new(binaries(&["brupop-agent"]).unwrap().join("brupop-agent"));
        let ended = program.arg("--probe").env_clear().env("POD_NAME", &pod).output().unwrap();
        (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned())
    };
    let agent = |world: &World, signal| world.agent.as_ref().unwrap().signal(signal).unwrap();
    assert_eq!(probe(), (Some(0), String::new()));
    agent(&world, Signal::STOP);
    assert_eq!(probe(), (Some(1), format!("the agent of the pod {pod} has not answered for 3 s\n")));
    agent(&world, Signal::CONT);
    assert_eq!(probe(), (Some(0), String::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn starts_in_any_order_and_refuses_wrong_nodes() {
    let mut world = World::new(Durations::default()).await;
    world.start_agent(&[("MY_NODE_NAME", "node-1")]);
    let ended = tokio::time::timeout(DEADLINE, world.agent.as_mut().unwrap().wait()).await.unwrap().unwrap();
    assert_eq!(ended.code(), Some(1));
    let log = world.log();
    assert!(log.contains("MY_NODE_NAME is node-1, but the token is that of a pod on node-0"), "{log}");

    // Neither shadow nor a host that makes sense: no crash, and each is said once.
    world.host.set_faults(Faults::answer(Call::Status, Answer::Nonsense("<html>".into())));
    world.start_agent(&[("MY_NODE_NAME", "node-0")]);
    brupop_testbed::await_until("a word on the missing shadow", async || {
        world.log().contains("there is no shadow yet").then_some(())
    })
    .await
    .unwrap();
    world.create_shadow().await;
    let asked = || world.host.calls().iter().filter(|call| call.path == "/updates/status").count();
    brupop_testbed::await_until("three looks", async || (asked() >= 3).then_some(())).await.unwrap();
    let log = world.log();
    let warnings = log.lines().filter(|line| line.contains(" WARN ")).count();
    assert_eq!(warnings, 1, "{log}");
    world.host.set_faults(Faults::default());
    idle_with_update(&world).await;

    // The shadow is made again: its status is reported again.
    world.shadows.delete(SHADOW, &DeleteParams::default()).await.unwrap();
    world.create_shadow().await;
    idle_with_update(&world).await;
}
