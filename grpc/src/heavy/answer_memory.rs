//! The memory of answers that clients have not read yet.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use revstore_engine::{Clock, Timed};
use tokio::sync::oneshot;

use crate::status::EtcdError;

/// The time after which an answer that its client does not read may be ended. This happens only
/// while another request waits for memory.
pub(crate) const UNREAD_MAX: Duration = Duration::from_secs(10);

/// The number of registered answers from which on those that have ended are removed.
const REGISTERED_MIN: usize = 64;

/// A bound on the memory of answers under way. A request reserves the memory of its answer before it
/// runs, and waits while there is not enough. Requests get memory in the order of arrival.
///
/// An answer whose client does not read it keeps its memory for [`UNREAD_MAX`], and longer if nobody
/// waits for memory. After that the answers end that were not read for the longest time, as many as
/// the first waiting request needs.
#[derive(Debug)]
pub(crate) struct AnswerMemory {
    shared: Arc<Shared>,
}

struct Shared {
    max: u64,
    clock: Arc<dyn Clock>,
    /// A leaf lock: held to change the numbers and lists, never while a waker is called or an answer
    /// is dropped.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    used: u64,
    /// The requests that wait, the first one first. Those that were cancelled are removed when they
    /// become the first.
    waiting: VecDeque<WaitingRequest>,
    /// All answers, and those that have ended since the last clean-up.
    answers: Vec<Weak<dyn Unread>>,
    /// The length of `answers` at which it is cleaned up.
    clean_up_at: usize,
    ended: u64,
}

struct WaitingRequest {
    bytes: u64,
    granted: oneshot::Sender<Reservation>,
}

/// Memory for one answer, which comes back when it is dropped.
#[must_use = "the memory comes back when the reservation is dropped"]
pub(crate) struct Reservation {
    bytes: u64,
    shared: Arc<Shared>,
}

impl AnswerMemory {
    /// Creates a bound of `max` bytes. `clock` measures the time for which answers are not read.
    pub(crate) fn new(max: u64, clock: Arc<dyn Clock>) -> Self {
        let shared = Arc::new(Shared {
            max,
            clock,
            state: Mutex::default(),
        });
        let timed: Arc<dyn Timed> = shared.clone();
        shared.clock.follow(Arc::downgrade(&timed));
        Self { shared }
    }

    /// Waits for memory.
    ///
    /// # Errors
    /// [`EtcdError::AnswerTooLarge`] if there is not so much memory at all.
    pub(crate) async fn reserve(&self, bytes: u64) -> Result<Reservation, EtcdError> {
        if bytes > self.shared.max {
            return Err(EtcdError::AnswerTooLarge);
        }
        if let Some(reservation) = self.try_reserve(bytes) {
            return Ok(reservation);
        }
        // Dropped after the receiver: the request no longer delays those behind it.
        let _cleanup = Cleanup(&self.shared);
        let (granted, reservation) = oneshot::channel();
        let waiting = WaitingRequest { bytes, granted };
        self.shared.state.lock().waiting.push_back(waiting);
        // Memory may have come back since the first attempt.
        self.shared.grant();
        self.shared.clock.recheck();
        reservation.await.map_err(|_closed| EtcdError::Internal)
    }

    /// Waits for memory, at most for all of it.
    pub(crate) async fn reserve_up_to(&self, bytes: u64) -> Result<Reservation, EtcdError> {
        self.reserve(bytes.min(self.shared.max)).await
    }

    /// Returns memory if there is enough and nobody waits for it.
    pub(crate) fn try_reserve(&self, bytes: u64) -> Option<Reservation> {
        let mut state = self.shared.state.lock();
        let used = state.used.checked_add(bytes)?;
        (state.waiting.is_empty() && used <= self.shared.max).then(|| {
            state.used = used;
            self.shared.reservation(bytes)
        })
    }

