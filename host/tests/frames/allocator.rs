//! An allocator that knows the maximum size of all allocations of a thread.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

/// The allocator of the system, with a count.
pub(crate) struct Counting;

thread_local! {
    static ALLOCATED: Cell<isize> = const { Cell::new(0) };
    static MAXIMUM: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // At its end, a thread has no counts any more.
    let _ = ALLOCATED.try_with(|allocated| {
        allocated.set(allocated.get() + bytes);
        let _ = MAXIMUM.try_with(|maximum| maximum.set(maximum.get().max(allocated.get())));
    });
}

// SAFETY: all calls are those of the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller keeps the rules of this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: the caller keeps the rules of this function.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Runs `work`, which starts no threads. Returns the maximum number of bytes that it has allocated at a time.
pub(crate) fn maximum_of(work: impl FnOnce()) -> usize {
    let before = ALLOCATED.get();
    MAXIMUM.set(before);
    work();
    (MAXIMUM.get() - before).unsigned_abs()
}
