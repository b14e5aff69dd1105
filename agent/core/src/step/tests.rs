//! Rows that read like the protocol, and what holds for any host and shadow.

/// `situation: host, shadow, memory => step, in words;`
macro_rules! check {
    ($($name:literal: $host:expr, $shadow:expr, $memory:expr => $expected:expr;)*) => {
        $(
            let shadow = $shadow;
            assert_eq!(words(&step(&$host, &facts(&shadow), &$memory).0), $expected, $name);
        )*
    };
}

mod idle;
mod kept;
mod prefetch;
mod problem;
mod properties;
mod update;

use brupop_api::shadow::{ShadowFacts, Staged};
use brupop_api::{
    BottlerocketShadow, BottlerocketShadowSpec, BottlerocketShadowStatus, Field, Problem, Value,
};
use jiff::Timestamp;

use super::*;

const OLD: &str = "1.19.4";
const NEW: &str = "1.20.1";
const OTHER: &str = "1.21.0";
const BOOT: &str = "boot-1";
const NEXT_BOOT: &str = "boot-2";
const NOW: &str = "2026-01-01T00:00:00Z";

fn time(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// Returns what our prepare at this second staged.
fn staged(version: &str, second: i64) -> Staged {
    Staged {
        version: version.into(),
        at: time(second).to_string(),
        prefetched: false,
    }
}

/// The same, downloaded ahead of its turn.
fn ahead(version: &str, second: i64) -> Staged {
    Staged {
        prefetched: true,
        ..staged(version, second)
    }
}

/// A command that ended at this second.
fn last(kind: Command, success: bool, second: i64) -> LastCommand<'static> {
    LastCommand {
        kind: Some(kind),
        success,
        at: time(second),
        exit_status: Some(i32::from(!success)),
        stderr: if success { "" } else { "no route" },
    }
}

fn known<'a>(
    state: UpdateState,
    chosen: Option<&'a str>,
    staged_version: Option<&'a str>,
    last: LastCommand<'a>,
) -> Updates<'a> {
    Updates::Known(UpdateFacts {
        state,
        chosen,
        newest: None,
        staged_version,
        last: Some(last),
    })
}

fn host(
    version: &'static str,
    boot_id: &'static str,
    updates: Updates<'static>,
) -> HostFacts<'static> {
    HostFacts {
        boot_id,
        version,
        updates,
        now: NOW,
    }
}

/// A shadow at attempt 1, its status at the old version in the first boot, Idle, with an update.
fn shadow(state: State) -> BottlerocketShadow {
    let spec = BottlerocketShadowSpec {
        state,
        version: Some(NEW.into()),
        attempt: Some(1),
        baseline_boot_id: Some(BOOT.into()),
        ..BottlerocketShadowSpec::default()
    };
    let mut shadow = BottlerocketShadow::new("brs-a", spec);
    shadow.metadata.uid = Some("uid".into());
    shadow.metadata.generation = Some(7);
    shadow.status = Some(BottlerocketShadowStatus {
        current_version: Some(OLD.into()),
        target_version: Some(NEW.into()),
        current_state: Some(State::Idle),
        attempt: Some(1),
        boot_id: Some(BOOT.into()),
        crash_count: Some(0),
        ..BottlerocketShadowStatus::default()
    });
    shadow
}

fn facts(shadow: &BottlerocketShadow) -> ShadowFacts<'_> {
    ShadowFacts::of(shadow).unwrap()
}

/// A step in few words: `refresh`, `reboot`, `poll`, `wait`, or the fields that a report sets.
fn words(step: &Step<'_>) -> String {
    match step {
        Step::Call(call) => call.name().to_owned(),
        Step::Poll => "poll".to_owned(),
        Step::Wait => "wait".to_owned(),
        Step::Report(write) => {
            // It goes with the problem.
            let sets = write
                .sets
                .iter()
                .filter(|(field, _)| *field != Field::StatusProblemSince);
            let fields = sets.map(|(field, value)| match value {
                Value::Absent => format!("-{field:?}"),
                Value::State(state) => state.to_string(),
                Value::Problem(problem) => problem.to_string(),
                Value::Staged(staged) if staged.prefetched => format!("{field:?}(ahead)"),
                Value::Text(text) if *field == Field::StatusMessage => {
                    format!("{text:?}")
                }
                _ => format!("{field:?}"),
            });
            fields.collect::<Vec<_>>().join(" ")
        }
    }
}

