//! The pool: slots for records and entries.
//!
//! ```text
//! chunk, 4 MiB     [slab][slab][    ][slab] …      mapped as a whole, unmapped when empty
//! slab, 64 KiB     [header][slot][slot][    ] …    slots of one size, returned to the system when empty
//! ```
//!
//! A store has millions of small allocations, which are freed in another order than they were
//! allocated in. A general allocator rounds them up to sizes that are far apart, or mixes sizes and
//! cannot return a page because a small allocation is left on it. The slots of the pool are rounded
//! up by less than 8 bytes (32 above [`FINE_BYTES_MAX`]), a slab has slots of one size only, and a
//! slab without used slots is returned to the system at once. So other programs can use the memory
//! that a compaction frees, with any global allocator of this program.
//!
//! Allocations above [`SLOT_BYTES_MAX`] come from the program's allocator.

mod batch;

use std::alloc::{Layout, handle_alloc_error};
use std::collections::{BTreeMap, BTreeSet};
use std::ptr::{self, NonNull};

#[cfg(target_os = "linux")]
use memmap2::Advice;
use memmap2::{MmapMut, MmapRaw};

use crate::sync::{Arc, Mutex, Rank};

pub(crate) use batch::Batch;

/// The size and alignment of a slab. The address of a slot without its low bits is the address of
/// the slab.
const SLAB_BYTES: usize = 64 << 10;
/// The number of slabs in one chunk: the number of bits of its bit set.
const CHUNK_SLABS: usize = u64::BITS as usize;

/// The alignment of a slot, and the step between the sizes of small slots.
const SLOT_ALIGN: usize = 8;
/// The size of the largest small slot, in bytes.
const FINE_BYTES_MAX: usize = 512;
/// The step between the sizes of larger slots.
const COARSE_STEP: usize = 32;
/// The size of the largest slot, in bytes.
const SLOT_BYTES_MAX: usize = 2048;
/// The number of slot sizes.
const CLASSES: usize =
    FINE_BYTES_MAX / SLOT_ALIGN + (SLOT_BYTES_MAX - FINE_BYTES_MAX) / COARSE_STEP;

/// The pool of the process, which all engines share.
static POOL: Pool = Pool::new();

/// Allocates memory for a layout that is not empty.
pub(crate) fn allocate(layout: Layout) -> NonNull<u8> {
    if let Some(class) = class_of(layout) {
        return POOL.allocate(class, layout);
    }
    // SAFETY: the layout is not empty.
    let memory = unsafe { std::alloc::alloc(layout) };
    NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout))
}

/// Frees memory.
///
/// # Safety
/// The memory must come from [`allocate`] with the same layout, and must not be used any more.
pub(crate) unsafe fn free(memory: NonNull<u8>, layout: Layout) {
    match class_of(layout) {
        // SAFETY: guaranteed by the caller; the layout determines the class.
        Some(class) => unsafe { POOL.free(class, memory) },
        // SAFETY: guaranteed by the caller; this layout was allocated by `alloc`.
        None => unsafe { std::alloc::dealloc(memory.as_ptr(), layout) },
    }
}

fn class_of(layout: Layout) -> Option<usize> {
    let size = layout.size();
    if layout.align() > SLOT_ALIGN || size > SLOT_BYTES_MAX {
        None
    } else if size <= FINE_BYTES_MAX {
        Some(size.saturating_sub(1) / SLOT_ALIGN)
    } else {
        Some(FINE_BYTES_MAX / SLOT_ALIGN + (size - FINE_BYTES_MAX - 1) / COARSE_STEP)
    }
}

fn slot_bytes(class: usize) -> usize {
    match (class + 1).checked_sub(FINE_BYTES_MAX / SLOT_ALIGN) {
        None | Some(0) => (class + 1) * SLOT_ALIGN,
        Some(steps) => FINE_BYTES_MAX + steps * COARSE_STEP,
    }
}

struct Pool {
    /// Rank `PoolClass`. Held to allocate or free a slot, also while a chunk is mapped.
    classes: [Mutex<Class>; CLASSES],
    /// Rank `PoolChunks`. Held to take or return a slab.
    chunks: Mutex<Chunks>,
}

/// The slots of one size.
struct Class {
    /// The first of the slabs with a free slot, in a doubly linked list.
    open: *mut Slab,
}

// SAFETY: the slabs of a class are accessed only with the class locked.
unsafe impl Send for Class {}