    /// Keeps the content of an answer with its memory until the client has read it.
    pub(crate) fn hold<T: Send + 'static>(
        &self,
        content: T,
        reservation: Reservation,
    ) -> Answer<T> {
        let shared = Arc::new(AnswerShared {
            clock: self.shared.clock.clone(),
            state: Mutex::new(AnswerState {
                content: Some((content, reservation)),
                read_at: self.shared.clock.now(),
                in_work: 0,
            }),
        });
        let unread: Arc<dyn Unread> = shared.clone();
        let has_waiting = {
            let mut state = self.shared.state.lock();
            if state.answers.len() >= state.clean_up_at.max(REGISTERED_MIN) {
                state.answers.retain(|answer| answer.strong_count() > 0);
                state.clean_up_at = 2 * state.answers.len();
            }
            state.answers.push(Arc::downgrade(&unread));
            !state.waiting.is_empty()
        };
        if has_waiting {
            self.shared.clock.recheck();
        }
        Answer { shared }
    }

    pub(crate) fn max(&self) -> u64 {
        self.shared.max
    }

    /// Returns the reserved bytes, the number of requests that wait, and the number of answers that
    /// were ended.
    pub(crate) fn stats(&self) -> (u64, usize, u64) {
        let state = self.shared.state.lock();
        (state.used, state.waiting.len(), state.ended)
    }
}

impl Shared {
    fn reservation(self: &Arc<Self>, bytes: u64) -> Reservation {
        Reservation {
            bytes,
            shared: self.clone(),
        }
    }

    /// Gives memory to the first waiting requests, as far as it suffices.
    fn grant(self: &Arc<Self>) {
        let (mut granted, mut cancelled) = (Vec::new(), Vec::new());
        {
            let mut state = self.state.lock();
            while let Some(first) = state.waiting.front() {
                let is_cancelled = first.granted.is_closed();
                let (bytes, used) = (first.bytes, state.used.saturating_add(first.bytes));
                if !is_cancelled && used > self.max {
                    break;
                }
                let Some(first) = state.waiting.pop_front() else {
                    break;
                };
                if is_cancelled {
                    cancelled.push(first);
                } else {
                    state.used = used;
                    granted.push((first.granted, self.reservation(bytes)));
                }
            }
        }
        for (sender, reservation) in granted {
            // If the request was cancelled meanwhile, its memory comes back here.
            let _ = sender.send(reservation);
        }
    }

    fn answers(&self) -> Vec<Arc<dyn Unread>> {
        let state = self.state.lock();
        if state.waiting.is_empty() {
            return Vec::new();
        }
        state.answers.iter().filter_map(Weak::upgrade).collect()
    }
}

/// Removes requests that were cancelled from the head of the queue.
struct Cleanup<'a>(&'a Arc<Shared>);

impl Drop for Cleanup<'_> {
    fn drop(&mut self) {
        self.0.grant();
    }
}

impl Reservation {
    /// Changes the size to that of the answer, which is known now. It may exceed the bound by what
    /// the estimate was too low.
    pub(crate) fn resize(&mut self, bytes: u64) {
        {
            let mut state = self.shared.state.lock();
            state.used = (state.used - self.bytes).saturating_add(bytes);
        }
        let shrinks = bytes < self.bytes;
        self.bytes = bytes;
        if shrinks {
            self.shared.grant();
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shared.state.lock().used -= self.bytes;
        self.shared.grant();
    }
}

/// The clock ends answers that are not read while requests wait.
impl Timed for Shared {
    fn next_due(&self) -> Option<Duration> {
        let answers = self.answers();
        let read_at = answers.iter().filter_map(|answer| answer.read_at()).min();
        read_at.map(|read_at| read_at.saturating_add(UNREAD_MAX))
    }

    fn run_due(self: Arc<Self>) {
        let now = self.clock.now();
        let mut unread: Vec<_> = self
            .answers()
            .into_iter()
            .filter_map(|answer| Some((answer.read_at()?, answer)))
            .filter(|(read_at, _)| read_at.saturating_add(UNREAD_MAX) <= now)
            .collect();
        unread.sort_by_key(|(read_at, _)| *read_at);
        for (read_at, answer) in unread {
            if self.state.lock().waiting.is_empty() {
                return;
            }
            if answer.end(read_at) {
                self.state.lock().ended += 1;
            }
        }
    }
}

/// The content of an answer with its memory. Clones share both.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    shared: Arc<AnswerShared<T>>,
}

struct AnswerShared<T> {
    clock: Arc<dyn Clock>,
    /// A leaf lock: held while the next part of the answer is encoded. Only the clock, which takes it for a
    /// look or to take the content out, contends for it.
    state: Mutex<AnswerState<T>>,
}

