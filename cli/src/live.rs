//! `status -w`: the fleet at a glance, drawn again whenever something changes.

use std::io::stdout;
use std::pin::pin;
use std::time::Duration;

use brupop_api::item::Readable;
use brupop_api::{Item, names};
use brupop_core::objects::WatchedFleet;
use brupop_runtime::{only, patient};
use crossterm::cursor::MoveTo;
use crossterm::execute;
use crossterm::terminal::{BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate};
use crossterm::terminal::{DisableLineWrap, EnableLineWrap};
use futures::{FutureExt as _, Stream, StreamExt as _, stream};
use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use kube::core::Status;
use kube::runtime::reflector::{Store, reflector, store};
use kube::runtime::watcher::{Config, Error as WatchError, watcher};
use tokio::time::{MissedTickBehavior, interval};

use crate::access::Right;
use crate::arguments::Output;
use crate::error::Error;
use crate::gather::{Fleet, OperatorApi, body};
use crate::page::{Page, rendered, terminal, write_out};
use crate::report::status;

/// Shortest time between two drawings, however much changes. A terminal shows the ages of this moment.
const SHORTEST: Duration = Duration::from_millis(500);
/// How often the Lease is read: it changes every few seconds, and few may watch it. This also tells that the API server cannot
/// be reached.
const LEASE: Duration = Duration::from_secs(5);

/// Draws the fleet until Ctrl-C.
///
/// # Errors
/// The caller lacks a right, or a watch fails before it has listed its objects.
pub(crate) async fn watch(server: &OperatorApi, output: Output, flags: &str) -> Result<(), Error> {
    // Watches of a namespace that is not there would wait for ever.
    server.fleet_object_if_any().await?;
    let (shadows, of_shadows) = watched(server, Config::default());
    let (pools, of_pools) = watched(server, Config::default());
    let (fleets, of_fleets) = watched::<WatchedFleet>(server, only(names::FLEET));
    let others = stream::select(of_shadows, of_pools);
    let mut events = pin!(stream::select(of_fleets, others));
    let are_listed = async || {
        let (shadows, pools) = (shadows.wait_until_ready(), pools.wait_until_ready());
        tokio::try_join!(fleets.wait_until_ready(), shadows, pools).is_ok()
    };
    let (mut tick, mut lease) = (interval(SHORTEST), interval(LEASE));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut leads, mut changed, mut last) = (server.leads().await, true, String::new());
    loop {
        let are_listed = are_listed().now_or_never() == Some(true);
        tokio::select! {
            Some(event) = events.next() => match event {
                Err(error) if !are_listed || matches!(error, Error::Forbidden(_)) => return Err(error),
                // Watches go on after other errors.
                _ => changed = true,
            },
            _ = lease.tick() => {
                let before = std::mem::replace(&mut leads, server.leads().await);
                changed |= before != leads;
            }
            _ = tick.tick(), if are_listed => {
                let rows = terminal().map(|(_, rows)| rows).filter(|_| output == Output::Table);
                if !std::mem::take(&mut changed) && rows.is_none() {
                    continue;
                }
                let fleet = all(&fleets).pop().map(body).transpose()?;
                let fleet = Fleet {
                    namespace: server.namespace.clone(),
                    object: fleet.map(|fleet| fleet.object),
                    shadows: all(&shadows),
                    pools: all(&pools),
                    leads: leads.clone(),
                };
                let text = rendered(&status::of(&fleet), output, &Page::new(flags))?;
                if text != last {
                    draw(&text, rows, output)?;
                    last = text;
                }
            }
        }
    }
}

type Watched<T, S> = (Store<Item<T>>, S);

/// Watches objects of the operator's namespace: returns those that are there now, and what keeps them so.
fn watched<T>(
    server: &OperatorApi,
    config: Config,
) -> Watched<T, impl Stream<Item = Result<(), Error>> + use<T>>
where
    T: Readable<Kind: Resource<DynamicType = (), Scope = NamespaceResourceScope>>,
{
    let (store, writer) = store();
    let api = server.ours::<Item<T>>();
    let right = Right::of("list and watch", &api);
    let failed = move |error| {
        let source = match error {
            WatchError::InitialListFailed(source)
            | WatchError::WatchStartFailed(source)
            | WatchError::WatchFailed(source) => source,
            WatchError::WatchError(status) => kube::Error::Api(status),
            other @ WatchError::NoResourceVersion => {
                kube::Error::Api(Status::failure(&other.to_string(), "").boxed())
            }
        };
        right.clone().failed(source)
    };
    let events = reflector(writer, patient(watcher(api, config)));
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

/// Redraws a terminal of `rows` rows, as far as the text fits; without `rows`, writes the text below the last one.
fn draw(text: &str, rows: Option<u16>, output: Output) -> Result<(), Error> {
    let Some(rows) = rows else {
        return write_out(&match output {
            Output::Yaml => format!("---\n{text}"),
            Output::Table => format!("{text}\n"),
            Output::Json => text.to_owned(),
        });
    };
    execute!(
        stdout(),
        BeginSynchronizedUpdate,
        DisableLineWrap,
        MoveTo(0, 0),
        Clear(ClearType::FromCursorDown)
    )?;
    write_out(&framed(text, rows.into()))?;
    Ok(execute!(stdout(), EnableLineWrap, EndSynchronizedUpdate)?)
}

/// Returns as many lines as this many rows have room for.
fn framed(text: &str, rows: usize) -> String {
    let (lines, room) = (text.lines().count(), rows.saturating_sub(1));
    if lines <= room {
        return text.to_owned();
    }
    let shown = room.saturating_sub(1);
    let kept: String = text.split_inclusive('\n').take(shown).collect();
    format!("{kept}… {} more lines\n", lines - shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_fits_the_terminal() {
        let frame = |rows| framed("a\nb\nc\n", rows);
        assert_eq!(frame(4), "a\nb\nc\n");
        assert_eq!(frame(3), "a\n… 2 more lines\n");
        assert_eq!(frame(0), "… 3 more lines\n");
    }
}
