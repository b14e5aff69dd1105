//! The shipped agent on a simulated host, against a real API server. That it updates its host is in the tests of fleets.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod world;

use std::time::Duration;

use brupop_api::State;
use brupop_testbed::await_until;
use brupop_testbed::host::{Answer, Call, Faults};
use brupop_testbed::sandbox::Signal;
use kube::api::DeleteParams;
use world::{SHADOW, World};

async fn idle_with_update(world: &World) {
    world
        .until("Idle, and an update", |status| {
            status.current_state == Some(State::Idle)
                && status.target_version.as_deref() == Some("1.20.1")
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn starts_in_any_order_listens_nowhere_and_ends_at_once() {
    let mut world = World::new().await;
    // Neither shadow nor a host that makes sense: no crash, and each is said once.
    world.host.set_faults(Faults::answer(
        Call::Status,
        Answer::Nonsense("<html>".into()),
    ));
    world.start_agent();
    await_until("a word on the missing shadow", async || {
        world.log().contains("there is no shadow yet").then_some(())
    })
    .await
    .unwrap();
    world.create_shadow().await;
    let asked = || world.calls("/updates/status");
    await_until("three looks", async || (asked() >= 3).then_some(()))
        .await
        .unwrap();
    let log = world.log();
    let warnings = log.lines().filter(|line| line.contains(" WARN ")).count();
    assert_eq!(warnings, 1, "{log}");
    world.host.set_faults(Faults::default());
    idle_with_update(&world).await;

    // The shadow is made again: its status is reported again.
    world
        .shadows
        .delete(SHADOW, &DeleteParams::default())
        .await
        .unwrap();
    world.create_shadow().await;
    idle_with_update(&world).await;

    assert_eq!(world.listeners(), [""; 0], "it listens nowhere");
    ends_at_once(&mut world).await;
}

/// SIGTERM ends the agent at once, and cleanly.
async fn ends_at_once(world: &mut World) {
    let mut agent = world.agent.take().unwrap();
    agent.signal(Signal::TERM).unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(2), agent.wait())
        .await
        .unwrap()
        .unwrap();
    assert!(ended.success(), "{ended}");
}
