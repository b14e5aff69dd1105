use super::*;
use Command::{Activate, Deactivate, Prepare, Refresh};

fn machine() -> Machine {
    let mut machine = Machine::new("1.19.4", "aws-k8s-1.29").unwrap();
    publish(&mut machine, "1.20.1");
    machine
}

fn publish(machine: &mut Machine, version: &str) {
    machine.publish(version).unwrap();
}

fn start(machine: &mut Machine, command: Command) -> Result<(), Refusal> {
    machine.start(command, false)
}

/// A command is started, and ends so.
fn end(machine: &mut Machine, command: Command, ending: Ending) {
    start(machine, command).unwrap();
    machine.finish(ending, false, Timestamp::UNIX_EPOCH);
}

fn run(machine: &mut Machine, command: Command) {
    end(machine, command, Ending::Success);
}

fn fail(machine: &mut Machine, command: Command) {
    end(machine, command, Ending::Failed("no space".into()));
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
fn commands_are_allowed_by_state() {
    for (path, allowed) in [
        (&[][..], [true, false, false, false]),
        (&[Refresh], [true, true, false, false]),
        (&[Refresh, Prepare], [true, true, true, false]),
        (&[Refresh, Prepare, Activate], [true, false, false, true]),
    ] {
        let may = |command| start(&mut after(path), command).is_ok();
        assert_eq!(
            [Refresh, Prepare, Activate, Deactivate].map(may),
            allowed,
            "{path:?}"
        );
    }
    let mut table = after(&[Refresh, Prepare, Activate]);
    assert!(matches!(
        start(&mut table, Activate),
        Err(Refusal::NotAllowed(_))
    ));
}

#[test]
fn an_armed_set_is_booted_once() {
    for (path, falls_back, boots) in [
        (&[Refresh, Prepare, Activate][..], false, "1.20.2"),
        (&[Refresh, Prepare, Activate], true, "1.19.4"),
        (&[Refresh, Prepare, Activate, Deactivate], false, "1.19.4"),
    ] {
        let mut machine = after(&[Refresh, Prepare]);
        publish(&mut machine, "1.20.2");
        for command in path {
            run(&mut machine, *command);
        }
        for boot in [falls_back, false] {
            machine.boot(boot);
            assert_eq!(
                machine.version().to_string(),
                boots,
                "{path:?} {falls_back}"
            );
        }
    }
}

#[test]
fn the_status_shows_how_the_last_command_ended() {
    for (ending, status, code, words) in [
        (Ending::Success, "Success", Some(0), Some("")),
        (
            Ending::Failed("no route".into()),
            "Failed",
            Some(1),
            Some("no route"),
        ),
        (Ending::KilledLate(9), "Failed", Some(9), Some("")),
    ] {
        let mut machine = machine();
        start(&mut machine, Refresh).unwrap();
        machine.finish(ending, false, Timestamp::MAX);
        let last = machine
            .status()
            .unwrap()
            .most_recent_command
            .clone()
            .unwrap();
        assert_eq!((last.cmd_type, last.timestamp), (Refresh, Timestamp::MAX));
        assert_eq!(
            (last.cmd_status, last.exit_status, last.stderr.as_deref()),
            (status, code, words)
        );
    }
}

#[test]
fn a_failed_prepare_leaves_a_broken_staged_image() {
    let mut machine = after(&[Refresh, Prepare]);
    fail(&mut machine, Prepare);
    let status = machine.status().unwrap();
    assert_eq!(status.update_state, UpdateState::Staged);
    assert_eq!(
        status.staging_partition.as_ref().unwrap().image.version,
        Version::new(1, 20, 1)
    );
    let last = status.most_recent_command.clone().unwrap();
    assert_eq!((last.cmd_status, last.exit_status), ("Failed", Some(1)));
    run(&mut machine, Activate);
    assert_eq!(
        state(&machine),
        UpdateState::Staged,
        "a damaged set is not armed"
    );
    assert_eq!(
        stderr(&machine),
        "Inactive partition has not been marked valid for upgrade"
    );
    machine.boot(false);
    assert_eq!(machine.version(), &Version::new(1, 19, 4));
}

#[test]
fn a_reboot_during_a_prepare_loses_it() {
    let mut machine = after(&[Refresh]);
    start(&mut machine, Prepare).unwrap();
    machine.boot(false);
    assert_eq!(machine.version(), &Version::new(1, 19, 4));
    assert!(machine.inactive.as_ref().unwrap().damaged);
    machine.finish(Ending::Success, false, Timestamp::UNIX_EPOCH);
    assert!(
        machine.inactive.as_ref().unwrap().damaged,
        "nothing was running"
    );
}

#[test]
fn a_prepare_may_write_another_version_than_labelled() {
    let mut machine = after(&[Refresh]);
    publish(&mut machine, "1.20.2");
    run(&mut machine, Prepare);
    let status = machine.status().unwrap();
    assert_eq!(
        status.chosen_update.as_ref().unwrap().version,
        Version::new(1, 20, 1)
    );
    assert_eq!(
        status.staging_partition.as_ref().unwrap().image.version,
        Version::new(1, 20, 1)
    );
    run(&mut machine, Activate);
    let mut booted = machine.clone();
    booted.boot(false);
    assert_eq!(
        booted.version(),
        &Version::new(1, 20, 2),
        "the label was wrong"
    );
    run(&mut machine, Refresh);
    assert_eq!(
        machine
            .status()
            .unwrap()
            .chosen_update
            .as_ref()
            .unwrap()
            .version,
        Version::new(1, 20, 2)
    );
}

#[test]
fn a_prepare_without_update_succeeds_and_writes_nothing() {
    for written_before in [false, true] {
        let mut machine = after(&[Refresh]);
        if written_before {
            end(&mut machine, Prepare, Ending::Failed("no route".into()));
        }
        machine.repository.clear();
        run(&mut machine, Prepare);
        let status = machine.status().unwrap();
        assert_eq!(status.update_state, UpdateState::Staged);
        assert_eq!(
            status.staging_partition.as_ref().unwrap().image.version,
            Version::new(1, 20, 1)
        );
        run(&mut machine, Activate);
        machine.boot(false);
        assert_eq!(
            machine.version(),
            &Version::new(1, 19, 4),
            "there is nothing to boot"
        );
        let mut machine = after(&[Refresh, Prepare]);
        machine.repository.clear();
        run(&mut machine, Refresh);
        assert!(matches!(
            start(&mut machine, Prepare),
            Err(Refusal::NotFound(_))
        ));
    }
}

/// Each row of the document on what follows a command that ended well, and one that did not.
#[test]
fn states_follow_commands() {
    let rows: [(&[Command], Command, UpdateState, UpdateState); 8] = [
        (&[], Refresh, UpdateState::Available, UpdateState::Idle),
        (
            &[Refresh],
            Refresh,
            UpdateState::Available,
            UpdateState::Idle,
        ),
        (
            &[Refresh, Prepare],
            Refresh,
            UpdateState::Staged,
            UpdateState::Staged,
        ),
        (
            &[Refresh, Prepare, Activate],
            Refresh,
            UpdateState::Ready,
            UpdateState::Ready,
        ),
        (
            &[Refresh],
            Prepare,
            UpdateState::Staged,
            UpdateState::Available,
        ),
        (
            &[Refresh, Prepare],
            Prepare,
            UpdateState::Staged,
            UpdateState::Staged,
        ),
        (
            &[Refresh, Prepare],
            Activate,
            UpdateState::Ready,
            UpdateState::Staged,
        ),
        (
            &[Refresh, Prepare, Activate],
            Deactivate,
            UpdateState::Staged,
            UpdateState::Ready,
        ),
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
fn every_command_needs_the_repository() {
    for (path, command) in [
        (&[][..], Refresh),
        (&[Refresh], Prepare),
        (&[Refresh, Prepare], Activate),
        (&[Refresh, Prepare, Activate], Deactivate),
    ] {
        let mut machine = after(path);
        let before = (machine.inactive.clone(), machine.inactive_is_next);
        machine.start(command, true).unwrap();
        machine.finish(Ending::Success, true, Timestamp::UNIX_EPOCH);
        assert!(
            stderr(&machine).starts_with("Failed to fetch"),
            "{command:?}"
        );
        assert_eq!(
            (machine.inactive, machine.inactive_is_next),
            before,
            "{command:?}"
        );
    }
}

/// stderr of the last command.
fn stderr(machine: &Machine) -> &str {
    machine
        .status()
        .unwrap()
        .most_recent_command
        .as_ref()
        .unwrap()
        .stderr
        .as_deref()
        .unwrap()
}

#[test]
fn the_status_document_appears_with_the_first_command() {
    let mut refused = machine();
    assert!(start(&mut refused, Prepare).is_err());
    let mut lost = machine();
    start(&mut lost, Refresh).unwrap();
    lost.finish(Ending::Lost, false, Timestamp::UNIX_EPOCH);
    for machine in [refused, lost] {
        let status = machine.status().unwrap();
        assert_eq!(
            (status.update_state, &status.most_recent_command),
            (UpdateState::Idle, &None)
        );
    }
}
