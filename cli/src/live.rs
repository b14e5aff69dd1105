//! `status -w`: the fleet at a glance, drawn again whenever something changes.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use brupop_api::crds::MESSAGE_MAX;
use brupop_api::item::Readable;
use brupop_api::{BottlerocketFleet, BottlerocketShadow, Item, names};
use brupop_core::objects::WatchedFleet;
use brupop_core::pool::Pool;
use brupop_runtime::errors::describe;
use brupop_runtime::{patient, watch_one};
use futures::{Stream, StreamExt as _};
use jiff::Timestamp;
use kube::runtime::watcher::{self, Config, Event, watcher};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::Error;
use crate::access::{ResourceKind, Right};
use crate::arguments::Output;
use crate::gather::{Fleet, OperatorApi};
use crate::leads::Leads;
use crate::page::{Page, Size, Tone, rendered, shown, terminal, tinted, write_out, write_to_terminal};
use crate::report::status;

/// At most so often it is drawn, however much changes.
const SHORTEST: Duration = Duration::from_millis(200);
/// How often the Lease is looked at: it changes every few seconds, and few may watch it.
const LEASE: Duration = Duration::from_secs(5);
/// On a terminal it is drawn after this many times [`SHORTEST`] though nothing has changed, for the ages.
const STALE: u32 = 5;
/// Goes to the first line, and has the terminal cut long lines.
const BEGIN: &str = "\u{1b}[H\u{1b}[?7l";
/// Clears the rest of a line, and goes on to the next.
const END_OF_LINE: &str = "\u{1b}[K\n";
/// Clears what is below, and has the terminal wrap long lines again.
const END: &str = "\u{1b}[J\u{1b}[?7h";