fn with(
    mut shadow: BottlerocketShadow,
    change: impl FnOnce(&mut BottlerocketShadowSpec, &mut BottlerocketShadowStatus),
) -> BottlerocketShadow {
    change(&mut shadow.spec, shadow.status.get_or_insert_default());
    shadow
}

/// A shadow whose status has this image.
fn holding(state: State, image: Staged) -> BottlerocketShadow {
    with(shadow(state), |_, status| status.staged = Some(image))
}

/// Returns what the status says is wrong.
fn says(shadow: BottlerocketShadow, problem: Problem, sentence: &str) -> BottlerocketShadow {
    with(shadow, |_, status| {
        status.problem = Some(problem);
        status.problem_since = Some(NOW.into());
        status.message = Some(sentence.into());
    })
}

/// The last call that was to do something did not come off.
fn call_fails() -> StepMemory {
    StepMemory {
        host_api_fails: true,
        ..fresh()
    }
}

/// A host that knows of this version, and chooses none.
fn unchosen(newest: &'static str) -> Updates<'static> {
    let last = Some(last(Command::Refresh, true, 1));
    let state = UpdateState::Idle;
    Updates::Known(UpdateFacts {
        state,
        chosen: None,
        newest: Some(newest),
        staged_version: None,
        last,
    })
}

/// A prepare that ended well at this second, and said this.
pub(super) fn saying(stderr: &'static str, second: i64) -> LastCommand<'static> {
    LastCommand {
        stderr,
        ..last(Command::Prepare, true, second)
    }
}

fn fresh() -> StepMemory {
    StepMemory::default()
}

/// This process began the attempt.
fn began() -> StepMemory {
    StepMemory {
        began: Some(1),
        ..StepMemory::default()
    }
}

/// This attempt's refresh was seen to succeed.
fn refreshed() -> StepMemory {
    StepMemory {
        refreshed: Some(1),
        ..began()
    }
}

/// This command was begun when the last one, a refresh that succeeded, had ended at this second.
fn call(command: Command, before: i64) -> BegunCommand {
    BegunCommand {
        command,
        before: Some(time(before)),
        is_first_look: false,
    }
}

/// A refresh was begun when another command had ended at this second.
fn first_look(before: i64) -> BegunCommand {
    BegunCommand {
        is_first_look: true,
        ..call(Command::Refresh, before)
    }
}

/// This attempt looks for the first time since a prepare that ended at this second.
fn looking(before: i64) -> StepMemory {
    StepMemory {
        asked: Some(first_look(before)),
        ..refreshed()
    }
}

/// A memory after a call, as in [`call`].
fn asked(command: Command, before: i64) -> StepMemory {
    StepMemory {
        asked: Some(call(command, before)),
        ..refreshed()
    }
}

fn old(updates: Updates<'static>) -> HostFacts<'static> {
    host(OLD, BOOT, updates)
}

fn available() -> Updates<'static> {
    known(
        UpdateState::Available,
        Some(NEW),
        None,
        last(Command::Refresh, true, 1),
    )
}

/// The new version is staged, and this was chosen by a refresh that ended at this second.
fn looked(chosen: Option<&'static str>, success: bool, second: i64) -> HostFacts<'static> {
    let refresh = last(Command::Refresh, success, second);
    old(known(UpdateState::Staged, chosen, Some(NEW), refresh))
}

fn is_staged(command: LastCommand<'static>) -> Updates<'static> {
    known(UpdateState::Staged, Some(NEW), Some(NEW), command)
}

fn is_ready(command: LastCommand<'static>) -> Updates<'static> {
    known(UpdateState::Ready, Some(NEW), Some(NEW), command)
}
