//! Cuts the JSON of a list, or of a watch, into its objects while it arrives.

use super::{LARGE, LONGEST, NOT_OBJECTS, invalid};

/// The trace of an object in the list that it is cut out of.
const HOLE: &[u8] = b"null";

/// An answer that is arriving, whose objects are cut out: those of the arrays of a list, or those that a watch brings.
#[derive(Debug)]
pub(super) struct Cutter {
    /// Number of open objects and arrays.
    depth: usize,
    /// Number of open objects and arrays around an object that is cut out: a list and its array, or none.
    around: usize,
    /// Whether the last of these, if any, is an array.
    in_array: bool,
    text: StringPart,
    /// The received part of the incomplete object.
    object: Vec<u8>,
    /// The received part of the list, with holes where objects were.
    rest: Vec<u8>,
}

/// The place of the next byte in a string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum StringPart {
    #[default]
    Outside,
    Inside,
    Escaped,
}

impl Cutter {
    pub(super) fn of_list() -> Self {
        Self {
            depth: 0,
            around: 2,
            in_array: false,
            text: StringPart::Outside,
            object: vec![],
            rest: vec![],
        }
    }

    /// Cuts what a watch brings.
    pub(super) fn of_watch() -> Self {
        Self {
            around: 0,
            in_array: true,
            ..Self::of_list()
        }
    }

    /// Takes in what has arrived, and hands over each object that is complete.
    ///
    /// # Errors
    /// `found` has failed, an object is too long to be one, or a watch has brought something else.
    pub(super) fn cut(
        &mut self,
        bytes: &[u8],
        mut found: impl FnMut(&[u8]) -> kube::Result<()>,
    ) -> kube::Result<()> {
        for &byte in bytes {
            let was_in_object = self.in_object();
            self.pass(byte);
            let part = match (was_in_object, self.in_object()) {
                (false, false) if self.around > 0 => &mut self.rest,
                (false, false) if byte.is_ascii_whitespace() => continue,
                (false, false) => return Err(invalid(NOT_OBJECTS)),
                (false, true) => {
                    if self.around > 0 {
                        self.rest.extend_from_slice(HOLE);
                    }
                    &mut self.object
                }
                (true, _) => &mut self.object,
            };
            if part.len() >= LONGEST {
                return Err(invalid("an object has more than 16 MiB"));
            }
            part.push(byte);
            if was_in_object && !self.in_object() {
                found(&self.object)?;
                self.object.clear();
                // Of a large one nothing stays in memory.
                self.object.shrink_to(LARGE);
            }
        }
        Ok(())
    }

    /// Returns what has arrived, with `null` for each object. It is no JSON if the list is not complete.
    pub(super) fn rest(&self) -> &[u8] {
        &self.rest
    }

    /// Returns how many bytes wait until their object is complete.
    pub(super) fn waiting(&self) -> usize {
        self.object.len()
    }

    fn in_object(&self) -> bool {
        self.in_array && self.depth > self.around
    }

    fn pass(&mut self, byte: u8) {
        self.text = match (self.text, byte) {
            (StringPart::Outside, b'"') | (StringPart::Escaped, _) => StringPart::Inside,
            (StringPart::Inside, b'\\') => StringPart::Escaped,
            (StringPart::Inside, b'"') => StringPart::Outside,
            (text, _) => text,
        };
        if self.text != StringPart::Outside {
            return;
        }
        match byte {
            b'{' | b'[' => {
                self.depth += 1;
                if self.depth == self.around {
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