struct AnswerState<T> {
    /// `None` if the answer was ended.
    content: Option<(T, Reservation)>,
    /// The time of the last read, of the end of the last work, or of the start.
    read_at: Duration,
    /// The number of parts that the server has taken and the client cannot read yet.
    in_work: usize,
}

/// A part of an answer that waits for a worker or is on one. The client does not keep anybody
/// waiting meanwhile.
#[derive(Debug)]
pub(crate) struct InWork<T>(Answer<T>);

impl<T> Answer<T> {
    /// Calls `read` with the content, for the next part of the answer. Returns `None` if the answer
    /// was ended.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&mut T) -> R) -> Option<R> {
        let now = self.shared.clock.now();
        let mut state = self.shared.state.lock();
        state.read_at = now;
        state.content.as_mut().map(|(content, _)| read(content))
    }

    /// Releases the content and its memory after the last read.
    pub(crate) fn finish(&self) {
        // Dropped after the lock is released.
        let _content = self.shared.state.lock().content.take();
    }

    /// Returns a guard: the answer is not ended while it exists.
    pub(crate) fn in_work(&self) -> InWork<T> {
        self.shared.state.lock().in_work += 1;
        InWork(self.clone())
    }
}

impl<T> Drop for InWork<T> {
    fn drop(&mut self) {
        let now = self.0.shared.clock.now();
        let mut state = self.0.shared.state.lock();
        state.in_work -= 1;
        state.read_at = now;
    }
}

impl<T> Clone for Answer<T> {
    fn clone(&self) -> Self {
        let shared = self.shared.clone();
        Self { shared }
    }
}

/// An answer of any type.
trait Unread: Send + Sync {
    /// Returns the time of the last read, or `None` if the answer was ended.
    fn read_at(&self) -> Option<Duration>;
    /// Drops the content unless it was read after `read_at`. Returns whether it did.
    fn end(&self, read_at: Duration) -> bool;
}

impl<T: Send> Unread for AnswerShared<T> {
    fn read_at(&self) -> Option<Duration> {
        let now = self.clock.now();
        let state = self.state.lock();
        let read_at = if state.in_work > 0 {
            now
        } else {
            state.read_at
        };
        state.content.is_some().then_some(read_at)
    }

    fn end(&self, read_at: Duration) -> bool {
        let content = {
            let mut state = self.state.lock();
            if state.read_at > read_at || state.in_work > 0 {
                return false;
            }
            state.content.take()
        };
        content.is_some()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("AnswerMemory")
            .field("max", &self.max)
            .field("used", &state.used)
            .field("waiting", &state.waiting.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reservation").field(&self.bytes).finish()
    }
}

impl<T> fmt::Debug for AnswerShared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerShared").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use futures_util::future::BoxFuture;
    use revstore_engine::ManualClock;

    use super::*;

    const MAX: u64 = 100;

    type Waiting<'a> = BoxFuture<'a, Result<Reservation, EtcdError>>;

    fn memory() -> (AnswerMemory, ManualClock) {
        let clock = ManualClock::new();
        (AnswerMemory::new(MAX, Arc::new(clock.clone())), clock)
    }

    fn reserve(memory: &AnswerMemory, bytes: u64) -> Reservation {
        let reserved = memory.reserve(bytes).now_or_never();
        reserved.expect("enough memory").expect("below the bound")
    }

