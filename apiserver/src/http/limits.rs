//! Limits of requests in flight, by their weight.
//!
//! The numbers are those of `--max-requests-inflight` and `--max-mutating-requests-inflight`; the weights are estimated
//! as API priority and fairness does it. Requests beyond a limit wait in the order of arrival.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::auth::MASTERS;
use crate::http::{Exchange, Front};

/// The number of objects that a list reads for each unit of its weight.
const OBJECTS_PER_SEAT: usize = 100;
/// The maximum weight of a request.
const SEATS_MAX: usize = 10;
/// The maximum number of requests that wait at one limit. Further ones are refused.
const QUEUED_MAX: usize = 1_000;
/// The subresources whose requests take as long as the client wants. They are not counted.
const LONG_RUNNING: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];
/// The paths that are not counted.
const HEALTH: [&str; 3] = ["/healthz", "/livez", "/readyz"];

/// The limits of a server.
#[derive(Debug)]
pub(crate) struct Limits {
    reads: Limit,
    writes: Limit,
    /// The longest time for which a request waits.
    wait: Duration,
    /// The number of requests whose answers have not begun.
    in_flight: watch::Sender<usize>,
}

/// The part of a limit that a request has, until it is dropped.
pub(crate) type Seats = OwnedSemaphorePermit;

/// The error of a request beyond a limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooManyRequests;

/// What a request does to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    is_write: bool,
    seats: u32,
    /// Whether the request is a watch that begins with all objects.
    pub(crate) is_initial_watch: bool,
}

#[derive(Debug)]
struct Limit {
    /// `None` for no limit.
    seats: Option<Arc<Semaphore>>,
    max: u32,
    queued: AtomicUsize,
}

impl Limits {
    /// Returns limits for reads and writes, each 0 for none. Requests wait for a quarter of their time limit, as in
    /// kube-apiserver.
    pub(crate) fn new(reads: u32, writes: u32, request_timeout: Duration) -> Self {
        Self {
            reads: Limit::new(reads),
            writes: Limit::new(writes),
            wait: request_timeout / 4,
            in_flight: watch::Sender::new(0),
        }
    }

    /// Waits until a request may begin.
    ///
    /// # Errors
    /// Too many requests wait, or this one has waited for too long.
    pub(crate) async fn enter(&self, work: Work) -> Result<Option<Seats>, TooManyRequests> {
        let limit = if work.is_write {
            &self.writes
        } else {
            &self.reads
        };
        limit.acquire(work.seats, self.wait).await
    }

    /// Returns the numbers of requests that wait, with the names that metrics have for them.
    pub(crate) fn waiting(&self) -> [(&'static str, usize); 2] {
        // Relaxed: the counts order nothing.
        [("mutating", &self.writes), ("readOnly", &self.reads)]
            .map(|(kind, limit)| (kind, limit.queued.load(Ordering::Relaxed)))
    }

    /// Counts a request until the value is dropped.
    pub(crate) fn begin(&self) -> InFlight<'_> {
        self.in_flight.send_modify(|count| *count += 1);
        InFlight(&self.in_flight)
    }

    /// Waits until no request is in flight.
    pub(crate) async fn drained(&self) {
        // An error would mean that the sender is gone.
        let _ = self
            .in_flight
            .subscribe()
            .wait_for(|count| *count == 0)
            .await;
    }
}

/// A request in flight.
pub(crate) struct InFlight<'a>(&'a watch::Sender<usize>);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Limit {
    fn new(max: u32) -> Self {
        Self {
            seats: (max > 0).then(|| Arc::new(Semaphore::new(max as usize))),
            max,
            queued: AtomicUsize::new(0),
        }
    }

    async fn acquire(&self, seats: u32, wait: Duration) -> Result<Option<Seats>, TooManyRequests> {
        let Some(all) = &self.seats else {
            return Ok(None);
        };
        let seats = seats.min(self.max);
        if let Ok(acquired) = all.clone().try_acquire_many_owned(seats) {
            return Ok(Some(acquired));
        }
        let _queued = Queued::add(&self.queued)?;
        match tokio::time::timeout(wait, all.clone().acquire_many_owned(seats)).await {
            Ok(Ok(acquired)) => Ok(Some(acquired)),
            _ => Err(TooManyRequests),
        }
    }
}