/// The header of a slab.
struct Slab {
    next: *mut Slab,
    previous: *mut Slab,
    /// The slot that was freed last, or [`NO_SLOT`]. A freed slot contains the number of the
    /// previous one.
    freed: u16,
    /// The number of slots that were ever allocated. The memory of the others was never accessed.
    touched: u16,
    /// The number of slots in use.
    used: u16,
    slots: u16,
}

const NO_SLOT: u16 = u16::MAX;

impl Slab {
    #[expect(clippy::cast_possible_truncation, reason = "a slab has fewer slots")]
    fn new(slot_bytes: usize) -> Self {
        Self {
            next: ptr::null_mut(),
            previous: ptr::null_mut(),
            freed: NO_SLOT,
            touched: 0,
            used: 0,
            slots: ((SLAB_BYTES - size_of::<Slab>()) / slot_bytes) as u16,
        }
    }

    /// Returns the address of a slot.
    ///
    /// # Safety
    /// The slab must have that slot of that size.
    unsafe fn slot(slab: *mut Self, number: u16, slot_bytes: usize) -> NonNull<u8> {
        // SAFETY: the slot is inside of the slab, by the contract.
        unsafe {
            let slots = slab.add(1).cast::<u8>();
            NonNull::new_unchecked(slots.add(usize::from(number) * slot_bytes))
        }
    }

    fn is_full(&self) -> bool {
        self.used == self.slots
    }
}

impl Pool {
    const fn new() -> Self {
        Self {
            classes: [const { Mutex::new_static(Rank::PoolClass, Class::new()) }; CLASSES],
            chunks: Mutex::new_static(Rank::PoolChunks, Chunks::new()),
        }
    }

    fn allocate(&self, class: usize, layout: Layout) -> NonNull<u8> {
        let slot_bytes = slot_bytes(class);
        let mut class = self.classes[class].lock();
        if class.open.is_null() {
            let new = self.chunks.lock().take_slab();
            let Some(FreeSlab { slab: new, .. }) = new else {
                drop(class);
                handle_alloc_error(layout);
            };
            // SAFETY: only this thread has the slab, and it is large enough.
            unsafe { new.write(Slab::new(slot_bytes)) };
            // SAFETY: the slab is initialized and belongs to this class.
            unsafe { class.link(new.as_ptr()) };
        }
        let slab = class.open;
        // SAFETY: an open slab is initialized, belongs to this class, which is locked, and has a
        // free slot: a freed one, which contains the number of another, or one inside the slab that
        // was never used.
        unsafe {
            let header = &mut *slab;
            let slot = match header.freed {
                NO_SLOT => {
                    header.touched += 1;
                    header.touched - 1
                }
                slot => slot,
            };
            header.used += 1;
            let memory = Slab::slot(slab, slot, slot_bytes);
            if header.freed == slot {
                header.freed = u16::from_ne_bytes(memory.cast::<[u8; 2]>().read());
            }
            if header.is_full() {
                class.unlink(slab);
            }
            memory
        }
    }

    /// # Safety
    /// As for [`free`]; the class must be that of the layout.
    unsafe fn free(&self, class: usize, memory: NonNull<u8>) {
        let slot_bytes = slot_bytes(class);
        #[expect(clippy::cast_ptr_alignment, reason = "slabs are aligned to their size")]
        let slab = memory
            .as_ptr()
            .map_addr(|address| address & !(SLAB_BYTES - 1))
            .cast::<Slab>();
        let mut class = self.classes[class].lock();
        // SAFETY: slabs are aligned to their size, so this is the slab that contains the slot. It
        // is valid while one of its slots is in use, and belongs to this class, which is locked.
        let empty = unsafe {
            let header = &mut *slab;
            if header.is_full() {
                class.link(slab);
            }
            let offset = memory.as_ptr().addr() - slab.add(1).addr();
            memory.cast::<[u8; 2]>().write(header.freed.to_ne_bytes());
            #[expect(clippy::cast_possible_truncation, reason = "a slab has fewer slots")]
            {
                header.freed = (offset / slot_bytes) as u16;
            }
            header.used -= 1;
            class.unlink_if_unused(slab)
        };
        drop(class);
        if empty {
            // Dropped, and so unmapped, after the lock is released.
            let _unused = Chunks::return_slab(&self.chunks, slab);
        }
    }
}

impl Class {
    const fn new() -> Self {
        Self {
            open: ptr::null_mut(),
        }
    }

    /// Adds a slab at the front of the open ones.
    ///
    /// # Safety
    /// The slab must belong to this class and not be open.
    unsafe fn link(&mut self, slab: *mut Slab) {
        // SAFETY: open slabs belong to this class, which is borrowed.
        unsafe {
            (*slab).previous = ptr::null_mut();
            (*slab).next = self.open;
            if let Some(next) = self.open.as_mut() {
                next.previous = slab;
            }
        }
        self.open = slab;
    }

