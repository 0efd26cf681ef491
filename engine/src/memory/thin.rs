//! Thin: a header and some bytes in one shared allocation, behind a handle of one word.
//!
//! Nothing that is made already is small enough: a million keys pay for every byte of a header, and
//! `triomphe::ThinArc` takes 16 where 8 are enough. What each part relies on:
//!
//! | part | who touches it | when |
//! |---|---|---|
//! | `references` | every handle | always, atomically |
//! | `size` | every handle | never written after [`Thin::new`] |
//! | header, bytes | [`Thin::get_mut`] writes, every handle reads | written only through the sole handle |

use std::alloc::Layout;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::slice;

use crate::memory::pool;
use crate::sync::{AtomicPtr, Ordering, ReferenceCount, fence};

/// The most bytes that one allocation can have behind its header.
pub(crate) const BYTES_MAX: usize = (u32::MAX >> KIND_BITS) as usize;

/// Bits of `size` that hold the kind.
const KIND_BITS: u32 = 2;

/// More handles than this on one allocation are a leak.
const REFERENCES_MAX: u32 = i32::MAX as u32;

/// A handle on a header `H` and some bytes that all handles share; freed with the last of them.
pub(crate) struct Thin<H> {
    inner: NonNull<Inner<H>>,
    /// The last handle drops an `H`.
    _owned: PhantomData<Inner<H>>,
}

/// What is allocated; the bytes follow without a gap.
#[repr(C)]
struct Inner<H> {
    references: ReferenceCount,
    /// How many bytes follow, and in the lowest [`KIND_BITS`] a number for the owner's use.
    size: u32,
    /// Models see what happens to the allocation by this alone.
    #[cfg(loom)]
    freed: crate::sync::AtomicBool,
    header: H,
}

// SAFETY: a handle gives out `&H` and `&[u8]` to any thread, and the last one may drop the `H` on any.
unsafe impl<H: Send + Sync> Send for Thin<H> {}
// SAFETY: as for `Send`; a shared handle can be cloned to another thread.
unsafe impl<H: Send + Sync> Sync for Thin<H> {}

impl<H> Thin<H> {
    /// What an allocation takes besides its bytes.
    pub(crate) const OVERHEAD: usize = size_of::<Inner<H>>();

    /// Copies the parts one behind the other. `kind` is kept for the caller.
    ///
    /// # Panics
    /// If the parts are longer than [`BYTES_MAX`] together, or the kind has more than two bits.
    pub(crate) fn new(header: H, kind: u8, parts: [&[u8]; 2]) -> Self {
        let len = parts[0].len() + parts[1].len();
        assert!(
            len <= BYTES_MAX && u32::from(kind) < 1 << KIND_BITS,
            "checked where it came from"
        );
        #[expect(clippy::cast_possible_truncation, reason = "checked above")]
        let size = ((len as u32) << KIND_BITS) | u32::from(kind);
        let layout = Self::layout(len);
        // The layout is not empty, it has two numbers.
        let inner = pool::allocate(layout).cast::<Inner<H>>();
        // SAFETY: the memory is fresh, aligned for `Inner` and has room for it and for `len` bytes
        // behind it, which are as many as the parts have.
        unsafe {
            inner.write(Inner {
                references: ReferenceCount::new(1),
                size,
                #[cfg(loom)]
                freed: crate::sync::AtomicBool::new(false),
                header,
            });
            let mut to = inner.add(1).cast::<u8>();
            for part in parts {
                ptr::copy_nonoverlapping(part.as_ptr(), to.as_ptr(), part.len());
                to = to.add(part.len());
            }
        }
        Self {
            inner,
            _owned: PhantomData,
        }
    }

    #[inline]
    pub(crate) fn header(&self) -> &H {
        &self.inner().header
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `new` wrote that many bytes behind `Inner`, and they live as long as the handle.
        unsafe { slice::from_raw_parts(self.inner.add(1).cast().as_ptr(), self.inner().len()) }
    }

    #[inline]
    pub(crate) fn kind(&self) -> u8 {
        self.inner().size.to_le_bytes()[0] & ((1 << KIND_BITS) - 1)
    }

    /// Header and bytes, to be changed, if this is the only handle.
    pub(crate) fn get_mut(&mut self) -> Option<(&mut H, &mut [u8])> {
        // Acquire: pairs with the Release in `drop`. With Relaxed, what other handles read could be
        // read after it was changed.
        if self.inner().references.load(Ordering::Acquire) != 1 {
            return None;
        }
        let len = self.inner().len();
        // SAFETY: no other handle exists, and none can be made while this one is borrowed; header and
        // bytes do not overlap.
        unsafe {
            let bytes = self.inner.add(1).cast().as_ptr();
            Some((
                &mut (*self.inner.as_ptr()).header,
                slice::from_raw_parts_mut(bytes, len),
            ))
        }
    }

    /// Whether both handles are on the same allocation.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.inner == other.inner
    }

    #[inline]
    fn inner(&self) -> &Inner<H> {
        // SAFETY: the allocation lives as long as any handle, and is only changed through a sole one.
        unsafe { self.inner.as_ref() }
    }

    fn layout(len: usize) -> Layout {
        let bytes = Layout::array::<u8>(len);
        let both = bytes.and_then(|bytes| Layout::new::<Inner<H>>().extend(bytes));
        // BYTES_MAX is far below what a layout can be.
        let (layout, behind) = both.expect("a small layout");
        debug_assert_eq!(behind, size_of::<Inner<H>>());
        layout
    }
}

impl<H> Inner<H> {
    #[inline]
    fn len(&self) -> usize {
        (self.size >> KIND_BITS) as usize
    }
}

