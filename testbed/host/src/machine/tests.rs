use super::*;
use Command::{Activate, Deactivate, Prepare, Refresh};

fn machine() -> Machine {
    let mut machine = Machine::new("1.19.4", "aws-k8s-1.29", "x86_64").unwrap();
    machine.publish("1.20.1").unwrap();
    machine
}

/// A command is started, and ends so.
fn end(machine: &mut Machine, command: Command, ending: Ending, choice: &Choice) {
    machine.start(command, choice).unwrap();
    machine.finish(ending, choice, Timestamp::UNIX_EPOCH);
}

fn run(machine: &mut Machine, command: Command) {
    end(machine, command, Ending::Success, &Choice::default());
}

fn fail(machine: &mut Machine, command: Command) {
    end(machine, command, Ending::Failed("no space".into()), &Choice::default());
}

/// A host that has been through these commands.
fn after(path: &[Command]) -> Machine {
    let mut machine = machine();
    for command in path {
        run(&mut machine, *command);
    }
    machine
}

fn state(machine: &Machine) -> UpdateState {
    machine.status().unwrap().update_state
}

#[test]
fn an_update_from_refresh_to_boot() {
    let mut machine = machine();
    assert!(matches!(machine.status(), Err(Refusal::NotFound(_))));
    run(&mut machine, Refresh);
    let status = machine.status().unwrap();
    assert_eq!(status.update_state, UpdateState::Available);
    assert_eq!(status.chosen_update.as_ref().unwrap().version, Version::new(1, 20, 1));
    assert_eq!(status.staging_partition, None);
    run(&mut machine, Prepare);
    assert_eq!(state(&machine), UpdateState::Staged);
    run(&mut machine, Activate);
    let status = machine.status().unwrap();
    assert_eq!(status.update_state, UpdateState::Ready);
    assert!(status.staging_partition.as_ref().unwrap().next_to_boot);
    assert!(!status.active_partition.as_ref().unwrap().next_to_boot);
    machine.boot(false);
    assert_eq!(machine.version(), &Version::new(1, 20, 1));
    assert_eq!(machine.pretty_name(), "Bottlerocket OS 1.20.1 (aws-k8s-1.29)");
    assert!(matches!(machine.status(), Err(Refusal::NotFound(_))), "the file was in /run");
    run(&mut machine, Refresh);
    assert_eq!(state(&machine), UpdateState::Idle);
}

#[test]
fn commands_are_allowed_by_state() {
    for (path, allowed) in [
        (&[][..], [true, false, false, false]),
        (&[Refresh], [true, true, false, false]),
        (&[Refresh, Prepare], [true, true, true, false]),
        (&[Refresh, Prepare, Activate], [true, false, false, true]),
    ] {
        let may = |command| after(path).start(command, &Choice::default()).is_ok();
        assert_eq!([Refresh, Prepare, Activate, Deactivate].map(may), allowed, "{path:?}");
    }
    let mut table = after(&[Refresh, Prepare, Activate]);
    assert!(matches!(table.start(Activate, &Choice::default()), Err(Refusal::NotAllowed(_))));
}

#[test]
fn a_running_command_holds_the_lock() {
    let mut machine = machine();
    machine.start(Refresh, &Choice::default()).unwrap();
    assert_eq!(machine.status(), Err(Refusal::Locked));
    for command in [Refresh, Prepare, Activate, Deactivate] {
        assert_eq!(machine.start(command, &Choice::default()), Err(Refusal::Locked), "{command:?}");
    }
}

#[test]
fn a_failed_prepare_leaves_a_broken_staged_image() {
    let mut machine = after(&[Refresh, Prepare]);
    fail(&mut machine, Prepare);
    let status = machine.status().unwrap();
    assert_eq!(status.update_state, UpdateState::Staged);
    assert_eq!(status.staging_partition.as_ref().unwrap().image.version, Version::new(1, 20, 1));
    let last = status.most_recent_command.clone().unwrap();
    assert_eq!((last.cmd_status, last.exit_status), ("Failed", Some(1)));
    run(&mut machine, Activate);
    assert_eq!(state(&machine), UpdateState::Staged, "a damaged set is not armed");
    assert_eq!(stderr(&machine), "Inactive partition has not been marked valid for upgrade");
    machine.boot(false);
    assert_eq!(machine.version(), &Version::new(1, 19, 4));
}

