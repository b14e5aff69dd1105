//! `status -w`: the fleet at a glance, drawn anew whenever something changes.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use brupop_api::crds::MESSAGE_MAX;
use brupop_api::{BottlerocketFleet, BottlerocketShadow, Item, names};
use brupop_core::objects::Ledger;
use brupop_runtime::errors::describe;
use brupop_runtime::{patient, watch_one};
use futures::{Stream, StreamExt as _};
use jiff::Timestamp;
use kube::runtime::watcher::{self, Config, Event, watcher};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::Error;
use crate::access::Kind;
use crate::arguments::Output;
use crate::gather::{ApiServer, Fleet};
use crate::page::{Page, Size, Tone, rendered, shown, terminal, write_out};
use crate::report::status;

/// At most so often it is drawn, however much changes.
const SHORTEST: Duration = Duration::from_millis(200);
/// After so many draws' time without a change it is drawn all the same on a terminal, for the ages.
const STALE: u32 = 5;
/// Clears the rest of a line, and goes on to the next.
const END_OF_LINE: &str = "\u{1b}[K\n";

/// Ends only with an error, as when the caller may not watch.
pub(crate) async fn watch(server: &ApiServer, output: Output) -> Result<(), Error> {
    let shadows = watcher(server.ours::<Item<BottlerocketShadow>>(), Config::default());
    let mut shadows = pin!(patient(shadows));
    let mut ledgers = pin!(watch_one(server.ours::<Item<Ledger>>(), names::FLEET));
    let (mut seen, mut screen) = (Brought::default(), Screen::new(output));
    let mut tick = ticks();
    loop {
        tokio::select! {
            event = next(&mut shadows) => match event {
                Ok(event) => seen.shadow(event),
                Err(error) => seen.failed(trouble(error, server, Kind::Shadows)?),
            },
            event = next(&mut ledgers) => match event {
                Ok(found) => seen.ledger(found),
                Err(error) => seen.failed(trouble(error, server, Kind::Fleet)?),
            },
            _ = tick.tick() => screen.draw(&mut seen)?,
        }
    }
}

fn ticks() -> Interval {
    let mut tick = interval(SHORTEST);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick
}

/// Watches do not end, but for errors.
async fn next<T>(events: &mut (impl Stream<Item = watcher::Result<T>> + Unpin)) -> watcher::Result<T> {
    events.next().await.unwrap_or(Err(watcher::Error::NoResourceVersion))
}

/// An error that passes, in words; `Err` is one that does not.
fn trouble(error: watcher::Error, server: &ApiServer, kind: Kind) -> Result<String, Error> {
    let words = describe(&error);
    let (verb, source) = match error {
        watcher::Error::InitialListFailed(source) => ("list", source),
        watcher::Error::WatchStartFailed(source) | watcher::Error::WatchFailed(source) => ("watch", source),
        watcher::Error::WatchError(status) => ("watch", kube::Error::Api(status)),
        watcher::Error::NoResourceVersion => return Ok(words),
    };
    match server.right(verb, kind).failed(source) {
        forbidden @ Error::Forbidden(_) => Err(forbidden),
        _ => Ok(words),
    }
}

/// What the watches have brought.
#[derive(Default)]
struct Brought {
    shadows: Option<BTreeMap<String, Item<BottlerocketShadow>>>,
    listed: BTreeMap<String, Item<BottlerocketShadow>>,
    /// `None` = there is none, or it cannot be read.
    ledger: Option<BottlerocketFleet>,
    /// Has the watch of the ledger told anything?
    ledger_told: bool,
    /// What is wrong with a watch now.
    trouble: Option<String>,
    changed: bool,
}

impl Brought {
    fn shadow(&mut self, event: Event<Item<BottlerocketShadow>>) {
        let known = self.shadows.get_or_insert_default();
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(item) => drop(self.listed.insert(item.name().to_owned(), item)),
            Event::InitDone => *known = std::mem::take(&mut self.listed),
            Event::Apply(item) => drop(known.insert(item.name().to_owned(), item)),
            Event::Delete(item) => drop(known.remove(item.name())),
        }
        self.now();
    }

    fn ledger(&mut self, found: Option<Item<Ledger>>) {
        self.ledger = found.and_then(|item| item.body.ok()).map(|ledger| ledger.fleet);
        self.ledger_told = true;
        self.now();
    }

    fn now(&mut self) {
        (self.trouble, self.changed) = (None, true);
    }

    fn failed(&mut self, words: String) {
        (self.trouble, self.changed) = (Some(words), true);
    }

    /// The fleet, once both watches have brought something.
    fn fleet(&self) -> Option<Fleet> {
        let shadows = self.shadows.as_ref().filter(|_| self.ledger_told)?;
        Some(Fleet { ledger: self.ledger.clone(), shadows: shadows.values().cloned().collect() })
    }
}

/// Where it is drawn.
struct Screen {
    output: Output,
    /// What was drawn last.
    last: String,
    idle_ticks: u32,
}

impl Screen {
    fn new(output: Output) -> Self {
        Self { output, last: String::new(), idle_ticks: 0 }
    }

    fn draw(&mut self, seen: &mut Brought) -> Result<(), Error> {
        let size = terminal().filter(|_| self.output == Output::Table);
        self.idle_ticks += 1;
        let stale = size.is_some() && self.idle_ticks >= STALE;
        let Some(fleet) = seen.fleet().filter(|_| seen.changed || stale) else { return Ok(()) };
        (seen.changed, self.idle_ticks) = (false, 0);
        let page = Page { now: Timestamp::now(), columns: size.map(|size| size.columns) };
        let mut text = rendered(&status::of(&fleet), self.output, &page)?;
        if let (Some(trouble), Output::Table) = (&seen.trouble, self.output) {
            text.extend(["\n", &Tone::Bad.paint("Trouble:"), " ", &shown(trouble, MESSAGE_MAX), "\n"]);
        }
        match size {
            Some(size) => write_out(&framed(&text, size)),
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
    let mut frame = "\u{1b}[H".to_owned();
    for line in &lines[..shown] {
        frame.extend([line, END_OF_LINE]);
    }
    if shown < lines.len() {
        frame.extend(["… ", &(lines.len() - shown).to_string(), " more lines", END_OF_LINE]);
    }
    frame + "\u{1b}[J"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_fits_the_terminal() {
        let size = |rows| Size { columns: 80, rows };
        let frame = framed("a\nb\nc\n", size(4));
        assert_eq!(frame, "\u{1b}[Ha\u{1b}[K\nb\u{1b}[K\nc\u{1b}[K\n\u{1b}[J");
        let frame = framed("a\nb\nc\n", size(3));
        assert_eq!(frame, "\u{1b}[Ha\u{1b}[K\n… 2 more lines\u{1b}[K\n\u{1b}[J");
    }
}