impl<H> Clone for Thin<H> {
    fn clone(&self) -> Self {
        // Relaxed: who clones has a handle, so nothing is freed meanwhile.
        let before = self.inner().references.fetch_add(1, Ordering::Relaxed);
        #[cfg(loom)]
        assert!(
            !self.inner().freed.load(Ordering::Relaxed),
            "I2: what was freed is read"
        );
        if before > REFERENCES_MAX {
            // Counting on would free what is in use.
            std::process::abort();
        }
        Self {
            inner: self.inner,
            _owned: PhantomData,
        }
    }
}

impl<H> Drop for Thin<H> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire below: what this handle read was read before it is freed.
        if self.inner().references.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        // Acquire: pairs with the Release of all other handles.
        fence(Ordering::Acquire);
        #[cfg(loom)]
        self.inner().freed.store(true, Ordering::Relaxed);
        let layout = Self::layout(self.inner().len());
        // SAFETY: this was the last handle; the memory came from the pool with the same layout.
        unsafe {
            ptr::drop_in_place(&raw mut (*self.inner.as_ptr()).header);
            pool::free(self.inner.cast(), layout);
        }
    }
}

impl<H: fmt::Debug> fmt::Debug for Thin<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Thin").field(self.header()).finish()
    }
}

/// A place for one handle, which can be looked at without a lock.
///
/// A slot is empty, holds a handle, or is closed for good.
pub(crate) struct AtomicThin<H> {
    /// Null, [`AtomicThin::CLOSED`], or the pointer of a handle that the slot owns.
    place: AtomicPtr<Inner<H>>,
    _owned: PhantomData<Thin<H>>,
}

impl<H> AtomicThin<H> {
    /// No allocation is here: the pointer is aligned for `Inner` and in the page that nobody has.
    const CLOSED: *mut Inner<H> = NonNull::dangling().as_ptr();

    pub(crate) fn new() -> Self {
        Self {
            place: AtomicPtr::new(ptr::null_mut()),
            _owned: PhantomData,
        }
    }

    /// What the slot holds, without counting a reference.
    ///
    /// # Safety
    /// For as long as the caller has it, nobody may drop what [`AtomicThin::replace`] took out of the slot
    /// after this looked.
    pub(crate) unsafe fn peek(&self) -> Option<ManuallyDrop<Thin<H>>> {
        // Acquire: pairs with the Release in `replace`. With Relaxed the pointer could be seen before
        // what it points to.
        let held = Self::held(self.place.load(Ordering::Acquire));
        held.map(ManuallyDrop::new)
    }

    /// Puts a handle into the slot, or none, and takes out what was there.
    ///
    /// # Panics
    /// If the slot is closed.
    pub(crate) fn replace(&self, new: Option<Thin<H>>) -> Option<Thin<H>> {
        let new = new.map_or(ptr::null_mut(), |new| ManuallyDrop::new(new).inner.as_ptr());
        // Release: pairs with the Acquire in `peek`. Acquire: with the Release of whoever put in
        // what comes out.
        let old = self.place.swap(new, Ordering::AcqRel);
        assert!(old != Self::CLOSED, "I7: a retired entry is used");
        Self::held(old)
    }

    /// Takes out what is there, if anything, and closes the slot.
    pub(crate) fn take_and_close(&self) -> Option<Thin<H>> {
        // AcqRel: as in `replace`.
        Self::held(self.place.swap(Self::CLOSED, Ordering::AcqRel))
    }

    /// Closes the slot, if it is empty.
    pub(crate) fn close(&self) {
        // Relaxed: nothing is read through a closed slot.
        let _ = self.place.compare_exchange(
            ptr::null_mut(),
            Self::CLOSED,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    pub(crate) fn is_closed(&self) -> bool {
        // Relaxed: as in `close`.
        self.place.load(Ordering::Relaxed) == Self::CLOSED
    }

    /// The handle that a pointer of a slot stands for.
    fn held(pointer: *mut Inner<H>) -> Option<Thin<H>> {
        let inner = NonNull::new(pointer).filter(|_| pointer != Self::CLOSED)?;
        Some(Thin {
            inner,
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

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::{AtomicThin, BYTES_MAX, Thin};

    /// Counts how often it is dropped.
    struct Counted<'a>(&'a AtomicUsize);
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn it_holds_what_it_was_made_of() {
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
    #[should_panic(expected = "checked where it came from")]
    fn more_bytes_than_can_be_counted_are_refused() {
        // Pages that nobody touches cost nothing.
        let zeros = vec![0; BYTES_MAX + 1];
        let _ = Thin::new((), 0, [&zeros, b""]);
    }

    #[test]
    fn a_slot_owns_what_is_in_it() {
        let drops = AtomicUsize::new(0);
        let slot = AtomicThin::new();
        assert!(
            slot.replace(Some(Thin::new(Counted(&drops), 0, [b"a", b""])))
                .is_none()
        );
        // SAFETY: nobody else has the slot.
        let seen = unsafe { slot.peek() }.expect("a filled slot");
        assert_eq!(seen.bytes(), b"a");
        slot.close();
        assert!(!slot.is_closed());
        let first = slot.replace(Some(Thin::new(Counted(&drops), 0, [b"b", b""])));
        assert_eq!(first.expect("what was there").bytes(), b"a");
        assert_eq!(drops.load(Ordering::SeqCst), 1);
        drop(slot);
        assert_eq!(drops.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn a_closed_slot_is_neither_filled_nor_dropped() {
        let slot: AtomicThin<String> = AtomicThin::new();
        slot.close();
        assert!(slot.is_closed());
        // SAFETY: nobody else has the slot.
        assert!(unsafe { slot.peek() }.is_none());
    }
}
