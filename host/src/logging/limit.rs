//! The limit on lines of one place in the code.

use std::{
    collections::HashMap,
    io::Write as _,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tracing::{Event, Metadata, Subscriber, callsite};
use tracing_subscriber::layer::{Context, Layer};

use super::{
    Outputs,
    format::{self, LogFields},
};

/// The number of lines of one place in the code that a log writes in a second, as in etcd. Further ones are left out
/// and counted.
pub const LINES_PER_SECOND_MAX: u64 = 100;

/// The time for which lines are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// A layer that leaves out the lines above the limit.
#[derive(Debug)]
pub(super) struct LineLimit {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    outputs: Arc<Outputs>,
    /// A leaf lock, held for one look or change.
    window: Mutex<Window>,
}

/// The lines since the start of a window.
#[derive(Debug, Default)]
struct Window {
    start: Option<Instant>,
    /// One entry for each place that has logged. The number of places in a program is fixed.
    places: HashMap<callsite::Identifier, Place>,
    /// Whether a thread waits to report the lines that were left out.
    has_reporter: bool,
}

/// The lines of one place.
#[derive(Debug)]
struct Place {
    metadata: &'static Metadata<'static>,
    written: u64,
    left_out: u64,
    /// The message of the first line that was left out.
    message: String,
}

impl LineLimit {
    pub(super) fn new(outputs: Arc<Outputs>) -> Self {
        Self {
            shared: Arc::new(Shared {
                outputs,
                window: Mutex::default(),
            }),
        }
    }
}

impl<S: Subscriber> Layer<S> for LineLimit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let now = Instant::now();
        let mut window = self.shared.window.lock();
        let is_over = window.start.is_none_or(|start| now >= start + WINDOW);
        let ended = if is_over {
            window.start = Some(now);
            window.places.drain().map(|(_, place)| place).collect()
        } else {
            Vec::new()
        };
        let metadata = event.metadata();
        let place = window.places.entry(metadata.callsite());
        let place = place.or_insert_with(|| Place::new(metadata));
        let is_written = place.count(event);
        let starts_reporter = !is_written && !window.has_reporter;
        window.has_reporter |= starts_reporter;
        drop(window);
        self.shared.report(ended);
        if starts_reporter {
            let shared = self.shared.clone();
            let reporter = thread::Builder::new().name("revstore-log".to_owned());
            if reporter
                .spawn(move || shared.report_after_window())
                .is_err()
            {
                // The next line after the window reports.
                self.shared.window.lock().has_reporter = false;
            }
        }
        is_written
    }
}

impl Shared {
    /// Waits for the end of the window, so that the count is also written if no other line follows.
    fn report_after_window(&self) {
        thread::sleep(WINDOW);
        let mut window = self.window.lock();
        window.has_reporter = false;
        window.start = None;
        let ended = window.places.drain().map(|(_, place)| place).collect();
        drop(window);
        self.report(ended);
    }

    fn report(&self, ended: Vec<Place>) {
        for place in ended.into_iter().filter(|place| place.left_out > 0) {
            let mut fields = LogFields::default();
            "log lines left out".clone_into(&mut fields.message);
            fields.add("message", serde_json::Value::from(place.message));
            fields.add("lines", place.left_out);
            // A failure of an output cannot be reported in the log.
            let _ = (&*self.outputs).write_all(format::line(place.metadata, &fields).as_bytes());
        }
    }
}

impl Place {
    fn new(metadata: &'static Metadata<'static>) -> Self {
        Self {
            metadata,
            written: 0,
            left_out: 0,
            message: String::new(),
        }
    }

    /// Counts a line and returns whether it is written.
    fn count(&mut self, event: &Event<'_>) -> bool {
        if self.written < LINES_PER_SECOND_MAX {
            self.written += 1;
            return true;
        }
        if self.left_out == 0 {
            let mut fields = LogFields::default();
            event.record(&mut fields);
            self.message = fields.message;
        }
        self.left_out += 1;
        false
    }
}
