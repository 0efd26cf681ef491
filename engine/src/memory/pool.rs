//! Pool: where records and entries live.
//!
//! ```text
//! chunk, 4 MiB     [slab][slab][    ][slab] …      mapped as a whole, unmapped when empty
//! slab, 64 KiB     [about it][slot][slot][    ] …  slots of one size, given back when empty
//! ```
//!
//! A store has millions of small allocations that go in another order than they came. General
//! allocators round them up to sizes far apart, or mix sizes and then cannot give pages back because
//! something small is left on each. Slots here are rounded up by less than eight bytes, pages hold one
//! size only, and a slab without anything in it goes back to the system at once: what a compaction
//! removes is free for others, whatever allocator the program has.
//!
//! What is larger than [`SLOT_BYTES_MAX`] comes from that allocator.

use std::alloc::{Layout, handle_alloc_error};
use std::collections::{BTreeMap, BTreeSet};
use std::ptr::{self, NonNull};

use memmap2::{MmapMut, MmapRaw};

use crate::sync::{Mutex, Rank};

/// A slab, and what it is aligned to: its slots find it by leaving out the low bits of their address.
const SLAB_BYTES: usize = 64 << 10;
/// As many as the bit set of a chunk has bits.
const CHUNK_SLABS: usize = u64::BITS as usize;

/// What a slot is aligned to, and the step between the sizes of small ones.
const SLOT_ALIGN: usize = 8;
/// Up to here sizes are one step apart.
const FINE_BYTES_MAX: usize = 512;
/// From there on, they are this far apart.
const COARSE_STEP: usize = 32;
/// What is larger is no business of the pool.
const SLOT_BYTES_MAX: usize = 2048;
const CLASSES: usize =
    FINE_BYTES_MAX / SLOT_ALIGN + (SLOT_BYTES_MAX - FINE_BYTES_MAX) / COARSE_STEP;

/// The pool of the process: engines share it as they share the heap.
static POOL: Pool = Pool::new();

/// Memory for a layout that is not empty.
pub(crate) fn allocate(layout: Layout) -> NonNull<u8> {
    if let Some(class) = class_of(layout) {
        return POOL.allocate(class, layout);
    }
    // SAFETY: the layout is not empty.
    let memory = unsafe { std::alloc::alloc(layout) };
    NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout))
}