/// Counts a waiting request while it exists.
struct Queued<'a>(&'a AtomicUsize);

impl<'a> Queued<'a> {
    fn add(count: &'a AtomicUsize) -> Result<Self, TooManyRequests> {
        // Relaxed: the count orders nothing.
        let before = count.fetch_add(1, Ordering::Relaxed);
        let queued = Self(count);
        if before < QUEUED_MAX {
            Ok(queued)
        } else {
            Err(TooManyRequests)
        }
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        // Relaxed: as above.
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns what a request does to the limits; `None` for one that is not counted: those of administrators, of health
/// checks, and those that take as long as the client wants.
pub(crate) fn work(front: &Front, exchange: &Exchange) -> Option<Work> {
    let info = &exchange.info;
    if exchange.user.groups.iter().any(|group| group == MASTERS) {
        return None;
    }
    let mut work = Work {
        is_write: false,
        seats: 1,
        is_initial_watch: false,
    };
    let Some(target) = &info.target else {
        let mut words = HEALTH.iter();
        let is_health = words.any(|word| {
            let rest = info.path.strip_prefix(word);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        work.is_write = !["get", "head", "options"].contains(&info.verb);
        return (!is_health).then_some(work);
    };
    if LONG_RUNNING.contains(&&*target.subresource) {
        return None;
    }
    let text = |name| exchange.query.first(name).unwrap_or_default();
    let is_list = match info.verb {
        "list" => true,
        // A watch without a version begins with all objects as well.
        "watch" => {
            work.is_initial_watch =
                ["", "0"].contains(&text("resourceVersion")) || text("sendInitialEvents") == "true";
            work.is_initial_watch
        }
        "get" => false,
        _ => {
            work.is_write = true;
            false
        }
    };
    if is_list && target.selected_name.is_empty() && target.name.is_empty() {
        let find = front
            .catalog
            .find_served(&target.group, &target.version, &target.resource);
        let stored = find.ok().and_then(|resource| resource.stored.clone());
        let objects = stored.map_or(0, |stored| stored.cache.object_count());
        let has_selector = !text("labelSelector").is_empty() || !text("fieldSelector").is_empty();
        let limit = text("limit")
            .parse()
            .ok()
            .filter(|limit| *limit > 0 && !has_selector);
        work.seats = seats(objects.min(limit.unwrap_or(usize::MAX)));
    }
    Some(work)
}

/// Returns the weight of a list of this number of objects.
fn seats(objects: usize) -> u32 {
    let seats = objects.div_ceil(OBJECTS_PER_SEAT).clamp(1, SEATS_MAX);
    u32::try_from(seats).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Work = Work {
        is_write: false,
        seats: 1,
        is_initial_watch: false,
    };

    #[test]
    fn lists_weigh_a_seat_for_each_hundred_objects() {
        let weights = [0, 1, 100, 101, 999, 100_000].map(seats);
        assert_eq!(weights, [1, 1, 1, 2, 10, 10]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_beyond_the_limit_waits_for_its_turn_or_for_a_quarter_of_its_time() {
        let limits = Limits::new(10, 1, Duration::from_secs(60));
        let heavy = Work { seats: 99, ..READ };
        let first = limits.enter(heavy).await;
        assert!(first.is_ok());
        assert_eq!(limits.enter(READ).await.err(), Some(TooManyRequests));
        let write = Work {
            is_write: true,
            ..READ
        };
        assert!(limits.enter(write).await.is_ok_and(|seats| seats.is_some()));
        let (second, ()) = tokio::join!(limits.enter(READ), async { drop(first) });
        assert!(second.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_refuses_at_once() {
        let limits = Limits::new(1, 0, Duration::from_secs(60));
        let held = limits.enter(READ).await;
        limits.reads.queued.store(QUEUED_MAX, Ordering::Relaxed);
        let begun = tokio::time::Instant::now();
        assert_eq!(limits.enter(READ).await.err(), Some(TooManyRequests));
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert_eq!(limits.reads.queued.load(Ordering::Relaxed), QUEUED_MAX);
        drop(held);
        // 0 is no limit.
        let write = Work {
            is_write: true,
            ..READ
        };
        assert!(limits.enter(write).await.is_ok_and(|seats| seats.is_none()));
    }
}
