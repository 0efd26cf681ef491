//! Logs: one JSON object per line, in the shape of etcd's logger zap: `level`, `ts`, `msg`, then the
//! fields (FL-12).

use std::{
    fmt::{self, Write as _},
    fs::{File, OpenOptions},
    io::{self, Write as _},
    path::PathBuf,
    sync::Arc,
    time::SystemTime,
};

use time::{
    UtcDateTime,
    format_description::well_known::{
        Iso8601,
        iso8601::{Config, EncodedConfig, TimePrecision},
    },
};

use crate::config::{LogLevel, LogOptions, LogOutput};

/// RFC 3339 with microseconds.
const TIMESTAMP: EncodedConfig = Config::DEFAULT
    .set_time_precision(TimePrecision::Second {
        decimal_digits: std::num::NonZeroU8::new(6),
    })
    .encode();

/// Where a server tells what happens. Clones write to the same places.
#[derive(Clone, Debug)]
pub struct Log {
    level: LogLevel,
    outputs: Arc<[Output]>,
}

#[derive(Debug)]
enum Output {
    Stderr,
    Stdout,
    /// Opened for appending, so that each line lands whole at the end without a lock.
    File(File),
}

/// A key and its value. All values are written as strings.
pub type Field<'a> = (&'a str, &'a dyn fmt::Display);

impl Log {
    /// Opens the files of a configuration; fails with the one that cannot be opened.
    pub fn open(config: &LogOptions) -> Result<Self, (PathBuf, io::Error)> {
        let outputs = config.outputs.iter().map(|output| match output {
            LogOutput::Stderr => Ok(Output::Stderr),
            LogOutput::Stdout => Ok(Output::Stdout),
            LogOutput::File(path) => OpenOptions::new()
                .append(true)
                .create(true)
                .open(path)
                .map(Output::File)
                .map_err(|error| (path.clone(), error)),
        });
        Ok(Self {
            level: config.level,
            outputs: outputs.collect::<Result<_, _>>()?,
        })
    }

    /// A log that nobody reads.
    pub fn silent() -> Self {
        Self {
            level: LogLevel::Fatal,
            outputs: Arc::new([]),
        }
    }

    /// For finding faults in the server.
    pub fn debug(&self, message: &str, fields: &[Field<'_>]) {
        self.write(LogLevel::Debug, message, fields);
    }

    /// What happens.
    pub fn info(&self, message: &str, fields: &[Field<'_>]) {
        self.write(LogLevel::Info, message, fields);
    }

    /// What should not happen.
    pub fn warn(&self, message: &str, fields: &[Field<'_>]) {
        self.write(LogLevel::Warn, message, fields);
    }

    /// What failed.
    pub fn error(&self, message: &str, fields: &[Field<'_>]) {
        self.write(LogLevel::Error, message, fields);
    }

    fn write(&self, level: LogLevel, message: &str, fields: &[Field<'_>]) {
        if level < self.level || self.outputs.is_empty() {
            return;
        }
        let line = line(SystemTime::now(), level, message, fields);
        for output in &*self.outputs {
            // Whoever closed an output does not want to know; there is nobody else to tell.
            let _ = match output {
                Output::Stderr => io::stderr().lock().write_all(line.as_bytes()),
                Output::Stdout => io::stdout().lock().write_all(line.as_bytes()),
                Output::File(file) => (&*file).write_all(line.as_bytes()),
            };
        }
    }
}

fn line(time: SystemTime, level: LogLevel, message: &str, fields: &[Field<'_>]) -> String {
    let mut line = format!(
        r#"{{"level":"{}","ts":"{}","msg":{}"#,
        name(level),
        timestamp(time),
        serde_json::Value::from(message)
    );
    for (key, value) in fields {
        // Writing to a String cannot fail.
        let value = value.to_string();
        let _ = write!(
            line,
            ",{}:{}",
            serde_json::Value::from(*key),
            serde_json::Value::from(value)
        );
    }
    line.push_str("}\n");
    line
}

/// Returns a time in UTC with microseconds; empty for a year that RFC 3339 cannot express.
fn timestamp(time: SystemTime) -> String {
    UtcDateTime::from(time)
        .format(&Iso8601::<TIMESTAMP>)
        .unwrap_or_default()
}

fn name(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warn => "warn",
        LogLevel::Error => "error",
        LogLevel::Panic => "panic",
        LogLevel::Fatal => "fatal",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fl_12_lines_are_json_objects() {
        let line = line(
            SystemTime::UNIX_EPOCH,
            LogLevel::Info,
            "a \"b\"\n",
            &[("address", &"[::]:1"), ("path", &"C:\\")],
        );
        assert_eq!(
            line,
            "{\"level\":\"info\",\"ts\":\"1970-01-01T00:00:00.000000Z\",\"msg\":\"a \\\"b\\\"\\n\",\
             \"address\":\"[::]:1\",\"path\":\"C:\\\\\"}\n"
        );
    }

    #[test]
    fn fl_12_lines_below_the_level_are_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let log = Log::open(
            &LogOptions::new()
                .level(LogLevel::Warn)
                .outputs([LogOutput::File(path.clone())]),
        )
        .unwrap();
        log.info("left out", &[]);
        log.warn("written", &[]);
        let text = std::fs::read_to_string(path).unwrap();
        assert!(!text.contains("left out"), "{text}");
        assert!(text.ends_with("\"msg\":\"written\"}\n"), "{text}");
    }

    #[test]
    fn timestamps_have_microseconds() {
        let check = |microseconds, expected: &str| {
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_micros(microseconds);
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
