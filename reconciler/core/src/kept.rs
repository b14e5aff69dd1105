//! Pods and budgets of other people as they are kept, within bounds, one by one and in sum: anybody with a namespace can make any
//! number of them, and put a pod on any node. Pure.
//!
//! The bounds of the sum are so wide that each node, or namespace, has its share of them, and those that have most give way
//! first. So nobody's objects count against a node, or a namespace, in which he has none.

mod budgets;
mod pods;

pub use budgets::KeptBudgets;
pub use pods::KeptPods;

use brupop_api::Item;

/// What a text takes in memory beside its bytes.
const TEXT: usize = 32;

/// What these texts take in memory.
pub(crate) fn weight<'t>(texts: impl IntoIterator<Item = &'t str>) -> usize {
    texts.into_iter().map(|text| TEXT + text.len()).sum()
}

/// What says which object this is takes so much in memory.
fn weight_of_identity<T>(item: &Item<T>) -> usize {
    size_of::<Item<T>>() + weight([item.namespace(), item.name(), item.uid()])
}
