//! `status -w`: the fleet at a glance, drawn again whenever something changes.

mod screen;

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use brupop_api::item::Readable;
use brupop_api::{BottlerocketFleet, BottlerocketShadow, Item, names};
use brupop_core::objects::WatchedFleet;
use brupop_core::pool::Pool;
use brupop_runtime::errors::describe;
use brupop_runtime::{patient, watch_one};
use futures::{Stream, StreamExt as _};
use kube::Resource;
use kube::runtime::watcher::{self, Config, Event, watcher};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::Error;
use crate::access::Right;
use crate::arguments::Output;
use crate::gather::{Fleet, OperatorApi};
use crate::leads::Leads;
use screen::Screen;

/// At most so often it is drawn, however much changes.
const SHORTEST: Duration = Duration::from_millis(200);
/// How often the Lease is looked at: it changes every few seconds, and few may watch it.
const LEASE: Duration = Duration::from_secs(5);
/// Ends only with an error, as when the caller may not watch.
pub(crate) async fn watch(
    server: &OperatorApi,
    output: Output,
    flags: String,
) -> Result<(), Error> {
    // Watches of a namespace that is not there would wait for ever.
    server.fleet_object_if_any().await?;
    let shadows = watcher(server.ours::<Item<BottlerocketShadow>>(), Config::default());
    let mut shadows = pin!(patient(shadows));
    let pools = watcher(server.ours::<Item<Pool>>(), Config::default());
    let mut pools = pin!(patient(pools));
    let mut fleets = pin!(watch_one(server.ours::<Item<WatchedFleet>>(), names::FLEET));
    let (mut brought, mut screen) = (Brought::of(&server.namespace), Screen::new(output, flags));
    let (mut tick, mut lease) = (ticks(SHORTEST), ticks(LEASE));
    loop {
        tokio::select! {
            event = next(&mut shadows) => match event {
                Ok(event) => brought.shadow(event),
                Err(error) => brought.failed::<Item<BottlerocketShadow>>(error)?,
            },
            event = next(&mut pools) => match event {
                Ok(event) => brought.pool(event),
                Err(error) => brought.failed::<Item<Pool>>(error)?,
            },
            event = next(&mut fleets) => match event {
                Ok(found) => brought.fleet_object(found),
                Err(error) => brought.failed::<Item<WatchedFleet>>(error)?,
            },
            _ = lease.tick() => brought.leads(server.leads().await),
            _ = tick.tick() => screen.draw(&mut brought)?,
        }
    }
}

fn ticks(period: Duration) -> Interval {
    let mut tick = interval(period);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick
}

/// Watches do not end, but for errors.
async fn next<T>(
    events: &mut (impl Stream<Item = watcher::Result<T>> + Unpin),
) -> watcher::Result<T> {
    events
        .next()
        .await
        .unwrap_or(Err(watcher::Error::NoResourceVersion))
}

/// What one watch has brought.
struct All<T> {
    /// `None` before the first list is complete.
    known: Option<BTreeMap<String, Item<T>>>,
    listed: BTreeMap<String, Item<T>>,
}

impl<T> Default for All<T> {
    fn default() -> Self {
        Self {
            known: None,
            listed: BTreeMap::new(),
        }
    }
}

impl<T: Readable> All<T> {
    fn bring(&mut self, event: Event<Item<T>>) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(item) => drop(self.listed.insert(item.name().to_owned(), item)),
            Event::InitDone => self.known = Some(std::mem::take(&mut self.listed)),
            Event::Apply(item) => {
                self.known
                    .get_or_insert_default()
                    .insert(item.name().to_owned(), item);
            }
            Event::Delete(item) => drop(self.known.get_or_insert_default().remove(item.name())),
        }
    }
}

/// What the watches have brought.
#[derive(Default)]
struct Brought {
    namespace: String,
    shadows: All<BottlerocketShadow>,
    pools: All<Pool>,
    /// `None` = there is none, or it cannot be read.
    fleet: Option<BottlerocketFleet>,
    /// Has the watch of the fleet told anything?
    fleet_told: bool,
    /// `None` before the Lease was looked at.
    leads: Option<Leads>,
    /// What is wrong with a watch now.
    trouble: Option<String>,
    changed: bool,
}

