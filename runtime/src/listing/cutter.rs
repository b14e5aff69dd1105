//! Cuts the JSON of a list into its objects while it arrives.

use super::body::empty;
use super::{AnswerError, LONGEST};

/// What an object leaves in the list that it is cut out of.
const HOLE: &[u8] = b"null";

/// A list that is arriving: an object with an array, whose objects are cut out.
#[derive(Debug, Default)]
pub(super) struct Cutter {
    /// How many objects and arrays are open.
    depth: usize,
    /// Is the second of them an array?
    in_array: bool,
    text: Text,
    /// What has arrived of the object that is not complete.
    object: Vec<u8>,
    /// What has arrived of the list, with holes where objects were.
    rest: Vec<u8>,
}

/// Where in a string the next byte is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Text {
    #[default]
    Outside,
    Inside,
    /// After a backslash.
    Escaped,
}

impl Cutter {
    /// Takes in what has arrived, and hands over each object that is complete.
    ///
    /// # Errors
    /// `found` has failed, or an object is too long to be one.
    pub(super) fn cut(
        &mut self,
        bytes: &[u8],
        mut found: impl FnMut(&[u8]) -> kube::Result<()>,
    ) -> kube::Result<()> {
        for &byte in bytes {
            let was_in_object = self.in_object();
            self.pass(byte);
            let part = match (was_in_object, self.in_object()) {
                (false, false) => &mut self.rest,
                (false, true) => {
                    self.rest.extend_from_slice(HOLE);
                    &mut self.object
                }
                (true, _) => &mut self.object,
            };
            if part.len() >= LONGEST {
                return Err(AnswerError::TooLong.into());
            }
            part.push(byte);
            if was_in_object && !self.in_object() {
                found(&self.object)?;
                empty(&mut self.object);
            }
        }
        Ok(())
    }

    /// What has arrived, with `null` for each object. It is no JSON if the list is not complete.
    pub(super) fn rest(&self) -> &[u8] {
        &self.rest
    }

    /// How many bytes wait until their object is complete.
    pub(super) fn waiting(&self) -> usize {
        self.object.len()
    }

    fn in_object(&self) -> bool {
        self.in_array && self.depth > 2
    }

    /// Goes past this byte.
    fn pass(&mut self, byte: u8) {
        self.text = match (self.text, byte) {
            (Text::Outside, b'"') | (Text::Escaped, _) => Text::Inside,
            (Text::Inside, b'\\') => Text::Escaped,
            (Text::Inside, b'"') => Text::Outside,
            (text, _) => text,
        };
        if self.text != Text::Outside {
            return;
        }
        match byte {
            b'{' | b'[' => {
                self.depth += 1;
                if self.depth == 2 {
                    self.in_array = byte == b'[';
                }
            }
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
