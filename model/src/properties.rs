//! Properties that hold in every state, and states that must be reachable.

pub(crate) mod pools;

use brupop_api::State;
use stateright::Property;

use crate::ledger::{Ledger, Record};
use crate::objects::{LIVES, Shadow};
use crate::state::{Config, Safeguard};
use crate::world::{Place, World};

/// Most changes of one spec: an update that goes round in circles has more.
const GENERATIONS_MAX: u8 = 40;

const COUNTED: &str = "a failure that is over is counted";

/// The properties that the checker holds against every state.
pub fn all(config: &Config) -> Vec<Property<Config>> {
    let mut all = vec![
        Property::always(
            "slots never exceed the limit",
            |config: &Config, world: &World| world.ledger.in_use() <= config.limit,
        ),
        Property::always("a granted reboot holds a slot", |_, world: &World| {
            world.places.iter().enumerate().all(|(at, place)| {
                !place.host.rebooting
                    || place
                        .shadow
                        .is_none_or(|shadow| shadow.grant != Some(place.host.boot))
                    || world.ledger.slots[at].is_some()
            })
        }),
        Property::always("no rule is broken", |_, world: &World| {
            world.broken.is_none()
        }),
        Property::always(COUNTED, |config: &Config, world: &World| {
            // A person who resumes the version clears its failures.
            let stay = config.halts && config.faults.resumes == 0;
            !stay || (0..world.places.len()).all(|at| world.is_counted(at))
        }),
        Property::always(
            "a quiet cluster settles",
            |config: &Config, world: &World| {
                world.broken.is_some() || !world.is_stuck(config) || world.is_settled(config)
            },
        ),
        Property::always("no update goes round in circles", |_, world: &World| {
            let generation = |place: &Place| place.shadow.map_or(0, |shadow| shadow.generation);
            world
                .places
                .iter()
                .all(|place| generation(place) < GENERATIONS_MAX)
        }),
        Property::sometimes("all are updated", |_, world: &World| {
            world.places.iter().all(|place| {
                place.host.version == 1
                    && place.shadow.is_some_and(|shadow| {
                        shadow.state == State::Idle && shadow.failures.is_none()
                    })
            }) && world.ledger.in_use() == 0
        }),
        Property::sometimes("a node is rebooted", |_, world: &World| {
            world.places.iter().any(|place| {
                place.host.rebooting
                    && place
                        .shadow
                        .is_some_and(|shadow| shadow.claim == Some(place.host.boot))
            })
        }),
    ];
    if config.halts && config.faults.fall_backs > 0 {
        all.push(Property::sometimes(
            "the update is halted",
            |_, world: &World| world.ledger.is_halted(),
        ));
    }
    all.extend(pools::all(config));
    all
}

/// Returns why the agent's reboot of this host would be wrong, if it is.
pub(crate) fn unfit_to_reboot(place: &Place) -> Option<&'static str> {
    let boot = Some(place.host.boot);
    let mark = place.node.and_then(|node| node.marker);
    let granted = place.shadow.is_some_and(|shadow| shadow.grant == boot);
    let too_late = place.meddled && place.claimed == boot;
    if !(granted || too_late) {
        Some("a host is rebooted from a boot that was not granted")
    } else if mark.is_none_or(|mark| !mark.drained) && !place.meddled {
        Some("a host is rebooted that is not marked as drained")
    } else if !place.meddled && !place.empty {
        Some("a host is rebooted while pods run on it")
    } else if place.host.version != 0 {
        Some("a host is rebooted that runs the update")
    } else {
        None
    }
}

/// Returns why this change of the ledger is wrong, if it is.
pub(crate) fn wrong_ledger(
    config: &Config,
    before: &Ledger,
    after: &Ledger,
) -> Option<&'static str> {
    let was = before.record.and_then(|record| record.halted);
    // A leader that does not see a halt would remove it.
    let lifted = was.filter(|_| !after.is_halted() && config.without != Some(Safeguard::Halt));
    if lifted.is_some() && before.resumed != lifted {
        return Some("a halt ends that nobody named");
    }
    let halted = after
        .record
        .filter(|record| record.halted.is_some() && record.halted != was);
    if halted.is_some_and(|record| record.halted <= after.resumed) {
        return Some("a halt is no later than one that the spec names");
    }
    let halted = halted.filter(|_| was.is_none());
    let threshold = config.threshold();
    let allowed = |proven: bool| {
        if proven {
            threshold.proven
        } else {
            threshold.unproven
        }
    };
    let too_few = |it: Record| it.failed() < allowed(it.succeeded > 0);
    halted
        .is_some_and(too_few)
        .then_some("a version is halted by fewer failures than it may have")
}

