//! Chunks that leave the thread to others from time to time.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use revstore_watch_cache::RequestError;

use crate::http::Chunks;

/// The number of chunks after which others have their turn.
const CHUNKS_MAX: usize = 4;

/// Chunks that are made on the threads of the connections. A client whose window is large takes megabytes at once, and
/// everybody else would wait until they are made: after [`CHUNKS_MAX`] chunks the task is put behind those that wait.
pub(crate) struct InTurns<C> {
    chunks: C,
    made: usize,
}

impl<C> InTurns<C> {
    pub(crate) fn new(chunks: C) -> Self {
        Self { chunks, made: 0 }
    }
}

impl<C: Chunks + Unpin> Chunks for InTurns<C> {
    fn poll_chunk(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, RequestError>>> {
        let this = self.get_mut();
        if this.made == CHUNKS_MAX {
            this.made = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let polled = Pin::new(&mut this.chunks).poll_chunk(context);
        this.made = if polled.is_ready() { this.made + 1 } else { 0 };
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    /// Chunks that are always ready.
    struct Ready;

    impl Chunks for Ready {
        fn poll_chunk(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Bytes, RequestError>>> {
            Poll::Ready(Some(Ok(Bytes::from_static(b"chunk"))))
        }
    }

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn others_have_their_turn_after_some_chunks() {
        let count = Arc::<Wakes>::default();
        let waker = count.clone().into();
        let mut context = Context::from_waker(&waker);
        let mut chunks = InTurns::new(Ready);
        for turn in 1..=3 {
            let is_ready = |_| Pin::new(&mut chunks).poll_chunk(&mut context).is_ready();
            let ready: Vec<_> = (0..=CHUNKS_MAX).map(is_ready).collect();
            assert_eq!(ready.iter().filter(|it| **it).count(), CHUNKS_MAX);
            assert!(!ready[CHUNKS_MAX]);
            assert_eq!(count.0.load(Ordering::Relaxed), turn);
        }
    }
}
