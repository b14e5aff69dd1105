//! What can happen next, and what comes of it.

use brupop_agent::step::{Command, HostCall, Memory, Step, UpdateState, step};
use brupop_api::write::apply;
use brupop_api::{Field, Object, Write};
use brupop_reconciler::decide::{self, Effect};
use stateright::{Model, Property};

use crate::objects::{BOOTS, NODES, NODES_MAX, SHADOWS};
use crate::properties;
use crate::state::{Config, Leader, STARTED, Safeguard, Stale, Updater, World};
use crate::view;

/// Which part of what a reconciler sees stays behind the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named after the objects")]
pub enum Part {
    Everything,
    Shadows,
    Nodes,
    Pods,
    Ledger,
}

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A reconciler begins to lead.
    Lead(usize),
    /// A reconciler gives back and takes slots.
    Slots(usize),
    /// A reconciler acts for a node.
    Reconcile(usize, usize),
    /// A reconciler acts for a node whose step takes too long.
    ReconcileOverdue(usize, usize),
    /// A reconciler goes on with what it sees now.
    Freeze(usize, Part),
    /// Requests of a reconciler linger on their way, decided on what it sees now, while it goes on: the other
    /// reconciler's place is taken by them.
    Linger(usize),
    /// It sees the truth again.
    Thaw(usize),
    /// An agent takes a step.
    Agent(usize),
    /// An agent takes a step, and the command that it asks for fails.
    AgentFails(usize),
    /// An agent goes on with the shadow that it sees now.
    FreezeAgent(usize),
    /// It sees the truth again.
    ThawAgent(usize),
    /// An agent is killed and started again.
    CrashAgent(usize),
    /// An agent is never heard of again.
    SilenceAgent(usize),
    /// A host boots what is next.
    Boot(usize),
    /// A host boots what is next, which fails, so it boots the old set.
    FallBack(usize),
    /// A host reboots by itself.
    OwnReboot(usize),
    /// A person cordons the node.
    Cordon(usize),
    /// A person uncordons the node.
    Uncordon(usize),
}

impl Action {
    /// Happens without a fault: what a quiet cluster does by itself, sooner or later.
    fn is_progress(self, world: &World) -> bool {
        let nobody_leads = world.leaders.iter().all(|leader| leader.term.is_none());
        match self {
            Self::Lead(_) => return nobody_leads,
            Self::ReconcileOverdue(_, node) => return world.places[node].silent,
            _ => {}
        }
        matches!(
            self,
            Self::Slots(_)
                | Self::Reconcile(..)
                | Self::Thaw(_)
                | Self::Agent(_)
                | Self::ThawAgent(_)
                | Self::Boot(_)
        )
    }
}

impl Model for Config {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.broken.is_some() {
            return;
        }
        let faults = world.faults;
        for (at, leader) in world.leaders.iter().enumerate() {
            if world.leaders.iter().all(|leader| leader.term.is_none()) || faults.takeovers > 0 {
                actions.push(Action::Lead(at));
            }
            if leader.term.is_none() {
                continue;
            }
            actions.push(Action::Slots(at));
            actions.extend((0..self.nodes).map(|node| Action::Reconcile(at, node)));
            let late = |node: &usize| faults.deadlines > 0 || world.places[*node].silent;
            actions.extend((0..self.nodes).filter(late).map(|node| Action::ReconcileOverdue(at, node)));
            match leader.stale {
                Some(_) => actions.push(Action::Thaw(at)),
                None if faults.stale_leaders > 0 => {
                    let parts = [Part::Everything, Part::Shadows, Part::Nodes, Part::Pods, Part::Ledger];
                    actions.extend(parts.map(|part| Action::Freeze(at, part)));
                    if world.leaders[1 - at].term.is_none() {
                        actions.push(Action::Linger(at));
                    }
                }
                None => {}
            }
        }
        for (at, place) in world.places.iter().enumerate() {
            if place.host.rebooting {
                actions.push(Action::Boot(at));
                if faults.fall_backs > 0 && place.host.next {
                    actions.push(Action::FallBack(at));
                }
                continue;
            }
            if faults.own_reboots > 0 {
                actions.push(Action::OwnReboot(at));
            }
            if faults.people > 0 {
                if !place.node.unschedulable && place.node.marker.is_none() {
                    actions.push(Action::Cordon(at));
                } else if place.node.unschedulable {
                    actions.push(Action::Uncordon(at));
                }
            }
            if place.silent {
                continue;
            }
            if faults.silent_agents > 0 {
                actions.push(Action::SilenceAgent(at));
            }
            actions.push(Action::Agent(at));
            if faults.failed_commands > 0 {
                actions.push(Action::AgentFails(at));
            }
            match place.agent_sees {
                Some(_) => actions.push(Action::ThawAgent(at)),
                None if faults.stale_agents > 0 => actions.push(Action::FreezeAgent(at)),
                None => {}
            }
            if faults.agent_crashes > 0 && place.memory != STARTED {
                actions.push(Action::CrashAgent(at));
            }
        }
    }

    fn next_state(&self, before: &World, action: Action) -> Option<World> {
        let mut world = before.clone();
        world.happen(self, action);
        (world != *before).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}

