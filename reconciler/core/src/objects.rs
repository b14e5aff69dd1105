//! Objects as they are watched: of each only what decisions and conditional patches need, with bounds on what others
//! can put into them.

mod budget;
mod kept;
mod ledger;
mod node;
mod pods;
mod readiness;

pub use budget::Budget;
pub use ledger::Ledger;
pub use node::WatchedNode;
pub use pods::{AgentPod, Controller, Pod, PodItem, is_operator_pod};
pub use readiness::Readiness;

#[cfg(test)]
mod tests;
