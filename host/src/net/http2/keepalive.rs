//! The pings of the server (LI-7): a connection whose client no longer answers is closed.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use h2::{Ping, PingPong};
use tokio::time::{Instant, Sleep, sleep};

use crate::net::Keepalive;

/// The time after which an interval ends that is too long for the clock.
const FAR_FUTURE: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The pings of one connection.
pub(super) struct Pings {
    options: Keepalive,
    pair: PingPong,
    /// The end of the time without activity or, after a ping, of its time limit.
    timer: Pin<Box<Sleep>>,
    /// The time of the ping that was not acknowledged yet.
    sent: Option<Instant>,
}

impl Pings {
    pub(super) fn new(options: Keepalive, pings: PingPong) -> Self {
        Self {
            options,
            pair: pings,
            timer: Box::pin(sleep(options.interval)),
            sent: None,
        }
    }

    /// Sends the pings that are due. Completes when a ping has not been acknowledged in time. Any bytes of the client
    /// count as an acknowledgement; `last_read` is the time of the last ones.
    pub(super) fn poll_dead(&mut self, context: &mut Context<'_>, last_read: Instant) -> Poll<()> {
        while self.timer.as_mut().poll(context).is_ready() {
            let now = Instant::now();
            if let Some(sent) = self.sent.take() {
                if last_read <= sent {
                    return Poll::Ready(());
                }
            } else if later(last_read, self.options.interval) <= now {
                // A ping fails only while another one is under way, or after the end of the connection.
                let _ = self.pair.send_ping(Ping::opaque());
                self.sent = Some(now);
                self.timer.as_mut().reset(later(now, self.options.timeout));
                continue;
            }
            let next = later(last_read, self.options.interval);
            self.timer.as_mut().reset(next);
        }
        if self.sent.is_some() && self.pair.poll_pong(context).is_ready() {
            self.sent = None;
            let next = later(last_read, self.options.interval);
            self.timer.as_mut().reset(next);
            // Registers with the timer.
            return self.poll_dead(context, last_read);
        }
        Poll::Pending
    }
}

fn later(time: Instant, by: Duration) -> Instant {
    (time.checked_add(by)).unwrap_or_else(|| Instant::now() + FAR_FUTURE)
}

impl fmt::Debug for Pings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pings").finish_non_exhaustive()
    }
}