impl Brought {
    fn of(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            ..Self::default()
        }
    }

    fn shadow(&mut self, event: Event<Item<BottlerocketShadow>>) {
        self.shadows.bring(event);
        self.now();
    }

    fn pool(&mut self, event: Event<Item<Pool>>) {
        self.pools.bring(event);
        self.now();
    }

    fn fleet_object(&mut self, found: Option<Item<WatchedFleet>>) {
        self.now();
        self.fleet_told = true;
        let read = found.map(|item| item.body).transpose();
        self.trouble = read
            .as_ref()
            .err()
            .map(|why| format!("the fleet cannot be read: {why}"));
        self.fleet = read.ok().flatten().map(|fleet| fleet.object);
    }

    fn leads(&mut self, leads: Leads) {
        let leads = Some(leads);
        self.changed |= self.leads != leads;
        self.leads = leads;
    }

    fn now(&mut self) {
        (self.trouble, self.changed) = (None, true);
    }

    /// Watches go on after an error. It ends the command if the caller lacks a right, or if nothing was brought before.
    fn failed<K: Resource<DynamicType = ()>>(
        &mut self,
        error: watcher::Error,
    ) -> Result<(), Error> {
        (self.trouble, self.changed) = (Some(describe(&error)), true);
        let (verb, source) = match error {
            watcher::Error::InitialListFailed(source) => ("list", source),
            watcher::Error::WatchStartFailed(source) | watcher::Error::WatchFailed(source) => {
                ("watch", source)
            }
            watcher::Error::WatchError(status) => ("watch", kube::Error::Api(status)),
            watcher::Error::NoResourceVersion => return Ok(()),
        };
        match Right::new::<K>(verb, Some(&self.namespace)).failed(source) {
            forbidden @ Error::Forbidden(_) => Err(forbidden),
            first if self.fleet().is_none() => Err(first),
            _ => Ok(()),
        }
    }

    /// The fleet, once all watches have brought something.
    fn fleet(&self) -> Option<Fleet> {
        let shadows = self.shadows.known.as_ref().filter(|_| self.fleet_told)?;
        let pools = self.pools.known.as_ref()?;
        Some(Fleet {
            namespace: self.namespace.clone(),
            object: self.fleet.clone(),
            shadows: shadows.values().cloned().collect(),
            pools: pools.values().cloned().collect(),
            leads: self.leads.clone()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures::updated;

    #[test]
    fn only_a_missing_right_ends_what_has_begun() {
        let failed = |code: u16, begun: bool| {
            let message = "brs is forbidden: User \"eve\" cannot watch resource".to_owned();
            let status = kube::core::Status {
                code,
                message,
                ..kube::core::Status::default()
            };
            let mut brought = Brought::default();
            if begun {
                brought.leads(Leads::Yes);
                brought.fleet_object(None);
                brought.pool(Event::InitDone);
                brought.shadow(Event::InitDone);
            }
            brought.failed::<BottlerocketShadow>(watcher::Error::WatchError(Box::new(status)))
        };
        assert!(failed(500, true).is_ok());
        assert!(matches!(failed(500, false), Err(Error::Refused { .. })));
        assert!(matches!(failed(403, true), Err(Error::Forbidden(_))));
    }

    #[test]
    fn what_watches_bring_is_shown_once_all_have_spoken() {
        let mut brought = Brought::default();
        let names = |brought: &Brought| {
            let fleet = brought.fleet()?;
            Some(
                fleet
                    .shadows
                    .iter()
                    .map(Item::name)
                    .collect::<Vec<_>>()
                    .join(" "),
            )
        };
        brought.fleet_object(None);
        brought.pool(Event::InitDone);
        brought.shadow(Event::Init);
        brought.shadow(Event::InitApply(updated("a")));
        assert_eq!(names(&brought), None);
        brought.shadow(Event::InitApply(updated("b")));
        brought.shadow(Event::InitDone);
        assert_eq!(names(&brought), None);
        brought.leads(Leads::Yes);
        assert_eq!(names(&brought).as_deref(), Some("brs-a brs-b"));
        brought.shadow(Event::Delete(updated("a")));
        brought.shadow(Event::Apply(updated("c")));
        brought
            .failed::<BottlerocketShadow>(watcher::Error::NoResourceVersion)
            .unwrap();
        assert_eq!(
            (names(&brought).as_deref(), brought.trouble.is_some()),
            (Some("brs-b brs-c"), true)
        );
        // Another list: nothing is gone before it is complete.
        brought.shadow(Event::Init);
        brought.shadow(Event::InitApply(updated("d")));
        assert_eq!(names(&brought).as_deref(), Some("brs-b brs-c"));
        brought.shadow(Event::InitDone);
        assert_eq!(
            (names(&brought).as_deref(), brought.trouble),
            (Some("brs-d"), None)
        );
    }
}
