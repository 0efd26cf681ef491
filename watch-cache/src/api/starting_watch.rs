//! A watch that waits for the revision at which it starts.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::future::BoxFuture;
use futures_util::future::{Either, select};
use revstore_engine::Revision;

use crate::api::status::RequestError;
use crate::api::target::Target;
use crate::cache::resource::{Registration, Resource, WatchStart};

/// The state of a watcher that will deliver the objects of a future revision.
pub(crate) struct StartingWatch {
    registration: BoxFuture<'static, Result<Option<Registration>, RequestError>>,
    /// The key at which the iteration of the initial objects ends.
    pub(crate) end: Bytes,
    pub(crate) bookmarks: bool,
    deadline: Option<Duration>,
}

impl StartingWatch {
    /// Returns a watch of a series that starts with the current objects when the cache has reached `at`.
    pub(crate) fn new(
        (resource, series): (&Arc<Resource>, u64),
        target: Target,
        at: Revision,
        bookmarks: bool,
        timeout: Option<Duration>,
    ) -> Self {
        let now = resource.shared.timers.now();
        let deadline = timeout.map(|timeout| now.saturating_add(timeout));
        let end = target.scan.end.clone();
        Self {
            registration: Box::pin(register((resource.clone(), series), target, at, deadline)),
            end,
            bookmarks,
            deadline,
        }
    }

    /// Waits for the registration. Returns `None` if the time of the watch has passed, the watches of its
    /// series have ended, or the resource was removed or stopped.
    pub(crate) fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Registration>, RequestError>> {
        let registered = self.registration.as_mut().poll(context);
        registered.map(|registered| match registered {
            Err(RequestError::Stopped | RequestError::Removed) => Ok(None),
            other => other,
        })
    }

    /// Returns the time that is left of the watch.
    pub(crate) fn timeout(&self, now: Duration) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_sub(now))
    }
}

/// Registers a watcher when the cache has reached `at`. Returns `None` at the deadline, and if the
/// watches of its series have ended.
async fn register(
    (resource, series): (Arc<Resource>, u64),
    target: Target,
    at: Revision,
    deadline: Option<Duration>,
) -> Result<Option<Registration>, RequestError> {
    let fresh = resource.wait_until_fresh(at);
    if let Some(deadline) = deadline {
        let sleep = resource.shared.timers.sleep_until(deadline, "watch");
        match select(Box::pin(fresh), Box::pin(sleep)).await {
            Either::Left((fresh, _)) => fresh?,
            Either::Right(_) => return Ok(None),
        }
    } else {
        fresh.await?;
    }
    resource.register(&target, WatchStart::CurrentObjects, series)
}
