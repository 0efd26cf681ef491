//! Watches whose objects a webhook converts.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::future::BoxFuture;
use revstore_watch_cache::{CacheWatcher, Object, RequestError, WatchEvent};

use super::converter::Converter;

/// The number of events that are taken from a watch to convert their objects in one call.
const EVENTS_MAX: usize = 128;

/// A watch whose objects a webhook converts. A webhook that fails ends it with an error.
pub(crate) struct ConvertedWatch {
    watcher: CacheWatcher,
    converter: Arc<Converter>,
    ready: VecDeque<WatchEvent>,
    /// The events whose objects are being converted, and the conversion.
    job: Option<(Vec<WatchEvent>, Conversion)>,
    has_failed: bool,
}

type Conversion = BoxFuture<'static, Result<Vec<Object>, RequestError>>;

impl ConvertedWatch {
    pub(crate) fn new(watcher: CacheWatcher, converter: Arc<Converter>) -> Self {
        Self {
            watcher,
            converter,
            ready: VecDeque::new(),
            job: None,
            has_failed: false,
        }
    }

    /// Makes the next bookmark due now, of a watch that has bookmarks.
    pub(crate) fn request_bookmark(&mut self) {
        self.watcher.request_bookmark();
    }

    /// Sets the number under which its bookmarks and its end are listed.
    pub(crate) fn set_number(&mut self, number: u64) {
        self.watcher.set_number(number);
    }

    /// Leaves the events for later, although the task was woken.
    pub(crate) fn defer(&mut self) {
        self.watcher.defer();
    }

    /// Takes the events that are ready, and begins to convert them. Returns whether there are some.
    fn poll_events(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let mut events = Vec::new();
        while events.len() < EVENTS_MAX {
            match Pin::new(&mut self.watcher).poll_next(context) {
                Poll::Ready(Some(event)) => events.push(event),
                Poll::Ready(None) if events.is_empty() => return Poll::Ready(false),
                Poll::Pending if events.is_empty() => return Poll::Pending,
                _ => break,
            }
        }
        let objects: Vec<_> = events
            .iter()
            .filter_map(WatchEvent::object)
            .cloned()
            .collect();
        let converter = self.converter.clone();
        let conversion = Box::pin(async move { converter.show_all(objects).await });
        self.job = Some((events, conversion));
        Poll::Ready(true)
    }
}

impl Stream for ConvertedWatch {
    type Item = WatchEvent;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        let this = self.get_mut();
        loop {
            if let Some(event) = this.ready.pop_front() {
                return Poll::Ready(Some(event));
            }
            if this.has_failed {
                return Poll::Ready(None);
            }
            let Some((_, conversion)) = &mut this.job else {
                if ready!(this.poll_events(context)) {
                    continue;
                }
                return Poll::Ready(None);
            };
            let converted = ready!(conversion.as_mut().poll(context));
            let Some((events, _)) = this.job.take() else {
                continue;
            };
            match converted {
                Ok(objects) => {
                    let mut objects = objects.into_iter();
                    this.ready
                        .extend(events.into_iter().filter_map(|event| match event {
                            WatchEvent::Object { event, .. } => {
                                Some(WatchEvent::unshared(event, objects.next()?))
                            }
                            other => Some(other),
                        }));
                }
                Err(error) => {
                    this.has_failed = true;
                    this.ready.push_back(WatchEvent::Error(error));
                }
            }
        }
    }
}
