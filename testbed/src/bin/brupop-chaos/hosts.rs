//! What goes wrong with simulated hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use brupop_testbed::Fleet;
use brupop_testbed::host::{Answer, Ending, Faults, Host};

use crate::fault::Fault;
use crate::schedule::CALLS;

/// What is wrong with each host for now.
pub(crate) struct Hosts {
    faults: Vec<Faults>,
    bad_images: BTreeSet<String>,
    /// Number of faults by which no host returns, and of hosts with such a fault of their own.
    nobody_returns: usize,
    stay_down: BTreeSet<usize>,
}

impl Hosts {
    pub(crate) fn new(nodes: usize) -> Self {
        Self {
            faults: vec![Faults::default(); nodes],
            bad_images: BTreeSet::new(),
            nobody_returns: 0,
            stay_down: BTreeSet::new(),
        }
    }

    /// The image of this version comes up on no host.
    pub(crate) fn image_is_bad(&mut self, fleet: &Fleet, version: &str) {
        self.bad_images.insert(version.to_owned());
        self.change_all(fleet, |_| ());
    }

    /// Makes a fault, if it is one of hosts, or takes it back.
    pub(crate) fn set(&mut self, fleet: &Fleet, fault: &Fault, made: bool) {
        match fault {
            Fault::HostAnswers {
                node, call, answer, ..
            } => {
                self.change(fleet, *node, |faults| {
                    set(&mut faults.answers, *call, made.then(|| answer.clone()));
                });
            }
            Fault::ApiHangs { node, .. } => self.change(fleet, *node, |faults| {
                for call in CALLS {
                    set(&mut faults.answers, call, made.then_some(Answer::Hang));
                }
            }),
            Fault::CommandFails { node, command, .. } => self.change(fleet, *node, |faults| {
                let fails = || Ending::Failed("no space left on device\u{1b}[2J".to_owned());
                set(&mut faults.endings, *command, made.then(fails));
            }),
            Fault::CommandHangs { node, command, .. } => {
                self.change(fleet, *node, |f| {
                    set(&mut f.endings, *command, made.then_some(Ending::Lost));
                });
            }
            Fault::CommandLasts { node, command, ms } => {
                let longer = made.then_some(Duration::from_millis(*ms));
                self.change(fleet, *node, |faults| {
                    set(&mut faults.lasting, *command, longer);
                });
            }
            Fault::FallsBack { node, .. } => {
                self.change(fleet, *node, |f| f.falls_back_on_boot = made);
            }
            Fault::RebootIgnored { node, .. } => {
                self.change(fleet, *node, |f| f.reboot_ignored = made);
            }
            Fault::StaysDown { node, .. } => {
                if made {
                    self.stay_down.insert(*node);
                } else {
                    self.stay_down.remove(node);
                }
                self.keep_down(fleet);
            }
            Fault::NobodyReturns { .. } => {
                let others = self.nobody_returns;
                self.nobody_returns = if made {
                    others + 1
                } else {
                    others.saturating_sub(1)
                };
                self.keep_down(fleet);
            }
            Fault::Reboots { node } => on_host(fleet, *node, Host::reboot_now),
            Fault::ApiRestarts { node, ms } => {
                on_host(fleet, *node, |host| {
                    host.restart_api(Duration::from_millis(*ms));
                });
            }
            _ => {}
        }
    }

    /// Which hosts do not come back follows from the faults that there are.
    fn keep_down(&mut self, fleet: &Fleet) {
        for node in 0..self.faults.len() {
            let down = self.nobody_returns > 0 || self.stay_down.contains(&node);
            self.change(fleet, node, |faults| faults.stays_down = down);
        }
    }

    /// Nothing is wrong with any host any more, but that bad images are bad.
    pub(crate) fn heal(&mut self, fleet: &Fleet) {
        self.nobody_returns = 0;
        self.stay_down.clear();
        self.change_all(fleet, |faults| *faults = Faults::default());
    }

    fn change(&mut self, fleet: &Fleet, node: usize, change: impl FnOnce(&mut Faults)) {
        if let Some(faults) = self.faults.get_mut(node) {
            change(faults);
            faults.bad_images.clone_from(&self.bad_images);
            let faults = faults.clone();
            on_host(fleet, node, |host| host.set_faults(faults));
        }
    }

    fn change_all(&mut self, fleet: &Fleet, change: impl Fn(&mut Faults)) {
        (0..self.faults.len()).for_each(|node| self.change(fleet, node, &change));
    }
}

/// Sets what this is, or that it is as it should be.
fn set<K: Ord, V>(faults: &mut BTreeMap<K, V>, of: K, what: Option<V>) {
    match what {
        Some(what) => drop(faults.insert(of, what)),
        None => drop(faults.remove(&of)),
    }
}

fn on_host(fleet: &Fleet, node: usize, change: impl FnOnce(&Host)) {
    if let Some(host) = fleet.hosts.get(node) {
        change(host);
    }
}
