//! Carries out the actions of the reconcilers.

use brupop_api::fleet::BottlerocketFleetStatus;
use brupop_api::shadow::LastFailure;
use brupop_api::{Field, Object, State, Value, Write};
use brupop_apply::{Fields, NotApplied, apply};
use brupop_core::decide::{self, Abort, Decisions, Step, decide, drained};
use brupop_core::facts::{FleetFacts, NodeView};

use crate::ledger::Held;
use crate::objects::{LIVES, NODES, SHADOWS, Shadow, small};
use crate::pools::{forget_who_wants, held, pool_of};
use crate::properties;
use crate::properties::pools::{self, Saw};
use crate::state::{Config, Safeguard};
use crate::tables;
use crate::view::{self, Late};
use crate::world::{Leader, World};

impl World {
    pub(crate) fn lead(&mut self, config: &Config, at: usize) {
        if self.leaders.iter().any(|leader| leader.term.is_some()) {
            self.faults.takeovers -= 1;
        }
        self.leaders[at] = Leader::default();
        let views = view::views(config, self, &self.leaders[at], None);
        let ledger = BottlerocketFleetStatus {
            term: Some(self.ledger.term.into()),
            slots: tables::slots(&self.ledger).clone(),
            ..Default::default()
        };
        let (term, write) = decide::new_term(Some(&ledger), &views);
        if took(&config.weakened(write), &mut self.ledger, &mut self.broken) {
            self.leaders[at].term = u8::try_from(term).ok();
        }
    }

    /// Equal nodes have their turns by name, and any of them may have the first name.
    pub(crate) fn slots(&mut self, config: &Config, at: usize, first: usize) {
        if first == 0 {
            return self.slots_with(config, at, None);
        }
        let mut swapped: Vec<usize> = (0..self.places.len()).collect();
        swapped.swap(0, first);
        let mut world = self.in_order(&swapped);
        world.slots_with(config, at, None);
        *self = world.in_order(&swapped);
    }

    pub(crate) fn slots_with(&mut self, config: &Config, at: usize, late: Option<usize>) {
        let leader = &self.leaders[at];
        let views = view::views(config, self, leader, late);
        let seen = leader.ledger(self);
        let mut judged = seen;
        if config.without == Some(Safeguard::OwnAttempt) {
            // Any Idle is as good as that of the slot's own attempt.
            for (slot, view) in judged.slots.iter_mut().zip(&views) {
                let attempt = view
                    .shadow
                    .map_or(0, |shadow| shadow.spec.attempt.unwrap_or(0));
                *slot = slot.map(|held| Held {
                    attempt: held.attempt.min(small(attempt)),
                    ..held
                });
            }
        }
        let seen_pools = leader.pools(self);
        for (slot, view) in judged.slots.iter_mut().zip(&views) {
            match (config.without, *slot) {
                // A slot is of the pool in which its node is now.
                (Some(Safeguard::SlotPool), Some(held)) => {
                    *slot = Some(Held {
                        pool: pool_of(seen_pools, view.owner),
                        ..held
                    });
                }
                (
                    Some(Safeguard::GoneSlot),
                    Some(Held {
                        pool: Some(pool), ..
                    }),
                ) => {
                    *slot = slot.filter(|_| !seen_pools[usize::from(pool)].gone);
                }
                _ => {}
            }
        }
        let fleet = view::fleet_of(config, self, leader, &judged);
        if let Some(broken) = pools::waits_again(config, &seen, fleet.pools) {
            self.broken.get_or_insert(broken);
        }
        let mut decided: Vec<_> = views.iter().map(|it| it.with_slot_of(&fleet)).collect();
        if config.without == Some(Safeguard::NoneWants) {
            forget_who_wants(&mut decided, seen_pools);
        }
        let Some(mut write) = decided_on(&fleet, &decided).write else {
            return;
        };
        for (field, value) in &mut write.tests {
            // It was decided on what was seen, though a safeguard is missing.
            if let Field::Slots | Field::Versions | Field::DonePools = field
                && let Some(found) = seen.get(*field)
            {
                *value = found;
            }
        }
        let before = self.ledger;
        let judged = pools::Judged {
            views: &views,
            pools: seen_pools,
        };
        if !took(&config.weakened(write), &mut self.ledger, &mut self.broken) {
            return;
        }
        let halted = self.ledger.is_halted();
        if config.without == Some(Safeguard::Latch) && judged.first_is_left() {
            self.ledger.done = None;
        }
        if config.without == Some(Safeguard::DoneUntilHalt) && halted {
            self.ledger.done = self.ledger.done.or(before.done);
        }
        for (slot, held) in self.ledger.slots.iter_mut().zip(before.slots) {
            if let Some(slot) = slot {
                slot.blindly = held.map_or(halted, |held| held.blindly);
            }
        }
        let begin = || {
            views.iter().map(|it| {
                it.shadow
                    .is_some_and(|shadow| shadow.spec.state == State::Idle)
            })
        };
        let counts = views.iter().map(|it| !it.time.trial_overdue);
        let wrong = properties::wrong_ledger(config, &before, &self.ledger)
            .or_else(|| properties::uncounted(config, &before, &self.ledger, &self.places))
            .or_else(|| properties::began_in_pause(&before, &self.ledger, begin()))
            .or_else(|| properties::too_many_try(config, &before, &self.ledger, begin(), counts))
            .or_else(|| judged.wrong(config, &before, &self.ledger));
        if let Some(broken) = wrong {
            self.broken.get_or_insert(broken);
        }
    }

