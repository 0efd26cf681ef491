//! `Thin`: a header and bytes in one shared allocation, with a handle of one word.
//!
//! `triomphe::ThinArc` would need 16 bytes per allocation for its count and length. `Thin` needs 8,
//! and a store has several of them per key.
//!
//! | part | written | read |
//! |---|---|---|
//! | `references` | by every handle, atomically | by every handle, atomically |
//! | `size` | by [`Thin::new`] only | by every handle |
//! | header, bytes | by [`Thin::new`] and, through the only handle, by [`Thin::get_mut`] | by every handle |

use std::alloc::Layout;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::slice;

use crate::memory::pool;
use crate::sync::epoch::Guard;
use crate::sync::{AtomicPtr, Ordering, ReferenceCount};

/// The maximum number of bytes after a header.
pub(crate) const BYTES_MAX: usize = (u32::MAX >> KIND_BITS) as usize;

/// The number of bits of `size` that store the kind.
const KIND_BITS: u32 = 2;

/// The maximum number of handles of one allocation. With more the program aborts; only leaked
/// handles can reach this number.
const REFERENCES_MAX: u32 = i32::MAX as u32;

/// A reference-counted handle on a header `H` and bytes. The last handle frees them.
pub(crate) struct Thin<H> {
    block: NonNull<Block<H>>,
    /// Declares to the compiler that the last handle drops an `H`.
    _owned: PhantomData<Block<H>>,
}

/// The allocation. The bytes follow without a gap.
#[repr(C)]
struct Block<H> {
    references: ReferenceCount,
    /// The number of bytes, and in the lowest [`KIND_BITS`] the kind.
    size: u32,
    /// Whether the allocation was freed, for models to detect a use after that.
    #[cfg(any(loom, shuttle))]
    freed: crate::sync::AtomicBool,
    header: H,
}

// SAFETY: a handle lends `&H` and `&[u8]` on its thread, and the last one drops the `H` on its
// thread.
unsafe impl<H: Send + Sync> Send for Thin<H> {}
// SAFETY: as for `Send`; a shared handle can be cloned to another thread.
unsafe impl<H: Send + Sync> Sync for Thin<H> {}

impl<H> Thin<H> {
    /// The size of an allocation without its bytes.
    pub(crate) const OVERHEAD: usize = size_of::<Block<H>>();

    /// Allocates a header and the concatenation of the parts. `kind` is a number for the caller's
    /// use.
    ///
    /// # Panics
    /// If the parts together are longer than [`BYTES_MAX`], or the kind has more than two bits.
    pub(crate) fn new(header: H, kind: u8, parts: [&[u8]; 2]) -> Self {
        Self::allocated_by(pool::allocate, header, kind, parts)
    }

    /// As [`new`](Self::new), with memory of a batch.
    pub(crate) fn new_in(batch: &mut pool::Batch, header: H, kind: u8, parts: [&[u8]; 2]) -> Self {
        Self::allocated_by(|layout| batch.allocate(layout), header, kind, parts)
    }

    #[inline]
    fn allocated_by(
        allocate: impl FnOnce(Layout) -> NonNull<u8>,
        header: H,
        kind: u8,
        parts: [&[u8]; 2],
    ) -> Self {
        let len = parts[0].len() + parts[1].len();
        assert!(
            len <= BYTES_MAX && u32::from(kind) < 1 << KIND_BITS,
            "the caller checks the length"
        );
        #[expect(clippy::cast_possible_truncation, reason = "checked above")]
        let size = ((len as u32) << KIND_BITS) | u32::from(kind);
        let layout = Self::layout(len);
        // The layout is not empty: `Block` has two numbers.
        let block = allocate(layout).cast::<Block<H>>();
        // SAFETY: the memory is new, aligned for `Block`, and has room for it and for the `len`
        // bytes of the parts after it.
        unsafe {
            block.write(Block {
                references: ReferenceCount::new(1),
                size,
                #[cfg(any(loom, shuttle))]
                freed: crate::sync::AtomicBool::new(false),
                header,
            });
            let mut to = block.add(1).cast::<u8>();
            for part in parts {
                ptr::copy_nonoverlapping(part.as_ptr(), to.as_ptr(), part.len());
                to = to.add(part.len());
            }
        }
        Self {
            block,
            _owned: PhantomData,
        }
    }

    #[inline]
    pub(crate) fn header(&self) -> &H {
        &self.block().header
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `new` wrote that many bytes after `Block`, and they are valid as long as the
        // handle.
        unsafe { slice::from_raw_parts(self.block.add(1).cast().as_ptr(), self.block().len()) }
    }

    #[inline]
    pub(crate) fn kind(&self) -> u8 {
        self.block().size.to_le_bytes()[0] & ((1 << KIND_BITS) - 1)
    }

