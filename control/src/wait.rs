//! Waiting for a state of the store.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use revstore_engine::{Engine, KeyRange, Revision, WatchOptions};
use tokio::sync::Semaphore;

use crate::error::ControlError;
use crate::open::Open;
use crate::target::Target;

/// The maximum number of waits of one server at the same time.
pub const WAITS_MAX: usize = 1_024;

/// What to wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The store has this revision or a later one.
    Revision(Revision),
    /// The key is live.
    Key(Bytes),
    /// At least this number of watches of clients is open.
    Watches(usize),
}

/// The open waits.
#[derive(Debug)]
pub(crate) struct Waits {
    permits: Semaphore,
}

impl Default for Waits {
    fn default() -> Self {
        Self {
            permits: Semaphore::new(WAITS_MAX),
        }
    }
}

impl Waits {
    pub(crate) async fn wait(
        &self,
        target: &dyn Target,
        open: &Open,
        condition: Condition,
        timeout: Option<Duration>,
    ) -> Result<(), ControlError> {
        let permit = self.permits.try_acquire();
        let _permit = permit.map_err(|_closed_or_full| ControlError::TooManyWaits)?;
        let held = async {
            match &condition {
                Condition::Revision(revision) => until(target, Of::Revision(*revision)).await,
                Condition::Key(key) => until(target, Of::Key(key)).await,
                Condition::Watches(count) => {
                    open.wait_watches(*count).await;
                    Ok(())
                }
            }
        };
        match timeout {
            None => held.await,
            Some(timeout) => {
                let held = tokio::time::timeout(timeout, held).await;
                held.map_err(|_elapsed| ControlError::TimedOut)?
            }
        }
    }
}

/// A condition of an engine.
#[derive(Clone, Copy)]
enum Of<'a> {
    Revision(Revision),
    Key(&'a Bytes),
}

/// Waits in the engine of the target, and starts over when another one replaces it.
async fn until(target: &dyn Target, condition: Of<'_>) -> Result<(), ControlError> {
    let mut replacements = target.replacements();
    loop {
        replacements.mark_unchanged();
        let engine = target.engine();
        let held = pin!(holds(&engine, condition));
        let replaced = pin!(replacements.changed());
        match select(held, replaced).await {
            Either::Left((held, _)) => return held,
            Either::Right((Ok(()), _)) => {}
            // The server has ended its engine for good.
            Either::Right((Err(_), held)) => return held.await,
        }
    }
}

/// Waits in one engine.
async fn holds(engine: &Engine, condition: Of<'_>) -> Result<(), ControlError> {
    let is_so = || match condition {
        Of::Revision(revision) => engine.current_revision() >= revision,
        Of::Key(key) => engine.get(key).is_some(),
    };
    loop {
        let (range, from) = match condition {
            // The first event of such a watch is that of the revision.
            Of::Revision(revision) => (KeyRange::all(), revision),
            Of::Key(key) => {
                let next = engine.current_revision().next();
                (KeyRange::One(key.clone()), next)
            }
        };
        if is_so() {
            return Ok(());
        }
        let watcher = engine.watch(WatchOptions::of(range).from(from));
        let mut watcher = watcher.map_err(|error| ControlError::Invalid(error.to_string()))?;
        // Until a compaction overtakes the watch, which then begins again.
        loop {
            // Checked again after the watch was created, and after each batch of its events.
            if is_so() {
                return Ok(());
            }
            if !matches!(watcher.next().await, Some(Ok(_))) {
                break;
            }
        }
    }
}