    pub(crate) fn reconcile(
        &mut self,
        config: &Config,
        at: usize,
        node: usize,
        late: Option<Late>,
    ) {
        let leader = self.leaders[at];
        let fleet = view::fleet(config, self, &leader);
        let see = |at: usize| {
            let late = late.filter(|_| at == node);
            view::view(config, self, &leader, at, late).with_slot_of(&fleet)
        };
        let views: Vec<NodeView<'_>> = (0..self.places.len()).map(see).collect();
        let view = views[node];
        let saw = Saw {
            halt: leader.ledger(self).is_halted(),
            held: held(leader.pools(self), view.owner) || fleet.paused,
            draining: view
                .node
                .and_then(|node| node.marker())
                .is_some_and(|it| it.drain_started_at.is_some()),
        };
        let begun =
            |view: &NodeView<'_>| view.shadow.is_some_and(|it| it.spec.state != State::Idle);
        let fleet = if config.without == Some(Safeguard::AskedAgain) && begun(&view) {
            let mut open = self.clone();
            open.pools.iter_mut().for_each(|pool| pool.paused = false);
            view::fleet(config, &open, &leader)
        } else {
            fleet
        };
        let step = decided_on(&fleet, &views).nodes[node].step;
        let write = step.and_then(|step| step.write(&fleet, &view));
        let seen = leader.shadow(self, node);
        match step {
            Some(Step::Grant) => {
                let confirm = view.node.map(|node| drained(&fleet, node));
                if let (Some(confirm), Some(grant)) = (confirm, write)
                    && self.confirm(config, node, confirm)
                {
                    self.write(config, grant, saw);
                }
            }
            // Evicted pods come back to a node that can be scheduled to.
            Some(Step::Evict | Step::DeletePods) => {
                let place = &mut self.places[node];
                place.empty |= place.node.is_some_and(|node| node.unschedulable);
            }
            Some(Step::CreateShadow { attempt }) => {
                let owner = leader.node(self, node);
                let place = &mut self.places[node];
                // One that belongs to no Node is collected as garbage at once.
                let owner =
                    owner.filter(|owner| place.node.is_some_and(|node| node.life == owner.life));
                if let (None, Some(owner)) = (place.shadow, owner)
                    && usize::from(place.shadows_made) < LIVES
                {
                    let new = Shadow::new(small(node as u64), place.shadows_made, owner.life);
                    let (attempt, term) = (attempt.map(small), Some(small(fleet.term)));
                    place.shadow = Some(Shadow {
                        attempt,
                        term,
                        ..new
                    });
                    place.shadows_made += 1;
                }
            }
            // Its version is tested, so it goes as it was seen or not at all.
            Some(Step::DeleteShadow) => {
                let place = &mut self.places[node];
                place.shadow.take_if(|shadow| seen == Some(*shadow));
            }
            Some(step) => {
                let closed = step == Step::Abort(Abort::PoolClosed);
                if let Some(mut write) = write {
                    if config.without == Some(Safeguard::NoFailure) && closed {
                        let failures = LastFailure {
                            count: 1,
                            ..LastFailure::default()
                        };
                        let failures = Value::LastFailure(failures);
                        write.sets.push((Field::SpecLastFailure, failures));
                    }
                    self.write(config, write, saw);
                }
            }
            None => {}
        }
    }

    /// Checks that a node is drained, by its pods and by this write, which a leader decided on.
    fn confirm(&mut self, config: &Config, at: usize, write: Write<'_>) -> bool {
        let unchecked = config.without == Some(Safeguard::FreshPods);
        if !(self.places[at].empty || unchecked) {
            return false;
        }
        self.write_node(config, &config.weakened(write), at)
            || config.without == Some(Safeguard::FreshNode)
    }

