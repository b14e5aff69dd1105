//! Properties that hold for any host, shadow and memory.

use brupop_api::shadow::LastFailure;
use brupop_api::shadow::status_may_become;
use brupop_apply::apply;
use proptest::prelude::*;

use super::*;

/// Mostly the version that is wanted, so that an update gets anywhere.
fn version() -> impl Strategy<Value = &'static str> {
    prop_oneof![6 => Just(NEW), 1 => Just(OLD), 1 => Just(OTHER)]
}

fn running() -> impl Strategy<Value = &'static str> {
    prop_oneof![6 => Just(OLD), 1 => Just(NEW), 1 => Just(OTHER)]
}

fn attempt() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![1 => Just(None), 8 => Just(Some(1)), 1 => Just(Some(2))]
}

fn boot() -> impl Strategy<Value = &'static str> {
    one_of(&[BOOT, NEXT_BOOT])
}

fn command() -> impl Strategy<Value = Command> {
    prop::sample::select(&Command::ALL[..])
}

fn mostly<T: std::fmt::Debug + Clone>(
    some: impl Strategy<Value = T>,
) -> impl Strategy<Value = Option<T>> {
    prop::option::weighted(0.9, some)
}

fn one_of<T: std::fmt::Debug + Clone + 'static>(them: &'static [T]) -> impl Strategy<Value = T> {
    prop::sample::select(them)
}

const SAID: [&str; 4] = [
    "no route",
    "Starting update to 1.20.1\n",
    "Starting update to 1.21.0\n",
    "No update required\n",
];
const MESSAGES: [&str; 3] = [
    "earlier",
    "refresh failed with exit status 1: no route",
    "prepare wrote 1.21.0, not 1.20.1",
];
const UPDATE_STATES: [UpdateState; 4] = [
    UpdateState::Idle,
    UpdateState::Available,
    UpdateState::Staged,
    UpdateState::Ready,
];
const GOALS: [State; 4] = [
    State::Idle,
    State::StagedAndPerformedUpdate,
    State::RebootedIntoUpdate,
    State::MonitoringUpdate,
];

prop_compose! {
    fn last_command()(
        kind in mostly(command()), success: bool, second in 0..3i64, stderr in one_of(&SAID),
    ) -> LastCommand<'static> {
        LastCommand { kind, stderr, ..last(Command::Refresh, success, second) }
    }
}

prop_compose! {
    fn facts_of_updates()(
        state in one_of(&UPDATE_STATES), chosen in mostly(version()), newest in prop::option::of(version()),
        staged_version in mostly(version()), last in mostly(last_command()),
    ) -> UpdateFacts<'static> {
        UpdateFacts { state, chosen, newest, staged_version, last }
    }
}

fn updates() -> impl Strategy<Value = Updates<'static>> {
    let known = facts_of_updates().prop_map(Updates::Known);
    prop_oneof![1 => Just(Updates::Unknown), 1 => Just(Updates::Busy), 6 => known]
}

prop_compose! {
    fn any_host()(version in running(), boot_id in boot(), updates in updates()) -> HostFacts<'static> {
        host(version, boot_id, updates)
    }
}

prop_compose! {
    fn spec()(
        state in one_of(&GOALS), version in mostly(version()), attempt in attempt(),
        baseline in prop::option::of(boot()), grant in prop::option::of(boot()), failed: bool,
    ) -> BottlerocketShadowSpec {
        BottlerocketShadowSpec {
            state,
            version: version.map(Into::into),
            attempt,
            baseline_boot_id: baseline.map(Into::into),
            reboot_granted_boot_id: grant.map(Into::into),
            last_failure: failed.then(LastFailure::default),
            ..BottlerocketShadowSpec::default()
        }
    }
}

prop_compose! {
    fn status()(
        current in prop::option::of(running()), target in prop::option::of(version()),
        current_state in prop::option::of(one_of(&State::ALL)), attempt in attempt(),
        boot_id in prop::option::of(boot()), claim in prop::option::of(boot()),
        image in prop::option::of((version(), 0..3i64, any::<bool>())), crash_count in prop::option::of(0..3u64),
        failed: bool, problem in prop::option::of(one_of(&Problem::ALL)), message in prop::option::of(one_of(&MESSAGES)),
    ) -> BottlerocketShadowStatus {
        BottlerocketShadowStatus {
            current_version: current.map(Into::into),
            target_version: target.map(Into::into),
            current_state,
            crash_count,
            state_transition_failure_timestamp: failed.then(|| NOW.into()),
            attempt,
            boot_id: boot_id.map(Into::into),
            staged: image.map(|(version, second, prefetched)| Staged { prefetched, ..staged(version, second) }),
            reboot_claimed_boot_id: claim.map(Into::into),
            problem,
            problem_since: problem.map(|_| NOW.into()),
            message: message.map(Into::into),
            ..BottlerocketShadowStatus::default()
        }
    }
}