impl World {
    /// Can nothing happen any more but faults?
    pub fn is_stuck(&self, config: &Config) -> bool {
        let mut actions = vec![];
        config.actions(self, &mut actions);
        actions.into_iter().filter(|action| action.is_progress(self)).all(|action| {
            let mut world = self.clone();
            world.happen(config, action);
            world == *self
        })
    }

    fn happen(&mut self, config: &Config, action: Action) {
        match action {
            Action::Lead(at) => self.lead(config, at),
            Action::Slots(at) => {
                let (fleet, situations) = view::of(config, self, &self.leaders[at], None);
                if let Some(write) = decide::slots(&fleet, &situations).write {
                    let write = config.weakened(write);
                    let _lost = apply(&write, &mut self.ledger);
                }
            }
            Action::Reconcile(at, node) => self.reconcile(config, at, node, false),
            Action::ReconcileOverdue(at, node) => {
                let before = self.clone();
                self.reconcile(config, at, node, true);
                if *self != before && !self.places[node].silent {
                    self.faults.deadlines -= 1;
                }
            }
            Action::Freeze(at, part) => self.freeze(at, part),
            Action::Linger(at) => {
                self.leaders[1 - at].term = self.leaders[at].term;
                self.freeze(1 - at, Part::Everything);
            }
            Action::Thaw(at) => self.leaders[at].stale = None,
            Action::Agent(at) => self.agent(config, at, true),
            Action::AgentFails(at) => self.agent(config, at, false),
            Action::FreezeAgent(at) => {
                self.faults.stale_agents -= 1;
                self.places[at].agent_sees = Some(self.places[at].shadow);
            }
            Action::ThawAgent(at) => self.places[at].agent_sees = None,
            Action::CrashAgent(at) => {
                self.faults.agent_crashes -= 1;
                self.places[at].memory = STARTED;
            }
            Action::SilenceAgent(at) => {
                self.faults.silent_agents -= 1;
                self.places[at].silent = true;
                self.places[at].memory = STARTED;
                self.places[at].agent_sees = None;
            }
            Action::Boot(at) => self.boot(at),
            Action::FallBack(at) => {
                self.faults.fall_backs -= 1;
                self.places[at].host.next = false;
                self.places[at].host.staged = false;
                self.boot(at);
            }
            Action::OwnReboot(at) => {
                self.faults.own_reboots -= 1;
                self.go_down(at);
            }
            Action::Cordon(at) => {
                self.faults.people -= 1;
                self.places[at].node.unschedulable = true;
                self.places[at].foreign_cordon = true;
            }
            Action::Uncordon(at) => {
                self.faults.people -= 1;
                let place = &mut self.places[at];
                place.node.unschedulable = false;
                place.empty = false;
                place.meddled |= place.node.marker.is_some();
                place.foreign_cordon = false;
            }
        }
        if let Some(broken) = properties::broken_rule(config, self) {
            self.broken.get_or_insert(broken);
        }
    }

    fn lead(&mut self, config: &Config, at: usize) {
        if self.leaders.iter().any(|leader| leader.term.is_some()) {
            self.faults.takeovers -= 1;
        }
        self.leaders[at] = Leader::default();
        let (_, situations) = view::of(config, self, &self.leaders[at], None);
        let ledger = brupop_api::BottlerocketFleetStatus {
            term: Some(self.ledger.term.into()),
            slots: view::of(config, self, &Leader::default(), None).0.slots.clone(),
            ..Default::default()
        };
        let (term, write) = decide::takeover(Some(&ledger), &situations);
        if apply(&config.weakened(write), &mut self.ledger).is_ok() {
            self.leaders[at].term = u8::try_from(term).ok();
        }
    }

    fn freeze(&mut self, at: usize, part: Part) {
        self.faults.stale_leaders -= 1;
        let mut shadows = [None; NODES_MAX];
        let mut nodes = [None; NODES_MAX];
        let mut pods = [false; NODES_MAX];
        for (index, place) in self.places.iter().enumerate() {
            shadows[index] = Some(place.shadow);
            nodes[index] = Some(place.node);
            pods[index] = place.empty;
        }
        let every = part == Part::Everything;
        self.leaders[at].stale = Some(Stale {
            shadows: (every || part == Part::Shadows).then_some(shadows),
            nodes: (every || part == Part::Nodes).then_some(nodes),
            pods: (every || part == Part::Pods).then_some(pods),
            ledger: (every || part == Part::Ledger).then_some(self.ledger),
        });
    }