/// Gives memory back.
///
/// # Safety
/// It came from [`allocate`] with the same layout, and nobody uses it any more.
pub(crate) unsafe fn free(memory: NonNull<u8>, layout: Layout) {
    match class_of(layout) {
        // SAFETY: it came from this class.
        Some(class) => unsafe { POOL.free(class, memory) },
        // SAFETY: it came from `alloc`.
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
    /// Rank `PoolClass`. Held to take a slot or to give one back, and while a chunk is mapped.
    classes: [Mutex<Class>; CLASSES],
    /// Rank `PoolChunks`. Held to take a slab or to give one back.
    chunks: Mutex<Chunks>,
}

/// Slots of one size.
struct Class {
    /// The first of the slabs that have a slot to give; linked both ways.
    open: *mut Slab,
}

// SAFETY: the slabs of a class are only touched with the class locked.
unsafe impl Send for Class {}

/// What stands at the beginning of a slab.
struct Slab {
    next: *mut Slab,
    previous: *mut Slab,
    /// The slot that was given back last, [`NO_SLOT`] if none was; it names the one before it.
    returned: u16,
    /// Slots that were ever given; the others are untouched.
    begun: u16,
    /// Slots in use.
    live: u16,
    slots: u16,
}

const NO_SLOT: u16 = u16::MAX;

impl Slab {
    #[expect(clippy::cast_possible_truncation, reason = "a slab has fewer slots")]
    fn new(slot_bytes: usize) -> Self {
        Self {
            next: ptr::null_mut(),
            previous: ptr::null_mut(),
            returned: NO_SLOT,
            begun: 0,
            live: 0,
            slots: ((SLAB_BYTES - size_of::<Slab>()) / slot_bytes) as u16,
        }
    }

    fn is_full(&self) -> bool {
        self.live == self.slots
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
            let fresh = self.chunks.lock().take_slab();
            let Some(fresh) = fresh else {
                drop(class);
                handle_alloc_error(layout);
            };
            // SAFETY: the slab is this thread's alone and large enough.
            unsafe { fresh.write(Slab::new(slot_bytes)) };
            // SAFETY: it has just been made and belongs to this class.
            unsafe { class.link(fresh.as_ptr()) };
        }
        let slab = class.open;
        // SAFETY: an open slab is made, belongs to this class, which is locked, and has a slot to give:
        // one that came back and names another, or an untouched one inside of the slab.
        unsafe {
            let about = &mut *slab;
            let slot = match about.returned {
                NO_SLOT => {
                    about.begun += 1;
                    about.begun - 1
                }
                slot => slot,
            };
            about.live += 1;
            let memory = slab.add(1).cast::<u8>().add(usize::from(slot) * slot_bytes);
            if about.returned == slot {
                about.returned = u16::from_ne_bytes(memory.cast::<[u8; 2]>().read());
            }
            if about.is_full() {
                class.unlink(slab);
            }
            NonNull::new_unchecked(memory)
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
        // SAFETY: slabs are aligned to their size, so this is the one that the slot lies in; it stays
        // while a slot is in use, and belongs to this class, which is locked.
        let empty = unsafe {
            let about = &mut *slab;
            if about.is_full() {
                class.link(slab);
            }
            let offset = memory.as_ptr().addr() - slab.add(1).addr();
            memory.cast::<[u8; 2]>().write(about.returned.to_ne_bytes());
            #[expect(clippy::cast_possible_truncation, reason = "a slab has fewer slots")]
            {
                about.returned = (offset / slot_bytes) as u16;
            }
            about.live -= 1;
            // The last open slab stays, or a slot that comes and goes would map it again each time.
            let empty = about.live == 0 && !(about.next.is_null() && about.previous.is_null());
            if empty {
                class.unlink(slab);
            }
            empty
        };
        drop(class);
        if empty {
            // Dropped, and so unmapped, without the lock.
            let _unused = Chunks::give_back(&self.chunks, slab);
        }
    }
}

impl Class {
    const fn new() -> Self {
        Self {
            open: ptr::null_mut(),
        }
    }

    /// Makes a slab the first open one.
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

    /// Takes a slab out of the open ones.
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

/// All mapped memory.
struct Chunks {
    /// By the address of their first slab.
    mapped: BTreeMap<usize, Chunk>,
    /// Those of them that have a slab to give: the lowest gives first, so that the others run empty.
    roomy: BTreeSet<usize>,
}

struct Chunk {
    memory: MmapRaw,
    /// Where the first slab begins in the memory.
    offset: usize,
    /// Bit i: whether slab i is free.
    free: u64,
}

impl Chunk {
    /// Maps memory; costs nothing but addresses until it is written to.
    fn map() -> Option<Self> {
        // One more, because what is mapped is aligned to pages only.
        let memory = MmapMut::map_anon((CHUNK_SLABS + 1) * SLAB_BYTES).ok()?;
        let memory = MmapRaw::from(memory);
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
            roomy: BTreeSet::new(),
        }
    }

    /// A slab for the caller alone, if the system has memory.
    fn take_slab(&mut self) -> Option<NonNull<Slab>> {
        if self.roomy.is_empty() {
            let chunk = Chunk::map()?;
            let address = chunk.slab(0).addr();
            self.mapped.insert(address, chunk);
            self.roomy.insert(address);
        }
        let address = *self.roomy.first()?;
        let chunk = self.mapped.get_mut(&address)?;
        let index = chunk.free.trailing_zeros();
        chunk.free &= !(1 << index);
        if chunk.free == 0 {
            self.roomy.remove(&address);
        }
        NonNull::new(chunk.slab(index as usize))
    }

    /// Takes a slab that nobody uses back, and gives its pages to the system. Returns its chunk if
    /// that is not needed any more.
    fn give_back(this: &Mutex<Self>, slab: *mut Slab) -> Option<Chunk> {
        let mut chunks = this.lock();
        let (address, chunk) = chunks.mapped.range_mut(..=slab.addr()).next_back()?;
        let address = *address;
        let within = slab.addr() - address;
        // SAFETY: nobody uses the slab, so nobody misses what was in it. Where the system does not
        // take the pages, they stay.
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
        chunks.roomy.insert(address);
        // One may stay empty for the next slab that is wanted.
        if is_unused && chunks.roomy.len() > 1 {
            chunks.roomy.remove(&address);
            return chunks.mapped.remove(&address);
        }
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::alloc::Layout;
    use std::ptr::NonNull;

    use super::{CHUNK_SLABS, CLASSES, Pool, SLOT_BYTES_MAX, class_of, slot_bytes};

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, 8).expect("a small layout")
    }

    #[test]
    fn a_class_has_room_for_its_sizes_and_little_more() {
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

    struct Allocation {
        memory: NonNull<u8>,
        class: usize,
        mark: u8,
    }

    fn take(pool: &Pool, bytes: usize, mark: u8) -> Allocation {
        let class = class_of(layout(bytes)).expect("a small size");
        let memory = pool.allocate(class, layout(bytes));
        // SAFETY: the slot is this test's alone.
        unsafe { memory.write_bytes(mark, slot_bytes(class)) };
        Allocation {
            memory,
            class,
            mark,
        }
    }

    fn give_back(pool: &Pool, slot: &Allocation) {
        let len = slot_bytes(slot.class);
        // SAFETY: it was written whole when it was taken.
        let bytes = unsafe { std::slice::from_raw_parts(slot.memory.as_ptr(), len) };
        assert!(
            bytes.iter().all(|byte| *byte == slot.mark),
            "two had one slot"
        );
        // SAFETY: it was taken from this class, and is not used again.
        unsafe { pool.free(slot.class, slot.memory) };
    }

    #[test]
    fn slots_are_each_holder_s_own_and_go_back_to_the_system() {
        let pool = Pool::new();
        let mut state = 1_u32;
        let mut random = |bound: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize % bound
        };
        let mut slots = Vec::new();
        for round in 0..60_000_usize {
            // Grows first and shrinks then.
            if slots.is_empty() || random(60_000) > round {
                let mark = round.to_le_bytes()[0];
                slots.push(take(&pool, 1 + random(SLOT_BYTES_MAX), mark));
            } else {
                give_back(&pool, &slots.swap_remove(random(slots.len())));
            }
        }
        assert!(pool.chunks.lock().mapped.len() > 1);
        for slot in &slots {
            give_back(&pool, slot);
        }
        let chunks = pool.chunks.lock();
        let kept: u32 = chunks
            .mapped
            .values()
            .map(|chunk| chunk.free.count_zeros())
            .sum();
        // Each size keeps the slab that it gives from.
        assert!(kept as usize <= CLASSES);
    }

    #[test]
    fn threads_share_a_class() {
        let pool = Pool::new();
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let pool = &pool;
                scope.spawn(move || {
                    let mut slots = Vec::new();
                    for round in 0..20_000_usize {
                        slots.push(take(pool, 300, thread));
                        if round % 3 == 0 {
                            give_back(pool, &slots.swap_remove(round % slots.len()));
                        }
                    }
                    for slot in &slots {
                        give_back(pool, slot);
                    }
                });
            }
        });
        let free: u32 = pool
            .chunks
            .lock()
            .mapped
            .values()
            .map(|chunk| chunk.free.count_ones())
            .sum();
        let slabs = pool.chunks.lock().mapped.len() * CHUNK_SLABS;
        assert_eq!(slabs - free as usize, 1);
    }
}
