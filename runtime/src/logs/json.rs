//! Events as JSON. tracing-subscriber's own layout takes values as they come.

use super::fields::Recorded;
use serde_json::Value;
use std::fmt;
use tracing::span::Record;
use tracing::{Event, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::{LookupSpan, Scope};

/// For programs: an event is a JSON object on a line of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Json;

/// The fields of a span, as the members of a JSON object.
impl<'w> FormatFields<'w> for Json {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'w>, fields: R) -> fmt::Result {
        writer.write_str(&members(Recorded::of(&fields)))
    }

    fn add_fields(
        &self,
        current: &'w mut FormattedFields<Self>,
        fields: &Record<'_>,
    ) -> fmt::Result {
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
        write!(
            writer,
            "{{{},{}",
            member("timestamp", time),
            member("level", level)
        )?;
        for members in [members(Recorded::of(event)), member("target", target)] {
            if !members.is_empty() {
                write!(writer, ",{members}")?;
            }
        }
        let scope = context.event_scope().into_iter().flat_map(Scope::from_root);
        let spans: Vec<String> = scope
            .map(|span| {
                let extensions = span.extensions();
                let fields = extensions
                    .get::<FormattedFields<Self>>()
                    .filter(|fields| !fields.is_empty());
                let fields = fields
                    .map(|fields| format!("{fields},"))
                    .unwrap_or_default();
                format!("{{{fields}{}}}", member("name", span.name()))
            })
            .collect();
        if let Some(innermost) = spans.last() {
            write!(
                writer,
                ",\"span\":{innermost},\"spans\":[{}]",
                spans.join(",")
            )?;
        }
        writer.write_str("}\n")
    }
}

fn members(recorded: Recorded) -> String {
    let message = recorded.message.map(|message| member("message", message));
    let values = recorded
        .values
        .into_iter()
        .map(|(name, value)| member(name, value));
    message
        .into_iter()
        .chain(values)
        .collect::<Vec<_>>()
        .join(",")
}

fn member(name: &str, value: impl Into<Value>) -> String {
    format!("{}:{}", Value::from(name), value.into())
}
