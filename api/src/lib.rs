//! The protocol between agent, reconciler and webhook.
//!
//! Everything here is a value or a function over values: the custom resources ([`mod@shadow`], with the states that may follow each
//! other and what may be wrong with a host; [`fleet`], [`pool`]), what a node carries while it is updated ([`marker`]), a conditional
//! change of one object ([`mod@write`]), how objects are read ([`item`]), what things are called, and who a caller is
//! ([`names`]), the programs' settings ([`settings`]), and how text from outside is shown to people ([`mod@printable`]). No client, no
//! clock, no input or output.

#![warn(missing_docs)]

pub mod conditions;
pub mod crds;
pub mod definitions;
#[allow(clippy::duplicated_attributes, reason = "every printcolumn has a type")]
pub mod fleet;
pub mod item;
pub mod marker;
pub mod names;
#[allow(clippy::duplicated_attributes, reason = "every printcolumn has a type")]
pub mod pool;
pub mod printable;
mod schema;
pub mod settings;
#[allow(clippy::duplicated_attributes, reason = "every printcolumn has a type")]
pub mod shadow;
pub mod write;

pub use fleet::{BottlerocketFleet, BottlerocketFleetSpec, BottlerocketFleetStatus, NodeCounts};
pub use item::Item;
pub use marker::Marker;
pub use pool::{BottlerocketPool, BottlerocketPoolSpec, BottlerocketPoolStatus};
pub use shadow::{
    BottlerocketShadow, BottlerocketShadowSpec, BottlerocketShadowStatus, Problem, State,
};
pub use write::{Field, Object, Value, Write};

/// An enum whose values have words: what stands beside them, else their names.
#[macro_export]
macro_rules! words {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$says:meta])* $value:ident $(=> $word:expr)?,)* }) => {
        $(#[$about])*
        pub enum $name { $($(#[$says])* $value,)* }

        impl $name {
            /// All values of the type, in order.
            pub const ALL: [Self; [$(Self::$value),*].len()] = [$(Self::$value),*];

            /// The word that stands in objects, metrics and logs.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$value => $crate::words!(@$value $($word)?),)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
    (@$value:ident) => { stringify!($value) };
    (@$value:ident $word:expr) => { $word };
}