    /// Removes a slab from the open ones if none of its slots is used, and returns whether it was removed. The last open
    /// slab is kept; otherwise a slot that is allocated and freed in turn would map the slab again each time.
    ///
    /// # Safety
    /// The slab must belong to this class and be open.
    unsafe fn unlink_if_unused(&mut self, slab: *mut Slab) -> bool {
        // SAFETY: open slabs belong to this class, which is borrowed.
        unsafe {
            let header = &*slab;
            let is_last = header.next.is_null() && header.previous.is_null();
            let unused = header.used == 0 && !is_last;
            if unused {
                self.unlink(slab);
            }
            unused
        }
    }

    /// Removes a slab from the open ones.
    ///
    /// # Safety
    /// The slab must belong to this class and be open.
    unsafe fn unlink(&mut self, slab: *mut Slab) {
        // SAFETY: open slabs belong to this class, which is borrowed; none occurs twice.
        unsafe {
            let (previous, next) = ((*slab).previous, (*slab).next);
            match previous.as_mut() {
                Some(previous) => previous.next = next,
                None => self.open = next,
            }
            if let Some(next) = next.as_mut() {
                next.previous = previous;
            }
        }
    }
}

/// The mapped memory.
struct Chunks {
    /// All chunks, by the address of their first slab.
    mapped: BTreeMap<usize, Chunk>,
    /// The chunks with a free slab. The lowest is used first, so that the others become empty.
    with_free: BTreeSet<usize>,
}

struct Chunk {
    memory: Arc<MmapRaw>,
    /// The offset of the first slab in the memory.
    offset: usize,
    /// Bit i: whether slab i is free.
    free: u64,
}

/// A slab that was taken, in its chunk.
struct FreeSlab {
    slab: NonNull<Slab>,
    memory: Arc<MmapRaw>,
    offset: usize,
}

impl FreeSlab {
    /// Has the system provide all pages of the slab, for less than page faults at the first accesses cost. Without effect
    /// where it cannot.
    fn populate(&self) {
        let (memory, offset) = (&self.memory, self.offset);
        #[cfg(target_os = "linux")]
        let _ = memory.advise_range(Advice::PopulateWrite, offset, SLAB_BYTES);
        #[cfg(not(target_os = "linux"))]
        let _ = (memory, offset);
    }
}

impl Chunk {
    /// Maps memory. It takes only addresses until it is written to.
    fn map() -> Option<Self> {
        // One slab more, because mapped memory is aligned to pages only.
        let memory = MmapMut::map_anon((CHUNK_SLABS + 1) * SLAB_BYTES).ok()?;
        let memory = Arc::new(MmapRaw::from(memory));
        let offset = memory.as_ptr().align_offset(SLAB_BYTES);
        Some(Self {
            memory,
            offset,
            free: u64::MAX,
        })
    }

    fn slab(&self, index: usize) -> *mut Slab {
        let slab = self
            .memory
            .as_mut_ptr()
            .wrapping_add(self.offset + index * SLAB_BYTES);
        slab.cast()
    }
}

impl Chunks {
    const fn new() -> Self {
        Self {
            mapped: BTreeMap::new(),
            with_free: BTreeSet::new(),
        }
    }

    /// Removes and returns a free slab, or `None` if the system has no memory.
    fn take_slab(&mut self) -> Option<FreeSlab> {
        if self.with_free.is_empty() {
            let chunk = Chunk::map()?;
            let address = chunk.slab(0).addr();
            self.mapped.insert(address, chunk);
            self.with_free.insert(address);
        }
        let address = *self.with_free.first()?;
        let chunk = self.mapped.get_mut(&address)?;
        let index = chunk.free.trailing_zeros() as usize;
        chunk.free &= !(1 << index);
        if chunk.free == 0 {
            self.with_free.remove(&address);
        }
        Some(FreeSlab {
            slab: NonNull::new(chunk.slab(index))?,
            memory: chunk.memory.clone(),
            offset: chunk.offset + index * SLAB_BYTES,
        })
    }

