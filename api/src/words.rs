//! Words that are decided on.

/// An enum whose values have words: what stands beside them, else their names.
#[macro_export]
macro_rules! words {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$says:meta])* $value:ident $(=> $word:expr)?,)* }) => {
        $(#[$about])*
        pub enum $name { $($(#[$says])* $value,)* }

        impl $name {
            /// Every one of them.
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
