//! The right to hash passwords, which is slow by design: who gets it next.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::status::EtcdError;

/// The maximum number of passwords that are hashed concurrently. Hashing is slow, and any client may call Authenticate.
const CONCURRENT_HASHES_MAX: usize = 4;

/// The maximum number of calls that wait to hash a password for one user, or for administrators. With bcrypt's default
/// cost the last of them waits for about 15 s. Further calls are refused.
const WAITING_HASHES_MAX: usize = 1_024;

/// For whom a password is hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hasher {
    /// An administrator, who was authorized, sets a password. Such calls come first.
    Administrator,
    /// Somebody logs in as this user. Users take turns, so that many logins as one user do not delay those as others.
    User(Arc<str>),
}

/// The permits to hash passwords.
#[derive(Debug)]
pub(crate) struct Hashing {
    /// A leaf lock, held for one change. No task is woken under it.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: usize,
    administrators: VecDeque<Waiter>,
    users: HashMap<Arc<str>, VecDeque<Waiter>>,
    /// The keys of `users` in the order of their turns.
    turns: VecDeque<Arc<str>>,
}

type Waiter = oneshot::Sender<Permit>;

/// The right to hash one password. The next call gets it when it is dropped.
pub(crate) struct Permit(Option<Arc<Hashing>>);

impl Hashing {
    pub(crate) fn new() -> Arc<Self> {
        let state = State {
            free: CONCURRENT_HASHES_MAX,
            administrators: VecDeque::new(),
            users: HashMap::new(),
            turns: VecDeque::new(),
        };
        Arc::new(Self {
            state: Mutex::new(state),
        })
    }

    /// Waits for a permit.
    ///
    /// # Errors
    /// [`EtcdError::TooManyRequests`] if too many calls of `hasher` wait.
    pub(crate) async fn acquire(self: &Arc<Self>, hasher: Hasher) -> Result<Permit, EtcdError> {
        let waiting = {
            let mut state = self.state.lock();
            if state.free > 0 {
                state.free -= 1;
                return Ok(Permit(Some(self.clone())));
            }
            state.enqueue(hasher)?
        };
        waiting.await.map_err(|_ended| EtcdError::Internal)
    }

    /// Gives a permit to the call that is next, or keeps it.
    fn release(self: Arc<Self>) {
        loop {
            let waiter = {
                let mut state = self.state.lock();
                let Some(waiter) = state.next() else {
                    state.free += 1;
                    return;
                };
                waiter
            };
            match waiter.send(Permit(Some(self.clone()))) {
                Ok(()) => return,
                // The call has ended meanwhile.
                Err(mut permit) => drop(permit.0.take()),
            }
        }
    }
}

impl State {
    fn enqueue(&mut self, hasher: Hasher) -> Result<oneshot::Receiver<Permit>, EtcdError> {
        let queue = match hasher {
            Hasher::Administrator => &mut self.administrators,
            Hasher::User(name) => self.users.entry(name).or_insert_with_key(|name| {
                self.turns.push_back(name.clone());
                VecDeque::new()
            }),
        };
        if queue.len() >= WAITING_HASHES_MAX {
            queue.retain(|waiter| !waiter.is_closed());
            if queue.len() >= WAITING_HASHES_MAX {
                return Err(EtcdError::TooManyRequests);
            }
        }
        let (waiter, waiting) = oneshot::channel();
        queue.push_back(waiter);
        Ok(waiting)
    }

    fn next(&mut self) -> Option<Waiter> {
        if let Some(waiter) = self.administrators.pop_front() {
            return Some(waiter);
        }
        let name = self.turns.pop_front()?;
        let queue = self.users.get_mut(&name)?;
        let waiter = queue.pop_front();
        if queue.is_empty() {
            self.users.remove(&name);
        } else {
            self.turns.push_back(name);
        }
        waiter
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(hashing) = mem::take(&mut self.0) {
            hashing.release();
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    type Acquiring = Pin<Box<dyn Future<Output = Result<Permit, EtcdError>>>>;

    fn acquire(hashing: &Arc<Hashing>, hasher: Hasher) -> Acquiring {
        let hashing = hashing.clone();
        let mut acquiring: Acquiring = Box::pin(async move { hashing.acquire(hasher).await });
        // The call enters its queue.
        assert!(poll(&mut acquiring).is_pending());
        acquiring
    }

    fn poll(acquiring: &mut Acquiring) -> Poll<Result<Permit, EtcdError>> {
        acquiring
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
    }

    fn user(name: &str) -> Hasher {
        Hasher::User(name.into())
    }

    /// Returns permits that are all in use.
    fn exhausted() -> (Arc<Hashing>, Vec<Permit>) {
        let hashing = Hashing::new();
        let permits = (0..CONCURRENT_HASHES_MAX)
            .map(|_| now(hashing.acquire(user("a"))).unwrap())
            .collect();
        (hashing, permits)
    }

    fn now<T>(future: impl Future<Output = T>) -> T {
        match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("the permits are exhausted"),
        }
    }

    fn permit(acquiring: &mut Acquiring) -> Permit {
        match poll(acquiring) {
            Poll::Ready(permit) => permit.unwrap(),
            Poll::Pending => panic!("the call still waits"),
        }
    }

    #[test]
    fn one_administrator_does_not_wait_for_many_logins() {
        let (hashing, mut permits) = exhausted();
        let mut logins: Vec<_> = (0..128).map(|_| acquire(&hashing, user("a"))).collect();
        let mut administrator = acquire(&hashing, Hasher::Administrator);
        let mut login = acquire(&hashing, user("root"));
        permits.pop();
        let administrator = permit(&mut administrator);
        assert!(logins.iter_mut().all(|login| poll(login).is_pending()));
        // The users take turns: the login of the administrator is the second one.
        drop(administrator);
        let first = permit(&mut logins[0]);
        assert!(poll(&mut login).is_pending());
        drop(first);
        drop(permit(&mut login));
        // The others are served in the order of their calls.
        for login in &mut logins[1..] {
            drop(permit(login));
        }
        drop(permits);
        assert_eq!(hashing.state.lock().free, CONCURRENT_HASHES_MAX);
        assert!(hashing.state.lock().users.is_empty());
    }

    #[test]
    fn calls_that_have_ended_are_passed_over() {
        let (hashing, mut permits) = exhausted();
        let ended = acquire(&hashing, user("a"));
        let mut later = acquire(&hashing, user("a"));
        let given = acquire(&hashing, user("b"));
        drop(ended);
        permits.pop();
        // This call ends when it has the permit, but has not seen it. Users take turns, so it is its turn.
        drop(given);
        drop(permit(&mut later));
        drop(permits);
        assert_eq!(hashing.state.lock().free, CONCURRENT_HASHES_MAX);
    }

    #[test]
    fn too_many_calls_of_one_user_are_refused() {
        let (hashing, permits) = exhausted();
        let mut waiting: Vec<_> = (0..WAITING_HASHES_MAX)
            .map(|_| acquire(&hashing, user("a")))
            .collect();
        let refused = now(hashing.acquire(user("a")));
        assert_eq!(refused.unwrap_err(), EtcdError::TooManyRequests);
        // Other users can still log in, and this one when a call has ended.
        drop((acquire(&hashing, user("b")), waiting.pop()));
        drop(acquire(&hashing, user("a")));
        drop(permits);
        assert!(
            waiting
                .iter_mut()
                .take(CONCURRENT_HASHES_MAX)
                .all(|call| poll(call).is_ready())
        );
    }
}
