//! The shipped agent on a simulated host, against a real API server.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod world;

use std::time::Duration;

use brupop_api::{BottlerocketShadowStatus, State};
use brupop_testbed::host::{Answer, Call, Command, Durations, Faults, HostPower};
use brupop_testbed::operator::binaries;
use brupop_testbed::sandbox::Signal;
use kube::api::DeleteParams;
use serde_json::json;
use world::{DEADLINE, SHADOW, World};

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

async fn grant(world: &World) {
    world.spec(json!({"state": "RebootedIntoUpdate", "reboot_from_boot_id": world.host.boot_id()})).await;
}

async fn booted_anew(world: &World, before: &str) {
    let mut power = world.host.power();
    let up = |power: &HostPower| matches!(power, HostPower::Up { boot_id, .. } if boot_id != before);
    tokio::time::timeout(DEADLINE, power.wait_for(up)).await.unwrap().unwrap();
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
    brupop_testbed::await_until("three more refreshes", DEADLINE, async || {
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
    brupop_testbed::await_until("a refresh without a port", DEADLINE, more).await.unwrap();
    assert_eq!(world.listeners(), [""; 0], "the port is taken");
    drop(taken);
    let listens = brupop_testbed::await_until("it listens", DEADLINE, async || {
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

/// Kills the agent at each call of the host in turn, as it is made, and as soon as each of its writes is seen, and starts
/// it again.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_killed_at_every_step_still_updates() {
    let short = Duration::from_millis(150);
    let mut world =
        World::new(Durations { refresh: short, prepare: short, activate: short, ..Durations::default() })
            .await;
    world.create_shadow().await;
    world.start_agent(&[]);
    idle_with_update(&world).await;
    let boot = world.host.boot_id();
    stage(&world, 1).await;
    world.until("the echo", |status| status.attempt == Some(1)).await;
    world.start_agent(&[]);
    for call in ["/actions/refresh-updates", "/actions/prepare-update"] {
        made(&world, call).await;
        world.start_agent(&[]);
    }
    world.until("what is staged", |status| status.staged.is_some()).await;
    world.start_agent(&[]);
    let count = |path| world.host.calls().iter().filter(|call| call.path == path).count();
    let activated = async || (count("/actions/activate-update") > 0).then_some(());
    brupop_testbed::await_until("the activation", DEADLINE, activated).await.unwrap();
    world.start_agent(&[]);
    world.until("staged", at(1, State::StagedAndPerformedUpdate)).await;
    world.start_agent(&[]);
    grant(&world).await;
    world.until("claimed", |status| status.reboot_requested.is_some()).await;
    world.start_agent(&[]);
    booted_anew(&world, &boot).await;
    world.start_agent(&[]);
    let status = world.until("rebooted", at(1, State::RebootedIntoUpdate)).await;
    assert_eq!(status.current_version.as_deref(), Some("1.20.1"));
    world.start_agent(&[]);
    world.spec(json!({"state": "MonitoringUpdate"})).await;
    world.until("monitoring", at(1, State::MonitoringUpdate)).await;
    world.start_agent(&[]);
    world.spec(json!({"state": "Idle"})).await;
    let status = world.until("Idle", at(1, State::Idle)).await;
    let count = |path| world.host.calls().iter().filter(|call| call.path == path).count();
    let made = ["/actions/activate-update", "/actions/reboot"].map(count);
    assert_eq!(made, [1, 1], "what a killed agent had done is not done again");
    // An image is doubtful if nobody has seen the end of the look after its prepare.
    assert!((1..=2).contains(&count("/actions/prepare-update")));
    assert_eq!(status.crash_count.unwrap_or(0), 0);
}

/// Awaits a call to the host that is made from now on.
async fn made(world: &World, path: &str) {
    let before = world.host.calls().len();
    brupop_testbed::await_until(path, DEADLINE, async || {
        world.host.calls().iter().skip(before.saturating_sub(1)).any(|call| call.path == path).then_some(())
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", world.log()));
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_told_and_undone() {
    let mut world = World::new(Durations::default()).await;
    world.create_shadow().await;
    world.start_agent(&[]);
    idle_with_update(&world).await;

    // A prepare that fails.
    world.host.set_faults(Faults::failing(Command::Prepare, "no space left on device"));
    stage(&world, 1).await;
    let status = world.until("failed", at(1, State::ErrorReset)).await;
    assert_eq!(status.crash_count, Some(1));
    let message = status.message.unwrap();
    assert!(message.contains("prepare failed with exit status 1: no space left on device"), "{message}");
    let failures = json!({"count": 1, "attempt": 1, "at": "2026-01-01T00:00:00Z", "reason": "StepFailed"});
    world.spec(json!({"state": "Idle", "failures": failures})).await;
    world.until("Idle", at(1, State::Idle)).await;

    // An abort after activation: what we activated is not booted.
    world.host.set_faults(Faults::default());
    stage(&world, 2).await;
    world.until("staged", at(2, State::StagedAndPerformedUpdate)).await;
    world.spec(json!({"state": "Idle"})).await;
    let status = world.until("Idle", at(2, State::Idle)).await;
    assert!(status.staged.is_some_and(|staged| staged.prefetched), "it waits for the next attempt");
    made(&world, "/actions/refresh-updates").await;
    let deactivated = world.host.calls().iter().any(|call| call.path == "/actions/deactivate-update");
    assert!(deactivated);

    // A reboot that brings the old version back.
    stage(&world, 3).await;
    world.until("staged again", at(3, State::StagedAndPerformedUpdate)).await;
    world.host.set_faults(Faults { falls_back_on_boot: true, ..Faults::default() });
    grant(&world).await;
    let status = world.until("fallen back", at(3, State::ErrorReset)).await;
    assert_eq!((status.crash_count, status.current_version.as_deref()), (Some(2), Some("1.19.4")));
    assert!(status.message.unwrap().contains("fell back to 1.19.4"));
    world.spec(json!({"state": "Idle", "reboot_from_boot_id": null})).await;
    world.until("Idle", at(3, State::Idle)).await;

    // A host that refuses to reboot: the claim is taken back.
    let refused = Answer::Refused("inhibited by a shell".into());
    world.host.set_faults(Faults::answer(Call::Reboot, refused));
    world.start_agent(&[("REFUSED_DEADLINE", "1s")]);
    stage(&world, 4).await;
    world.until("staged once more", at(4, State::StagedAndPerformedUpdate)).await;
    let boot = world.host.boot_id();
    grant(&world).await;
    let status = world.until("given up", at(4, State::ErrorReset)).await;
    assert_eq!(status.reboot_requested, None);
    assert_eq!(world.host.boot_id(), boot);
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
    brupop_testbed::await_until("a word on the missing shadow", DEADLINE, async || {
        world.log().contains("there is no shadow yet").then_some(())
    })
    .await
    .unwrap();
    world.create_shadow().await;
    let asked = || world.host.calls().iter().filter(|call| call.path == "/updates/status").count();
    brupop_testbed::await_until("three looks", DEADLINE, async || (asked() >= 3).then_some(()))
        .await
        .unwrap();
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