/// Returns why this change of the ledger is wrong, if it is: the failure that ends a slot was counted neither before nor now,
/// so that it counts whatever a person has said of those before it.
pub(crate) fn uncounted(
    config: &Config,
    before: &Ledger,
    after: &Ledger,
    places: &[Place],
) -> Option<&'static str> {
    let lost = |(at, place): (usize, &Place)| {
        let given_back = before.slots[at].filter(|_| after.slots[at].is_none());
        let own = given_back
            .zip(place.shadow)
            .filter(|(held, shadow)| held.life == shadow.life);
        own.is_some_and(|(held, shadow)| {
            let failed = shadow
                .failures
                .filter(|it| it.corroborated && it.attempt == held.attempt);
            let known = before.record.and_then(|record| record.failures[at]);
            failed.is_some_and(|failed| !held.counted && known < Some(failed.at))
                && after
                    .record
                    .is_none_or(|record| record.failures[at].is_none())
        })
    };
    (config.halts && places.iter().enumerate().any(lost)).then_some(COUNTED)
}

/// Returns why these slots are wrong, if they are: too many nodes try an update that nobody has reached. `begin` says of each
/// node whether its update would only begin, and `counts` whether one that runs counts as a try.
pub(crate) fn too_many_try(
    config: &Config,
    before: &Ledger,
    after: &Ledger,
    begin: impl Iterator<Item = bool>,
    counts: impl Iterator<Item = bool>,
) -> Option<&'static str> {
    let most = config.threshold().unproven;
    let proven = before.record.is_some_and(|record| record.succeeded > 0)
        || after.record.is_some_and(|record| record.succeeded > 0);
    let trying = |(at, counts): &(usize, bool)| {
        after.slots[*at]
            .is_some_and(|held| !held.counted && (*counts || before.slots[*at].is_none()))
    };
    let too_many = || counts.enumerate().filter(trying).count() as u64 > most;
    (!proven && any_begins(before, after, begin) && too_many())
        .then_some("too many nodes try an unproven update")
}

/// Returns why these slots are wrong, if they are: an update begins while the fleet is paused. `begin` is as above.
pub(crate) fn began_in_pause(
    before: &Ledger,
    after: &Ledger,
    begin: impl Iterator<Item = bool>,
) -> Option<&'static str> {
    (before.paused && any_begins(before, after, begin))
        .then_some("an update begins while the fleet is paused")
}

/// Whether any update begins with these slots.
fn any_begins(before: &Ledger, after: &Ledger, begin: impl Iterator<Item = bool>) -> bool {
    begin
        .enumerate()
        .any(|(at, begins)| begins && before.slots[at].is_none() && after.slots[at].is_some())
}

/// Returns why this grant is wrong, if it is one: the leader that gave it had seen that the update is halted.
pub(crate) fn wrong_grant(before: &Shadow, after: &Shadow, saw_halt: bool) -> Option<&'static str> {
    let granted = after.grant.is_some() && before.grant != after.grant;
    (granted && saw_halt).then_some("a reboot into an update that is halted is granted")
}

/// Returns why this change of a spec is wrong, if it is, with this ledger.
pub(crate) fn wrong_spec(
    place: &Place,
    before: &Shadow,
    after: &Shadow,
    ledger: &Ledger,
) -> Option<&'static str> {
    // The slot of a node that is gone is given back whatever its shadow says.
    if place.node.is_none_or(|node| node.life != after.owner) {
        return None;
    }
    let slot = ledger.slots[usize::from(after.index)];
    let own =
        slot.filter(|held| held.life == after.life && held.attempt == after.attempt.unwrap_or(0));
    let begins = before.state == State::Idle && after.state != State::Idle;
    if begins && own.is_none() {
        Some("an update begins without its slot")
    } else if begins && ledger.is_halted() && own.is_some_and(|held| held.blindly) {
        Some("a node begins with a version that is halted")
    } else if after.grant.is_some() && before.grant != after.grant && own.is_none() {
        Some("a reboot is granted without its slot")
    } else {
        None
    }
}

