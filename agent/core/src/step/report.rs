//! A status write that holds only what differs from the status as it was read.

use std::borrow::Cow;

use brupop_api::crds::{COUNTER_MAX, MESSAGE_MAX};
use brupop_api::printable::printable;
use brupop_api::shadow::{ShadowFacts, Staged};
use brupop_api::{Field, Object, Problem, State, Value, Write};

/// A write that says in the status what is wrong with the host's API; `None` if it stands there. [`super::step`] takes it back.
pub fn host_trouble<'a>(
    shadow: &ShadowFacts<'a>,
    problem: Problem,
    reason: &str,
    now: &'a str,
) -> Option<Write<'a>> {
    let mut report = Report::of(shadow, now);
    // A host that goes down answers nothing: why it may come back as it was is worth more.
    if shadow.status.problem != Some(Problem::NotNextToBoot) {
        report.problem(problem, reason);
    }
    report.write()
}

/// A write that ends the attempt, because the host's API has not answered for long; `None` if there is no attempt to end, or
/// its reboot is claimed, so that the host may be going down.
pub fn host_silence<'a>(shadow: &ShadowFacts<'a>, reason: &str, now: &'a str) -> Option<Write<'a>> {
    let ends = match shadow.spec.state {
        State::StagedAndPerformedUpdate => true,
        State::RebootedIntoUpdate => !shadow.is_claimed() && !shadow.reached(),
        State::Idle | State::MonitoringUpdate | State::ErrorReset => false,
    };
    let mut report = Report::of(shadow, now);
    if ends && shadow.is_in_update() {
        report.failure(&format!("the host's API does not answer: {reason}"));
    }
    report.write()
}

pub(super) struct Report<'a> {
    shadow: ShadowFacts<'a>,
    /// The time as it is written.
    now: &'a str,
    sets: Vec<(Field<'a>, Value<'a>)>,
}

impl<'a> Report<'a> {
    pub(super) fn of(shadow: &ShadowFacts<'a>, now: &'a str) -> Self {
        Self {
            shadow: *shadow,
            now,
            sets: vec![],
        }
    }

    /// A later value for the same field takes the place of an earlier one.
    fn differ(&mut self, field: Field<'a>, read: &Value<'a>, value: Value<'a>) {
        self.sets.retain(|(set, _)| *set != field);
        if *read != value {
            self.sets.push((field, value));
        }
    }

    fn text(&mut self, field: Field<'a>, read: Option<&'a str>, value: Option<&'a str>) {
        let value = Value::text_or_absent(value);
        self.differ(field, &Value::text_or_absent(read), value);
    }

    fn number(&mut self, field: Field<'a>, read: Option<u64>, value: Option<u64>) {
        let value = Value::number_or_absent(value);
        self.differ(field, &Value::number_or_absent(read), value);
    }

    pub(super) fn current_version(&mut self, version: &'a str) {
        let read = self.shadow.status.current_version.as_deref();
        self.text(Field::CurrentVersion, read, Some(version));
    }

    pub(super) fn boot_id(&mut self, boot_id: &'a str) {
        let read = self.shadow.status.boot_id.as_deref();
        self.text(Field::StatusBootId, read, Some(boot_id));
    }

    pub(super) fn target(&mut self, version: Option<&'a str>) {
        let read = self.shadow.status.target_version.as_deref();
        self.text(Field::TargetVersion, read, version);
    }

    /// A state is always reported at the attempt that the spec asks for.
    pub(super) fn state(&mut self, state: State) {
        let read = Value::state_or_absent(self.shadow.status.current_state);
        self.differ(Field::CurrentState, &read, Value::State(state));
        self.attempt();
    }

    pub(super) fn attempt(&mut self) {
        let ShadowFacts { spec, status, .. } = self.shadow;
        self.number(Field::StatusAttempt, status.attempt, spec.attempt);
    }

    pub(super) fn staged(&mut self, staged: Option<Staged>) {
        let value = |staged: Option<Staged>| staged.map_or(Value::Absent, Value::Staged);
        let read = value(self.shadow.status.staged.clone());
        self.differ(Field::StatusStaged, &read, value(staged));
    }

    pub(super) fn claim(&mut self, boot_id: Option<&'a str>) {
        let read = self.shadow.status.reboot_claimed_boot_id.as_deref();
        self.text(Field::StatusRebootClaimedBootId, read, boot_id);
    }

    /// Reports a problem: a word to decide on, and a sentence for people.
    pub(super) fn problem(&mut self, problem: Problem, sentence: &str) {
        let sentence = Value::Text(Cow::Owned(printable(sentence, MESSAGE_MAX).into_owned()));
        self.set_problem(Some(problem), sentence);
    }

    /// Nothing is wrong any more.
    pub(super) fn no_problem(&mut self) {
        self.set_problem(None, Value::Absent);
    }

    fn set_problem(&mut self, problem: Option<Problem>, message: Value<'a>) {
        let read = self.shadow.status;
        let known_since = read
            .problem_since
            .as_deref()
            .filter(|_| problem == read.problem);
        let since = problem.map(|_| known_since.unwrap_or(self.now));
        let value = Value::problem_or_absent(problem);
        self.differ(
            Field::StatusProblem,
            &Value::problem_or_absent(read.problem),
            value,
        );
        self.text(
            Field::StatusProblemSince,
            read.problem_since.as_deref(),
            since,
        );
        let read = Value::text_or_absent(read.message.as_deref());
        self.differ(Field::StatusMessage, &read, message);
    }

    /// Reports that the step cannot be done, once in an attempt.
    pub(super) fn failure(&mut self, sentence: &str) {
        if self.shadow.reports(State::ErrorReset) {
            return;
        }
        self.state(State::ErrorReset);
        self.crash(sentence);
    }

    /// One more failure, and what it was.
    pub(super) fn crash(&mut self, sentence: &str) {
        self.problem(Problem::StepFailed, sentence);
        let crashes = self.shadow.status.crash_count.unwrap_or(0);
        let crashes = crashes.saturating_add(1).min(COUNTER_MAX);
        self.failures(crashes, Some(self.now));
    }

    /// Nothing has failed since the last success.
    pub(super) fn no_failures(&mut self) {
        self.failures(0, None);
    }

    fn failures(&mut self, count: u64, last: Option<&'a str>) {
        let read = self.shadow.status;
        self.number(Field::CrashCount, read.crash_count, Some(count));
        let failed_at = read.state_transition_failure_timestamp.as_deref();
        self.text(Field::FailureTimestamp, failed_at, last);
    }

    /// Whether it changes nothing but the time of the image that the status names.
    pub(super) fn is_time_alone(&self) -> bool {
        let read = self.shadow.status.staged.as_ref();
        self.sets.iter().all(|(_, value)| match (value, read) {
            (Value::Staged(now), Some(read)) => {
                (&now.version, now.prefetched) == (&read.version, read.prefetched)
            }
            _ => false,
        })
    }

    /// Returns the write, if anything differs.
    pub(super) fn write(self) -> Option<Write<'a>> {
        if self.sets.is_empty() {
            return None;
        }
        let shadow = self.shadow;
        Some(Write {
            object: Object::ShadowStatus(shadow.name),
            tests: vec![
                (Field::Uid, Value::text(shadow.uid)),
                (Field::Generation, Value::Number(shadow.generation)),
                (
                    Field::CurrentState,
                    Value::state_or_absent(shadow.status.current_state),
                ),
                (
                    Field::StatusRebootClaimedBootId,
                    Value::text_or_absent(shadow.status.reboot_claimed_boot_id.as_deref()),
                ),
            ],
            sets: self.sets,
        })
    }
}
