//! What the agent decides, without client, runtime, clock or environment.
//!
//! [`step`] says what to do next, [`answer`] reads what the host says, and [`shorten`] bounds it.

pub mod answer;
pub mod shorten;
pub mod step;
