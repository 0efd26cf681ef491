//! Slots for one thread that allocates many.

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::NonNull;

use super::{CLASSES, Chunks, POOL, Pool, SLAB_BYTES, Slab, allocate, class_of, slot_bytes};

/// Allocates from slabs of its own, without a lock for each slot: beside a thread that frees many slots of the same size,
/// which would change the same slabs, an allocation then costs half. Up to a slab of each size is unused until the batch is dropped,
/// and its pages are provided until it is freed.
pub(crate) struct Batch {
    pool: &'static Pool,
    own: [Option<Own>; CLASSES],
    /// Whether there are slabs of its own.
    has_own: bool,
}

/// The number of bytes from which on a batch has slabs of its own: so many that a mostly unused slab of each of a few sizes
/// is little beside them.
const OWN_BYTES_MIN: usize = 16 * SLAB_BYTES;

/// A slab that only the batch allocates from. For others all its slots are in use, until they are freed.
#[derive(Clone, Copy)]
struct Own {
    slab: NonNull<Slab>,
    /// The number of slots that were allocated.
    taken: u16,
    slots: u16,
}

impl Batch {
    /// Begins a batch that will allocate about so many bytes.
    pub(crate) fn expecting(bytes: usize) -> Self {
        Self::of(&POOL, bytes)
    }

    fn of(pool: &'static Pool, bytes: usize) -> Self {
        Self {
            pool,
            own: [None; CLASSES],
            has_own: bytes >= OWN_BYTES_MIN,
        }
    }

    /// As [`allocate`].
    pub(crate) fn allocate(&mut self, layout: Layout) -> NonNull<u8> {
        let Some(class) = class_of(layout) else {
            return allocate(layout);
        };
        if !self.has_own {
            return self.pool.allocate(class, layout);
        }
        let own = match &mut self.own[class] {
            Some(own) if own.taken < own.slots => own,
            // A slab whose slots were all taken is as any other one.
            own => {
                let Some(slab) = self.pool.take_whole_slab(class) else {
                    handle_alloc_error(layout)
                };
                own.insert(slab)
            }
        };
        // SAFETY: the slab has more slots, and the next one was given to nobody.
        let memory = unsafe { Slab::slot(own.slab.as_ptr(), own.taken, slot_bytes(class)) };
        own.taken += 1;
        memory
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        for (class, own) in self.own.iter().enumerate() {
            if let Some(own) = own.filter(|own| own.taken < own.slots) {
                // SAFETY: the slab is one of this batch, which takes no more slots of it.
                unsafe { self.pool.return_rest(class, own.slab.as_ptr(), own.taken) };
            }
        }
    }
}

impl Pool {
    /// Takes a new slab for a size. All its slots are in use; the caller gives them out.
    fn take_whole_slab(&self, class: usize) -> Option<Own> {
        let free = self.chunks.lock().take_slab()?;
        // Nearly all slots are given out soon.
        free.populate();
        let slab = free.slab;
        let header = Slab::new(slot_bytes(class));
        let slots = header.slots;
        let header = Slab {
            touched: slots,
            used: slots,
            ..header
        };
        // SAFETY: only this thread has the slab, and it is large enough.
        unsafe { slab.write(header) };
        Some(Own {
            slab,
            taken: 0,
            slots,
        })
    }

