//! What must hold in every state, and what must be possible.

use brupop_api::State;
use stateright::Property;

use crate::state::{Config, Place, World};

/// Most changes of one spec: an update that goes round in circles has more.
const GENERATIONS_MAX: u8 = 40;

/// The properties that the checker holds against every state.
pub fn all() -> Vec<Property<Config>> {
    vec![
        Property::always("slots never exceed the limit", |config: &Config, world: &World| {
            world.slots() <= config.limit
        }),
        Property::always("a granted reboot holds a slot", |_, world: &World| {
            world.places.iter().enumerate().all(|(at, place)| {
                !place.host.rebooting
                    || place.shadow.grant != Some(place.host.boot)
                    || world.ledger.slots[at].is_some()
            })
        }),
        Property::always("no rule is broken", |_, world: &World| world.broken.is_none()),
        Property::always("a quiet cluster settles", |config: &Config, world: &World| {
            world.broken.is_some() || !world.is_stuck(config) || world.is_settled(config)
        }),
        Property::always("no update goes round in circles", |_, world: &World| {
            world.places.iter().all(|place| place.shadow.generation < GENERATIONS_MAX)
        }),
        Property::sometimes("all are updated", |_, world: &World| {
            world.places.iter().all(|place| {
                place.host.version == 1
                    && place.shadow.state == State::Idle
                    && place.shadow.failures.is_none()
            }) && world.slots() == 0
        }),
        Property::sometimes("a node is rebooted", |_, world: &World| {
            world
                .places
                .iter()
                .any(|place| place.host.rebooting && place.shadow.claim == Some(place.host.boot))
        }),
    ]
}

/// Why the agent's reboot of this host would be wrong, if it is.
pub(crate) fn unfit_to_reboot(place: &Place) -> Option<&'static str> {
    let mark = place.node.marker;
    if place.shadow.grant != Some(place.host.boot) {
        Some("a host is rebooted from a boot that was not granted")
    } else if mark.is_none_or(|mark| !mark.drained && !place.meddled) {
        Some("a host is rebooted that is not marked as drained")
    } else if !place.meddled && !place.empty {
        Some("a host is rebooted while pods run on it")
    } else if place.host.version != 0 {
        Some("a host is rebooted that runs the update")
    } else {
        None
    }
}

/// A rule that the world breaks now, if any.
pub(crate) fn broken_rule(_config: &Config, world: &World) -> Option<&'static str> {
    for place in &world.places {
        if place.foreign_cordon && !place.node.unschedulable {
            return Some("a person's cordon is taken away");
        }
    }
    None
}

impl World {
    fn slots(&self) -> u64 {
        self.ledger.slots.iter().flatten().count() as u64
    }

    /// Every node is updated, or was refused for a reason that is written down; nothing of ours is left behind.
    fn is_settled(&self, config: &Config) -> bool {
        // With a machine lost in its reboot the limit may be used up; then others wait, and that is right.
        let limit_is_free = !self.places.iter().any(Place::is_lost);
        self.places.iter().enumerate().all(|(at, place)| {
            let tidy = || self.ledger.slots[at].is_none() && place.is_tidy();
            place.is_lost() || (tidy() && (place.is_done(config) || !limit_is_free))
        })
    }
}

impl Place {
    /// Its agent claimed the reboot and was never heard of again: the machine needs a person, and keeps its slot.
    fn is_lost(&self) -> bool {
        let claimed = self.shadow.claim == Some(self.host.boot) && self.shadow.claim == self.shadow.grant;
        self.silent && claimed
    }

    /// Nothing of ours is left on it, or about to happen.
    fn is_tidy(&self) -> bool {
        let shadow = &self.shadow;
        let acknowledged = shadow.current_state == Some(State::Idle)
            && shadow.status_attempt == shadow.attempt
            && !self.host.next;
        shadow.state == State::Idle
            && self.node.marker.is_none()
            && !self.node.tainted
            && self.node.unschedulable == self.foreign_cordon
            && (acknowledged || self.silent)
    }

    /// It is updated, or was tried as often as it may be.
    fn is_done(&self, config: &Config) -> bool {
        self.silent || self.host.version == 1 || self.shadow.attempt.unwrap_or(0) >= config.attempts
    }
}
