//! Logs: `tracing` events as JSON lines, in the format of the Go library zap.
//!
//! Code logs with the macros of `tracing`. A [`Logger`] writes the events of the threads on which it is
//! installed; see [`Logger::install`]. Each server of a process can have a separate log.
//!
//! Clients cannot flood a log: at most [`LINES_PER_SECOND_MAX`] lines of one place in the code are written in a second.
//! Further ones are left out, and a line after them says how many.

mod format;
mod limit;
mod options;
mod rotation;

use std::{
    cell::RefCell,
    fs::{File, OpenOptions},
    io::{self, Write},
    path::PathBuf,
    sync::Arc,
};

use tracing::{
    Dispatch,
    dispatcher::{self, DefaultGuard},
    level_filters::LevelFilter,
};
use tracing_subscriber::{filter::Targets, layer::SubscriberExt};

use limit::LineLimit;

pub use format::timestamp;
pub use limit::LINES_PER_SECOND_MAX;
pub use options::{LogLevel, LogOptions, LogOutput};
pub use rotation::LogRotation;

/// A log that is open for writing. Clones write to the same outputs.
///
/// ```
/// use revstore_host::logging::{Logger, LogOptions};
///
/// let log = Logger::open(&LogOptions::new())?;
/// let _guard = log.install();
/// // {"level":"info","ts":"2026-01-31T12:00:00.000000Z","caller":"src/main.rs:7","msg":"listening","port":2379}
/// tracing::info!(target: "revstore", port = 2379, "listening");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Logger {
    dispatch: Dispatch,
}

/// A log file could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the log {}: {source}", path.display())]
pub struct LogOpenError {
    path: PathBuf,
    source: io::Error,
}

impl Logger {
    /// Opens the outputs.
    ///
    /// # Errors
    /// A file cannot be opened.
    pub fn open(options: &LogOptions) -> Result<Self, LogOpenError> {
        let outputs = options.outputs.iter().map(Output::open);
        let outputs = Arc::new(Outputs(outputs.collect::<Result<_, _>>()?));
        let level = match options.level {
            LogLevel::Debug => LevelFilter::DEBUG,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Error => LevelFilter::ERROR,
            // No event has these levels.
            LogLevel::Panic | LogLevel::Fatal => LevelFilter::OFF,
        };
        let lines = tracing_subscriber::fmt::layer()
            .event_format(format::JsonLine)
            .with_writer(outputs.clone())
            // The failure of an output cannot be reported in the log.
            .log_internal_errors(false);
        let targets = options.targets.iter().map(|target| (target, level));
        let filter = Targets::new().with_targets(targets);
        let subscriber = tracing_subscriber::registry()
            .with(filter)
            .with(LineLimit::new(outputs))
            .with(lines);
        Ok(Self {
            dispatch: Dispatch::new(subscriber),
        })
    }

    /// Writes the events of the current thread to this log, until the guard is dropped.
    #[must_use = "the log is removed from the thread when the guard is dropped"]
    pub fn install(&self) -> DefaultGuard {
        dispatcher::set_default(&self.dispatch)
    }

    /// Writes the events of a runtime's threads to this log. The thread that calls `block_on` is not a thread
    /// of the runtime.
    ///
    /// The log is looked up when an event is written. Code without events has no cost.
    pub fn install_on_runtime(&self, runtime: &mut tokio::runtime::Builder) {
        thread_local! {
            static GUARD: RefCell<Option<DefaultGuard>> = const { RefCell::new(None) };
        }
        let log = self.clone();
        runtime
            .on_thread_start(move || GUARD.set(Some(log.install())))
            .on_thread_stop(|| drop(GUARD.take()));
    }
}

/// The outputs of a log. Each write contains one line.
#[derive(Debug)]
struct Outputs(Vec<Output>);

#[derive(Debug)]
enum Output {
    Stderr,
    Stdout,
    Rotated(Box<rotation::RotatedFile>),
    /// The file is open for appending: the system appends each line as a whole, so no lock is needed.
    File(File),
}

impl Output {
    fn open(output: &LogOutput) -> Result<Self, LogOpenError> {
        Ok(match output {
            LogOutput::Stderr => Self::Stderr,
            LogOutput::Stdout => Self::Stdout,
            LogOutput::RotatedFile(path, rotation) => {
                let file = rotation::RotatedFile::open(path, *rotation);
                Self::Rotated(Box::new(file.map_err(|source| LogOpenError {
                    path: path.clone(),
                    source,
                })?))
            }
            LogOutput::File(path) => {
                let file = OpenOptions::new().append(true).create(true).open(path);
                Self::File(file.map_err(|source| LogOpenError {
                    path: path.clone(),
                    source,
                })?)
            }
        })
    }
}

