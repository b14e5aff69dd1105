//! The agent's decisions, without client, runtime, clock or environment.
//!
//! [`step`] says what to do next, and [`answer`] reads what the host says.

pub mod answer;
pub mod step;