/// A rule that the world breaks now, if any.
pub(crate) fn broken_rule(config: &Config, world: &World) -> Option<&'static str> {
    for place in &world.places {
        if place.foreign_cordon && place.node.is_some_and(|node| !node.unschedulable) {
            return Some("a person's cordon is taken away");
        }
    }
    let record = world.ledger.record?;
    if record.doubled {
        return Some("a node stands twice among the failures");
    }
    // A request that lingers for a whole update takes its slot again, and what is over is counted again. That a node has
    // reached the update, which is all that is decided on, is true even then.
    let again = if config.faults.stale_leaders > 0 {
        u8::MAX
    } else {
        1
    };
    if record.succeeded > world.arrivals.saturating_mul(again) {
        return Some("more successes are counted than hosts came up with the update");
    }
    let unfounded = |(place, failure): (&Place, &Option<u8>)| failure.is_some() && !place.failed;
    if world.places.iter().zip(&record.failures).any(unfounded) {
        return Some("a failure is counted that no fact of the Node shows");
    }
    pools::wrong_note(world)
}

impl World {
    /// A failure that the spec has written down on facts of the Node stands in the ledger, once its slot is given back.
    fn is_counted(&self, at: usize) -> bool {
        let failed = self.places[at].shadow.and_then(|shadow| shadow.failures);
        if !failed.is_some_and(|failed| failed.corroborated) {
            return true;
        }
        let counted = self.ledger.record.and_then(|record| record.failures[at]);
        // One that comes up with the update after all has not failed.
        let arrived = self.places[at].host.version == 1;
        arrived || self.ledger.slots[at].is_some() || counted.is_some()
    }

    /// Every node is updated, or was refused for a reason that is written down; nothing of ours is left behind.
    fn is_settled(&self, config: &Config) -> bool {
        // With a machine lost in its reboot the limit may be used up; then others wait, and that is right.
        let nobody_begins =
            self.places.iter().any(Place::is_lost) || self.ledger.is_halted() || self.ledger.paused;
        self.places.iter().enumerate().all(|(at, place)| {
            let tidy = || self.ledger.slots[at].is_none() && place.is_tidy();
            let waits = || nobody_begins || pools::holds_back(config, self, place);
            place.is_lost() || (tidy() && (place.is_done(config) || waits()))
        })
    }
}

impl Place {
    /// Its reboot was claimed, and its agent is never heard of again, or has lied: the machine needs a person, and keeps
    /// its slot.
    fn is_lost(&self) -> bool {
        self.shadow.is_some_and(|shadow| {
            let claimed = shadow.claim == Some(self.host.boot) && shadow.claim == shadow.grant;
            // No agent that is left alone says so.
            let lied = shadow.current_state == Some(State::ErrorReset);
            claimed && (self.silent || lied)
        })
    }

    /// Nothing of ours is left on it, or about to happen.
    fn is_tidy(&self) -> bool {
        let Some(node) = self.node else {
            return self.shadow.is_none();
        };
        let Some(shadow) = self.shadow else {
            // No more of them can be made in this model.
            return usize::from(self.shadows_made) == LIVES;
        };
        let acknowledged = shadow.current_state == Some(State::Idle)
            && shadow.status_attempt == shadow.attempt
            && (!self.host.next || self.forgotten);
        shadow.state == State::Idle
            && node.marker.is_none()
            && !node.tainted
            && node.unschedulable == self.foreign_cordon
            && (acknowledged || self.silent)
    }

    /// It is updated, or was tried as often as it may be; or it is gone.
    fn is_done(&self, config: &Config) -> bool {
        let attempt = self.shadow.and_then(|shadow| shadow.attempt).unwrap_or(0);
        self.node.is_none() || self.silent || self.host.version == 1 || attempt >= config.attempts
    }
}
