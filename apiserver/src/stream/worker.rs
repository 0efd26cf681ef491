//! The threads that make lists.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use revstore_watch_cache::RequestError;
use tokio::sync::Semaphore;

use super::{GzipPieces, Pieces, SIZE_MIN, internal};
use crate::http::{Body, Chunks};

/// The number of bytes that one job makes, which are in memory until the client has read them. A job may exceed it by a
/// piece. Waking threads for a job, and waiting for it, takes about seven system calls.
const JOB_BYTES: usize = 256 << 10;
/// The time that one job takes. A job may exceed it by a piece.
const JOB_TIME: Duration = Duration::from_millis(2);
/// The number of objects up to which the beginning of a list is made at once.
const LIGHT_OBJECTS_MAX: usize = 500;

/// The number of bytes of such a list, or of a page, that are made without another thread, to which each job costs several
/// times as much as its work. The rest, and all that is compressed, is made by the threads.
const LIGHT_BYTES_MAX: usize = 1 << 20;

/// Makes pieces of lists on threads of the blocking pool, on half as many as there are processors. The jobs of all lists
/// take turns. The connection itself makes the beginning of a small list.
#[derive(Clone, Debug)]
pub(crate) struct Workers(Arc<Semaphore>);

/// The result of a job.
struct Made {
    ready: VecDeque<Result<Bytes, RequestError>>,
    /// `None` at the end.
    rest: Option<Pieces>,
}

type Job = Pin<Box<dyn Future<Output = Made> + Send>>;

impl Workers {
    pub(crate) fn new() -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Self(Arc::new(Semaphore::new((processors / 2).max(1))))
    }

    /// Returns a list as a body, and whether it is compressed. `objects` is the number of objects to look at.
    ///
    /// # Errors
    /// That of the beginning of the list.
    pub(crate) async fn body(
        &self,
        mut pieces: Pieces,
        objects: usize,
        accepts_gzip: bool,
    ) -> Result<(Body, bool), RequestError> {
        let mut first = Vec::new();
        let mut size = 0;
        let rest = loop {
            let made = if objects <= LIGHT_OBJECTS_MAX {
                make(pieces)
            } else {
                self.clone().run(pieces).await
            };
            for piece in made.ready {
                let piece = piece?;
                size += piece.len();
                first.push(piece);
            }
            match made.rest {
                None => break None,
                Some(rest) if size >= SIZE_MIN => break Some(rest),
                Some(rest) => pieces = rest,
            }
        };
        let is_compressed = accepts_gzip && size >= SIZE_MIN;
        match rest {
            None if !is_compressed => Ok((Body::from(first.concat()), false)),
            rest => {
                let first = first.into_iter().map(Ok);
                let all: Pieces = match rest {
                    Some(rest) => Box::new(first.chain(rest)),
                    None => Box::new(first),
                };
                let rest: Pieces = if is_compressed {
                    Box::new(GzipPieces::new(all))
                } else {
                    all
                };
                let is_light = objects <= LIGHT_OBJECTS_MAX && !is_compressed;
                let chunks = WorkedChunks {
                    workers: self.clone(),
                    ready: VecDeque::new(),
                    rest: Some(rest),
                    job: None,
                    light_bytes: if is_light { LIGHT_BYTES_MAX } else { 0 },
                };
                Ok((Body::chunks(chunks), is_compressed))
            }
        }
    }

    async fn run(self, pieces: Pieces) -> Made {
        // The semaphore is never closed.
        let permit = self.0.acquire_owned().await;
        let job = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            make(pieces)
        });
        job.await.unwrap_or_else(|_panicked| Made {
            ready: [Err(internal("a list could not be encoded"))].into(),
            rest: None,
        })
    }
}

/// Makes some pieces.
fn make(mut pieces: Pieces) -> Made {
    let begun = Instant::now();
    let mut ready = VecDeque::new();
    let mut size = 0;
    while size < JOB_BYTES && begun.elapsed() < JOB_TIME {
        match pieces.next() {
            None => return Made { ready, rest: None },
            Some(Err(error)) => {
                ready.push_back(Err(error));
                return Made { ready, rest: None };
            }
            Some(Ok(piece)) if piece.is_empty() => {}
            Some(Ok(piece)) => {
                size += piece.len();
                ready.push_back(Ok(piece));
            }
        }
    }
    Made {
        ready,
        rest: Some(pieces),
    }
}

/// The chunks of a list. The next job begins when the client has read what the last one has made.
struct WorkedChunks {
    workers: Workers,
    ready: VecDeque<Result<Bytes, RequestError>>,
    rest: Option<Pieces>,
    job: Option<Job>,
    /// The number of bytes that are still made without a job.
    light_bytes: usize,
}

impl Chunks for WorkedChunks {
    fn poll_chunk(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, RequestError>>> {
        let this = self.get_mut();
        loop {
            if let Some(piece) = this.ready.pop_front() {
                return Poll::Ready(Some(piece));
            }
            if let Some(rest) = this.rest.take() {
                if this.light_bytes > 0 {
                    let made = make(rest);
                    let size: usize = made.ready.iter().flatten().map(Bytes::len).sum();
                    // A job that runs out of time counts, too.
                    this.light_bytes = this.light_bytes.saturating_sub(size.max(JOB_BYTES));
                    (this.ready, this.rest) = (made.ready, made.rest);
                    continue;
                }
                this.job = Some(Box::pin(this.workers.clone().run(rest)));
            }
            let Some(job) = &mut this.job else {
                return Poll::Ready(None);
            };
            let made = ready!(job.as_mut().poll(context));
            this.job = None;
            (this.ready, this.rest) = (made.ready, made.rest);
        }
    }
}