    fn wait(memory: &AnswerMemory, bytes: u64) -> Waiting<'_> {
        let mut waiting = memory.reserve(bytes).boxed();
        assert!((&mut waiting).now_or_never().is_none());
        waiting
    }

    fn poll(waiting: &mut Waiting<'_>) -> Option<Reservation> {
        waiting.now_or_never().map(|granted| granted.unwrap())
    }

    #[test]
    fn memory_comes_back_and_is_given_in_the_order_of_arrival() {
        let (memory, _clock) = memory();
        let (first, second) = (reserve(&memory, 60), reserve(&memory, 40));
        let (mut large, mut small) = (wait(&memory, 70), wait(&memory, 10));
        drop(second);
        // The small one would fit, but is not the first.
        assert!(poll(&mut large).is_none() && poll(&mut small).is_none());
        assert!(memory.try_reserve(1).is_none());
        assert_eq!(memory.stats(), (60, 2, 0));
        drop(first);
        let (large, small) = (poll(&mut large), poll(&mut small));
        assert_eq!(memory.stats(), (80, 0, 0));
        assert!(large.is_some() && small.is_some());
        drop((large, small));
        assert_eq!(memory.stats(), (0, 0, 0));
    }

    #[test]
    fn a_cancelled_request_delays_nobody() {
        let (memory, _clock) = memory();
        let held = reserve(&memory, 50);
        let (large, mut small) = (wait(&memory, 100), wait(&memory, 50));
        drop(large);
        let granted = poll(&mut small).expect("it is the first now");
        // One that is cancelled after it got its memory returns it.
        let ready = wait(&memory, 20);
        drop(granted);
        assert_eq!(memory.stats().0, 70);
        drop(ready);
        drop(held);
        assert_eq!(memory.stats(), (0, 0, 0));
    }

    #[test]
    fn an_answer_above_the_bound_is_refused() {
        let (memory, _clock) = memory();
        let refused = memory.reserve(MAX + 1).now_or_never().unwrap();
        assert_eq!(refused.unwrap_err(), EtcdError::AnswerTooLarge);
        let clamped = memory.reserve_up_to(MAX + 1).now_or_never().unwrap();
        assert_eq!(clamped.unwrap().bytes, MAX);
        drop(reserve(&memory, MAX));
    }

    #[test]
    fn a_reservation_gets_the_size_of_its_answer() {
        let (memory, _clock) = memory();
        let mut reservation = reserve(&memory, 80);
        let mut waiting = wait(&memory, 30);
        reservation.resize(70);
        let granted = poll(&mut waiting).expect("enough memory");
        // What is in memory already is counted, also above the bound.
        reservation.resize(90);
        assert_eq!(memory.stats().0, 120);
        drop((reservation, granted));
        assert_eq!(memory.stats().0, 0);
    }

    #[test]
    fn unread_answers_end_only_while_a_request_waits_and_the_longest_unread_first() {
        let (memory, clock) = memory();
        let answer = |bytes| memory.hold(String::from("content"), reserve(&memory, bytes));
        let length = |answer: &Answer<String>| answer.read(|content| content.len());
        let oldest = answer(30);
        clock.advance(Duration::from_secs(1));
        let (other, read) = (answer(30), answer(40));
        clock.advance(2 * UNREAD_MAX);
        assert_eq!(memory.stats(), (100, 0, 0), "nobody waits");
        assert_eq!(length(&read), Some(7));
        let mut waiting = wait(&memory, 20);
        // The clock looks when the request begins to wait.
        clock.advance(Duration::ZERO);
        assert_eq!(memory.stats(), (90, 0, 1));
        assert!(poll(&mut waiting).is_some());
        assert_eq!(length(&oldest), None);
        assert_eq!((length(&other), length(&read)), (Some(7), Some(7)));
        // Answers that are read go on, whoever waits.
        let _waiting = wait(&memory, 100);
        for _ in 0..5 {
            clock.advance(UNREAD_MAX / 2);
            assert_eq!((length(&other), length(&read)), (Some(7), Some(7)));
        }
        clock.advance(UNREAD_MAX);
        assert_eq!((length(&other), length(&read)), (None, None));
        assert_eq!(memory.stats().2, 3);
    }

    #[test]
    fn an_answer_that_the_server_works_on_does_not_end() {
        let (memory, clock) = memory();
        let answer = memory.hold((), reserve(&memory, MAX));
        let in_work = answer.in_work();
        let mut waiting = wait(&memory, 1);
        clock.advance(5 * UNREAD_MAX);
        assert!(poll(&mut waiting).is_none());
        drop(in_work);
        clock.advance(UNREAD_MAX / 2);
        assert!(poll(&mut waiting).is_none());
        clock.advance(UNREAD_MAX);
        assert!(poll(&mut waiting).is_some());
        assert_eq!(answer.read(|()| ()), None);
    }

    #[test]
    fn ended_answers_are_forgotten() {
        let (memory, _clock) = memory();
        for _ in 0..10 * REGISTERED_MIN {
            drop(memory.hold((), reserve(&memory, 1)));
        }
        assert_eq!(memory.stats(), (0, 0, 0));
        assert!(memory.shared.state.lock().answers.len() <= REGISTERED_MIN);
    }
}
