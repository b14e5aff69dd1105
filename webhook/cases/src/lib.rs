//! The rules of admission as one table: who, with which token, asks what of which object; who refuses it and by which
//! rule; and what is stored afterwards.
//!
//! Every row about a shadow is judged in a unit test by the verdict alone ([`review()`]), and nearly every row is tried
//! with a real token on a real API server ([`Row::request`], [`Row::after`]).

mod actor;
mod ask;
mod review;
mod row;
mod rows;
mod situations;
mod world;

pub use actor::Actor;
pub use ask::{Ask, Request, Way};
pub use review::review;
pub use row::{Row, Verdict};
pub use rows::table;
pub use world::{Host, Node, World};
