//! A second thread that helps to copy a store.

use std::mem;
use std::num::NonZero;
use std::thread;
use std::time::Duration;

use super::part::{Extent, Part, PartCopy};
use crate::memory::Batch;
use crate::store::Store;
use crate::sync::{Arc, Condvar, Mutex, OnceLock, Rank};

/// The longest time that the caller waits for a part that the other thread copies: some times what a part takes. Then it
/// copies the part itself, because the thread may have no processor.
const WAIT_MAX: Duration = Duration::from_millis(1);

/// The parts of a copy, which two threads take one after the other.
///
/// - The caller copies all parts that the other thread does not begin, and those that it does not end in time. So the copy
///   is complete, whether that thread has started, waits for a processor or has panicked.
/// - Of two copies of a part, the first one is kept.
#[derive(Debug)]
struct Shared {
    parts: Vec<Part>,
    extent: Extent,
    /// About the number of bytes that each of the two threads allocates.
    batch_bytes: usize,
    /// Rank `Copy`. Held to take a part, and to hand in its copy.
    progress: Mutex<Progress>,
    /// Notified when the other thread has handed in a copy.
    handed_in: Condvar,
}

#[derive(Debug)]
struct Progress {
    /// `None` when the copy is complete, so that a thread which starts later does not keep the store.
    origin: Option<Arc<Store>>,
    /// The number of parts that were begun.
    begun: usize,
    /// A copy of each part, as far as they were handed in; nothing when the copy is complete.
    copies: Vec<Option<PartCopy>>,
}

/// Returns whether a second thread can run beside the caller.
pub(super) fn is_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    // Looked up once, because that reads files on Linux.
    let two =
        || thread::available_parallelism().is_ok_and(|threads| threads > NonZero::<usize>::MIN);
    cfg!(test) || *AVAILABLE.get_or_init(two)
}

/// Copies all parts on this thread and on another one, if that starts and as far as it gets. `bytes` is about the number of
/// bytes that this allocates.
pub(super) fn copy(
    origin: &Arc<Store>,
    extent: Extent,
    parts: Vec<Part>,
    bytes: usize,
) -> PartCopy {
    let shared = Arc::new(Shared::new(origin.clone(), extent, parts, bytes));
    let other = shared.clone();
    // Without a thread, all parts are copied here.
    let _ = thread::Builder::new()
        .name("revstore-fork".into())
        .spawn(move || other.help());
    shared.complete(origin)
}

impl Shared {
    fn new(origin: Arc<Store>, extent: Extent, parts: Vec<Part>, bytes: usize) -> Self {
        let progress = Progress {
            origin: Some(origin),
            begun: 0,
            copies: parts.iter().map(|_| None).collect(),
        };
        Self {
            parts,
            extent,
            batch_bytes: bytes / 2,
            progress: Mutex::new(Rank::Copy, progress),
            handed_in: Condvar::new(),
        }
    }

    /// Copies the parts that the other thread does not copy. Returns the copy of all of them.
    fn complete(&self, origin: &Store) -> PartCopy {
        let mut batch = Batch::expecting(self.batch_bytes);
        while let Some((at, origin)) = self.begin() {
            self.copy_part(at, &origin, &mut batch);
        }
        while let Some(at) = self.missing() {
            self.copy_part(at, origin, &mut batch);
        }
        PartCopy::joined(self.end().into_iter())
    }

    /// Copies parts on the other thread until none is left.
    fn help(&self) {
        let mut batch = Batch::expecting(self.batch_bytes);
        while let Some((at, origin)) = self.begin() {
            self.copy_part(at, &origin, &mut batch);
            self.handed_in.notify_all();
        }
    }

    /// Returns the next part that was not begun.
    fn begin(&self) -> Option<(usize, Arc<Store>)> {
        let mut progress = self.progress.lock();
        let at = progress.begun;
        let origin = progress.origin.clone()?;
        if at == self.parts.len() {
            return None;
        }
        progress.begun += 1;
        Some((at, origin))
    }

    fn copy_part(&self, at: usize, origin: &Store, batch: &mut Batch) {
        let copy = self.parts[at].copy(origin, self.extent, batch);
        let unused = {
            let mut progress = self.progress.lock();
            match progress.copies.get_mut(at) {
                Some(place @ None) => place.replace(copy),
                _ => Some(copy),
            }
        };
        if let Some(unused) = unused {
            unused.discard();
        }
    }

    /// Waits for the other thread, at most for a while. Returns a part that was not handed in.
    fn missing(&self) -> Option<usize> {
        let missing = |progress: &Progress| progress.copies.iter().position(Option::is_none);
        let mut progress = self.progress.lock();
        missing(&progress)?;
        self.handed_in.wait_for(&mut progress, WAIT_MAX);
        missing(&progress)
    }

    /// Returns all copies. What is handed in later is not used.
    fn end(&self) -> Vec<PartCopy> {
        let copies = {
            let mut progress = self.progress.lock();
            progress.origin = None;
            mem::take(&mut progress.copies)
        };
        copies.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::copy::tests::{Content, extent_of, filled, parts_of};
    use super::Shared;
    use crate::memory::Batch;
    use crate::sync::Arc;

    /// The other thread begins some parts, and gets no processor for the last of them until the copy is complete.
    #[test]
    fn parts_that_the_other_thread_does_not_hand_in_are_copied_by_the_caller() {
        let engine = filled(1_000);
        let origin = engine.store();
        let handles = Arc::strong_count(origin);
        let extent = extent_of(origin);
        let parts = parts_of(origin, extent);
        let (first, last) = (0, parts.len() - 1);
        assert!(last > 1);
        let shared = Shared::new(origin.clone(), extent, parts, 0);
        for at in [first, 1] {
            assert_eq!(shared.begin().map(|(at, _)| at), Some(at));
        }
        shared.copy_part(first, origin, &mut Batch::expecting(0));
        let copy = shared.complete(origin);
        assert_eq!(Content::of(copy, extent), Content::of_whole(origin, extent));
        shared.copy_part(1, origin, &mut Batch::expecting(0));
        assert!(shared.begin().is_none());
        assert_eq!(Arc::strong_count(origin), handles);
    }
}