prop_compose! {
    fn any_shadow()(spec in spec(), status in mostly(status())) -> BottlerocketShadow {
        let mut made = shadow(State::Idle);
        (made.spec, made.status) = (spec, status);
        made
    }
}

prop_compose! {
    fn begun()(
        command in command(), before in prop::option::of((0..3i64).prop_map(time)), is_first_look: bool,
    ) -> BegunCommand {
        BegunCommand { command, before, is_first_look }
    }
}

prop_compose! {
    fn any_memory()(
        asked in prop::option::weighted(0.3, begun()), refresh_lost: bool, began in attempt(), refreshed in attempt(),
        distrusted_at in prop::option::of((0..3i64).prop_map(time)), wrote_instead in prop::option::of(1..3u64),
        activate_failed in prop::option::of(1..3u64), refresh_due: bool, refused: bool,
        image_at in prop::option::of((0..3i64, 0..3i64).prop_map(|(of, at)| (time(of), time(at)))),
        prefetch in prop::sample::select(vec![Prefetch::Off, Prefetch::Later, Prefetch::Due]),
        more in any::<[bool; 3]>(),
    ) -> StepMemory {
        let [busy_for_long, host_api_fails, reboot_may_come] = more;
        StepMemory {
            asked, began, refresh_lost, refreshed, wrote_instead, activate_failed, no_in_place_updates: refused,
            distrusted_at, image_at, refresh_due, prefetch, refused, busy_for_long, host_api_fails, reboot_may_come,
        }
    }
}

