//! State and settings that all resources of a cache share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use revstore_engine::{Clock, Revision};

use crate::api::status::RequestError;
use crate::cache::watermark::Watermark;
use crate::source::{Source, SourceError};
use crate::wake::subscriber::Signal;
use crate::wake::timer_queue::Timers;

/// What all resources of a cache share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) timers: Arc<Timers>,
    pub(crate) watermark: Watermark,
    pub(crate) settings: Settings,
    pub(crate) stopped: AtomicBool,
    /// What the feeder sleeps on.
    pub(crate) feeder: Signal,
    /// Whether some resource waits to be loaded.
    to_load: AtomicBool,
    /// Whether the source was seen at a revision before the watermark.
    went_back: AtomicBool,
}

/// The numbers that a cache is set up with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) freshness_wait: Duration,
    pub(crate) bookmark_period: Duration,
    pub(crate) future_grace: Option<Duration>,
    pub(crate) honor_limit_at_rv0: bool,
    pub(crate) consistency_interval: Option<Duration>,
}

impl Core {
    pub(crate) fn new(source: Arc<dyn Source>, clock: Arc<dyn Clock>, settings: Settings) -> Self {
        Self {
            source,
            timers: Timers::new(clock),
            watermark: Watermark::new(),
            settings,
            stopped: AtomicBool::new(false),
            feeder: Signal::new(),
            to_load: AtomicBool::new(false),
            went_back: AtomicBool::new(false),
        }
    }

    /// Has the feeder load every resource that is not ready.
    pub(crate) fn ask_to_load(&self) {
        // Release: pairs with the Acquire in `take_to_load`; the feeder then finds the resource.
        self.to_load.store(true, Ordering::Release);
        self.feeder.waker.wake();
    }

    pub(crate) fn take_to_load(&self) -> bool {
        // Acquire: pairs with the Release in `ask_to_load`.
        self.to_load.swap(false, Ordering::Acquire)
    }

    pub(crate) fn take_went_back(&self) -> bool {
        // Relaxed: the feeder asks the source itself.
        self.went_back.swap(false, Ordering::Relaxed)
    }

    /// The newest revision of the source, which is what a consistent read needs (WC-132).
    ///
    /// A source that is behind the cache was replaced: what is cached is not its state, however
    /// fresh. The feeder hears of it, and the request is refused.
    pub(crate) async fn current(&self) -> Result<Revision, RequestError> {
        // Before the question: a replacement that is noticed meanwhile moves the watermark back.
        let known = self.watermark.load();
        let found = self.source.current_revision().await;
        let found = found.map_err(|error| RequestError::Internal(error.to_string()))?;
        if found >= known {
            return Ok(found);
        }
        self.went_back.store(true, Ordering::Relaxed);
        self.feeder.waker.wake();
        Err(RequestError::NotReady {
            cause: Some(SourceError::Replaced { known, found }.to_string()),
            retry_after_seconds: 1,
        })
    }

    pub(crate) fn is_stopped(&self) -> bool {
        // Acquire: pairs with the Release in `stop`; what was applied before it is seen.
        self.stopped.load(Ordering::Acquire)
    }

    pub(crate) fn stop(&self) {
        // Release: pairs with the Acquire in `is_stopped`.
        self.stopped.store(true, Ordering::Release);
        self.feeder.waker.wake();
    }
}
