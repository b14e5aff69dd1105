//! What is logged: levels, of our own crates only.

use super::{FILTER_DIRECTIVE, LogError, invalid};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

/// Our crates that log.
const CRATES: [&str; 4] = [
    "brupop_agent",
    "brupop_reconciler",
    "brupop_runtime",
    "brupop_webhook",
];
const VALID: &str = "a level (off, error, warn, info, debug, trace), and after it levels of modules such as \
                     info,brupop_agent=debug. Only brupop_agent, brupop_reconciler, brupop_runtime and brupop_webhook \
                     have any: nothing else is ever logged. Write that";

/// Reads directives: a level for all of our crates (`info` if none is given), and levels of modules.
pub(super) fn targets(value: &str) -> Result<Targets, LogError> {
    let refused = || invalid(FILTER_DIRECTIVE, value, VALID);
    let (mut all, mut modules) = (LevelFilter::INFO, Vec::new());
    for directive in value.split(',').map(str::trim) {
        let (module, level) = directive.split_once('=').unwrap_or(("", directive));
        let level = level
            .parse()
            .ok()
            .filter(|_| !level.is_empty())
            .ok_or_else(refused)?;
        match module {
            "" if directive.contains('=') => return Err(refused()),
            "" => all = level,
            module if is_ours(module) => modules.push((module, level)),
            _ => return Err(refused()),
        }
    }
    let ours = CRATES.into_iter().map(|name| (name, all));
    Ok(Targets::new().with_targets(ours).with_targets(modules))
}

/// Can this be the path of one of our modules?
fn is_ours(path: &str) -> bool {
    let mut names = path.split("::");
    names.next().is_some_and(|name| CRATES.contains(&name))
        && names
            .all(|name| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_'))
}