/// The shadow, once the API server has taken every report; each must change something.
fn reported(
    host: &HostFacts<'static>,
    mut shadow: BottlerocketShadow,
    mut memory: StepMemory,
) -> (BottlerocketShadow, StepMemory) {
    for _ in 0..3 {
        let read = shadow.clone();
        let (Step::Report(write), next) = step(host, &facts(&read), &memory) else {
            break;
        };
        assert_eq!(apply(&write, &mut shadow), Ok(()));
        assert_ne!(shadow, read, "a report changes something");
        memory = next;
    }
    (shadow, memory)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

    #[test]
    fn an_accepted_report_is_not_repeated(host in any_host(), shadow in any_shadow(), memory in any_memory()) {
        let (stored, memory) = reported(&host, shadow, memory);
        let (again, _) = step(&host, &facts(&stored), &memory);
        prop_assert!(!matches!(again, Step::Report(_)), "reports go on and on: {again:?}");
    }

    #[test]
    fn problem_and_message_come_and_go_together(host in any_host(), shadow in any_shadow(), memory in any_memory()) {
        let shadow = with(shadow, |_, status| {
            status.message = status.problem.map(|problem| problem.to_string());
            status.problem_since = status.problem.map(|_| "before".to_owned());
        });
        let (Step::Report(write), _) = step(&host, &facts(&shadow), &memory) else { return Ok(()) };
        let mut stored = shadow.clone();
        apply(&write, &mut stored).unwrap();
        let (before, status) = (facts(&shadow).status.problem, stored.status.unwrap_or_default());
        prop_assert_eq!(status.problem.is_some(), status.message.is_some(), "{:?}", status);
        let since = status.problem.map(|problem| if Some(problem) == before { "before" } else { NOW });
        prop_assert_eq!(status.problem_since.as_deref(), since, "{:?}", status);
    }

    #[test]
    fn what_is_under_way_takes_back_nothing(host in any_host(), shadow in any_shadow(), memory in any_memory()) {
        let host = HostFacts { updates: Updates::Busy, ..host };
        let failed = Some(Problem::RefreshFailed);
        let shadow = with(shadow, |spec, status| (spec.state, status.problem) = (State::Idle, failed));
        let (stored, _) = reported(&host, shadow, memory);
        prop_assert_eq!(stored.status.unwrap().problem, failed);
    }

    #[test]
    fn a_report_is_legal(host in any_host(), shadow in any_shadow(), memory in any_memory()) {
        let seen = facts(&shadow);
        let (Step::Report(write), _) = step(&host, &seen, &memory) else { return Ok(()) };
        let set = |field| write.sets.iter().find(|(set, _)| *set == field).map(|(_, value)| value.clone());
        for field in [Field::Uid, Field::Generation, Field::CurrentState, Field::StatusRebootClaimedBootId] {
            prop_assert!(write.tests.iter().any(|(tested, _)| *tested == field), "{field:?} is tested");
        }
        let mut stored = shadow.clone();
        apply(&write, &mut stored).unwrap();
        let status = stored.status.unwrap();
        if let Some(Value::State(to)) = set(Field::CurrentState) {
            prop_assert!(status_may_become(seen.spec.state, seen.status.current_state, to));
            prop_assert_eq!(status.attempt, seen.spec.attempt, "a state belongs to the attempt asked for");
        }
        if let Some(Value::Text(claim)) = set(Field::StatusRebootClaimedBootId) {
            prop_assert_eq!(Some(&*claim), seen.spec.reboot_granted_boot_id.as_deref());
            prop_assert_eq!(&*claim, host.boot_id);
            prop_assert_eq!(seen.spec.state, State::RebootedIntoUpdate);
        }
    }

    #[test]
    fn the_host_is_touched_only_within_the_rules(host in any_host(), shadow in any_shadow(), memory in any_memory()) {
        let (shadow, memory) = reported(&host, shadow, memory);
        let seen = facts(&shadow);
        let (Step::Call(call), after) = step(&host, &seen, &memory) else { return Ok(()) };
        let HostCall::Command(command) = call else {
            prop_assert_eq!(seen.spec.state, State::RebootedIntoUpdate);
            prop_assert_eq!(seen.spec.reboot_granted_boot_id.as_deref(), Some(host.boot_id));
            prop_assert_eq!(seen.status.reboot_claimed_boot_id.as_deref(), Some(host.boot_id));
            let known = host.known().unwrap();
            prop_assert_eq!(known.state, UpdateState::Ready, "not into nothing");
            prop_assert_eq!(known.staged_version, seen.spec.version.as_deref());
            return Ok(());
        };
        prop_assert_ne!(host.updates, Updates::Busy);
        prop_assert_eq!(after.asked.map(|asked| asked.command), Some(command));
        match command {
            Command::Refresh => {}
            Command::Prepare if seen.spec.state == State::Idle => {
                prop_assert_eq!((memory.prefetch, after.prefetch), (Prefetch::Due, Prefetch::Later));
                prop_assert!(seen.reports(State::Idle), "said before the host is touched");
                let known = host.known().unwrap();
                prop_assert!(known.chosen.is_some() && known.chosen == seen.status.target_version.as_deref());
                let last_at = known.last.map(|last| last.at);
                // The step itself finds out that an image could not be activated.
                if known.state != UpdateState::Available && (last_at.is_none() || after.distrusted_at != last_at)
                {
                    let ours = seen.status.staged.as_ref().unwrap();
                    prop_assert_eq!(known.state, UpdateState::Staged);
                    prop_assert_eq!(known.staged_version, Some(ours.version.as_str()), "not over a person's");
                    prop_assert_eq!(&ours.at, &known.last.unwrap().at.to_string());
                    prop_assert_ne!(known.chosen, known.staged_version, "not what is there already");
                }
            }
            Command::Prepare | Command::Activate => {
                prop_assert_eq!(seen.spec.state, State::StagedAndPerformedUpdate);
                prop_assert!(seen.spec.attempt.is_some());
                prop_assert_eq!(seen.status.attempt, seen.spec.attempt);
                let known = host.known().unwrap();
                prop_assert_eq!(known.chosen, seen.spec.version.as_deref());
                if command == Command::Activate {
                    let last = known.last.unwrap();
                    let ours = seen.status.staged.as_ref().unwrap();
                    prop_assert!(last.kind == Some(Command::Refresh) && last.success, "it has looked since the prepare");
                    prop_assert_eq!(&ours.at, &last.at.to_string());
                    prop_assert_eq!(Some(ours.version.as_str()), known.staged_version);
                    prop_assert!(!ours.prefetched, "said before it is activated");
                    prop_assert_eq!(memory.refreshed, seen.spec.attempt, "and in this attempt");
                } else {
                    prop_assert_eq!(&seen.status.staged, &None, "nothing is trusted that is overwritten");
                }
            }
            Command::Deactivate => {
                prop_assert_eq!(host.known().unwrap().state, UpdateState::Ready);
                if seen.spec.state == State::Idle {
                    let ours = seen.status.staged.as_ref().filter(|staged| !staged.prefetched);
                    let ours = ours.map(|staged| staged.version.as_str());
                    prop_assert!(ours.is_some() && ours == host.known().unwrap().staged_version, "not a person's");
                }
            }
        }
    }
}
