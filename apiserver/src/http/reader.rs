//! Clients that stop to read an answer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use revstore_watch_cache::RequestError;
use revstore_watch_cache::status::Status;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::http::limits::Seats;
use crate::http::{Body, Chunks};

/// The time after which a client that reads nothing of an answer does not count in the limits of requests in flight.
const STALL_TIME: Duration = Duration::from_secs(1);

/// How long an answer may take.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// As long as the client wants; the seats are free after the first events.
    FirstEvents,
    /// This time, after which the answer breaks off.
    After(Duration),
}

/// Returns a body that keeps its seats while the client reads it. One that is complete frees them now.
pub(crate) fn watched(body: Body, seats: Option<Seats>, until: Until) -> Body {
    let Body::Chunks(chunks) = body else {
        return body;
    };
    if seats.is_none() && matches!(until, Until::FirstEvents) {
        return Body::Chunks(chunks);
    }
    let state = Arc::new(Mutex::new(State {
        chunks: Some(chunks),
        seats,
        is_read: true,
    }));
    let watchdog = tokio::spawn(watch(state.clone(), until)).abort_handle();
    Body::chunks(WatchedChunks {
        state,
        until,
        watchdog,
    })
}

/// Chunks that a client reads, which a second task looks after.
struct WatchedChunks {
    /// A leaf lock but for those of the chunks. The second task takes it once a second.
    state: Arc<Mutex<State>>,
    until: Until,
    watchdog: AbortHandle,
}

struct State {
    /// `None` after the end.
    chunks: Option<Pin<Box<dyn Chunks>>>,
    seats: Option<Seats>,
    /// Whether the client has read something since the last look.
    is_read: bool,
}

async fn watch(state: Arc<Mutex<State>>, until: Until) {
    let begun = Instant::now();
    loop {
        tokio::time::sleep(STALL_TIME).await;
        let mut state = state.lock();
        if !std::mem::take(&mut state.is_read) {
            state.seats = None;
        }
        match until {
            Until::FirstEvents if state.seats.is_none() => return,
            Until::After(time) if begun.elapsed() >= time => {
                state.seats = None;
                let chunks = state.chunks.take();
                drop(state);
                drop(chunks);
                return;
            }
            _ => {}
        }
    }
}

impl Chunks for WatchedChunks {
    fn poll_chunk(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, RequestError>>> {
        let mut state = self.state.lock();
        state.is_read = true;
        let Some(chunks) = &mut state.chunks else {
            let message = "the client has not read the answer in time";
            return Poll::Ready(Some(Err(Status::timeout(message).into())));
        };
        let polled = chunks.as_mut().poll_chunk(context);
        let is_caught_up = polled.is_pending() && matches!(self.until, Until::FirstEvents);
        if is_caught_up || matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            state.seats = None;
        }
        polled
    }
}

impl Drop for WatchedChunks {
    fn drop(&mut self) {
        self.watchdog.abort();
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use tokio::sync::Semaphore;

    use super::*;

    /// Chunks without an end.
    struct Endless;

    impl Chunks for Endless {
        fn poll_chunk(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Bytes, RequestError>>> {
            Poll::Ready(Some(Ok(Bytes::from_static(b"x"))))
        }
    }

    fn body(until: Duration) -> (Arc<Semaphore>, Body) {
        let all = Arc::new(Semaphore::new(3));
        let seats = all.clone().try_acquire_many_owned(3).unwrap();
        let body = watched(Body::chunks(Endless), Some(seats), Until::After(until));
        (all, body)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_frees_its_seats_and_can_go_on() {
        let (all, mut body) = body(Duration::from_secs(60));
        assert!(body.frame().await.unwrap().is_ok());
        assert_eq!(all.available_permits(), 0);
        tokio::time::sleep(STALL_TIME * 3).await;
        assert_eq!(all.available_permits(), 3);
        assert!(body.frame().await.unwrap().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_takes_too_long_breaks_off() {
        let (all, mut body) = body(Duration::from_secs(60));
        tokio::time::sleep(Duration::from_secs(62)).await;
        assert!(body.frame().await.unwrap().is_err());
        assert_eq!(all.available_permits(), 3);
    }

    #[tokio::test]
    async fn a_dropped_answer_frees_its_seats() {
        let (all, body) = body(Duration::from_secs(60));
        drop(body);
        let all = all.acquire_many(3).await;
        assert!(all.is_ok());
    }
}
