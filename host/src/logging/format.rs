//! The format of a log line.

use std::{
    error::Error,
    fmt::{self, Write as _},
    num::NonZeroU8,
    time::SystemTime,
};

use time::{
    UtcDateTime,
    format_description::well_known::{
        Iso8601,
        iso8601::{Config, EncodedConfig, TimePrecision},
    },
};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

/// RFC 3339 with microseconds.
const TIMESTAMP: EncodedConfig = Config::DEFAULT
    .set_time_precision(TimePrecision::Second {
        decimal_digits: NonZeroU8::new(6),
    })
    .encode();

/// Formats an event as a JSON object with zap's keys `level`, `ts`, `caller` and `msg`, followed by the fields of the
/// event.
///
/// Numbers and booleans are values of their type, a list of strings in Debug format (`?list`) is a list, and all other
/// values are strings. An error that is recorded as `dyn Error` is written with its sources.
pub(super) struct JsonLine;

impl<S, N> FormatEvent<S, N> for JsonLine
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
        let mut fields = LogFields::default();
        event.record(&mut fields);
        writer.write_str(&line(event.metadata(), &fields))
    }
}

/// Returns a line with the level and the place of `metadata`.
pub(super) fn line(metadata: &Metadata<'_>, fields: &LogFields) -> String {
    format!(
        "{{\"level\":\"{}\",\"ts\":\"{}\",\"caller\":{},\"msg\":{}{}}}\n",
        level(*metadata.level()),
        timestamp(SystemTime::now()),
        json(&caller(metadata)),
        json(&fields.message),
        fields.others
    )
}

/// Returns the file and line of an event, with the folder of the file, as zap does.
fn caller(metadata: &Metadata<'_>) -> String {
    let path = metadata.file().unwrap_or_default();
    let folder = path.rfind('/').and_then(|end| path[..end].rfind('/'));
    let short = folder.map_or(path, |end| &path[end + 1..]);
    format!("{short}:{}", metadata.line().unwrap_or_default())
}

/// The fields of an event.
#[derive(Default)]
pub(super) struct LogFields {
    pub(super) message: String,
    /// The other fields in JSON, with a comma before each.
    others: String,
}

impl LogFields {
    pub(super) fn add(&mut self, name: &str, value: impl fmt::Display) {
        // Writing to a String cannot fail.
        let _ = write!(self.others, ",{}:{value}", json(name));
    }
}

impl Visit for LogFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        let is_list = text.starts_with('[') && field.name() != "message";
        match serde_json::from_str::<Vec<String>>(&text) {
            Ok(list) if is_list => self.add(field.name(), serde_json::Value::from(list)),
            _ => self.record_str(field, &text),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            self.add(field.name(), json(value));
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field.name(), value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.record_str(field, &chain(value));
    }
}

/// Returns the text of an error and of its sources. A source whose text is part of the text before it is left out:
/// many errors contain their source in their text.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            // Writing to a String cannot fail.
            let _ = write!(text, ": {cause}");
        }
        source = error.source();
    }
    text
}

/// Returns a text as a JSON string, with its quotes.
fn json(text: &str) -> serde_json::Value {
    text.into()
}

/// Returns a time as in `ts`, in UTC with microseconds, or an empty text if RFC 3339 cannot express the year.
pub fn timestamp(time: SystemTime) -> String {
    let time = UtcDateTime::from(time);
    time.format(&Iso8601::<TIMESTAMP>).unwrap_or_default()
}

/// Returns zap's name of a level.
fn level(level: Level) -> &'static str {
    match level {
        Level::TRACE | Level::DEBUG => "debug",
        Level::INFO => "info",
        Level::WARN => "warn",
        Level::ERROR => "error",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn timestamps_have_microseconds() {
        let check = |microseconds, expected: &str| {
            let time = SystemTime::UNIX_EPOCH + Duration::from_micros(microseconds);
            assert_eq!(timestamp(time), expected);
        };
        check(0, "1970-01-01T00:00:00.000000Z");
        check(951_782_399_000_001, "2000-02-28T23:59:59.000001Z");
        check(951_782_400_000_000, "2000-02-29T00:00:00.000000Z");
        check(1_735_689_599_999_999, "2024-12-31T23:59:59.999999Z");
        check(1_735_689_600_000_000, "2025-01-01T00:00:00.000000Z");
        check(4_107_542_400_000_000, "2100-03-01T00:00:00.000000Z");
    }
}
