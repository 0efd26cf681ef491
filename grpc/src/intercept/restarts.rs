//! Watches that continue from the history.

use std::sync::Arc;

use parking_lot::Mutex;

/// The watches of one stream that begin again, for a program that has kept their events from the client. The program adds it
/// to the extensions of the HTTP request of the stream. Clones share it.
///
/// The session looks at it whenever it is polled, before it reads further requests. It ends the watch without a response,
/// and creates it anew, with the same id and options, from the given revision on. That has a response with the field
/// `created`; what comes before it is of the old watch, and what comes after it of the new one. Progress after it covers
/// the new one, too. A watch that has ended meanwhile has no response.
#[derive(Clone, Debug, Default)]
pub struct WatchRestarts {
    /// Bounded by the watches of the stream, each of which waits for its restart. A leaf lock, held for a look or a change.
    requested: Arc<Mutex<Vec<WatchRestart>>>,
}

/// A watch that begins again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchRestart {
    /// The number of the response to its creation among the responses to creations on the stream, from 1 on: a client may
    /// use the id again.
    pub creation: u64,
    /// The id.
    pub watch_id: i64,
    /// The first revision whose events are sent.
    pub from: i64,
}

impl WatchRestarts {
    /// Lets a watch begin again at the next poll of the session.
    pub fn request(&self, restart: WatchRestart) {
        self.requested.lock().push(restart);
    }

    /// Takes the last request. Those of different watches have no order.
    pub(crate) fn take(&self) -> Option<WatchRestart> {
        self.requested.lock().pop()
    }
}
