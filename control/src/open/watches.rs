//! The open watches, and the commands to them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::task::Waker;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Open, OpenError};
use crate::call::FrontObject;

/// The stream of one Watch call, with the task that sends its responses.
#[derive(Debug, Default)]
pub struct WatchStream {
    /// The waker of the task. A leaf lock, held to copy or replace it.
    task: Mutex<Option<Waker>>,
    /// Whether the task has sent everything that the store has for it. Relaxed: only for lists.
    is_idle: AtomicBool,
    /// Whether a watch of the stream was given a command, so that the task does not look at each watch before each
    /// response.
    is_commanded: AtomicBool,
}

/// What is known of a watch from its creation on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchInfo {
    /// The name of the client.
    pub client: Option<Arc<str>>,
    /// The user.
    pub user: Option<Arc<str>>,
    /// The connection.
    pub connection: Option<u64>,
    /// The key of the request.
    pub key: Bytes,
    /// The end of the range in the request.
    pub range_end: Bytes,
    /// The revision from which on the client gets events.
    pub start: i64,
    /// What a watch of a Kubernetes API is about.
    pub front: Option<Arc<FrontObject>>,
    /// Whether it gets no bookmark, because its client has not asked for any.
    pub is_without_bookmarks: bool,
}

/// An open watch. The task of its stream looks at the flags before it sends something.
#[derive(Debug)]
pub struct Watch {
    id: u64,
    info: WatchInfo,
    stream: Arc<WatchStream>,
    /// The revision up to which events were sent.
    position: AtomicI64,
    is_held: AtomicBool,
    is_held_by_rule: AtomicBool,
    release: AtomicBool,
    cut: AtomicBool,
    cancel: AtomicBool,
    bookmark: AtomicBool,
}

/// What happens to a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchCommand {
    /// Its events wait. When the command returns, no later event is sent.
    Hold,
    /// Its events are sent again, first those that wait, also for the end of a rule. Rules decide about later ones.
    Release,
    /// Its stream ends with an error, for all watches of the stream.
    Cut,
    /// The client gets it canceled as compacted. It gets no further event.
    CancelCompacted,
    /// The client gets a progress notification, when it has got all events up to then.
    Bookmark,
}

/// What a watch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchState {
    /// The client was sent everything.
    Synced,
    /// The client has yet to read, or the server to send, what is there.
    Sending,
    /// Its events wait for a command or the end of a rule.
    Held,
}

/// An open watch, for lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchStatus {
    /// The number of the watch, unique in the server.
    pub id: u64,
    /// What is known from its creation on.
    pub info: WatchInfo,
    /// The revision up to which the client was sent everything.
    pub position: i64,
    /// The number of revisions of the store behind which it is.
    pub lag: i64,
    /// What it does.
    pub state: WatchState,
}

#[derive(Debug, Default)]
pub(super) struct Watches {
    /// A leaf lock: held for a look, a change or a copy of the list.
    open: Mutex<BTreeMap<u64, Arc<Watch>>>,
    last_id: AtomicU64,
    /// Notified of each watch that is added.
    added: Notify,
}

impl WatchStream {
    /// Sets the task that sends the responses.
    pub fn register(&self, waker: &Waker) {
        let mut task = self.task.lock();
        if !task.as_ref().is_some_and(|task| task.will_wake(waker)) {
            let previous = task.replace(waker.clone());
            drop(task);
            drop(previous);
        }
    }

    /// Wakes the task.
    pub fn wake(&self) {
        let task = self.task.lock().clone();
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Returns whether a watch of the stream was given a command since the last call.
    pub fn take_commanded(&self) -> bool {
        // Acquire: pairs with the Release of the command, which sets the flag of the watch before.
        self.is_commanded.load(Ordering::Relaxed)
            && self.is_commanded.swap(false, Ordering::Acquire)
    }

    /// Records whether everything was sent that the store has.
    pub fn set_idle(&self, is_idle: bool) {
        self.is_idle.store(is_idle, Ordering::Relaxed);
    }
}

impl Watch {
    /// Returns the number of the watch.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns what is known of it from its creation on.
    pub fn info(&self) -> &WatchInfo {
        &self.info
    }

    /// Records that everything up to a revision was sent.
    pub fn sent(&self, revision: i64) {
        self.position.fetch_max(revision, Ordering::Relaxed);
    }

    /// Returns the revision up to which everything was sent.
    pub fn position(&self) -> i64 {
        self.position.load(Ordering::Relaxed)
    }

    /// Returns whether a command holds its events.
    pub fn is_held(&self) -> bool {
        // Acquire: pairs with the Release of the command. What the program writes after the command returned is held.
        self.is_held.load(Ordering::Acquire)
    }

    /// Records whether a rule holds its events.
    pub fn set_held_by_rule(&self, is_held: bool) {
        self.is_held_by_rule.store(is_held, Ordering::Relaxed);
    }