    /// Returns the header and the bytes for writing, if this is the only handle.
    pub(crate) fn get_mut(&mut self) -> Option<(&mut H, &mut [u8])> {
        // Acquire: pairs with the Release in `drop`. With Relaxed, a read through another handle
        // could take place after the write.
        if self.block().references.load(Ordering::Acquire) != 1 {
            return None;
        }
        let len = self.block().len();
        // SAFETY: no other handle exists, and none can be created while this one is borrowed;
        // header and bytes do not overlap.
        unsafe {
            let bytes = self.block.add(1).cast().as_ptr();
            Some((
                &mut (*self.block.as_ptr()).header,
                slice::from_raw_parts_mut(bytes, len),
            ))
        }
    }

    /// Returns whether both handles refer to the same allocation.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.block == other.block
    }

    #[inline]
    fn block(&self) -> &Block<H> {
        // SAFETY: the allocation is valid as long as a handle exists, and is changed only through a
        // handle that is the only one.
        unsafe { self.block.as_ref() }
    }

    fn layout(len: usize) -> Layout {
        let bytes = Layout::array::<u8>(len);
        let both = bytes.and_then(|bytes| Layout::new::<Block<H>>().extend(bytes));
        // BYTES_MAX is far below the limit of a layout.
        let (layout, offset) = both.expect("a small layout");
        debug_assert_eq!(offset, size_of::<Block<H>>());
        layout
    }
}

impl<H> Block<H> {
    #[inline]
    fn len(&self) -> usize {
        (self.size >> KIND_BITS) as usize
    }
}

impl<H> Clone for Thin<H> {
    fn clone(&self) -> Self {
        // Relaxed: the cloned handle keeps the allocation, so no other access depends on this one.
        let before = self.block().references.fetch_add(1, Ordering::Relaxed);
        #[cfg(any(loom, shuttle))]
        assert!(
            !self.block().freed.load(Ordering::Relaxed),
            "I2: a freed allocation is used"
        );
        if before > REFERENCES_MAX {
            // An overflow would free memory that is in use.
            std::process::abort();
        }
        Self {
            block: self.block,
            _owned: PhantomData,
        }
    }
}

impl<H> Drop for Thin<H> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire below, so that all reads through this handle come before
        // the allocation is freed.
        if self.block().references.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        // Acquire: pairs with the Release of all other handles. A load instead of a fence, which
        // ThreadSanitizer does not support.
        self.block().references.load(Ordering::Acquire);
        #[cfg(any(loom, shuttle))]
        self.block().freed.store(true, Ordering::Relaxed);
        let layout = Self::layout(self.block().len());
        // SAFETY: this was the last handle; the memory came from the pool with the same layout.
        unsafe {
            ptr::drop_in_place(&raw mut (*self.block.as_ptr()).header);
            pool::free(self.block.cast(), layout);
        }
    }
}

impl<H: fmt::Debug> fmt::Debug for Thin<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Thin").field(self.header()).finish()
    }
}

/// A handle that was not counted. A pin protects what it refers to.
pub(crate) struct Borrowed<'g, T>(ManuallyDrop<T>, PhantomData<&'g T>);

impl<'g, H> Borrowed<'g, Thin<H>> {
    pub(crate) fn of(handle: &'g Thin<H>) -> Self {
        let handle = Thin {
            block: handle.block,
            _owned: PhantomData,
        };
        Self(ManuallyDrop::new(handle), PhantomData)
    }

    /// Returns the handle without its lifetime. It must not be dropped.
    pub(crate) fn into_inner(self) -> ManuallyDrop<Thin<H>> {
        self.0
    }
}

impl<T> Deref for Borrowed<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

/// A cell for one handle, which can be read without a lock.
///
/// The cell is empty, contains a handle, or is closed. A closed cell stays closed.
pub(crate) struct AtomicThin<H> {
    /// Null, [`AtomicThin::CLOSED`], or the pointer of a handle that the cell owns.
    pointer: AtomicPtr<Block<H>>,
    _owned: PhantomData<Thin<H>>,
}

impl<H> AtomicThin<H> {
    /// A pointer to no allocation: aligned for `Block`, in the first page, which is never mapped.
    const CLOSED: *mut Block<H> = NonNull::dangling().as_ptr();

    pub(crate) fn new() -> Self {
        Self::of(None)
    }

    /// Creates a cell with a handle, or without one.
    pub(crate) fn of(handle: Option<Thin<H>>) -> Self {
        let block = |handle: Thin<H>| ManuallyDrop::new(handle).block.as_ptr();
        Self {
            pointer: AtomicPtr::new(handle.map_or(ptr::null_mut(), block)),
            _owned: PhantomData,
        }
    }

    /// Returns the handle in the cell, without counting a reference.
    pub(crate) fn load<'g>(&'g self, _guard: &'g Guard) -> Option<Borrowed<'g, Thin<H>>> {
        // Acquire: pairs with the Release in `replace`. With Relaxed, the pointer could be read
        // before the content that it points to.
        let handle = Self::handle(self.pointer.load(Ordering::Acquire));
        // A handle leaves the cell only by `replace`, so it is valid for the pin.
        handle.map(|handle| Borrowed(ManuallyDrop::new(handle), PhantomData))
    }

