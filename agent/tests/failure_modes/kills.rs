//! Killed before and after every write, and at every call of the host, or with a store that has forgotten: it goes on.

use std::time::Duration;

use brupop_host::{Answer, Call, Command, Faults};

use crate::solo::{NEW, STAGED, Solo};
use crate::store::Death;

/// One whole update; the agent dies with this write.
async fn update(flags: &[&str], death: Option<(usize, Death)>) -> Solo {
    let mut solo = Solo::new(flags);
    solo.start();
    if let Some((writes, death)) = death {
        solo.die_at_write(writes, death);
    }
    solo.update().await;
    solo
}

fn assert_done(solo: &Solo, boots: usize, prepares: std::ops::RangeInclusive<usize>, what: &str) {
    let count = |action| solo.count(action);
    assert_eq!(solo.place.host.version(), NEW, "{what}");
    assert_eq!(count("reboot"), boots, "{what}");
    assert!(
        prepares.contains(&count("prepare-update")),
        "{what}: {:?}",
        solo.actions()
    );
    assert_eq!(count("activate-update"), 1, "{what}: {:?}", solo.actions());
    assert_eq!(count("deactivate-update"), 0, "{what}");
    for status in solo.statuses() {
        assert_eq!(status.crash_count.unwrap_or(0), 0, "{what}: {status:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn killed_before_and_after_every_write() {
    for flags in [&[][..], &["--prefetch"]] {
        let unhurt = update(flags, None).await;
        assert_done(&unhurt, 1, 1..=1, "unhurt");
        let writes = unhurt.statuses().len();
        assert!(writes >= 8, "{writes}");
        for at in 0..writes {
            for death in [Death::Before, Death::After] {
                let what = format!("{flags:?}, write {at} of {writes}, {death:?}");
                let solo = update(flags, Some((at, death))).await;
                // An image is doubtful if nobody has seen the end of the look after its prepare.
                assert_done(&solo, 1, 1..=2, &what);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn killed_at_every_call_of_the_host() {
    let calls = [
        (Call::Action(Command::Refresh), "refresh-updates"),
        (Call::Action(Command::Prepare), "prepare-update"),
        (Call::Action(Command::Activate), "activate-update"),
        (Call::Reboot, "reboot"),
    ];
    for (call, name) in calls {
        let reboot = Duration::from_mins(1);
        let mut solo = Solo::slow(|it| it.reboot = reboot).await;
        let before = solo.count(name);
        // The host does what it is asked, and the agent is gone before it hears so.
        solo.faults(Faults::answer(call, Answer::Lost));
        tokio::select! {
            () = solo.until_called(name, before) => {}
            () = solo.reconcile() => panic!("{name} was never called"),
        }
        solo.start();
        solo.faults(Faults::default());
        solo.update().await;
        assert_done(&solo, 1, 1..=1, name);
    }
}

/// etcd is restored from a snapshot under an agent that has nothing to say: what it said after that is said again.
#[tokio::test(start_paused = true)]
async fn a_store_that_has_gone_back_is_believed() {
    let mut solo = Solo::new(&[]);
    let snapshot = solo.snapshot();
    solo.start();
    solo.until_idle_with_update().await;
    solo.restore(snapshot);
    assert_eq!(solo.status().target_version, None);
    solo.until_idle_with_update().await;

    // In the middle of an update, whose attempt is forgotten.
    let snapshot = solo.snapshot();
    solo.stage(1);
    solo.until_at(1, STAGED).await;
    solo.restore(snapshot);
    solo.never("the forgotten attempt is reported", || {
        solo.status().attempt == Some(1)
    })
    .await;
    solo.update().await;
    assert_eq!(solo.status().current_version.as_deref(), Some(NEW));
}
