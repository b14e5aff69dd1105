//! Writes carried out on objects in memory: on the model's truth, and on typed objects in tests. No program that ships has
//! this crate.

use brupop_api::{Field, Value, Write};

mod fields;
mod fit;
#[cfg(test)]
mod tests;

pub use fit::{Misfit, fits};

/// Anything with fields that can be read and set.
pub trait Fields {
    /// Returns what stands there; `None` if such an object has no such field.
    fn get(&self, field: Field<'_>) -> Option<Value<'_>>;
    /// Puts something there. [`apply`] has made sure that such an object has the field, and that the value is of its kind.
    fn set(&mut self, field: Field<'_>, value: &Value<'_>);

    /// Executes a write that fits.
    ///
    /// # Errors
    /// As [`apply`].
    fn carry_out(&mut self, write: &Write<'_>) -> Result<(), NotApplied> {
        for (field, expected) in &write.tests {
            let found = self
                .get(*field)
                .ok_or_else(|| Misfit::new(write, "test", *field, expected))?;
            if found != *expected {
                return Err(NotApplied::Unmet(Unmet {
                    field: format!("{field:?}"),
                    found: format!("{found:?}"),
                    expected: format!("{expected:?}"),
                }));
            }
        }
        for (field, value) in &write.sets {
            self.get(*field)
                .ok_or_else(|| Misfit::new(write, "set", *field, value))?;
        }
        for (field, value) in &write.sets {
            self.set(*field, value);
        }
        Ok(())
    }
}

/// Reasons why a write is not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotApplied {
    /// A test does not hold.
    #[error(transparent)]
    Unmet(#[from] Unmet),
    /// The write makes no sense.
    #[error(transparent)]
    Misfit(#[from] Misfit),
}

/// The test of a write that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {found}, and the write was decided on {expected}")]
pub struct Unmet {
    /// The field of the violation, by name.
    pub field: String,
    pub found: String,
    pub expected: String,
}

/// Executes a write: all of its sets if all of its tests hold, otherwise nothing.
///
/// # Errors
/// The first test that does not hold; or the first field that the object does not have, or that takes no such value.
pub fn apply(write: &Write<'_>, object: &mut impl Fields) -> Result<(), NotApplied> {
    fits(write)?;
    object.carry_out(write)
}