    /// Frees the slots of a slab from `taken` on, which were never used.
    ///
    /// # Safety
    /// The slab must be one of [`take_whole_slab`](Self::take_whole_slab) for this class, of whose slots the caller gave
    /// out the first `taken` ones, fewer than all, and at least one.
    unsafe fn return_rest(&self, class: usize, slab: *mut Slab, taken: u16) {
        let mut class = self.classes[class].lock();
        // SAFETY: the slab is one of this class, which is locked. It is open if a slot of it was freed.
        let empty = unsafe {
            let header = &mut *slab;
            if header.is_full() {
                class.link(slab);
            }
            header.used -= header.slots - taken;
            header.touched = taken;
            class.unlink_if_unused(slab)
        };
        drop(class);
        if empty {
            let _unused = Chunks::return_slab(&self.chunks, slab);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::mpsc;

    use super::super::tests::{Allocation, free, layout, slabs_in_use, take};
    use super::{Batch, OWN_BYTES_MIN, Pool, Slab};

    fn pool() -> &'static Pool {
        Box::leak(Box::new(Pool::new()))
    }

    /// Allocates from a batch, as `take` does from the pool.
    fn take_of(batch: &mut Batch, bytes: usize, mark: u8) -> Allocation {
        let memory = batch.allocate(layout(bytes));
        Allocation::marked(memory, bytes, mark)
    }

    #[test]
    fn slots_of_a_batch_are_freed_by_another_thread_meanwhile() {
        let pool = pool();
        std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel::<Allocation>();
            scope.spawn(move || {
                let mut own = Vec::new();
                for (round, slot) in receiver.into_iter().enumerate() {
                    free(pool, &slot);
                    // Takes slots that were freed, of the slabs of the batch, too.
                    own.push(take(pool, 304, 7));
                    if round % 2 == 0 {
                        free(pool, &own.swap_remove(round % own.len()));
                    }
                }
                for slot in &own {
                    free(pool, slot);
                }
            });
            for round in 0..40_u8 {
                let mut batch = Batch::of(pool, OWN_BYTES_MIN);
                let mut kept = Vec::new();
                for number in 0..700 {
                    let slot = take_of(&mut batch, 300, round);
                    if number % 3 == 0 {
                        kept.push(slot);
                    } else {
                        sender.send(slot).unwrap();
                    }
                }
                drop(batch);
                for slot in &kept {
                    free(pool, slot);
                }
            }
        });
        assert_eq!(slabs_in_use(pool), 1);
    }

    #[test]
    fn a_batch_returns_what_it_has_not_given_out() {
        let pool = pool();
        let mut batch = Batch::of(pool, OWN_BYTES_MIN);
        let first = take_of(&mut batch, 100, 1);
        let other_size = take_of(&mut batch, 1000, 2);
        drop(batch);
        // The slab of the batch has free slots, which are used before another slab is taken.
        let slots = Slab::new(104).slots;
        let others: Vec<_> = (1..slots).map(|_| take(pool, 100, 3)).collect();
        assert_eq!(slabs_in_use(pool), 2);
        for slot in others.iter().chain([&first, &other_size]) {
            free(pool, slot);
        }
        // Each size keeps its last slab.
        assert_eq!(slabs_in_use(pool), 2);
    }

    #[test]
    fn a_slab_whose_slots_were_freed_before_the_end_of_the_batch_is_returned() {
        let pool = pool();
        let open = take(pool, 100, 1);
        let mut batch = Batch::of(pool, OWN_BYTES_MIN);
        let slot = take_of(&mut batch, 100, 2);
        free(pool, &slot);
        assert_eq!(slabs_in_use(pool), 2);
        drop(batch);
        assert_eq!(slabs_in_use(pool), 1);
        free(pool, &open);
    }

    #[test]
    fn a_small_batch_fills_slabs_that_others_use() {
        let pool = pool();
        let open = take(pool, 100, 1);
        let mut batch = Batch::of(pool, OWN_BYTES_MIN - 1);
        let slot = take_of(&mut batch, 100, 2);
        drop(batch);
        assert_eq!(slabs_in_use(pool), 1);
        for slot in [open, slot] {
            free(pool, &slot);
        }
    }

    #[test]
    fn large_allocations_are_those_of_the_program() {
        let mut batch = Batch::of(pool(), OWN_BYTES_MIN);
        let memory = batch.allocate(layout(5000));
        // SAFETY: the memory was allocated with this layout, and is not used.
        unsafe { super::super::free(memory, layout(5000)) };
        assert!(batch.own.iter().all(Option::is_none));
    }
}
