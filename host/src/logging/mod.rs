//! Logs: `tracing` events as JSON lines, in the format of the Go library zap.
//!
//! Code logs with the macros of `tracing`. A [`Logger`] writes the events of the threads on which it is
//! installed; see [`Logger::install`]. Each server of a process can have a separate log.

mod format;
mod options;

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

pub use options::{LogLevel, LogOptions, LogOutput};

/// A log that is open for writing. Clones write to the same outputs.
///
/// ```
/// use revstore_host::logging::{Logger, LogOptions};
///
/// let log = Logger::open(&LogOptions::new())?;
/// let _guard = log.install();
/// // {"level":"info","ts":"2026-01-31T12:00:00.000000Z","msg":"listening","port":"2379"}
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
        let outputs = Outputs(outputs.collect::<Result<_, _>>()?);
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
            .with_writer(Arc::new(outputs))
            // The failure of an output cannot be reported in the log.
            .log_internal_errors(false);
        let targets = options.targets.iter().map(|target| (target, level));
        let filter = Targets::new().with_targets(targets);
        let subscriber = tracing_subscriber::registry().with(filter).with(lines);
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
struct Outputs(Vec<Output>);

enum Output {
    Stderr,
    Stdout,
    /// The file is open for appending: the system appends each line as a whole, so no lock is needed.
    File(File),
}

impl Output {
    fn open(output: &LogOutput) -> Result<Self, LogOpenError> {
        Ok(match output {
            LogOutput::Stderr => Self::Stderr,
            LogOutput::Stdout => Self::Stdout,
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
            tracing::info!(address = %"[::]:1", path = "C:\\", "kept-alive" = 3, "a \"b\"\n");
        });
        let (start, end) = line.split_once("Z\"").unwrap();
        assert_eq!(
            start.len(),
            r#"{"level":"info","ts":"1970-01-01T00:00:00.000000"#.len()
        );
        assert!(start.starts_with(r#"{"level":"info","ts":""#), "{start}");
        assert_eq!(
            end,
            ",\"msg\":\"a \\\"b\\\"\\n\",\
             \"address\":\"[::]:1\",\"path\":\"C:\\\\\",\"kept-alive\":\"3\"}\n"
        );
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
