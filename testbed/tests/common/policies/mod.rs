//! The shipped policies, attacked by the very accounts that they confine.

pub mod attacks;
pub mod bed;
pub mod flow;
pub mod hand_edits;
pub mod large;
