//! The fields of shadows, Nodes and ledger that writes test and set.

use std::borrow::Cow;

use brupop_api::{Field, Value};
use brupop_apply::Fields;
use brupop_core::decide::Abort;

use crate::ledger::{Held, Ledger, Record};
use crate::objects::{
    BOOTS, FLEET_UID, Failed, LIVES, Mark, Node, POOLS, SHADOWS, Shadow, UIDS, VERSIONS, index_in,
    known_text, name_of, number, said_staged, saying_staged, small, time, to_number, to_state,
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
        match field {
            Field::SpecState => self.state = to_state(value).unwrap_or(self.state),
            Field::SpecVersion => self.version = index_in(&VERSIONS, value),
            Field::SpecAttempt => self.attempt = to_number(value),
            Field::SpecLeaderTerm => self.term = to_number(value),
            Field::SpecBaselineBootId => self.baseline = index_in(&BOOTS, value),
            Field::SpecRebootGrantedBootId => self.grant = index_in(&BOOTS, value),
            Field::SpecLastFailure => {
                let Value::LastFailure(failures) = value else {
                    return self.failures = None;
                };
                self.failures = Some(Failed {
                    count: small(failures.count),
                    attempt: small(failures.attempt),
                    at: time(&failures.at),
                    corroborated: Abort::is_corroborated(&failures.reason),
                });
            }
            Field::CurrentVersion => self.current_version = index_in(&VERSIONS, value),
            Field::TargetVersion => self.target_version = index_in(&VERSIONS, value),
            Field::CurrentState => self.current_state = to_state(value),
            Field::StatusAttempt => self.status_attempt = to_number(value),
            Field::StatusBootId => self.boot = index_in(&BOOTS, value),
            Field::StatusStaged => {
                self.staged = if let Value::Staged(staged) = value {
                    saying_staged(staged)
                } else {
                    None
                };
            }
            Field::StatusRebootClaimedBootId => self.claim = index_in(&BOOTS, value),
            Field::StatusProblem => {
                self.problem = if let Value::Problem(problem) = value {
                    Some(*problem)
                } else {
                    None
                };
            }
            Field::StatusMessage => {
                self.message = if let Value::Text(text) = value {
                    Some(known_text(text))
                } else {
                    None
                };
            }
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
        match field {
            Field::Unschedulable => self.unschedulable = *value == Value::Set,
            Field::UpdatingTaint => self.tainted = *value == Value::Set,
            Field::Marker => {
                self.marker = if let Value::Marker(marker) = value {
                    Some(Mark::of(marker))
                } else {
                    None
                };
            }
            _ => {}
        }
    }
}
