//! What stands in for the pool under loom: models look at the protocols, not at where memory is from.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ptr::NonNull;

/// What was freed last stays as it was for a while, so that a model can see that it is still used.
const KEPT_FREED: usize = 256;

std::thread_local! {
    /// Loom runs all threads of a model on one of the machine's.
    static FREED: RefCell<VecDeque<(NonNull<u8>, Layout)>> = RefCell::default();
}

/// Memory for a layout that is not empty.
pub(crate) fn allocate(layout: Layout) -> NonNull<u8> {
    // SAFETY: the layout is not empty.
    let memory = unsafe { alloc(layout) };
    NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout))
}

/// Gives memory back.
///
/// # Safety
/// It came from [`allocate`] with the same layout, and nobody uses it any more.
pub(crate) unsafe fn free(memory: NonNull<u8>, layout: Layout) {
    let oldest = FREED.with(|freed| {
        let mut freed = freed.borrow_mut();
        freed.push_back((memory, layout));
        (freed.len() > KEPT_FREED)
            .then(|| freed.pop_front())
            .flatten()
    });
    if let Some((memory, layout)) = oldest {
        // SAFETY: the caller had it from `allocate`, with this layout.
        unsafe { dealloc(memory.as_ptr(), layout) }
    }
}
