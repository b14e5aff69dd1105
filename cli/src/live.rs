//! `status -w`: the fleet at a glance, drawn again whenever something changes.

use std::io::stdout;
use std::pin::pin;
use std::time::Duration;

use anstream::adapter::strip_str;
use anstream::{AutoStream, ColorChoice};
use brupop_api::crds::MESSAGE_MAX;
use brupop_api::item::Readable;
use brupop_api::{Item, names};
use brupop_core::objects::WatchedFleet;
use brupop_runtime::errors::describe;
use brupop_runtime::{only, patient};
use comfy_table::Color;
use crossterm::cursor::MoveTo;
use crossterm::execute;
use crossterm::style::Print;
use crossterm::terminal::{Clear, ClearType, DisableLineWrap, EnableLineWrap};
use futures::{FutureExt as _, Stream, StreamExt as _, stream};
use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use kube::runtime::reflector::{Store, reflector, store};
use kube::runtime::watcher::{self, Config, watcher};
use tokio::time::{MissedTickBehavior, interval};

use crate::access::Right;
use crate::arguments::Output;
use crate::error::Error;
use crate::gather::{Fleet, OperatorApi, body};
use crate::leads::Leads;
use crate::page::{Page, rendered, terminal, write_out};
use crate::report::status;
use crate::table::facts;
use crate::words::shown;

/// Shortest time between two drawings, however much changes. A terminal shows the ages of this moment.
const SHORTEST: Duration = Duration::from_millis(500);
/// How often the Lease is read: it changes every few seconds, and few may watch it.
const LEASE: Duration = Duration::from_secs(5);
/// Clears the rest of a line on a terminal.
const END_OF_LINE: &str = "\u{1b}[K\n";

/// Draws the fleet until Ctrl-C.
///
/// # Errors
/// The caller lacks a right, or a watch fails before it has listed its objects.
pub(crate) async fn watch(server: &OperatorApi, output: Output, flags: &str) -> Result<(), Error> {
    // Watches of a namespace that is not there would wait for ever.
    server.fleet_object_if_any().await?;
    let (shadows, of_shadows) = watched(server, Config::default());
    let (pools, of_pools) = watched(server, Config::default());
    let (fleets, of_fleets) = watched(server, only(names::FLEET));
    let mut events = pin!(stream::select(
        of_fleets,
        stream::select(of_shadows, of_pools)
    ));
    let are_listed = async || {
        let fleet_is = fleets.wait_until_ready().await.is_ok();
        fleet_is
            && shadows.wait_until_ready().await.is_ok()
            && pools.wait_until_ready().await.is_ok()
    };
    let (mut tick, mut lease) = (interval(SHORTEST), interval(LEASE));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut leads, mut changed, mut trouble, mut last) = (Leads::Yes, true, None, String::new());
    loop {
        let are_listed = are_listed().now_or_never() == Some(true);
        tokio::select! {
            Some(event) = events.next() => {
                (changed, trouble) = (true, event.err());
                // Watches go on after an error.
                if let Some(error) = trouble.take_if(|it| !are_listed || matches!(it, Error::Forbidden(_))) {
                    return Err(error);
                }
            }
            _ = lease.tick() => {
                let before = std::mem::replace(&mut leads, server.leads().await);
                changed |= before != leads;
            }
            _ = tick.tick(), if are_listed => {
                let size = terminal().filter(|_| output == Output::Table);
                if !std::mem::take(&mut changed) && size.is_none() {
                    continue;
                }
                let fleet: Option<WatchedFleet> = all(&fleets).pop().map(body).transpose()?;
                let fleet = Fleet {
                    namespace: server.namespace.clone(),
                    object: fleet.map(|fleet| fleet.object),
                    shadows: all(&shadows),
                    pools: all(&pools),
                    leads: leads.clone(),
                };
                let text = glance(&fleet, trouble.as_ref(), output, flags)?;
                if text != last {
                    draw(&text, size, output, last.is_empty())?;
                    last = text;
                }
            }
        }
    }
}

