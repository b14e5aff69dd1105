//! The protocol between agent, reconciler and webhook.
//!
//! Everything here is a value or a function over values: the custom resources ([`shadow`], [`fleet`], [`pool`], [`counts`]), what a
//! node carries while it is updated ([`marker`]), which state may follow which ([`transitions`]), a conditional
//! change of one object ([`mod@write`]), what is wrong with a host ([`problem`]), how objects are read ([`item`]), who a caller is ([`identity`]), what things are
//! called ([`names`]), and how text from outside is shown to people ([`mod@printable`]). No client, no clock, no input or
//! output.

#![warn(missing_docs)]

pub mod conditions;
pub mod counts;
pub mod crds;
pub mod definitions;
pub mod facts;
#[allow(clippy::duplicated_attributes, reason = "every printcolumn has a type")]
pub mod fleet;
pub mod identity;
pub mod item;
pub mod marker;
pub mod names;
#[allow(clippy::duplicated_attributes, reason = "every printcolumn has a type")]
pub mod pool;
pub mod printable;
pub mod problem;
mod schema;
#[allow(clippy::duplicated_attributes, reason = "every printcolumn has a type")]
pub mod shadow;
pub mod transitions;
mod words;
pub mod write;

pub use counts::NodeCounts;
pub use fleet::{BottlerocketFleet, BottlerocketFleetSpec, BottlerocketFleetStatus};
pub use item::Item;
pub use marker::Marker;
pub use pool::{BottlerocketPool, BottlerocketPoolSpec, BottlerocketPoolStatus};
pub use problem::Problem;
pub use shadow::{BottlerocketShadow, BottlerocketShadowSpec, BottlerocketShadowStatus, State};
pub use write::{Field, Object, Value, Write};