    /// Takes the command to send the events that a rule holds.
    pub fn take_release(&self) -> bool {
        self.release.swap(false, Ordering::Acquire)
    }

    /// Takes the command to cut the stream.
    pub fn take_cut(&self) -> bool {
        self.cut.swap(false, Ordering::Acquire)
    }

    /// Takes the command to cancel it.
    pub fn take_cancel(&self) -> bool {
        self.cancel.swap(false, Ordering::Acquire)
    }

    /// Takes the command to send a progress notification.
    pub fn take_bookmark(&self) -> bool {
        self.bookmark.swap(false, Ordering::Acquire)
    }

    fn command(&self, command: WatchCommand) {
        // Release: pairs with the Acquire of the task.
        match command {
            WatchCommand::Hold => self.is_held.store(true, Ordering::Release),
            WatchCommand::Release => {
                self.is_held.store(false, Ordering::Release);
                self.release.store(true, Ordering::Release);
            }
            WatchCommand::Cut => self.cut.store(true, Ordering::Release),
            WatchCommand::CancelCompacted => self.cancel.store(true, Ordering::Release),
            WatchCommand::Bookmark => self.bookmark.store(true, Ordering::Release),
        }
        // Release: pairs with the Acquire of the task.
        self.stream.is_commanded.store(true, Ordering::Release);
        self.stream.wake();
    }

    fn status(&self, current: i64) -> WatchStatus {
        let is_held = self.is_held() || self.is_held_by_rule.load(Ordering::Relaxed);
        let state = if is_held {
            WatchState::Held
        } else if self.stream.is_idle.load(Ordering::Relaxed) {
            WatchState::Synced
        } else {
            WatchState::Sending
        };
        let position = match state {
            WatchState::Synced => current.max(self.position()),
            WatchState::Sending | WatchState::Held => self.position(),
        };
        WatchStatus {
            id: self.id,
            info: self.info.clone(),
            position,
            lag: (current - position).max(0),
            state,
        }
    }
}

impl Open {
    /// Adds a watch, which the client gets events of from `info.start` on.
    pub fn watch_created(&self, info: WatchInfo, stream: &Arc<WatchStream>) -> Arc<Watch> {
        let watches = &self.inner.watches;
        let id = watches.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let watch = Arc::new(Watch {
            id,
            position: AtomicI64::new(info.start.saturating_sub(1)),
            info,
            stream: stream.clone(),
            is_held: AtomicBool::new(false),
            is_held_by_rule: AtomicBool::new(false),
            release: AtomicBool::new(false),
            cut: AtomicBool::new(false),
            cancel: AtomicBool::new(false),
            bookmark: AtomicBool::new(false),
        });
        watches.open.lock().insert(id, watch.clone());
        watches.added.notify_waiters();
        watch
    }

    /// Removes a watch that has ended.
    pub fn watch_ended(&self, id: u64) {
        let removed = self.inner.watches.open.lock().remove(&id);
        drop(removed);
    }

    /// Waits until at least this number of watches is open.
    pub async fn wait_watches(&self, count: usize) {
        loop {
            let added = self.inner.watches.added.notified();
            if self.watch_count() >= count {
                return;
            }
            added.await;
        }
    }

    /// Returns the number of open watches.
    pub fn watch_count(&self) -> usize {
        self.inner.watches.open.lock().len()
    }

    /// Lists the open watches of a store whose current revision is `current`, ordered by number.
    pub fn watches(&self, current: i64) -> Vec<WatchStatus> {
        let open = self.all_watches();
        open.iter().map(|watch| watch.status(current)).collect()
    }

    /// Gives a command to a watch, or to all that are open. Returns the number of those on which it has an effect: a watch
    /// without bookmarks gets none.
    ///
    /// # Errors
    /// There is no watch with this number.
    pub fn command(&self, id: Option<u64>, command: WatchCommand) -> Result<usize, OpenError> {
        let watches = match id {
            None => self.all_watches(),
            Some(id) => {
                let open = self.inner.watches.open.lock();
                vec![open.get(&id).cloned().ok_or(OpenError::NoSuchWatch(id))?]
            }
        };
        let is_without_effect =
            |watch: &Watch| command == WatchCommand::Bookmark && watch.info.is_without_bookmarks;
        let watches: Vec<_> = { watches.into_iter() }
            .filter(|watch| !is_without_effect(watch))
            .collect();
        for watch in &watches {
            watch.command(command);
        }
        Ok(watches.len())
    }

    /// Wakes the tasks of all watch streams, because rules have changed.
    pub fn wake_watches(&self) {
        for watch in self.all_watches() {
            watch.stream.wake();
        }
    }

    fn all_watches(&self) -> Vec<Arc<Watch>> {
        let open = self.inner.watches.open.lock();
        open.values().cloned().collect()
    }
}
