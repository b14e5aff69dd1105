//! `kubectl brupop` as a library, so that its parts can be tested.
//!
//! - [`gather`] reads objects and writes patches; it is the only part that talks to the API server, with [`completion`],
//!   [`exec`] and [`live`].
//! - [`report`] turns objects into views, and [`steer`] into patches: pure functions.
//! - A view is printed as a table for people, or as JSON or YAML for programs ([`page`]).

mod access;
mod arguments;
mod completion;
mod connection;
mod error;
mod exec;
mod gather;
mod leads;
mod live;
mod objects;
mod page;
mod report;
mod steer;
mod table;
mod words;

use brupop_api::{Item, names};
use brupop_core::objects::{WatchedFleet, WatchedNode};
use brupop_core::pool::Pool;
use jiff::Timestamp;

pub use arguments::Arguments;
use arguments::{Command, SteeringCommand};
pub use error::Error;
use gather::OperatorApi;
use page::{Changed, Page};
use report::{history, status, why};
use steer::PlannedChange;

/// The name by which kubectl finds the program.
const PROGRAM: &str = "kubectl-brupop";
/// Field manager of what it writes. Flux removes from objects in Git what managers have written whose names begin with
/// `kubectl`, so a pause would hold until its next sync.
const FIELD_MANAGER: &str = "brupop-cli";

/// Does what is asked for.
///
/// # Errors
/// It could not be done; the error says why, and names the right that is missing.
pub async fn run(arguments: Arguments) -> Result<(), Error> {
    let Arguments {
        target,
        output,
        command,
    } = arguments;
    let server = async || connection::connect(&target).await;
    let flags = target.flags();
    let page = || Page {
        now: Timestamp::now(),
        columns: page::terminal().map(|size| size.columns),
        flags: flags.clone(),
    };
    match command {
        Command::Status { watch: true } => live::watch(&server().await?, output, flags).await,
        Command::Status { watch: false } => page::print(
            &status::of(&server().await?.fleet().await?),
            output,
            &page(),
        ),
        Command::Why { node } => {
            let server = server().await?;
            let node = server.node_named(&node).await;
            page::print(
                &why::of(&node, &server.about_node(&node).await?)?,
                output,
                &page(),
            )
        }
        Command::Plan => exec::plan(&server().await?, output).await,
        Command::History => page::print(
            &history::of(&server().await?.past().await?),
            output,
            &page(),
        ),
        Command::Steer(steering) => page::print(
            &carry_out(&server().await?, steering).await?,
            output,
            &page(),
        ),
        Command::Completion => page::write_out(completion::SCRIPT),
        Command::Complete { words } => page::write_out(&completion::complete(&words).await),
    }
}

/// Steers, and says what is so now.
async fn carry_out(server: &OperatorApi, steering: SteeringCommand) -> Result<Changed, Error> {
    match steering {
        SteeringCommand::Pause {
            node: Some(node), ..
        } => {
            let node = server.node_named(&node).await;
            let reboots = server
                .shadow(&node)
                .await
                .is_some_and(|shadow| steer::reboots(&shadow));
            change_node(server, &node, |node| steer::pause_node(node, reboots)).await
        }
        SteeringCommand::Resume {
            node: Some(node), ..
        } => change_node(server, &node, steer::resume_node).await,
        SteeringCommand::Pause {
            pool: Some(pool), ..
        } => pause_pool(server, &pool, true).await,
        SteeringCommand::Resume {
            pool: Some(pool), ..
        } => pause_pool(server, &pool, false).await,
        SteeringCommand::Pause { .. } => {
            change_fleet(server, |fleet| Ok(steer::pause_fleet(&fleet.object, true))).await
        }
        SteeringCommand::Resume {
            version: Some(version),
            variant,
            ..
        } => {
            change_fleet(server, |fleet| {
                Ok(steer::resume_version(fleet, &version, variant.as_deref())?)
            })
            .await
        }
        SteeringCommand::Resume { .. } => {
            change_fleet(server, |fleet| Ok(steer::pause_fleet(&fleet.object, false))).await
        }
        SteeringCommand::UpdateNow {
            node,
            cancel: false,
        } => {
            change_node(server, &node, |node| {
                steer::update_now(node, &server.namespace)
            })
            .await
        }
        SteeringCommand::UpdateNow { node, cancel: true } => {
            change_node(server, &node, steer::not_now).await
        }
        SteeringCommand::Retry { node } => {
            let name = server.node_named(&node).await;
            let shadow = server.shadow(&name).await;
            change_node(server, &name, |node| {
                steer::retry(node, shadow.as_ref(), &server.namespace)
            })
            .await
        }
    }
}

async fn change_fleet(
    server: &OperatorApi,
    change: impl FnOnce(&WatchedFleet) -> Result<PlannedChange, Error>,
) -> Result<Changed, Error> {
    let change = change(&server.fleet_object().await?)?;
    server
        .change(&server.ours::<Item<WatchedFleet>>(), names::FLEET, change)
        .await
}

async fn pause_pool(server: &OperatorApi, pool: &str, paused: bool) -> Result<Changed, Error> {
    let change = steer::pause_pool(&server.pool(pool).await?, paused);
    server
        .change(&server.ours::<Item<Pool>>(), pool, change)
        .await
}

async fn change_node(
    server: &OperatorApi,
    name: &str,
    change: impl FnOnce(&WatchedNode) -> PlannedChange,
) -> Result<Changed, Error> {
    let name = server.node_named(name).await;
    let Some(node) = server.node(&name).await? else {
        let is_pool = server.pool(&name).await.is_ok();
        let hint = if is_pool {
            format!("; a pool has this name: pause and resume take --pool {name}")
        } else {
            String::new()
        };
        return Err(Error::Missing(format!("Node {name}{hint}")));
    };
    server.change(&server.nodes(), &name, change(&node)).await
}
