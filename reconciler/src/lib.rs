//! Decides what each Bottlerocket host should do next, and sees to it.
//!
//! Observe → decide → apply: [`observe`] turns objects and the time into [`facts`], [`decide`] turns facts into writes
//! and reasons, and the rest carries them out.

pub mod admission;
pub mod apply;
pub mod budgets;
pub mod canary;
pub mod conditions;
pub mod decide;
pub mod drain;
pub mod evict;
pub mod facts;
pub mod leadership;
pub mod leave;
pub mod metrics;
pub mod objects;
pub mod observe;
pub mod pace;
pub mod pending;
pub mod plan;
pub mod process;
pub mod reconcile;
pub mod schedule;
pub mod settings;
pub mod told;
pub mod watches;
pub mod workloads;