impl Write for &Outputs {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        for output in &self.0 {
            // After a failure, such as a closed pipe, the line is still written to the other outputs.
            let _ = match output {
                Output::Stderr => io::stderr().lock().write_all(line),
                Output::Stdout => io::stdout().lock().write_all(line),
                Output::Rotated(file) => file.write(line),
                Output::File(file) => (&*file).write_all(line),
            };
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lines that `events` writes at a level.
    fn written(level: LogLevel, events: impl FnOnce(&Logger)) -> String {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let options = LogOptions::new()
            .level(level)
            .outputs([LogOutput::File(path.clone())]);
        let log = Logger::open(&options).unwrap();
        let guard = log.install();
        events(&log);
        drop(guard);
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn fl_12_lines_are_json_objects() {
        let line = written(LogLevel::Info, |_| {
            let roles = vec!["a\"b".to_owned(), "c".to_owned()];
            tracing::info!(address = %"[::]:1", path = "C:\\", "kept-alive" = 3, ?roles, up = true, "a \"b\"\n");
        });
        let (start, end) = line.split_once("Z\"").unwrap();
        assert_eq!(
            start.len(),
            r#"{"level":"info","ts":"1970-01-01T00:00:00.000000"#.len()
        );
        assert!(start.starts_with(r#"{"level":"info","ts":""#), "{start}");
        let (caller, end) = end.split_once("\",\"msg\"").unwrap();
        assert!(
            caller.starts_with(",\"caller\":\"logging/mod.rs:"),
            "{caller}"
        );
        assert_eq!(
            end,
            ":\"a \\\"b\\\"\\n\",\"address\":\"[::]:1\",\"path\":\"C:\\\\\",\
             \"kept-alive\":3,\"roles\":[\"a\\\"b\",\"c\"],\"up\":true}\n"
        );
    }

    #[test]
    fn errors_are_written_with_their_sources() {
        #[derive(Debug, thiserror::Error)]
        #[error("{message}")]
        struct Outer {
            message: &'static str,
            source: io::Error,
        }
        let check = |message, expected: &str| {
            let text = written(LogLevel::Info, |_| {
                let source = io::Error::other("disk full");
                let error: &(dyn std::error::Error + 'static) = &Outer { message, source };
                tracing::info!(error, "failed");
            });
            let expected = format!("\"msg\":\"failed\",\"error\":\"{expected}\"}}\n");
            assert!(text.ends_with(&expected), "{text}");
        };
        check("cannot write", "cannot write: disk full");
        check("cannot write: disk full", "cannot write: disk full");
    }

    #[test]
    fn a_place_that_floods_the_log_is_limited_and_its_lines_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let options = LogOptions::new().outputs([LogOutput::File(path.clone())]);
        let log = Logger::open(&options).unwrap();
        let guard = log.install();
        for number in 0..10_000 {
            tracing::info!(number, "flood");
        }
        tracing::info!("other");
        drop(guard);
        // The line with the count is written when the second has ended.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        let (mut floods, mut left_out) = (0, 0);
        while floods + left_out < 10_000 && std::time::Instant::now() < deadline {
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.contains("\"other\""), "{text}");
            floods = text
                .lines()
                .filter(|line| line.contains("\"flood\",\"number"))
                .count();
            let counts = text.lines().filter_map(|line| {
                let (_, count) = line.split_once(
                    "\"msg\":\"log lines left out\",\"message\":\"flood\",\"lines\":",
                )?;
                count.trim_end_matches('}').parse::<usize>().ok()
            });
            left_out = counts.sum();
            std::thread::park_timeout(std::time::Duration::from_millis(10));
        }
        assert_eq!(floods + left_out, 10_000);
        // The loop takes far less than 50 seconds.
        assert!(floods < 5_000, "{floods} lines");
    }

    #[test]
    fn events_of_runtime_threads_are_written() {
        let text = written(LogLevel::Info, |log| {
            let mut runtime = tokio::runtime::Builder::new_multi_thread();
            log.install_on_runtime(&mut runtime);
            let runtime = runtime.worker_threads(1).build().unwrap();
            let task = runtime.spawn(async { tracing::info!("from a task") });
            runtime.block_on(task).unwrap();
        });
        assert!(text.ends_with("\"msg\":\"from a task\"}\n"), "{text}");
    }

    #[test]
    fn fl_12_lines_below_the_level_are_omitted() {
        let text = written(LogLevel::Warn, |_| {
            tracing::info!("omitted");
            tracing::warn!("written");
            tracing::error!(target: "hyper", "omitted");
        });
        assert!(!text.contains("omitted"), "{text}");
        assert!(text.ends_with("\"msg\":\"written\"}\n"), "{text}");
    }
}
