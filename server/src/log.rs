//! The log: one JSON object a line, with etcd's keys `level`, `ts` and `msg` (FL-12).
//!
//! A handle that is passed to who has something to say, not a global: several servers in one
//! process have a log each, and an embedded one is silent unless asked. Not `tracing`: a server in
//! a test logs a dozen lines in its life, and none on the way of a request.

use std::{
    fmt::{self, Write as _},
    fs::{File, OpenOptions},
    io::{self, Write as _},
    path::PathBuf,
    sync::Arc,
    time::SystemTime,
};

use revstore_host::config::{LogLevel, LogOptions, LogOutput};

use crate::{json, timestamp::Timestamp};

/// Where a server tells what happens. Clones write to the same places.
#[derive(Clone, Debug)]
pub(crate) struct Log {
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
pub(crate) type Field<'a> = (&'a str, &'a dyn fmt::Display);

impl Log {
    /// Opens the files of a configuration; fails with the one that cannot be opened.
    pub(crate) fn open(config: &LogOptions) -> Result<Self, (PathBuf, io::Error)> {
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
    pub(crate) fn silent() -> Self {
        Self {
            level: LogLevel::Fatal,
            outputs: Arc::new([]),
        }
    }

    /// For finding faults in the server.
    pub(crate) fn debug(&self, message: &str, fields: &[Field<'_>]) {
        self.write(LogLevel::Debug, message, fields);
    }

    /// What happens.
    pub(crate) fn info(&self, message: &str, fields: &[Field<'_>]) {
        self.write(LogLevel::Info, message, fields);
    }

    /// What should not happen.
    pub(crate) fn warn(&self, message: &str, fields: &[Field<'_>]) {
        self.write(LogLevel::Warn, message, fields);
    }

    /// What failed.
    pub(crate) fn error(&self, message: &str, fields: &[Field<'_>]) {
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
        Timestamp::from(time),
        json::Text(message)
    );
    for (key, value) in fields {
        // Writing to a String cannot fail.
        let value = value.to_string();
        let _ = write!(line, ",{}:{}", json::Text(key), json::Text(&value));
    }
    line.push_str("}\n");
    line
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
        let mut options = LogOptions::default();
        options.level = LogLevel::Warn;
        options.outputs = vec![LogOutput::File(path.clone())];
        let log = Log::open(&options).unwrap();
        log.info("left out", &[]);
        log.warn("written", &[]);
        let text = std::fs::read_to_string(path).unwrap();
        assert!(!text.contains("left out"), "{text}");
        assert!(text.ends_with("\"msg\":\"written\"}\n"), "{text}");
    }
}