    /// Stores a handle, or none, and returns the previous one. Pins of this time may still use it.
    ///
    /// # Panics
    /// If the cell is closed.
    pub(crate) fn replace(&self, new: Option<Thin<H>>) -> Option<ManuallyDrop<Thin<H>>> {
        let new = new.map_or(ptr::null_mut(), |new| ManuallyDrop::new(new).block.as_ptr());
        // Release: pairs with the Acquire in `load`. Acquire: pairs with the Release of the
        // `replace` that stored the returned handle.
        let old = self.pointer.swap(new, Ordering::AcqRel);
        assert!(old != Self::CLOSED, "I7: a retired entry is used");
        Self::handle(old).map(ManuallyDrop::new)
    }

    /// Closes the cell, and returns the handle that it contains, if any.
    fn take_and_close(&mut self) -> Option<Thin<H>> {
        // AcqRel: as in `replace`.
        Self::handle(self.pointer.swap(Self::CLOSED, Ordering::AcqRel))
    }

    /// Closes the cell if it is empty.
    pub(crate) fn close(&self) {
        // Relaxed: nothing is read through a closed cell.
        let _ = self.pointer.compare_exchange(
            ptr::null_mut(),
            Self::CLOSED,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    pub(crate) fn is_closed(&self) -> bool {
        // Relaxed: as in `close`.
        self.pointer.load(Ordering::Relaxed) == Self::CLOSED
    }

    /// Returns the handle with this pointer, or `None` if the pointer represents none.
    fn handle(pointer: *mut Block<H>) -> Option<Thin<H>> {
        let block = NonNull::new(pointer).filter(|_| pointer != Self::CLOSED)?;
        Some(Thin {
            block,
            _owned: PhantomData,
        })
    }
}

impl<H> Drop for AtomicThin<H> {
    fn drop(&mut self) {
        drop(self.take_and_close());
    }
}

impl<H> fmt::Debug for AtomicThin<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtomicThin").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use std::mem::ManuallyDrop;

    use super::{AtomicThin, BYTES_MAX, Thin};
    use crate::sync::epoch::pin;

    /// Counts how often it is dropped.
    struct Counted<'a>(&'a AtomicUsize);
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_handle_returns_its_header_kind_and_bytes() {
        for len in 0..70 {
            let bytes: Vec<u8> = (0..len).collect();
            let (front, back) = bytes.split_at(bytes.len() / 3);
            let kind = len % 4;
            let mut thin = Thin::new(u64::from(len), kind, [front, back]);
            assert_eq!(
                (thin.header(), thin.kind(), thin.bytes()),
                (&u64::from(len), kind, &bytes[..])
            );
            let (header, changed) = thin.get_mut().expect("the only handle");
            *header += 1;
            changed.fill(7);
            assert_eq!(*thin.header(), u64::from(len) + 1);
            assert!(thin.bytes().iter().all(|byte| *byte == 7));
        }
    }

    #[test]
    fn the_last_handle_drops_the_header_once() {
        let drops = AtomicUsize::new(0);
        let mut one = Thin::new(Counted(&drops), 0, [b"bytes", b""]);
        let other = one.clone();
        assert!(one.is(&other) && one.get_mut().is_none());
        std::thread::scope(|scope| {
            scope.spawn(move || drop(other));
        });
        assert_eq!(drops.load(Ordering::SeqCst), 0);
        assert!(one.get_mut().is_some());
        drop(one);
        assert_eq!(drops.load(Ordering::SeqCst), 1);
    }

    #[test]
    #[should_panic(expected = "the caller checks the length")]
    fn too_many_bytes_panic() {
        // Zeroed pages that are not accessed take no memory.
        let zeros = vec![0; BYTES_MAX + 1];
        let _ = Thin::new((), 0, [&zeros, b""]);
    }

    #[test]
    fn a_cell_owns_its_handle() {
        let drops = AtomicUsize::new(0);
        let cell = AtomicThin::new();
        let handle = |bytes: &[u8]| Some(Thin::new(Counted(&drops), 0, [bytes, b""]));
        assert!(cell.replace(handle(b"a")).is_none());
        let guard = pin();
        let seen = cell.load(&guard).expect("a cell with a handle");
        assert_eq!(seen.bytes(), b"a");
        cell.close();
        assert!(!cell.is_closed());
        let first = cell.replace(handle(b"b")).map(ManuallyDrop::into_inner);
        assert_eq!(first.expect("the previous handle").bytes(), b"a");
        assert_eq!(drops.load(Ordering::SeqCst), 1);
        drop(guard);
        drop(cell);
        assert_eq!(drops.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn a_closed_cell_is_empty() {
        let cell: AtomicThin<String> = AtomicThin::new();
        cell.close();
        assert!(cell.is_closed());
        assert!(cell.load(&pin()).is_none());
    }
}
