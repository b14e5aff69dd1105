//! Layouts of events whose counterparts in tracing-subscriber take values as they come: JSON, and one line a field.

use super::fields::{Recorded, write_pair};
use serde_json::Value;
use std::fmt;
use tracing::span::Record;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::{LookupSpan, Scope};

/// For people: an event begins with two spaces, its fields and spans with four, and a blank line ends it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pretty;

/// For programs: an event is a JSON object on a line of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Json;

impl<S, N> FormatEvent<S, N> for Pretty
where
    S: Subscriber + for<'l> LookupSpan<'l>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let (metadata, recorded) = (event.metadata(), Recorded::of(event));
        let message = recorded.message.unwrap_or_default();
        writer.write_str("  ")?;
        SystemTime.format_time(&mut writer)?;
        let (colour, plain) =
            if writer.has_ansi_escapes() { (colour(*metadata.level()), "\u{1b}[0m") } else { ("", "") };
        writeln!(writer, " {colour}{:>5}{plain} {}: {message}", metadata.level(), metadata.target())?;
        for (name, value) in &recorded.values {
            writer.write_str("    ")?;
            write_pair(&mut writer, name, value)?;
            writer.write_char('\n')?;
        }
        for span in context.event_scope().into_iter().flatten() {
            write!(writer, "    in {}", span.name())?;
            let extensions = span.extensions();
            if let Some(fields) = extensions.get::<FormattedFields<N>>().filter(|fields| !fields.is_empty()) {
                write!(writer, " with {fields}")?;
            }
            writer.write_char('\n')?;
        }
        writer.write_char('\n')
    }
}

fn colour(level: Level) -> &'static str {
    match level {
        Level::ERROR => "\u{1b}[31m",
        Level::WARN => "\u{1b}[33m",
        Level::INFO => "\u{1b}[32m",
        Level::DEBUG => "\u{1b}[34m",
        Level::TRACE => "\u{1b}[35m",
    }
}

/// The fields of a span, as the members of a JSON object.
impl<'w> FormatFields<'w> for Json {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'w>, fields: R) -> fmt::Result {
        writer.write_str(&members(Recorded::of(&fields)))
    }

    fn add_fields(&self, current: &'w mut FormattedFields<Self>, fields: &Record<'_>) -> fmt::Result {
        if !current.is_empty() {
            current.fields.push(',');
        }
        self.format_fields(current.as_writer(), fields)
    }
}

/// The members are tracing-subscriber's, with an event's fields beside them.
impl<S> FormatEvent<S, Self> for Json
where
    S: Subscriber + for<'l> LookupSpan<'l>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, Self>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let (level, target) = (event.metadata().level().as_str(), event.metadata().target());
        write!(writer, "{{{},{}", member("timestamp", time), member("level", level))?;
        for members in [members(Recorded::of(event)), member("target", target)] {
            if !members.is_empty() {
                write!(writer, ",{members}")?;
            }
        }
        let scope = context.event_scope().into_iter().flat_map(Scope::from_root);
        let spans: Vec<String> = scope
            .map(|span| {
                let extensions = span.extensions();
                let fields = extensions.get::<FormattedFields<Self>>().filter(|fields| !fields.is_empty());
                let fields = fields.map(|fields| format!("{fields},")).unwrap_or_default();
                format!("{{{fields}{}}}", member("name", span.name()))
            })
            .collect();
        if let Some(innermost) = spans.last() {
            write!(writer, ",\"span\":{innermost},\"spans\":[{}]", spans.join(","))?;
        }
        writer.write_str("}\n")
    }
}

fn members(recorded: Recorded) -> String {
    let message = recorded.message.map(|message| member("message", message));
    let values = recorded.values.into_iter().map(|(name, value)| member(name, value));
    message.into_iter().chain(values).collect::<Vec<_>>().join(",")
}

fn member(name: &str, value: impl Into<Value>) -> String {
    format!("{}:{}", Value::from(name), value.into())
}
