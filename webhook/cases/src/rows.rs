//! The rows, by what they are about.

use crate::row::Row;

mod whose;

/// All rows.
pub fn table() -> Vec<Row> {
    [whose::rows()].concat()
}