#[test]
fn a_reboot_during_a_prepare_loses_it() {
    let mut machine = after(&[Refresh]);
    machine.start(Prepare, &Choice::default()).unwrap();
    machine.boot(false);
    assert_eq!(machine.version(), &Version::new(1, 19, 4));
    assert!(machine.inactive.as_ref().unwrap().damaged);
    machine.finish(Ending::Success, &Choice::default(), Timestamp::UNIX_EPOCH);
    assert!(machine.inactive.as_ref().unwrap().damaged, "nothing was running");
}

#[test]
fn a_bad_image_is_booted_once_and_abandoned() {
    let mut machine = after(&[Refresh, Prepare, Activate]);
    machine.boot(true);
    assert_eq!(machine.version(), &Version::new(1, 19, 4));
    machine.boot(false);
    assert_eq!(machine.version(), &Version::new(1, 19, 4));
}

#[test]
fn deactivated_is_not_booted() {
    let mut machine = after(&[Refresh, Prepare, Activate, Deactivate]);
    assert_eq!(state(&machine), UpdateState::Staged);
    machine.boot(false);
    assert_eq!(machine.version(), &Version::new(1, 19, 4));
}

#[test]
fn locks_bounds_and_waves_decide_what_is_chosen() {
    let mut machine = machine();
    // Available is all that is published, also what runs and what is older.
    for version in ["1.20.2", "1.19.4", "1.18.0"] {
        machine.publish(version).unwrap();
    }
    let lock = |version: &str| Choice { version_lock: Some(version.into()), ..Choice::default() };
    let max = |version: &str| Choice { max_version: Some(version.into()), ..Choice::default() };
    for (choice, available, chosen) in [
        (Choice::default(), 4, Some("1.20.2")),
        (Choice { before_wave: true, ..Choice::default() }, 0, None),
        (lock("1.20.1"), 4, Some("1.20.1")),
        (lock("1.21.0"), 4, None),
        (lock("1.19.4"), 4, None),
        (lock("1.18.0"), 4, Some("1.18.0")),
        (max("1.20.1"), 4, Some("1.20.1")),
        (max("1.19.4"), 4, None),
        (max("1.19.0"), 4, Some("1.18.0")),
        (max("1.17.0"), 4, None),
    ] {
        end(&mut machine, Refresh, Ending::Success, &choice);
        let status = machine.status().unwrap();
        assert_eq!(status.available_updates.len(), available, "{choice:?}");
        let found = status.chosen_update.as_ref().map(|image| image.version.to_string());
        assert_eq!(found.as_deref(), chosen, "{choice:?}");
        assert!(status.available_updates.is_sorted_by(|a, b| a > b), "the newest first: {status:?}");
    }
}

#[test]
fn a_prepare_may_write_another_version_than_labelled() {
    let mut machine = after(&[Refresh]);
    machine.publish("1.20.2").unwrap();
    run(&mut machine, Prepare);
    let status = machine.status().unwrap();
    assert_eq!(status.chosen_update.as_ref().unwrap().version, Version::new(1, 20, 1));
    assert_eq!(status.staging_partition.as_ref().unwrap().image.version, Version::new(1, 20, 1));
    run(&mut machine, Activate);
    let mut booted = machine.clone();
    booted.boot(false);
    assert_eq!(booted.version(), &Version::new(1, 20, 2), "the label was wrong");
    run(&mut machine, Refresh);
    assert_eq!(machine.status().unwrap().chosen_update.as_ref().unwrap().version, Version::new(1, 20, 2));
}

#[test]
fn a_prepare_without_update_succeeds_and_writes_nothing() {
    for written_before in [false, true] {
        let mut machine = after(&[Refresh]);
        if written_before {
            end(&mut machine, Prepare, Ending::Failed("no route".into()), &Choice::default());
        }
        machine.withdraw("1.20.1");
        run(&mut machine, Prepare);
        let status = machine.status().unwrap();
        assert_eq!(status.update_state, UpdateState::Staged);
        assert_eq!(status.staging_partition.as_ref().unwrap().image.version, Version::new(1, 20, 1));
        run(&mut machine, Activate);
        machine.boot(false);
        assert_eq!(machine.version(), &Version::new(1, 19, 4), "there is nothing to boot");
    }
}