    /// Marks an unused slab as free, and returns its pages to the system. Returns its chunk if that
    /// is no longer needed.
    fn return_slab(this: &Mutex<Self>, slab: *mut Slab) -> Option<Chunk> {
        let mut chunks = this.lock();
        let (address, chunk) = chunks.mapped.range_mut(..=slab.addr()).next_back()?;
        let address = *address;
        let within = slab.addr() - address;
        // SAFETY: the slab is unused, so its content may be discarded. If the call fails, the pages
        // are kept.
        #[cfg(unix)]
        let _ = unsafe {
            let memory = &chunk.memory;
            memory.unchecked_advise_range(
                memmap2::UncheckedAdvice::DontNeed,
                chunk.offset + within,
                SLAB_BYTES,
            )
        };
        chunk.free |= 1 << (within / SLAB_BYTES);
        let is_unused = chunk.free == u64::MAX;
        chunks.with_free.insert(address);
        // One empty chunk is kept for the next slab.
        if is_unused && chunks.with_free.len() > 1 {
            chunks.with_free.remove(&address);
            return chunks.mapped.remove(&address);
        }
        None
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::alloc::Layout;
    use std::ptr::NonNull;

    use super::{CLASSES, Pool, SLOT_BYTES_MAX, class_of, slot_bytes};

    pub(super) fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, 8).expect("a small layout")
    }

    #[test]
    fn slots_are_at_most_one_step_larger_than_the_allocation() {
        for bytes in 1..=SLOT_BYTES_MAX {
            let class = class_of(layout(bytes)).expect("a small size");
            assert!(class < CLASSES);
            let slot = slot_bytes(class);
            assert!(slot >= bytes && slot - bytes < if bytes <= 512 { 8 } else { 32 });
            assert_eq!(slot % 8, 0);
        }
        assert_eq!(class_of(layout(SLOT_BYTES_MAX + 1)), None);
        assert_eq!(class_of(Layout::new::<u128>()), None);
    }

    pub(super) struct Allocation {
        memory: NonNull<u8>,
        class: usize,
        mark: u8,
    }

    // SAFETY: a slot belongs to who has it.
    unsafe impl Send for Allocation {}

    impl Allocation {
        /// Writes the mark to all bytes of a new slot.
        pub(super) fn marked(memory: NonNull<u8>, bytes: usize, mark: u8) -> Self {
            let class = class_of(layout(bytes)).expect("a small size");
            // SAFETY: only this test has the slot.
            unsafe { memory.write_bytes(mark, slot_bytes(class)) };
            Self {
                memory,
                class,
                mark,
            }
        }
    }

    pub(super) fn take(pool: &Pool, bytes: usize, mark: u8) -> Allocation {
        let class = class_of(layout(bytes)).expect("a small size");
        Allocation::marked(pool.allocate(class, layout(bytes)), bytes, mark)
    }

    /// Returns the number of slabs that have a size.
    pub(super) fn slabs_in_use(pool: &Pool) -> usize {
        let chunks = pool.chunks.lock();
        let used = |chunk: &super::Chunk| chunk.free.count_zeros() as usize;
        chunks.mapped.values().map(used).sum()
    }

    pub(super) fn free(pool: &Pool, slot: &Allocation) {
        let len = slot_bytes(slot.class);
        // SAFETY: `take` has initialized all bytes.
        let bytes = unsafe { std::slice::from_raw_parts(slot.memory.as_ptr(), len) };
        assert!(
            bytes.iter().all(|byte| *byte == slot.mark),
            "a slot was allocated twice"
        );
        // SAFETY: the slot was allocated from this class and is not used again.
        unsafe { pool.free(slot.class, slot.memory) };
    }

    #[test]
    fn slots_do_not_overlap_and_are_returned_to_the_system() {
        let pool = Pool::new();
        let mut state = 1_u32;
        let mut random = |bound: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize % bound
        };
        let mut slots = Vec::new();
        for round in 0..60_000_usize {
            // Allocates more than it frees at first, later the other way round.
            if slots.is_empty() || random(60_000) > round {
                let mark = round.to_le_bytes()[0];
                slots.push(take(&pool, 1 + random(SLOT_BYTES_MAX), mark));
            } else {
                free(&pool, &slots.swap_remove(random(slots.len())));
            }
        }
        assert!(pool.chunks.lock().mapped.len() > 1);
        for slot in &slots {
            free(&pool, slot);
        }
        // Each size keeps one slab.
        assert!(slabs_in_use(&pool) <= CLASSES);
    }

    #[test]
    fn threads_that_share_a_slot_size_get_separate_slots() {
        let pool = Pool::new();
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let pool = &pool;
                scope.spawn(move || {
                    let mut slots = Vec::new();
                    for round in 0..20_000_usize {
                        slots.push(take(pool, 300, thread));
                        if round % 3 == 0 {
                            free(pool, &slots.swap_remove(round % slots.len()));
                        }
                    }
                    for slot in &slots {
                        free(pool, slot);
                    }
                });
            }
        });
        assert_eq!(slabs_in_use(&pool), 1);
    }
}
