//! Formats log events as JSON, one object a line, for programs that collect logs.
//!
//! The feature `json` of tracing-subscriber is not used: a line past the bound would be cut in the middle of an object,
//! and characters that move a terminal's cursor would be written as they are.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use model::escape::{cut_for_json, escaped};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Maximum length of a line in bytes. Text of clients is cut long before; this bounds all other foreign text.
pub(super) const MAX_LINE_BYTES: usize = 16 << 10;
/// Maximum part of a line for what is not a string of a field: names, numbers and time.
const NAMES_BYTES: usize = MAX_LINE_BYTES / 4;

/// Format of lines with `timestamp`, `level`, `message` and the event's fields, in this order.
#[derive(Debug)]
pub(super) struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let message = fields.0.shift_remove("message").unwrap_or_default();
        let mut object = head(*event.metadata().level(), message);
        object.extend(fields.0);
        writeln!(writer, "{}", line(object))
    }
}

/// A warning of the log itself.
pub(super) fn warning(message: &str) -> String {
    line(head(Level::WARN, message.into()))
}

fn head(level: Level, message: Value) -> Map<String, Value> {
    let mut time = String::new();
    // Writing to a string does not fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    let head = [("timestamp", time.into()), ("level", level.as_str().into()), ("message", message)];
    head.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
}

/// An object in one line of at most [`MAX_LINE_BYTES`]; past it, strings are cut.
fn line(mut object: Map<String, Value>) -> String {
    let line = to_line(&object);
    if line.len() <= MAX_LINE_BYTES {
        return line;
    }
    // An escaped character can take three times as many bytes as it has in plain JSON.
    let most = (MAX_LINE_BYTES - NAMES_BYTES) / (3 * object.len().max(1));
    for value in object.values_mut() {
        if let Value::String(text) = value {
            *text = cut_for_json(text, most).into_owned();
        }
    }
    to_line(&object)
}

/// JSON with escapes for all that [`escaped`] escapes. JSON itself escapes ASCII's, and others are in strings alone.
fn to_line(object: &Map<String, Value>) -> String {
    let json = Value::from(object.clone()).to_string();
    if matches!(escaped(&json), Cow::Borrowed(_)) {
        return json;
    }
    let mut line = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match escaped(c.encode_utf8(&mut [0; 4])) {
            Cow::Borrowed(text) => line.push_str(text),
            // None is past the basic plane, where JSON needs two. Writing to a string does not fail.
            Cow::Owned(_) => drop(write!(line, "\\u{:04x}", u32::from(c))),
        }
    }
    line
}

/// Fields of an event, each of the type that it was logged with.
#[derive(Debug, Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(fields: &[(&str, &str)]) -> Map<String, Value> {
        fields.iter().map(|(name, text)| ((*name).to_owned(), Value::from(*text))).collect()
    }

    #[test]
    fn no_text_moves_a_cursor_or_is_more_than_a_line_and_a_parser_reads_it_as_it_was() {
        for text in
            ["Größe \u{1f600}", "a\nb\r\t\"\\", "\u{1b}[2J\u{7f}\u{9b}1A", "\u{2028}\u{202e}"]
        {
            let fields = object(&[("name", text)]);
            let line = line(fields.clone());
            assert_eq!(escaped(&line), line);
            assert_eq!(serde_json::from_str::<Map<String, Value>>(&line).unwrap(), fields);
        }
    }

    #[test]
    fn a_long_line_is_cut_and_stays_an_object_with_all_its_fields() {
        for c in ["x", "ü", "\u{1b}", "\u{2028}", "\u{9b}", "\""] {
            let long = c.repeat(MAX_LINE_BYTES);
            let fields = [("timestamp", "now"), ("message", &long), ("a", &long), ("b", "short")];
            let line = line(object(&fields));
            assert!(line.len() <= MAX_LINE_BYTES, "{c:?}: {}", line.len());
            let read: Map<String, Value> = serde_json::from_str(&line).unwrap();
            assert_eq!(read["b"], "short");
            assert!(
                read["message"].as_str().is_some_and(|it| it.starts_with(c) && it.ends_with('…'))
            );
        }
    }
}