#[test]
fn a_second_prepare_overwrites_what_was_staged() {
    let mut machine = after(&[Refresh, Prepare]);
    machine.publish("1.20.2").unwrap();
    run(&mut machine, Refresh);
    run(&mut machine, Prepare);
    assert_eq!(state(&machine), UpdateState::Staged);
    run(&mut machine, Activate);
    machine.boot(false);
    assert_eq!(machine.version(), &Version::new(1, 20, 2));
}

/// Each row of the document on what follows a command that ended well, and one that did not.
#[test]
fn states_follow_commands() {
    let rows: [(&[Command], Command, UpdateState, UpdateState); 8] = [
        (&[], Refresh, UpdateState::Available, UpdateState::Idle),
        (&[Refresh], Refresh, UpdateState::Available, UpdateState::Idle),
        (&[Refresh, Prepare], Refresh, UpdateState::Staged, UpdateState::Staged),
        (&[Refresh, Prepare, Activate], Refresh, UpdateState::Ready, UpdateState::Ready),
        (&[Refresh], Prepare, UpdateState::Staged, UpdateState::Available),
        (&[Refresh, Prepare], Prepare, UpdateState::Staged, UpdateState::Staged),
        (&[Refresh, Prepare], Activate, UpdateState::Ready, UpdateState::Staged),
        (&[Refresh, Prepare, Activate], Deactivate, UpdateState::Staged, UpdateState::Ready),
    ];
    for (path, command, well, badly) in rows {
        let mut machine = after(path);
        run(&mut machine, command);
        assert_eq!(state(&machine), well, "{path:?}, {command:?}");
        let mut machine = after(path);
        fail(&mut machine, command);
        assert_eq!(state(&machine), badly, "{path:?}, {command:?} fails");
    }
}

#[test]
fn the_status_shows_the_newest_commands_result() {
    let mut machine = machine();
    let endings = [
        Ending::Success,
        Ending::Failed("no route".into()),
        Ending::Killed(9),
        Ending::Saying("words".into()),
        Ending::Unknown,
    ];
    for (second, ending) in endings.into_iter().enumerate() {
        machine.start(Refresh, &Choice::default()).unwrap();
        let now = Timestamp::from_second(i64::try_from(second).unwrap()).unwrap();
        machine.finish(ending.clone(), &Choice::default(), now);
        let last = machine.status().unwrap().most_recent_command.clone().unwrap();
        assert_eq!((last.cmd_type, last.timestamp), (Refresh, now));
        let told = (last.cmd_status, last.exit_status, last.stderr.as_deref());
        match ending {
            Ending::Success => assert_eq!(told, ("Success", Some(0), Some(""))),
            Ending::Failed(_) => assert_eq!(told, ("Failed", Some(1), Some("no route"))),
            Ending::Killed(_) | Ending::KilledLate(_) => assert_eq!(told, ("Failed", Some(9), Some(""))),
            Ending::Saying(_) => assert_eq!(told, ("Success", Some(0), Some("words"))),
            Ending::Unknown | Ending::Lost => assert_eq!(told, ("Unknown", None, None)),
        }
    }
    let before = machine.status().cloned();
    machine.start(Refresh, &Choice::default()).unwrap();
    machine.finish(Ending::Lost, &Choice::default(), Timestamp::MAX);
    assert_eq!(machine.status().cloned(), before, "nobody has heard of it");
}

#[test]
fn a_refresh_keeps_the_staged_image() {
    let mut machine = after(&[Refresh, Prepare]);
    let nothing = Choice { before_wave: true, ..Choice::default() };
    end(&mut machine, Refresh, Ending::Success, &nothing);
    assert_eq!(state(&machine), UpdateState::Staged);
    assert!(matches!(machine.start(Prepare, &Choice::default()), Err(Refusal::NotFound(_))));
    fail(&mut machine, Refresh);
    assert_eq!(state(&machine), UpdateState::Staged);
}

