//! `kubectl brupop` as a library, so that its parts can be tested.
//!
//! - [`gather`] reads objects and writes patches; it is the only part that talks to the API server, with [`completion`],
//!   [`exec`] and [`live`].
//! - [`report`] turns objects into views, and [`mod@steer`] into patches: pure functions.
//! - A view is printed as a table for people, or as JSON or YAML for programs ([`page`]).

mod access;
mod arguments;
mod completion;
mod connection;
mod error;
mod event;
mod exec;
mod gather;
mod leads;
mod live;
mod operator;
mod page;
mod report;
mod screen;
mod steer;
mod table;
mod words;

use brupop_api::{BottlerocketFleet, BottlerocketShadow, Item, names};
use brupop_core::objects::{NodeFacts, WatchedFleet};
use brupop_core::pool::Pool;
use brupop_runtime::errors::describe;
use tokio::task::spawn_blocking;

pub use arguments::Arguments;
use arguments::{Command, Nodes, Output, SteeringCommand};
pub use error::Error;
use gather::{OperatorApi, get};
use page::{Changed, Changes, Page, View, rendered, write_out};
use report::{history, status, why};
use steer::PlannedChange;

/// Does what is asked for.
///
/// # Errors
/// It could not be done; the error says why, and names the right that is missing.
pub async fn run(arguments: Arguments) -> Result<(), Error> {
    let (target, output) = (arguments.target, arguments.output);
    let server = async || connection::connect(&target).await;
    let flags = target.flags();
    match arguments.command {
        Command::Status { watch, pool } => {
            let server = server().await?;
            if watch {
                return Box::pin(live::watch(&server, pool.as_deref(), output, &flags)).await;
            }
            let glance = status::of(&server.fleet().await?, pool.as_deref());
            print(&glance?, output, &flags)
        }
        Command::Why { node } => {
            let server = server().await?;
            let node = server.node_named(&node).await;
            let found = server.about_node(&node).await?;
            print(&why::of(&node, &found)?, output, &flags)
        }
        Command::Plan { now } => {
            let plan = exec::plan(&server().await?, &target, now).await?;
            print(&plan, output, &flags)
        }
        Command::History { node } => {
            let server = server().await?;
            let fleet = server.fleet_object().await?.object;
            let node = match node {
                Some(node) => Some(server.node_named(&node).await),
                None => None,
            };
            let events = server.events(node.as_deref()).await?;
            print(&history::of(&fleet, events), output, &flags)
        }
        Command::Version => {
            let pods = match server().await {
                Ok(server) => server.operator_pods().await,
                Err(_) => vec![],
            };
            print(&operator::versions(&pods), output, &flags)
        }
        Command::Steer(steering) => {
            let (changed, failed) = steer(&server().await?, steering).await?;
            print(&changed, output, &flags)?;
            failed.map_or(Ok(()), Err)
        }
        Command::Completion => write_out(completion::SCRIPT),
        Command::Complete { words } => {
            let offered = spawn_blocking(move || completion::complete(&words)).await;
            write_out(&offered.map_err(std::io::Error::from)??)
        }
    }
}

fn print(view: &impl View, output: Output, flags: &str) -> Result<(), Error> {
    write_out(&rendered(view, output, &Page::new(flags))?)
}
/// Steers; returns how things are now, and why some of it could not be done.
async fn steer(
    server: &OperatorApi,
    command: SteeringCommand,
) -> Result<(Changes, Option<Error>), Error> {
    use SteeringCommand::{Pause, Resume, Retry, UpdateNow};
    let namespace = server.namespace.as_str();
    match command {
        Pause { nodes, pool } => pause(server, nodes, pool, true).await,
        Resume {
            version: Some(version),
            variant,
            ..
        } => {
            let variant = variant.as_deref();
            let resumed = |fleet: &_| steer::resume_version(fleet, &version, variant);
            change_fleet(server, resumed).await
        }
        Resume { nodes, pool, .. } => pause(server, nodes, pool, false).await,
        UpdateNow { nodes, cancel } => {
            let steered = |node: &_, _: Option<&_>| steer::update_now(node, namespace, cancel);
            change_nodes(server, nodes, steered).await
        }
        Retry { nodes } => {
            let steered = |node: &_, shadow: Option<&_>| steer::retry(node, shadow, namespace);
            change_nodes(server, nodes, steered).await
        }
    }
}

/// Pauses nodes, a pool or the fleet, or ends the pause.
async fn pause(
    server: &OperatorApi,
    nodes: Option<Nodes>,
    pool: Option<String>,
    paused: bool,
) -> Result<(Changes, Option<Error>), Error> {
    if let Some(nodes) = nodes {
        let steered = |node: &_, shadow: Option<&_>| steer::pause_node(node, shadow, paused);
        return change_nodes(server, nodes, steered).await;
    }
    let Some(name) = pool else {
        let steered = |fleet: &_| Ok(steer::pause_fleet(fleet, paused));
        return change_fleet(server, steered).await;
    };
    let pool = server.pool(&name).await?;
    let change = steer::pause_pool(&pool, paused);
    let api = server.ours::<Item<Pool>>();
    let changed = server.change(&api, &name, change).await?;
    Ok((Changes(vec![changed]), None))
}

async fn change_fleet(
    server: &OperatorApi,
    change: impl FnOnce(&BottlerocketFleet) -> Result<PlannedChange, Error>,
) -> Result<(Changes, Option<Error>), Error> {
    let change = change(&server.fleet_object().await?.object)?;
    let api = server.ours::<Item<WatchedFleet>>();
    let changed = server.change(&api, names::FLEET, change).await?;
    Ok((Changes(vec![changed]), None))
}

/// Changes each of these nodes, also after one that could not be changed.
async fn change_nodes(
    server: &OperatorApi,
    nodes: Nodes,
    change: impl Fn(&NodeFacts, Option<&BottlerocketShadow>) -> PlannedChange,
) -> Result<(Changes, Option<Error>), Error> {
    let names = match nodes.selector {
        Some(selector) => server.selected_nodes(&selector).await?,
        None => nodes.names,
    };
    let (mut changes, mut failures) = (vec![], vec![]);
    for name in names {
        match change_node(server, &name, &change).await {
            Ok(done) => changes.push(done),
            Err(error) => failures.push(error),
        }
    }
    let why = || failures.iter().map(|it| describe(it)).collect();
    let failed = (!failures.is_empty()).then(|| Error::Nodes(why()));
    Ok((Changes(changes), failed))
}

async fn change_node(
    server: &OperatorApi,
    name: &str,
    change: impl Fn(&NodeFacts, Option<&BottlerocketShadow>) -> PlannedChange,
) -> Result<Changed, Error> {
    let name = server.node_named(name).await;
    let Some(node) = get(&server.nodes(), &name).await? else {
        let hint = match server.pool(&name).await {
            Ok(_) => format!("; a pool has this name: pause and resume take --pool {name}"),
            _ => String::new(),
        };
        return Err(Error::Missing(format!("Node {name}{hint}")));
    };
    let change = change(&node.into(), server.shadow(&name).await.as_ref());
    server.change(&server.nodes(), &name, change).await
}