/// Ends only with an error, as when the caller may not watch.
pub(crate) async fn watch(server: &OperatorApi, output: Output, flags: String) -> Result<(), Error> {
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
                Err(error) => brought.failed(error, |verb| server.right(verb, ResourceKind::Shadows))?,
            },
            event = next(&mut pools) => match event {
                Ok(event) => brought.pool(event),
                Err(error) => brought.failed(error, |verb| server.right(verb, ResourceKind::Pools))?,
            },
            event = next(&mut fleets) => match event {
                Ok(found) => brought.fleet_object(found),
                Err(error) => brought.failed(error, |verb| server.right(verb, ResourceKind::Fleet))?,
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
async fn next<T>(events: &mut (impl Stream<Item = watcher::Result<T>> + Unpin)) -> watcher::Result<T> {
    events.next().await.unwrap_or(Err(watcher::Error::NoResourceVersion))
}

/// What one watch has brought.
struct All<T> {
    /// `None` before the first list is complete.
    known: Option<BTreeMap<String, Item<T>>>,
    listed: BTreeMap<String, Item<T>>,
}

impl<T> Default for All<T> {
    fn default() -> Self {
        Self { known: None, listed: BTreeMap::new() }
    }
}

impl<T: Readable> All<T> {
    fn bring(&mut self, event: Event<Item<T>>) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(item) => drop(self.listed.insert(item.name().to_owned(), item)),
            Event::InitDone => self.known = Some(std::mem::take(&mut self.listed)),
            Event::Apply(item) => {
                self.known.get_or_insert_default().insert(item.name().to_owned(), item);
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
        Self { namespace: namespace.to_owned(), ..Self::default() }
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
        self.trouble = read.as_ref().err().map(|why| format!("the fleet cannot be read: {why}"));
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
    fn failed(
        &mut self,
        error: watcher::Error,
        right: impl FnOnce(&'static str) -> Right,
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
        match right(verb).failed(source) {
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

/// Where it is drawn.
struct Screen {
    output: Output,
    /// How the cluster is named on the command line.
    flags: String,
    /// What was drawn last.
    last: String,
    idle_ticks: u32,
}

impl Screen {
    fn new(output: Output, flags: String) -> Self {
        Self { output, flags, last: String::new(), idle_ticks: 0 }
    }

    fn draw(&mut self, brought: &mut Brought) -> Result<(), Error> {
        let size = terminal().filter(|_| self.output == Output::Table);
        self.idle_ticks += 1;
        let stale = size.is_some() && self.idle_ticks >= STALE;
        let Some(fleet) = brought.fleet().filter(|_| brought.changed || stale) else { return Ok(()) };
        (brought.changed, self.idle_ticks) = (false, 0);
        let page =
            Page { now: Timestamp::now(), columns: size.map(|size| size.columns), flags: self.flags.clone() };
        let mut text = rendered(&status::of(&fleet), self.output, &page)?;
        if let (Some(trouble), Output::Table) = (&brought.trouble, self.output) {
            text += "\n";
            text += &Tone::Bad.paragraph("Trouble:", &shown(trouble, MESSAGE_MAX), &page);
        }
        match size {
            Some(size) => write_to_terminal(&framed(&tinted(&text), size)),
            None if text == self.last => Ok(()),
            None => {
                let separator = match self.output {
                    Output::Yaml => "---\n",
                    Output::Table if !self.last.is_empty() => "\n",
                    Output::Table | Output::Json => "",
                };
                let written = write_out(&format!("{separator}{text}"));
                self.last = text;
                written
            }
        }
    }
}

/// The text in place of what the terminal shows: each line over an old one, as many as it has room for.
fn framed(text: &str, size: Size) -> String {
    let room = usize::from(size.rows).saturating_sub(1);
    let lines: Vec<&str> = text.lines().collect();
    let shown = if lines.len() > room { room.saturating_sub(1) } else { lines.len() };
    let mut frame = BEGIN.to_owned();
    for line in &lines[..shown] {
        frame.extend([line, END_OF_LINE]);
    }
    if shown < lines.len() {
        frame.extend(["… ", &(lines.len() - shown).to_string(), " more lines", END_OF_LINE]);
    }
    frame + END
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures::updated;

    #[test]
    fn a_frame_fits_the_terminal() {
        let lines = |rows| {
            let frame = framed("a\nb\nc\n", Size { columns: 80, rows });
            let inner = frame.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(END)).unwrap().to_owned();
            inner.split_terminator(END_OF_LINE).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(lines(4), ["a", "b", "c"]);
        assert_eq!(lines(3), ["a", "… 2 more lines"]);
    }

    #[test]
    fn only_a_missing_right_ends_what_has_begun() {
        let failed = |code: u16, begun: bool| {
            let message = "brs is forbidden: User \"eve\" cannot watch resource".to_owned();
            let status = kube::core::Status { code, message, ..kube::core::Status::default() };
            let mut brought = Brought::default();
            if begun {
                brought.leads(Leads::Yes);
                brought.fleet_object(None);
                brought.pool(Event::InitDone);
                brought.shadow(Event::InitDone);
            }
            let right = |verb| Right::new(verb, ResourceKind::Shadows, "ns");
            brought.failed(watcher::Error::WatchError(Box::new(status)), right)
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
            Some(fleet.shadows.iter().map(Item::name).collect::<Vec<_>>().join(" "))
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
        let right = |verb| Right::new(verb, ResourceKind::Shadows, "ns");
        brought.failed(watcher::Error::NoResourceVersion, right).unwrap();
        assert_eq!((names(&brought).as_deref(), brought.trouble.is_some()), (Some("brs-b brs-c"), true));
        // Another list: nothing is gone before it is complete.
        brought.shadow(Event::Init);
        brought.shadow(Event::InitApply(updated("d")));
        assert_eq!(names(&brought).as_deref(), Some("brs-b brs-c"));
        brought.shadow(Event::InitDone);
        assert_eq!((names(&brought).as_deref(), brought.trouble), (Some("brs-d"), None));
    }
}
