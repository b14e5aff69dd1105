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
mod page;
mod report;
mod steer;
mod table;
mod words;

use brupop_api::{BottlerocketFleet, BottlerocketShadow, Item, names};
use brupop_core::objects::{NodeFacts, WatchedFleet};
use brupop_core::pool::Pool;
use tokio::task::spawn_blocking;

pub use arguments::Arguments;
use arguments::{Command, Output, SteeringCommand};
pub use error::Error;
use gather::{OperatorApi, get};
use page::{Changed, Page, View, rendered, write_out};
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
        Command::Status { watch: true } => {
            Box::pin(live::watch(&server().await?, output, &flags)).await
        }
        Command::Status { watch: false } => {
            print(&status::of(&server().await?.fleet().await?), output, &flags)
        }
        Command::Why { node } => {
            let server = server().await?;
            let node = server.node_named(&node).await;
            let found = server.about_node(&node).await?;
            print(&why::of(&node, &found)?, output, &flags)
        }
        Command::Plan => exec::plan(&server().await?, &target, output).await,
        Command::History => {
            let server = server().await?;
            let fleet = server.fleet_object().await?.object;
            let events = server.events(&server.namespace, "").await?;
            print(&history::of(&fleet, events), output, &flags)
        }
        Command::Steer(steering) => {
            print(&steer(&server().await?, steering).await?, output, &flags)
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

/// Steers, and says how things are now.
async fn steer(server: &OperatorApi, command: SteeringCommand) -> Result<Changed, Error> {
    use SteeringCommand::{Pause, Resume, Retry, UpdateNow};
    let namespace = server.namespace.as_str();
    match command {
        Pause { node, pool } => pause(server, node, pool, true).await,
        Resume {
            version: Some(version),
            variant,
            ..
        } => {
            let variant = variant.as_deref();
            let resumed = |fleet: &_| steer::resume_version(fleet, &version, variant);
            change_fleet(server, resumed).await
        }
        Resume { node, pool, .. } => pause(server, node, pool, false).await,
        UpdateNow { node, cancel } => {
            let steered = |node: &_, _: Option<&_>| steer::update_now(node, namespace, cancel);
            change_node(server, &node, steered).await
        }
        Retry { node } => {
            let steered = |node: &_, shadow: Option<&_>| steer::retry(node, shadow, namespace);
            change_node(server, &node, steered).await
        }
    }
}

/// Pauses a node, a pool or the fleet, or ends the pause.
async fn pause(
    server: &OperatorApi,
    node: Option<String>,
    pool: Option<String>,
    paused: bool,
) -> Result<Changed, Error> {
    if let Some(node) = node {
        let steered = |node: &_, shadow: Option<&_>| steer::pause_node(node, shadow, paused);
        return change_node(server, &node, steered).await;
    }
    let Some(name) = pool else {
        let steered = |fleet: &_| Ok(steer::pause_fleet(fleet, paused));
        return change_fleet(server, steered).await;
    };
    let missing = || Error::Missing(format!("pool {name} in the namespace {}", server.namespace));
    let pool = server.read::<Pool>(&name).await?.ok_or_else(missing)?;
    let (api, change) = (
        server.ours::<Item<Pool>>(),
        steer::pause_pool(&pool, paused),
    );
    server.change(&api, &name, change).await
}

async fn change_fleet(
    server: &OperatorApi,
    change: impl FnOnce(&BottlerocketFleet) -> Result<PlannedChange, Error>,
) -> Result<Changed, Error> {
    let change = change(&server.fleet_object().await?.object)?;
    let api = server.ours::<Item<WatchedFleet>>();
    server.change(&api, names::FLEET, change).await
}

async fn change_node(
    server: &OperatorApi,
    name: &str,
    change: impl FnOnce(&NodeFacts, Option<&BottlerocketShadow>) -> PlannedChange,
) -> Result<Changed, Error> {
    let name = server.node_named(name).await;
    let Some(node) = get(&server.nodes(), &name).await? else {
        let hint = match server.read::<Pool>(&name).await {
            Ok(Some(_)) => format!("; a pool has this name: pause and resume take --pool {name}"),
            _ => String::new(),
        };
        return Err(Error::Missing(format!("Node {name}{hint}")));
    };
    let change = change(&node.into(), server.shadow(&name).await.as_ref());
    server.change(&server.nodes(), &name, change).await
}