/// Watches objects of the operator's namespace: those that are there now, and what keeps them so.
fn watched<T>(
    server: &OperatorApi,
    config: Config,
) -> (
    Store<Item<T>>,
    impl Stream<Item = Result<(), Error>> + use<T>,
)
where
    T: Readable<Kind: Resource<DynamicType = (), Scope = NamespaceResourceScope>>,
{
    let (store, writer) = store();
    let namespace = server.namespace.clone();
    let events = reflector(writer, patient(watcher(server.ours::<Item<T>>(), config)));
    let failed = move |error| {
        let (verb, source) = match error {
            watcher::Error::InitialListFailed(source) => ("list", source),
            watcher::Error::WatchStartFailed(source) | watcher::Error::WatchFailed(source) => {
                ("watch", source)
            }
            watcher::Error::WatchError(status) => ("watch", kube::Error::Api(status)),
            error @ watcher::Error::NoResourceVersion => {
                let what = format!("the list of {}", T::Kind::plural(&()));
                return Error::Unreadable {
                    what,
                    why: error.to_string(),
                };
            }
        };
        Right::new::<Item<T>>(verb, Some(&namespace)).failed(source)
    };
    (
        store,
        events.map(move |event| event.map(drop).map_err(&failed)),
    )
}

fn all<T: Readable<Kind: Resource<DynamicType = ()>>>(store: &Store<Item<T>>) -> Vec<Item<T>> {
    let mut all: Vec<_> = store.state().iter().map(|item| Item::clone(item)).collect();
    all.sort_by(|one, other| one.name().cmp(other.name()));
    all
}

fn glance(
    fleet: &Fleet,
    trouble: Option<&Error>,
    output: Output,
    flags: &str,
) -> Result<String, Error> {
    let page = Page::new(flags);
    let mut text = rendered(&status::of(fleet), output, &page)?;
    if let (Some(trouble), Output::Table) = (trouble, output) {
        let trouble = shown(&describe(trouble), MESSAGE_MAX);
        text.push('\n');
        text += &facts(vec![("Trouble:", trouble, Some(Color::Red))], &page);
    }
    Ok(text)
}

/// Draws the text over what a terminal of this size shows, and as far as it has room; elsewhere, below the text before.
fn draw(text: &str, size: Option<(u16, u16)>, output: Output, is_first: bool) -> Result<(), Error> {
    let Some((_, rows)) = size else {
        let separator = match output {
            Output::Yaml => "---\n",
            Output::Table if !is_first => "\n",
            Output::Table | Output::Json => "",
        };
        return write_out(&format!("{separator}{text}"));
    };
    let text = match AutoStream::choice(&stdout()) {
        ColorChoice::Never => strip_str(text).to_string(),
        _ => text.to_owned(),
    };
    let frame = framed(&text, rows.into());
    execute!(
        stdout(),
        DisableLineWrap,
        MoveTo(0, 0),
        Print(frame),
        Clear(ClearType::FromCursorDown),
        EnableLineWrap
    )?;
    Ok(())
}

/// Returns as many lines as this many rows have room for.
fn framed(text: &str, rows: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let room = rows.saturating_sub(1);
    let shown = if lines.len() > room {
        room.saturating_sub(1)
    } else {
        lines.len()
    };
    let (shown, rest) = lines.split_at(shown);
    let more = (!rest.is_empty()).then(|| format!("… {} more lines", rest.len()));
    let lines = shown.iter().map(|line| (*line).to_owned()).chain(more);
    lines.map(|line| line + END_OF_LINE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_fits_the_terminal() {
        let lines = |rows| framed("a\nb\nc\n", rows).replace(END_OF_LINE, "/");
        assert_eq!(lines(4), "a/b/c/");
        assert_eq!(lines(3), "a/… 2 more lines/");
        assert_eq!(lines(0), "… 3 more lines/");
    }
}
