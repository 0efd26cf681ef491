//! The initial objects of a watcher: the current objects, which it delivers first.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::api::cache_watcher::{Step, Watched};
use crate::api::event::WatchEvent;
use crate::api::live_watch::LiveWatch;
use crate::api::status::RequestError;
use crate::cache::objects::tree::TreeIter;
use crate::encode::object::{Object, StoredObject};

/// The maximum number of initial objects without a match that one poll examines before it yields to
/// other tasks.
const POLL_OBJECTS_MAX: usize = 1000;

/// The state of a watcher that delivers the current objects.
pub(crate) struct InitialObjects {
    objects: TreeIter<Arc<StoredObject>>,
    /// The key at which the iteration ends.
    end: Bytes,
    began: Duration,
    /// The state after the last object.
    pub(crate) live: LiveWatch,
}

impl InitialObjects {
    pub(crate) fn new(
        objects: TreeIter<Arc<StoredObject>>,
        end: Bytes,
        began: Duration,
        live: LiveWatch,
    ) -> Self {
        Self {
            objects,
            end,
            began,
            live,
        }
    }

    /// Delivers the next object that matches, or the bookmark after the last one (WC-325).
    pub(crate) fn step(&mut self, watched: &Watched) -> Step {
        let counters = &watched.resource.counters;
        let mut examined = 0;
        for object in &mut self.objects {
            if *object.key() >= *self.end {
                break;
            }
            match watched.filter.decide(&object) {
                Ok(true) => {
                    counters.init_events.add(1);
                    return Step::Deliver(WatchEvent::initial(Object::new(object)));
                }
                Ok(false) => {}
                Err(corrupt) => return Step::Fail(RequestError::Corrupt(Box::new(corrupt))),
            }
            examined += 1;
            if examined == POLL_OBJECTS_MAX {
                return Step::Yield;
            }
        }
        let now = watched.resource.shared.timers.now();
        counters.watch_list_seconds.observe_since(self.began, now);
        let bookmark = self.live.wants_bookmarks().then_some(WatchEvent::Bookmark {
            revision: self.live.start,
            initial_events_end: true,
        });
        Step::BecomeLive(bookmark)
    }
}
