//! Validating admission webhook: an agent may write the status of its own shadow, and nothing else.
//!
//! [`verdict`] decides, as a pure function of the review. [`review`] turns bytes into a verdict and back, [`serve`]
//! puts it behind TLS, [`pools`] tells people what is wrong with a pool, [`certificates`] makes and renews what TLS needs.

#![cfg_attr(test, allow(clippy::too_many_lines, reason = "tables of rows"))]

pub mod certificates;
pub mod metrics;
pub mod options;
pub mod pools;
pub mod process;
pub mod review;
pub mod serve;
pub mod verdict;
