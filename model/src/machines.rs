//! Actions of agents and hosts, and lies in an agent's name.

use brupop_agent_core::step::{
    BegunCommand, Command, HostCall, Step, StepMemory, UpdateState, step,
};
use brupop_api::shadow::status_may_become;
use brupop_api::{Field, State, Value, Write};

use crate::actions::Lie;
use crate::objects::{BOOTS, Shadow};
use crate::properties;
use crate::reconcile::took;
use crate::state::{Config, Safeguard, Updater, started};
use crate::view;
use crate::world::{Place, World};

impl World {
    pub(crate) fn agent(&mut self, config: &Config, at: usize, success: bool) {
        let place = &self.places[at];
        let Some(seen) = place
            .agent_sees
            .or(place.shadow)
            .filter(|seen| is_its_own(place, seen))
        else {
            return;
        };
        let (host, facts) = (view::host(place.host), view::shadow(&seen));
        let (next, memory) = step(&host, &facts, &place.memory);
        match next {
            Step::Report(write) => {
                let claims = claims(&write);
                if config.without == Some(Safeguard::Handshake) && claims {
                    return self.reboot(at);
                }
                let write = config.weakened(write);
                let place = &mut self.places[at];
                if let Some(shadow) = &mut place.shadow
                    && success
                    && took(&write, shadow, &mut self.broken)
                {
                    place.memory = memory;
                    place.claimed = if claims {
                        Some(place.host.boot)
                    } else {
                        place.claimed
                    };
                }
            }
            Step::Call(HostCall::Command(command)) => {
                if !success {
                    self.faults.failed_commands -= 1;
                }
                self.command(at, command, success, memory);
            }
            Step::Call(HostCall::Reboot) if success => self.reboot(at),
            Step::Call(HostCall::Reboot) => {}
            Step::Poll | Step::Wait => self.places[at].memory = memory,
        }
    }

    /// The host does at once what it is asked to, or fails; what it may not do in its state it refuses.
    fn command(&mut self, at: usize, command: Command, success: bool, memory: StepMemory) {
        let place = &mut self.places[at];
        let host = &mut place.host;
        let state = host.update_state();
        let allowed = match command {
            Command::Refresh => true,
            Command::Prepare => matches!(state, UpdateState::Available | UpdateState::Staged),
            Command::Activate => state == UpdateState::Staged,
            Command::Deactivate => state == UpdateState::Ready,
        };
        if !allowed {
            return;
        }
        let looked = host.updates.is_some_and(|updater| updater.looked)
            || (command == Command::Refresh && success);
        host.updates = Some(Updater {
            last: (command, success),
            looked,
        });
        if success {
            match command {
                Command::Refresh => {}
                Command::Prepare => host.staged = true,
                Command::Activate => host.next = true,
                Command::Deactivate => host.next = false,
            }
        }
        // A refresh that failed is due again when the agent's timer says so.
        let refresh_due = memory.refresh_due || (command == Command::Refresh && !success);
        place.memory = StepMemory {
            asked: memory.asked.map(|asked| BegunCommand {
                before: None,
                ..asked
            }),
            refresh_due,
            ..memory
        };
    }

    fn reboot(&mut self, at: usize) {
        if let Some(broken) = properties::unfit_to_reboot(&self.places[at]) {
            self.broken.get_or_insert(broken);
        }
        self.go_down(at);
    }

    pub(crate) fn go_down(&mut self, at: usize) {
        self.places[at].host.rebooting = true;
        if let Some(node) = &mut self.places[at].node {
            node.ready = false;
        }
    }

    pub(crate) fn boot(&mut self, config: &Config, at: usize) {
        let place = &mut self.places[at];
        let host = &mut place.host;
        host.rebooting = false;
        host.boot = (host.boot + 1).min(u8::try_from(BOOTS.len() - 1).unwrap_or(0));
        if host.next {
            host.version = 1;
            host.staged = false;
            host.next = false;
            self.arrivals += u8::from(config.halts);
        } else {
            place.failed |= config.halts;
        }
        host.updates = None;
        if let Some(node) = &mut place.node {
            (node.boot, node.version, node.ready) = (host.boot, host.version, true);
        }
        place.meddled = false;
        place.claimed = None;
        place.memory = started();
        place.agent_sees = None;
    }

    /// Says what is not so, with the agent's token, as far as the webhook lets it pass.
    pub(crate) fn lie(&mut self, at: usize, lie: Lie) {
        let place = &self.places[at];
        let Some(before) = place.shadow.filter(|shadow| is_its_own(place, shadow)) else {
            return;
        };
        let mut shadow = before;
        let state = |shadow: &mut Shadow, to: State| {
            if status_may_become(shadow.state, shadow.current_state, to) {
                shadow.current_state = Some(to);
                shadow.status_attempt = shadow.attempt;
            }
        };
        match lie {
            Lie::Reached => {
                let goal = shadow.state;
                state(&mut shadow, goal);
            }
            Lie::Failed => state(&mut shadow, State::ErrorReset),
            Lie::NoTarget => shadow.target_version = None,
            Lie::Target => shadow.target_version = Some(1),
            Lie::Claim if shadow.state == State::RebootedIntoUpdate && shadow.grant.is_some() => {
                shadow.claim = shadow.grant;
            }
            Lie::Claim => {}
        }
        if shadow != before {
            self.faults.lies -= 1;
            let place = &mut self.places[at];
            place.shadow = Some(shadow);
            place.claimed = if lie == Lie::Claim {
                shadow.claim
            } else {
                place.claimed
            };
        }
    }
}

/// Does the shadow belong to the Node that the agent runs on? Of another one it may write nothing.
fn is_its_own(place: &Place, shadow: &Shadow) -> bool {
    place.node.is_some_and(|node| node.life == shadow.owner)
}

fn claims(write: &Write<'_>) -> bool {
    write
        .sets
        .iter()
        .any(|(field, value)| *field == Field::StatusRebootClaimedBootId && *value != Value::Absent)
}
