//! The fields of events and spans: each value made printable and cut.

use crate::errors::describe;
use brupop_api::printable::printable;
use serde_json::Value;
use std::error::Error;
use std::fmt::{self, Debug, Write};
use tracing::field::{Field, Visit};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;

/// Most bytes of a value, or of an event's message. Quotes may add as many.
pub const VALUE_MAX: usize = 2048;

/// The name under which an event's message is recorded.
const MESSAGE: &str = "message";

/// Fields as `name=value`, after the message. What stands before each field of an event is given; fields of spans are
/// separated by a space.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields(pub(super) &'static str);

/// What was recorded, in its order.
#[derive(Default)]
pub(super) struct Recorded {
    pub(super) message: Option<String>,
    pub(super) values: Vec<(&'static str, Value)>,
}

impl Recorded {
    pub(super) fn of(fields: &impl RecordFields) -> Self {
        let mut recorded = Self::default();
        fields.record(&mut recorded);
        recorded
    }

    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        // A name that is a word of Rust's is written so.
        let name = field.name();
        self.values
            .push((name.strip_prefix("r#").unwrap_or(name), value.into()));
    }

    fn put_text(&mut self, field: &Field, text: &str) {
        let text = printable(text, VALUE_MAX).into_owned();
        if field.name() == MESSAGE {
            self.message = Some(text);
        } else {
            self.put(field, text);
        }
    }
}

impl Visit for Recorded {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put_text(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.put_text(field, &describe(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut beginning = Beginning(String::new());
        // The error says that the rest is not wanted.
        let _ = write!(beginning, "{value:?}");
        self.put_text(field, &beginning.0);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }
}

/// Takes what is written until it is too long for a value.
struct Beginning(String);

impl Write for Beginning {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = (VALUE_MAX + 1).saturating_sub(self.0.len());
        self.0.push_str(&text[..text.ceil_char_boundary(room)]);
        if self.0.len() > VALUE_MAX {
            Err(fmt::Error)
        } else {
            Ok(())
        }
    }
}

impl<'w> FormatFields<'w> for Fields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'w>, fields: R) -> fmt::Result {
        let recorded = Recorded::of(&fields);
        let (mut before, mut between) = ("", " ");
        if let Some(message) = &recorded.message {
            writer.write_str(message)?;
            (before, between) = (self.0, self.0);
        }
        for (name, value) in &recorded.values {
            writer.write_str(before)?;
            write_pair(&mut writer, name, value)?;
            before = between;
        }
        Ok(())
    }
}

/// Writes `name=value`; a text is quoted unless it is one word.
fn write_pair(writer: &mut Writer<'_>, name: &str, value: &Value) -> fmt::Result {
    if writer.has_ansi_escapes() {
        write!(writer, "\u{1b}[3m{name}\u{1b}[0m\u{1b}[2m=\u{1b}[0m")?;
    } else {
        write!(writer, "{name}=")?;
    }
    match value {
        Value::String(text) if !is_word(text) => {
            let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
            write!(writer, "\"{escaped}\"")
        }
        Value::String(text) => writer.write_str(text),
        other => write!(writer, "{other}"),
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || matches!(c, '"' | '='))
}