    fn reconcile(&mut self, config: &Config, at: usize, node: usize, overdue: bool) {
        let (fleet, situations) = view::of(config, self, &self.leaders[at], overdue.then_some(node));
        match decide::node(&fleet, &situations[node]).effect {
            Some(Effect::Write(write)) => self.write(config, write),
            Some(Effect::ConfirmDrained(write)) => {
                let unchecked = config.without == Some(Safeguard::FreshPods);
                if self.places[node].empty || unchecked {
                    self.write(config, write);
                }
            }
            // Evicted pods come back to a node that can be scheduled to.
            Some(Effect::Evict | Effect::Delete) => {
                self.places[node].empty |= self.places[node].node.unschedulable;
            }
            Some(Effect::CreateShadow { .. } | Effect::DeleteShadow { .. }) | None => {}
        }
    }

    fn write(&mut self, config: &Config, write: Write<'_>) {
        let write = config.weakened(write);
        match write.object {
            Object::ShadowSpec(name) => {
                let Some(place) = self.places.get_mut(position(&SHADOWS, name)) else { return };
                let mut shadow = place.shadow;
                if apply(&write, &mut shadow).is_err() || shadow.term < place.shadow.term {
                    return;
                }
                shadow.generation += u8::from(shadow != place.shadow);
                place.shadow = shadow;
            }
            Object::Node(name) => {
                let Some(place) = self.places.get_mut(position(&NODES, name)) else { return };
                let _lost = apply(&write, &mut place.node);
                // Pods come to a node as soon as it can be scheduled to.
                place.empty &= place.node.unschedulable;
            }
            Object::ShadowStatus(name) => {
                let Some(place) = self.places.get_mut(position(&SHADOWS, name)) else { return };
                let _lost = apply(&write, &mut place.shadow);
            }
            Object::Fleet => {}
        }
    }

    fn agent(&mut self, config: &Config, at: usize, success: bool) {
        let place = &self.places[at];
        let shadow = view::shadow(&place.agent_sees.unwrap_or(place.shadow));
        let host = view::host(place.host);
        let (next, memory) = step(&host, &shadow, &place.memory);
        match next {
            Step::Report(write) => {
                let claims = |write: &Write<'_>| {
                    write.sets.iter().any(|(field, value)| {
                        *field == Field::StatusRebootRequested && *value != brupop_api::Value::Absent
                    })
                };
                if config.without == Some(Safeguard::Handshake) && claims(&write) {
                    return self.reboot(at);
                }
                let write = config.weakened(write);
                let mut shadow = place.shadow;
                if success && apply(&write, &mut shadow).is_ok() {
                    self.places[at].shadow = shadow;
                    self.places[at].memory = memory;
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
    fn command(&mut self, at: usize, command: Command, success: bool, memory: Memory) {
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
        let looked =
            host.updates.is_some_and(|updater| updater.looked) || (command == Command::Refresh && success);
        host.updates = Some(Updater { last: (command, success), looked });
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
        place.memory =
            Memory { asked: memory.asked.map(|(command, _)| (command, None)), refresh_due, ..memory };
    }

    fn reboot(&mut self, at: usize) {
        if let Some(broken) = properties::unfit_to_reboot(&self.places[at]) {
            self.broken.get_or_insert(broken);
        }
        self.go_down(at);
    }

    fn go_down(&mut self, at: usize) {
        self.places[at].host.rebooting = true;
        self.places[at].node.ready = false;
    }

    fn boot(&mut self, at: usize) {
        let place = &mut self.places[at];
        let host = &mut place.host;
        host.rebooting = false;
        host.boot = (host.boot + 1).min(u8::try_from(BOOTS.len() - 1).unwrap_or(0));
        if host.next {
            host.version = 1;
            host.staged = false;
            host.next = false;
        }
        host.updates = None;
        place.node.boot = host.boot;
        place.node.version = host.version;
        place.node.ready = true;
        place.memory = STARTED;
        place.agent_sees = None;
    }
}

impl Config {
    /// The write, without the tests that a sensitivity run leaves out.
    fn weakened<'a>(&self, mut write: Write<'a>) -> Write<'a> {
        let left_out = |field: Field<'_>| match self.without {
            Some(Safeguard::Generation) => field == Field::Generation,
            Some(Safeguard::Slots) => field == Field::Slots,
            Some(Safeguard::Claim) => field == Field::StatusRebootRequested,
            Some(Safeguard::Marker) => field == Field::Marker,
            Some(Safeguard::Handshake | Safeguard::FreshPods) | None => false,
        };
        write.tests.retain(|(field, _)| !left_out(*field));
        write
    }
}

fn position(names: &[&str], name: &str) -> usize {
    names.iter().position(|known| *known == name).unwrap_or(usize::MAX)
}
