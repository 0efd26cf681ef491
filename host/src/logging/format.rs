//! The format of a log line.

use std::{
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
    Event, Level, Subscriber,
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

/// Formats an event as a JSON object with zap's keys `level`, `ts` and `msg`, followed by the fields
/// of the event. The values of all fields are strings.
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
        writeln!(
            writer,
            r#"{{"level":"{}","ts":"{}","msg":{}{}}}"#,
            level(*event.metadata().level()),
            timestamp(SystemTime::now()),
            json(&fields.message),
            fields.others
        )
    }
}

/// The fields of an event.
#[derive(Default)]
struct LogFields {
    message: String,
    /// The other fields in JSON, with a comma before each.
    others: String,
}

impl Visit for LogFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            // Writing to a String cannot fail.
            let _ = write!(self.others, ",{}:{}", json(field.name()), json(value));
        }
    }
}

/// Returns a text as a JSON string, with its quotes.
fn json(text: &str) -> serde_json::Value {
    text.into()
}

/// Returns a time in UTC with microseconds, or an empty text if RFC 3339 cannot express the year.
fn timestamp(time: SystemTime) -> String {
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