    /// Makes a write that a leader decided on, who saw this.
    fn write(&mut self, config: &Config, write: Write<'_>, saw: Saw) {
        let write = config.weakened(write);
        match write.object {
            Object::ShadowSpec(name) => {
                let at = position(&SHADOWS, name);
                let Some(place) = self.places.get_mut(at) else {
                    return;
                };
                let Some(before) = place.shadow else { return };
                let mut shadow = before;
                if !took(&write, &mut shadow, &mut self.broken) || shadow.term < before.term {
                    return;
                }
                shadow.generation += u8::from(shadow != before);
                place.shadow = Some(shadow);
                let wrong = properties::wrong_spec(place, &before, &shadow, &self.ledger)
                    .or_else(|| properties::wrong_grant(&before, &shadow, saw.halt))
                    .or_else(|| pools::wrong_spec(config, place, &before, &shadow, saw));
                if let Some(broken) = wrong {
                    self.broken.get_or_insert(broken);
                }
            }
            Object::Node(name) => {
                let at = position(&NODES, name);
                let before = self.places.get(at).and_then(|place| place.node);
                self.write_node(config, &write, at);
                let after = self.places.get(at).and_then(|place| place.node);
                if let Some(broken) = pools::wrong_cordon(before, after, saw) {
                    self.broken.get_or_insert(broken);
                }
            }
            Object::ShadowStatus(_)
            | Object::Ledger
            | Object::FleetStatus
            | Object::PoolStatus(_) => {}
        }
    }

    /// Makes this write of a Node. Returns whether it was accepted.
    fn write_node(&mut self, config: &Config, write: &Write<'_>, at: usize) -> bool {
        let Some(place) = self.places.get_mut(at) else {
            return false;
        };
        let Some(before) = place.node else {
            return false;
        };
        let mut node = before;
        if !took(write, &mut node, &mut self.broken) {
            return false;
        }
        if let Some((mark, read)) = node.marker.as_mut().zip(before.marker) {
            // Cordoned again, at another time.
            mark.again =
                read.again != (read.started && node.unschedulable && !before.unschedulable);
        }
        match config.without {
            // Changes that the marker does not name are undone with the rest.
            Some(Safeguard::ForeignCordon) if node.marker.is_none_or(|mark| !mark.started) => {
                node.unschedulable = false;
            }
            Some(Safeguard::DrainedAgain) => {
                let drained = before.marker.is_some_and(|mark| mark.drained);
                if let Some(mark) = &mut node.marker {
                    mark.drained |= drained && mark.started;
                }
            }
            _ => {}
        }
        // Pods come to a node as soon as it can be scheduled to.
        place.empty &= node.unschedulable;
        place.node = Some(node);
        true
    }
}

impl Config {
    /// The write, without the tests that a sensitivity run leaves out.
    pub(crate) fn weakened<'a>(&self, mut write: Write<'a>) -> Write<'a> {
        let object = write.object;
        let left_out = |field: Field<'_>| match self.without {
            Some(Safeguard::Generation) => field == Field::Generation && object != Object::Ledger,
            Some(Safeguard::Pause) => field == Field::Generation && object == Object::Ledger,
            Some(Safeguard::Slots) => field == Field::Slots,
            Some(Safeguard::Claim) => field == Field::StatusRebootClaimedBootId,
            Some(Safeguard::Marker) => field == Field::Marker,
            _ => false,
        };
        write.tests.retain(|(field, _)| !left_out(*field));
        let gives_back = |(field, value): &(Field<'_>, Value<'_>)| {
            matches!(field, Field::Slot(_)) && *value == Value::Absent
        };
        let counted = self.without != Some(Safeguard::Counted);
        if !self.halts || !counted && write.sets.iter().any(gives_back) {
            write
                .sets
                .retain(|(field, _)| !matches!(field, Field::Versions | Field::DonePools));
        }
        write
    }
}

/// Returns what a leader decides that sees this. All of it can be read.
fn decided_on<'a>(fleet: &FleetFacts<'a>, views: &[NodeView<'a>]) -> Decisions<'a> {
    decide(fleet, views)
}

/// Was this write taken? One that makes no sense is no refusal, but a mistake in what ships.
pub(crate) fn took(
    write: &Write<'_>,
    object: &mut impl Fields,
    broken: &mut Option<&'static str>,
) -> bool {
    let answer = apply(write, object);
    if let Err(NotApplied::Misfit(_)) = answer {
        broken.get_or_insert("a write does not fit its object");
    }
    answer.is_ok()
}

fn position(names: &[&str], name: &str) -> usize {
    names
        .iter()
        .position(|known| *known == name)
        .unwrap_or(usize::MAX)
}
