//! How far the server has followed the changes of a resource.

use std::time::Duration;

use revstore_watch_cache::Revision;
use tokio::sync::watch;

/// The time for which a write waits, as that of a read for a resource version.
const WAIT_LIMIT: Duration = Duration::from_secs(3);

/// How far something of this server follows the changes of a resource, such as the authorizer those of roles. Writers wait
/// for it, so that a change is in force when it is answered. Of other servers over the same store, nobody waits.
#[derive(Debug)]
pub(crate) struct Position(watch::Sender<Option<Revision>>);

/// Follows the changes. Nobody waits any longer when it is dropped.
#[derive(Debug)]
pub(crate) struct Following<'a>(&'a Position);

impl Default for Position {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl Position {
    /// Begins to follow, with all changes up to a revision.
    pub(crate) fn follow(&self, since: Revision) -> Following<'_> {
        let following = Following(self);
        following.reach(since);
        following
    }

    /// Waits until all changes up to a revision are in force. Returns at once if nothing follows them, and after
    /// [`WAIT_LIMIT`] in any case.
    pub(crate) async fn wait(&self, revision: Revision) {
        let is_reached = |reached: &Option<Revision>| reached.is_none_or(|it| it >= revision);
        let now = *self.0.borrow();
        if is_reached(&now) {
            return;
        }
        let mut receiver = self.0.subscribe();
        // The write has succeeded, whoever follows it.
        let _ = tokio::time::timeout(WAIT_LIMIT, receiver.wait_for(is_reached)).await;
    }
}

impl Following<'_> {
    /// Says that all changes up to a revision are in force.
    pub(crate) fn reach(&self, revision: Revision) {
        self.0.0.send_replace(Some(revision));
    }
}

impl Drop for Following<'_> {
    fn drop(&mut self) {
        self.0.0.send_replace(None);
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_write_waits_for_who_follows_it() {
        let position = Position::default();
        position.wait(Revision(9)).await;
        let following = position.follow(Revision(4));
        position.wait(Revision(4)).await;
        let mut context = Context::from_waker(Waker::noop());
        let mut first = std::pin::pin!(position.wait(Revision(6)));
        let mut second = std::pin::pin!(position.wait(Revision(7)));
        assert_eq!(first.as_mut().poll(&mut context), Poll::Pending);
        assert_eq!(second.as_mut().poll(&mut context), Poll::Pending);
        following.reach(Revision(6));
        assert_eq!(first.as_mut().poll(&mut context), Poll::Ready(()));
        assert_eq!(second.as_mut().poll(&mut context), Poll::Pending);
        drop(following);
        assert_eq!(second.as_mut().poll(&mut context), Poll::Ready(()));
        // Somebody who hangs does not keep the answer for ever.
        let _following = position.follow(Revision(4));
        let started = tokio::time::Instant::now();
        position.wait(Revision(5)).await;
        assert_eq!(started.elapsed().as_secs(), WAIT_LIMIT.as_secs());
    }
}
