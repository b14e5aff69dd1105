//! `status -w`: the fleet at a glance, drawn again whenever something changes.

use std::pin::pin;
use std::time::Duration;

use brupop_api::item::Readable;
use brupop_api::{Item, names};
use brupop_core::objects::WatchedFleet;
use brupop_runtime::{only, patient};
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
use crate::screen::{Key, Screen, next_key};

/// Shortest time between two drawings, however much changes. A terminal shows the ages of this moment.
const SHORTEST: Duration = Duration::from_millis(500);
/// Interval at which the Lease, pods and cordoned Nodes are read. This also tells that the API server cannot be reached.
const AROUND: Duration = Duration::from_secs(5);

/// Draws the fleet, or this pool, until a person ends it.
///
/// # Errors
/// The caller lacks a right, or a watch fails before it has listed its objects.
pub(crate) async fn watch(
    server: &OperatorApi,
    pool: Option<&str>,
    output: Output,
    flags: &str,
) -> Result<(), Error> {
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
    let (mut tick, mut look) = (interval(SHORTEST), interval(AROUND));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut around, mut changed, mut last) = (server.around().await, true, String::new());
    let is_screen = output == Output::Table && terminal().is_some();
    let mut screen = is_screen.then(Screen::open).transpose()?;
    loop {
        let are_listed = are_listed().now_or_never() == Some(true);
        tokio::select! {
            Some(event) = events.next() => match event {
                Err(error) if !are_listed || matches!(error, Error::Forbidden(_)) => return Err(error),
                // Watches go on after other errors.
                _ => changed = true,
            },
            _ = look.tick() => {
                let now = server.around().await;
                changed |= around != now;
                around = now;
            }
            key = next_key(screen.as_mut()) => match (key, &mut screen) {
                (Key::End, _) => return Ok(()),
                (Key::Move(lines), Some(screen)) => screen.scroll(&last, lines)?,
                (Key::Move(_), None) => {}
            },
            _ = tick.tick(), if are_listed => {
                if !std::mem::take(&mut changed) && screen.is_none() {
                    continue;
                }
                let fleet = all(&fleets).pop().map(body).transpose()?;
                let fleet = Fleet {
                    namespace: server.namespace.clone(),
                    object: fleet.map(|fleet| fleet.object),
                    shadows: all(&shadows),
                    pools: all(&pools),
                    around: around.clone(),
                };
                let text = rendered(&status::of(&fleet, pool)?, output, &Page::new(flags))?;
                match &mut screen {
                    Some(screen) => screen.draw(&text)?,
                    None if text != last => write_below(&text, output)?,
                    None => {}
                }
                last = text;
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
    let events = reflector(
        writer,
        patient(move || watcher(api.clone(), config.clone())),
    );
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

/// Writes the text below the last one.
fn write_below(text: &str, output: Output) -> Result<(), Error> {
    write_out(&match output {
        Output::Yaml => format!("---\n{text}"),
        Output::Table => format!("{text}\n"),
        Output::Json => text.to_owned(),
    })
}
