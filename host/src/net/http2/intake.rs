//! The bodies of the requests of an HTTP/2 connection.
//!
//! The HTTP/2 library keeps each DATA frame apart until the reader of its stream takes it, and closes a connection with
//! too many small frames. Flow control counts only their bytes, so a client that follows it would be cut. So the task
//! of the connection takes the frames of all streams after each read: [`Arrivals`] lists the streams that have got
//! frames, and the [`Intake`] of each keeps its bytes together until its reader asks for them. The client is allowed to
//! send more only when the reader has taken them: a reader that stops makes the client of its stream wait, within the
//! windows of the stream and of the connection.
//!
//! Most bodies have arrived with their request. They are read without an intake.

use std::{
    collections::VecDeque,
    fmt, mem,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use http::HeaderMap;
use http_body::Frame;
use parking_lot::Mutex;

use crate::net::BoxError;

/// The maximum number of bytes of a body that the connection reads after the response has ended. A client that sends
/// more gets a reset of the stream.
pub(super) const DISCARDED_BYTES_MAX: usize = 4 << 20;

/// The size from which a frame is kept as it is. A smaller one is copied, because it would keep the buffer alive into
/// which the connection was read.
const COPIED_BYTES_MAX: usize = 1024;

/// The maximum size of a block of copied frames.
const BLOCK_BYTES_MAX: usize = 16 * 1024;

/// The streams of a connection that wait for its task.
#[derive(Default)]
pub(super) struct Arrivals {
    /// Guards the lists. A leaf lock: it is taken under the locks of an intake and of the HTTP/2 library, no waker is
    /// called under it, and nothing that is dropped under it is the last reference to an intake.
    lists: Mutex<Lists>,
}

#[derive(Default)]
struct Lists {
    /// Whether the task of the connection will look into the lists without being woken.
    is_collecting: bool,
    /// The connection has ended, and nobody looks into the lists.
    is_closed: bool,
    /// The intakes whose streams have got frames or an error.
    arrived: Vec<Arc<Intake>>,
    /// The intakes without a reader, whose streams have not ended.
    unread: Vec<Arc<Intake>>,
    /// The task of the connection.
    task: Option<Waker>,
}

impl Arrivals {
    /// Begins a poll of the connection, after which [`collect`](Self::collect) is called.
    pub(super) fn begin(&self, task: &Waker) {
        let mut lists = self.lists.lock();
        lists.is_collecting = true;
        if !(lists.task.as_ref()).is_some_and(|known| known.will_wake(task)) {
            lists.task = Some(task.clone());
        }
    }

    /// Takes the frames that have arrived, and wakes their readers. Returns the intakes that have lost their readers.
    pub(super) fn collect(&self) -> Vec<Arc<Intake>> {
        let mut lists = self.lists.lock();
        lists.is_collecting = false;
        let (arrived, unread) = (mem::take(&mut lists.arrived), mem::take(&mut lists.unread));
        drop(lists);
        for intake in arrived.iter().chain(&unread) {
            intake.collect();
        }
        unread
    }

    /// Ends the collection, after the connection itself has ended and has told all streams.
    pub(super) fn close(&self) {
        self.lists.lock().is_closed = true;
        for intake in self.collect() {
            intake.abandon();
        }
    }

    fn add(&self, intake: Arc<Intake>, list: fn(&mut Lists) -> &mut Vec<Arc<Intake>>) {
        let mut lists = self.lists.lock();
        list(&mut lists).push(intake);
        let task = (!lists.is_collecting).then(|| lists.task.clone()).flatten();
        drop(lists);
        if let Some(task) = task {
            task.wake();
        }
    }
}

/// The bytes of a body that its reader has not taken. It is the waker that the HTTP/2 library calls when frames of the
/// stream arrive.
pub(super) struct Intake {
    arrivals: Arc<Arrivals>,
    /// A leaf lock but for those of the HTTP/2 library and of [`Arrivals`].
    state: Mutex<State>,
}

struct State {
    /// `None` after the connection has stopped to read a body without a reader.
    stream: Option<RecvStream>,
    buffer: Buffer,
    /// The end of the body, behind the bytes of the buffer: its trailers, or an error.
    end: Option<Result<Option<HeaderMap>, h2::Error>>,
    reader: Reader,
}

enum Reader {
    /// The task that waits for bytes.
    Present(Option<Waker>),
    /// The reader has left, and this number of bytes has been discarded.
    Absent(usize),
}

/// What a reader finds next in a body.
type Next = Option<Result<Frame<Bytes>, BoxError>>;

impl Intake {
    fn new(stream: RecvStream, arrivals: Arc<Arrivals>, reader: Reader) -> Arc<Self> {
        Arc::new(Self {
            arrivals,
            state: Mutex::new(State {
                stream: Some(stream),
                buffer: Buffer::default(),
                end: None,
                reader,
            }),
        })
    }

    /// Takes all frames that have arrived, wakes the reader, and registers for further ones.
    fn collect(self: &Arc<Self>) {
        let waker = Waker::from(self.clone());
        let reader = self.state.lock().collect(&mut Context::from_waker(&waker));
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    fn poll_next(&self, context: &mut Context<'_>) -> Poll<Next> {
        let mut state = self.state.lock();
        let state = &mut *state;
        if let Some(data) = state.buffer.pop() {
            if let Some(stream) = &mut state.stream {
                release(stream, data.len());
            }
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if let Some(end) = &mut state.end {
            return Poll::Ready(match mem::replace(end, Ok(None)) {
                Ok(trailers) => trailers.map(|trailers| Ok(Frame::trailers(trailers))),
                Err(error) => Some(Err(error.into())),
            });
        }
        if let Reader::Present(waker) = &mut state.reader
            && !(waker.as_ref()).is_some_and(|it| it.will_wake(context.waker()))
        {
            *waker = Some(context.waker().clone());
        }
        Poll::Pending
    }

    /// Returns whether the body has ended and everything was read.
    fn is_finished(&self) -> bool {
        let state = self.state.lock();
        matches!(state.end, Some(Ok(None))) && state.buffer.is_empty()
    }

    /// Returns whether frames of a body without a reader may still arrive.
    pub(super) fn is_open(&self) -> bool {
        let state = self.state.lock();
        state.stream.is_some() && state.end.is_none()
    }

    /// Stops to read a body without a reader. The stream is reset unless it has ended.
    pub(super) fn abandon(&self) {
        let stream = self.state.lock().stream.take();
        drop(stream);
    }

    /// Discards the bytes of a body whose reader has left. If it has not ended, its rest is read by the task of the
    /// connection.
    fn leave(self: Arc<Self>) {
        let mut state = self.state.lock();
        state.reader = Reader::Absent(0);
        let discarded = mem::take(&mut state.buffer).len();
        if let Some(stream) = &mut state.stream {
            release(stream, discarded);
        }
        let has_ended = state.end.is_some();
        drop(state);
        if !has_ended && !self.arrivals.lists.lock().is_closed {
            let arrivals = self.arrivals.clone();
            arrivals.add(self, |lists| &mut lists.unread);
        }
    }
}

impl State {
    /// Takes all frames that have arrived. Returns the reader if it has to be woken.
    fn collect(&mut self, context: &mut Context<'_>) -> Option<Waker> {
        let stream = self.stream.as_mut().filter(|_| self.end.is_none())?;
        let mut is_changed = false;
        loop {
            match stream.poll_data(context) {
                Poll::Ready(Some(Ok(data))) => match &mut self.reader {
                    Reader::Present(_) => {
                        is_changed = true;
                        self.buffer.push(data);
                    }
                    Reader::Absent(discarded) => {
                        *discarded += data.len();
                        release(stream, data.len());
                        if *discarded > DISCARDED_BYTES_MAX {
                            self.stream = None;
                            return None;
                        }
                    }
                },
                Poll::Ready(Some(Err(error))) => {
                    self.end = Some(Err(error));
                    break;
                }
                Poll::Ready(None) => {
                    if let Poll::Ready(end) = stream.poll_trailers(context) {
                        self.end = Some(end);
                    }
                    break;
                }
                Poll::Pending => break,
            }
        }
        match &mut self.reader {
            Reader::Present(waker) if is_changed || self.end.is_some() => waker.take(),
            _ => None,
        }
    }
}

/// Allows the client to send as many bytes as the reader has taken.
fn release(stream: &mut RecvStream, bytes: usize) {
    // An error means that the stream has been reset.
    let _ = stream.flow_control().release_capacity(bytes);
}

/// Bytes in the order of their arrival. Small frames are joined.
#[derive(Default)]
struct Buffer {
    /// The first bytes, so that one frame at a time needs no list.
    first: Option<Bytes>,
    more: VecDeque<Bytes>,
    /// The last bytes, copied from small frames.
    block: BytesMut,
}

impl Buffer {
    fn push(&mut self, data: Bytes) {
        if data.is_empty() {
            return;
        }
        if self.first.is_none() {
            let is_small = data.len() < COPIED_BYTES_MAX;
            self.first = Some(if is_small {
                Bytes::copy_from_slice(&data)
            } else {
                data
            });
        } else if data.len() < COPIED_BYTES_MAX {
            if self.block.len() + data.len() > BLOCK_BYTES_MAX {
                self.end_block();
            }
            self.block.extend_from_slice(&data);
        } else {
            self.end_block();
            self.more.push_back(data);
        }
    }

    fn end_block(&mut self) {
        if !self.block.is_empty() {
            self.more.push_back(mem::take(&mut self.block).freeze());
        }
    }

    fn pop(&mut self) -> Option<Bytes> {
        let data = self.first.take()?;
        self.first = self
            .more
            .pop_front()
            .or_else(|| (!self.block.is_empty()).then(|| mem::take(&mut self.block).freeze()));
        Some(data)
    }

    fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    fn len(&self) -> usize {
        let chunks = self.first.iter().chain(&self.more);
        chunks.map(Bytes::len).sum::<usize>() + self.block.len()
    }
}

/// The body of a request on an HTTP/2 stream.
pub(in crate::net) struct StreamBody {
    source: Source,
    arrivals: Arc<Arrivals>,
}

enum Source {
    /// Only the reader uses the stream.
    Stream(RecvStream),
    /// The task of the connection reads the stream.
    Intake(Arc<Intake>),
    /// The body has ended.
    Ended,
}

impl StreamBody {
    pub(super) fn new(stream: RecvStream, arrivals: Arc<Arrivals>) -> Self {
        let has_body = !stream.is_end_stream();
        Self {
            source: if has_body {
                Source::Stream(stream)
            } else {
                Source::Ended
            },
            arrivals,
        }
    }

    pub(in crate::net) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Next> {
        let stream = match &mut self.source {
            Source::Stream(stream) => stream,
            Source::Intake(intake) => return intake.poll_next(context),
            Source::Ended => return Poll::Ready(None),
        };
        match stream.poll_data(context) {
            Poll::Ready(Some(Ok(data))) => {
                release(stream, data.len());
                if stream.is_end_stream() {
                    self.source = Source::Ended;
                } else {
                    self.share();
                }
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            Poll::Ready(Some(Err(error))) => {
                self.source = Source::Ended;
                Poll::Ready(Some(Err(error.into())))
            }
            Poll::Ready(None) | Poll::Pending => match self.share() {
                Some(intake) => intake.poll_next(context),
                None => Poll::Ready(None),
            },
        }
    }

    /// Lets the task of the connection read the stream, because its frames do not come with the request.
    fn share(&mut self) -> Option<&Intake> {
        if let Source::Stream(stream) = mem::replace(&mut self.source, Source::Ended) {
            let reader = Reader::Present(None);
            let intake = Intake::new(stream, self.arrivals.clone(), reader);
            intake.collect();
            self.source = Source::Intake(intake);
        }
        match &self.source {
            Source::Intake(intake) => Some(intake),
            _ => None,
        }
    }

    pub(in crate::net) fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Stream(_) => false,
            Source::Intake(intake) => intake.is_finished(),
            Source::Ended => true,
        }
    }
}

impl Drop for StreamBody {
    fn drop(&mut self) {
        match mem::replace(&mut self.source, Source::Ended) {
            Source::Stream(stream) if !stream.is_end_stream() => {
                Intake::new(stream, self.arrivals.clone(), Reader::Absent(0)).leave();
            }
            Source::Intake(intake) => intake.leave(),
            Source::Stream(_) | Source::Ended => {}
        }
    }
}

impl Wake for Intake {
    fn wake(self: Arc<Self>) {
        // The HTTP/2 library calls this with its lock held.
        let arrivals = self.arrivals.clone();
        arrivals.add(self, |lists| &mut lists.arrived);
    }
}

impl fmt::Debug for StreamBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamBody")
            .field("has_ended", &self.is_end_stream())
            .finish_non_exhaustive()
    }
}
