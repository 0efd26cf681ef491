//! The replacement of the pool under loom and shuttle and, with `--cfg revstore_heap`, for
//! sanitizers: it allocates from the program's allocator, so that each allocation is tracked.

#[cfg(not(any(loom, shuttle)))]
use std::alloc::dealloc;
use std::alloc::{Layout, alloc, handle_alloc_error};
use std::ptr::NonNull;

/// Allocates memory for a layout that is not empty.
pub(crate) fn allocate(layout: Layout) -> NonNull<u8> {
    // SAFETY: the layout is not empty.
    let memory = unsafe { alloc(layout) };
    NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout))
}

/// As the batch of the pool, without one.
#[derive(Debug)]
pub(crate) struct Batch;

impl Batch {
    pub(crate) fn expecting(_bytes: usize) -> Self {
        Self
    }

    /// As [`allocate`].
    #[expect(clippy::unused_self, reason = "as the batch of the pool")]
    pub(crate) fn allocate(&mut self, layout: Layout) -> NonNull<u8> {
        allocate(layout)
    }
}

/// Frees memory.
///
/// # Safety
/// The memory must come from [`allocate`] with the same layout, and must not be used any more.
#[cfg(not(any(loom, shuttle)))]
pub(crate) unsafe fn free(memory: NonNull<u8>, layout: Layout) {
    // SAFETY: guaranteed by the caller.
    unsafe { dealloc(memory.as_ptr(), layout) }
}

#[cfg(any(loom, shuttle))]
pub(crate) use quarantine::free;

/// Keeps freed memory for a while, so that a model can detect a use of it.
#[cfg(any(loom, shuttle))]
mod quarantine {
    use std::alloc::{Layout, dealloc};
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::ptr::NonNull;

    /// The maximum number of allocations that are kept after they were freed.
    const FREED_MAX: usize = 256;

    std::thread_local! {
        /// Loom and shuttle run all threads of a model on one thread of the system.
        static FREED: RefCell<VecDeque<(NonNull<u8>, Layout)>> = RefCell::default();
    }

    /// Frees memory.
    ///
    /// # Safety
    /// The memory must come from [`allocate`](super::allocate) with the same layout, and must not
    /// be used any more.
    pub(crate) unsafe fn free(memory: NonNull<u8>, layout: Layout) {
        let oldest = FREED.with(|freed| {
            let mut freed = freed.borrow_mut();
            freed.push_back((memory, layout));
            (freed.len() > FREED_MAX)
                .then(|| freed.pop_front())
                .flatten()
        });
        if let Some((memory, layout)) = oldest {
            // SAFETY: guaranteed by the caller of the `free` that has kept it.
            unsafe { dealloc(memory.as_ptr(), layout) }
        }
    }
}