#[test]
fn every_command_needs_the_repository() {
    let choice = Choice { unreachable: true, ..Choice::default() };
    for (path, command) in [
        (&[][..], Refresh),
        (&[Refresh], Prepare),
        (&[Refresh, Prepare], Activate),
        (&[Refresh, Prepare, Activate], Deactivate),
    ] {
        let mut machine = after(path);
        let before = (machine.inactive.clone(), machine.inactive_is_next);
        end(&mut machine, command, Ending::Success, &choice);
        assert!(stderr(&machine).starts_with("Failed to fetch"), "{command:?}");
        assert_eq!((machine.inactive, machine.inactive_is_next), before, "{command:?}");
    }
}

#[test]
fn an_armed_set_is_not_armed_again_and_a_prepare_disarms_it() {
    let mut machine = after(&[Refresh, Prepare]);
    end(&mut machine, Activate, Ending::KilledLate(9), &Choice::default());
    assert_eq!((state(&machine), machine.next().is_some()), (UpdateState::Staged, true));
    run(&mut machine, Activate);
    assert_eq!(state(&machine), UpdateState::Staged);
    assert_eq!(stderr(&machine), "Inactive partition is already marked for upgrade");
    run(&mut machine, Prepare);
    assert_eq!(machine.next(), None);
    run(&mut machine, Activate);
    assert_eq!(state(&machine), UpdateState::Ready);
}

/// stderr of the last command.
fn stderr(machine: &Machine) -> &str {
    machine.status().unwrap().most_recent_command.as_ref().unwrap().stderr.as_deref().unwrap()
}

#[test]
fn a_prepare_logs_the_version_it_really_wrote() {
    let prepared = |change: fn(&mut Machine) -> Choice| {
        let mut machine = after(&[Refresh]);
        let choice = change(&mut machine);
        end(&mut machine, Prepare, Ending::Success, &choice);
        let label = machine.status().unwrap().staging_partition.as_ref().unwrap().image.version.clone();
        assert_eq!(label, Version::new(1, 20, 1), "the choice of the refresh");
        machine
    };
    assert_eq!(stderr(&prepared(|_| Choice::default())), "Starting update to 1.20.1\n");
    let withdrawn = prepared(|machine| {
        machine.withdraw("1.20.1");
        Choice::default()
    });
    assert_eq!(stderr(&withdrawn), "No update required\n");
    let mut locked = prepared(|machine| {
        machine.publish("1.20.2").unwrap();
        Choice { updater_lock: Some("1.20.2".into()), ..Choice::default() }
    });
    assert_eq!(stderr(&locked), "Starting update to 1.20.2\n");
    run(&mut locked, Activate);
    locked.boot(false);
    assert_eq!(locked.version(), &Version::new(1, 20, 2));
}

#[test]
fn a_refresh_succeeds_even_if_nothing_is_chosen() {
    for (unused, available) in [(Unused::Output, 1), (Unused::Settings, 2)] {
        let mut machine = after(&[Refresh]);
        machine.publish("1.20.2").unwrap();
        let choice = Choice { unused: Some(unused), ..Choice::default() };
        end(&mut machine, Refresh, Ending::Success, &choice);
        let status = machine.status().unwrap();
        assert_eq!(status.most_recent_command.as_ref().unwrap().cmd_status, "Success");
        assert_eq!(status.chosen_update.as_ref().unwrap().version, Version::new(1, 20, 1), "{unused:?}");
        assert_eq!(
            (status.update_state, status.available_updates.len()),
            (UpdateState::Available, available)
        );
    }
}

#[test]
fn the_status_document_appears_with_the_first_command() {
    let mut refused = machine();
    assert!(refused.start(Prepare, &Choice::default()).is_err());
    let mut lost = machine();
    lost.start(Refresh, &Choice::default()).unwrap();
    lost.finish(Ending::Lost, &Choice::default(), Timestamp::UNIX_EPOCH);
    for machine in [refused, lost] {
        let status = machine.status().unwrap();
        assert_eq!((status.update_state, &status.most_recent_command), (UpdateState::Idle, &None));
    }
}
