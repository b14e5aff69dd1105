//! Cuts the JSON of a list into its objects while it arrives.

use kube::Error;

/// The longest object that is read, in bytes: ten times what etcd stores by default, as JSON may be that much longer.
const LONGEST: usize = 16 << 20;

/// A list that is arriving: an object with one array, whose objects are cut out.
#[derive(Debug, Default)]
pub(super) struct Cutter {
    /// How many objects and arrays are open.
    depth: usize,
    /// Is the second of them an array?
    in_items: bool,
    text: Text,
    /// What has arrived of the object that is not complete.
    object: Vec<u8>,
    /// What has arrived of the list beside its objects.
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

/// More has arrived of an object, or beside the objects, than is read.
#[derive(Debug, thiserror::Error)]
#[error("an object of the list has more than {} MiB", LONGEST >> 20)]
struct TooLong;

impl Cutter {
    /// Takes in what has arrived, and hands over each object that is complete.
    ///
    /// # Errors
    /// That of `found`, or an object is too long to be one.
    pub(super) fn cut(
        &mut self,
        bytes: &[u8],
        mut found: impl FnMut(&[u8]) -> kube::Result<()>,
    ) -> kube::Result<()> {
        for &byte in bytes {
            let (was_in_object, outside) = (self.in_object(), self.text == Text::Outside);
            self.pass(byte);
            let of_object = was_in_object || self.in_object();
            if !of_object && self.in_items && self.depth == 2 && outside && byte == b',' {
                continue;
            }
            let part = if of_object { &mut self.object } else { &mut self.rest };
            if part.len() == LONGEST {
                return Err(Error::Service(Box::new(TooLong)));
            }
            part.push(byte);
            if of_object && !self.in_object() {
                found(&self.object)?;
                self.object.clear();
            }
        }
        Ok(())
    }

    /// What has arrived beside the objects: the list with an array that is empty. It is no JSON if the list is not complete, or
    /// has something else than objects in its array.
    pub(super) fn rest(mut self) -> Vec<u8> {
        self.rest.append(&mut self.object);
        self.rest
    }

    fn in_object(&self) -> bool {
        self.in_items && self.depth > 2
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
                    self.in_items = byte == b'[';
                }
            }
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
