//! The fields of shadows, Nodes and ledger that writes test and set.

use std::borrow::Cow;

use brupop_api::{Field, Value};
use brupop_apply::Fields;
use brupop_core::decide::Abort;

use crate::ledger::{Held, Ledger, Record};
use crate::objects::{
    BOOTS, FLEET_UID, Failed, LIVES, Mark, Node, POOLS, SHADOWS, Shadow, UIDS, VERSIONS, index_in,
    known_text, name_of, number, said_staged, saying_staged, small, time, to_number,
};
use crate::tables;

impl Fields for Ledger {
    fn get(&self, field: Field<'_>) -> Option<Value<'_>> {
        Some(match field {
            Field::Uid => Value::text(FLEET_UID),
            Field::Generation => Value::Number(self.generation.into()),
            Field::Term => Value::Number(self.term.into()),
            Field::Slots => Value::Slots(Cow::Borrowed(tables::slots(self))),
            Field::Versions => Value::Versions(Cow::Borrowed(tables::versions(self.record))),
            Field::DonePools => Value::DonePools(Cow::Borrowed(tables::done_pools(self.done))),
            Field::Slot(_) | Field::LastFinished => Value::Absent,
            _ => return None,
        })
    }

    fn set(&mut self, field: Field<'_>, value: &Value<'_>) {
        match (field, value) {
            (Field::Term, Value::Number(term)) => self.term = small(*term),
            (Field::Slot(shadow), value) => {
                let Some(index) = SHADOWS.iter().position(|name| *name == shadow) else {
                    return;
                };
                let Value::Slot(slot) = value else {
                    return self.slots[index] = None;
                };
                let life = UIDS[index]
                    .iter()
                    .position(|uid| *uid == slot.uid)
                    .unwrap_or(LIVES - 1);
                let (life, attempt) = (small(life as u64), small(slot.attempt));
                let pool = slot
                    .pool
                    .as_deref()
                    .and_then(|pool| POOLS.iter().position(|it| *it == pool));
                let pool = pool.map(|pool| small(pool as u64));
                let (lost, counted) = (slot.lost, slot.counted);
                self.slots[index] = Some(Held {
                    life,
                    attempt,
                    lost,
                    counted,
                    pool,
                    blindly: false,
                });
            }
            (_, Value::Versions(records)) => {
                let mut records = records.iter();
                let record = records.find(|record| record.version == VERSIONS[1]);
                self.record = record.map(Record::of);
            }
            (_, Value::DonePools(done)) => {
                let mut done = done.iter();
                let done = done.find(|it| it.version == VERSIONS[1] && it.pool == POOLS[0]);
                self.done = done.map(|done| time(&done.since));
            }
            _ => {}
        }
    }
}

impl Fields for Shadow {
    fn get(&self, field: Field<'_>) -> Option<Value<'_>> {
        Some(match field {
            Field::Uid => Value::text(UIDS[usize::from(self.index)][usize::from(self.life)]),
            Field::Generation => Value::Number(self.generation.into()),
            Field::SpecState => Value::State(self.state),
            Field::SpecVersion => name_of(&VERSIONS, self.version),
            Field::SpecAttempt => number(self.attempt),
            Field::SpecLeaderTerm => number(self.term),
            Field::SpecBaselineBootId => name_of(&BOOTS, self.baseline),
            Field::SpecRebootGrantedBootId => name_of(&BOOTS, self.grant),
            Field::CurrentVersion => name_of(&VERSIONS, self.current_version),
            Field::TargetVersion => name_of(&VERSIONS, self.target_version),
            Field::CurrentState => Value::state_or_absent(self.current_state),
            Field::StatusAttempt => number(self.status_attempt),
            Field::StatusBootId => name_of(&BOOTS, self.boot),
            Field::StatusStaged => said_staged(self.staged)
                .cloned()
                .map_or(Value::Absent, Value::Staged),
            Field::StatusRebootClaimedBootId => name_of(&BOOTS, self.claim),
            Field::StatusProblem => Value::problem_or_absent(self.problem),
            Field::StatusMessage => Value::text_or_absent(self.message),
            // Left out of the model.
            Field::SpecTransitionTimestamp
            | Field::SpecFromVersion
            | Field::SpecLastFailure
            | Field::CrashCount
            | Field::FailureTimestamp
            | Field::StatusProblemSince => Value::Absent,
            _ => return None,
        })
    }

    fn set(&mut self, field: Field<'_>, value: &Value<'_>) {
        match (field, value) {
            (Field::SpecState, Value::State(state)) => self.state = *state,
            (Field::SpecVersion, _) => self.version = index_in(&VERSIONS, value),
            (Field::SpecAttempt, _) => self.attempt = to_number(value),
            (Field::SpecLeaderTerm, _) => self.term = to_number(value),
            (Field::SpecBaselineBootId, _) => self.baseline = index_in(&BOOTS, value),
            (Field::SpecRebootGrantedBootId, _) => self.grant = index_in(&BOOTS, value),
            (Field::SpecLastFailure, Value::LastFailure(failures)) => {
                self.failures = Some(Failed {
                    count: small(failures.count),
                    attempt: small(failures.attempt),
                    at: time(&failures.at),
                    corroborated: Abort::is_corroborated(&failures.reason),
                });
            }
            (Field::SpecLastFailure, _) => self.failures = None,
            (Field::CurrentVersion, _) => self.current_version = index_in(&VERSIONS, value),
            (Field::TargetVersion, _) => self.target_version = index_in(&VERSIONS, value),
            (Field::CurrentState, Value::State(state)) => self.current_state = Some(*state),
            (Field::CurrentState, _) => self.current_state = None,
            (Field::StatusAttempt, _) => self.status_attempt = to_number(value),
            (Field::StatusBootId, _) => self.boot = index_in(&BOOTS, value),
            (Field::StatusStaged, Value::Staged(staged)) => self.staged = saying_staged(staged),
            (Field::StatusStaged, _) => self.staged = None,
            (Field::StatusRebootClaimedBootId, _) => self.claim = index_in(&BOOTS, value),
            (Field::StatusProblem, Value::Problem(problem)) => self.problem = Some(*problem),
            (Field::StatusProblem, _) => self.problem = None,
            (Field::StatusMessage, Value::Text(text)) => self.message = Some(known_text(text)),
            (Field::StatusMessage, _) => self.message = None,
            _ => {}
        }
    }
}

impl Fields for Node {
    fn get(&self, field: Field<'_>) -> Option<Value<'_>> {
        Some(match field {
            Field::Uid => Value::text(UIDS[usize::from(self.index)][usize::from(self.life)]),
            Field::Unschedulable => Value::flag(self.unschedulable),
            Field::UpdatingTaint => Value::flag(self.tainted),
            Field::Marker => self.marker.map_or(Value::Absent, |mark| {
                Value::Marker(Cow::Borrowed(tables::marker(self.index, mark)))
            }),
            // Left out of the model.
            Field::DoNotDisrupt | Field::ScaleDownDisabled | Field::ExcludedFromLoadBalancers => {
                Value::Absent
            }
            _ => return None,
        })
    }

    fn set(&mut self, field: Field<'_>, value: &Value<'_>) {
        match (field, value) {
            (Field::Unschedulable, _) => self.unschedulable = *value == Value::Set,
            (Field::UpdatingTaint, _) => self.tainted = *value == Value::Set,
            (Field::Marker, Value::Marker(marker)) => self.marker = Some(Mark::of(marker)),
            (Field::Marker, _) => self.marker = None,
            _ => {}
        }
    }
}
