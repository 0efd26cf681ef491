//! `Run`: the nodes of a sequence, which readers access without a lock.
//!
//! A run is an array of fixed capacity, to which a writer appends at the end, and from which it takes
//! at the front. A leaf contains items, an inner node the cells of its children.
//!
//! | part | written | read |
//! |---|---|---|
//! | `capacity`, `height` | before the run is published | by every pin |
//! | a place | before `end` counts it; the pointer in a cell also later, by the writer | by every pin that `end` counts it for |
//! | `start`, `end` | by the writer | by every pin |
//!
//! There is one writer at a time. Items that it takes stay in their places, where pins of that time
//! may still read them, but belong to the caller, which frees them after these pins. A run that is
//! replaced by a copy loses its items to the copy, bit by bit. So freeing a run frees its memory, and
//! drops no item.

use std::alloc::Layout;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::slice;

use crate::memory::pool;
use crate::sync::epoch::Guard;
use crate::sync::{AtomicPtr, AtomicU16, Ordering, Published};

/// The maximum capacity of a run.
pub(crate) const RUN_CAPACITY_MAX: usize = 255;

#[repr(C, align(8))]
struct Head {
    /// The number of places that were taken.
    start: AtomicU16,
    /// The number of places that are written.
    end: AtomicU16,
    capacity: u16,
    /// 0 for a leaf.
    height: u16,
    published: Published,
}

/// A run that a pin protects.
pub(crate) struct Run<'g, T> {
    head: NonNull<Head>,
    _items: PhantomData<&'g T>,
}

impl<T> Clone for Run<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Run<'_, T> {}

/// A run that only the writer has so far. Dropping it frees the memory, but no item.
pub(crate) struct NewRun<T> {
    head: NonNull<Head>,
    _items: PhantomData<T>,
}

/// The pointer to a run, or to none. The run is valid as long as the pointer is reachable; a run that
/// was replaced is valid for the pins of that time.
pub(crate) struct RunCell<T> {
    pointer: AtomicPtr<Head>,
    _items: PhantomData<T>,
}

// SAFETY: a new run owns its items, and no other thread has it.
unsafe impl<T: Send> Send for NewRun<T> {}
// SAFETY: a cell owns the items of its run, and lends them to several threads.
unsafe impl<T: Send + Sync> Send for RunCell<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Send + Sync> Sync for RunCell<T> {}

impl<'g, T> Run<'g, T> {
    #[inline]
    fn head(self) -> &'g Head {
        // SAFETY: the pin protects the run.
        unsafe { self.head.as_ref() }
    }

    pub(crate) fn capacity(self) -> usize {
        self.head().capacity.into()
    }

    pub(crate) fn height(self) -> u16 {
        self.head().height
    }

    #[inline]
    pub(crate) fn is_leaf(self) -> bool {
        self.height() == 0
    }

    /// Returns whether the writer can append.
    pub(crate) fn has_room(self) -> bool {
        // Relaxed: only the writer changes it.
        self.head().end.load(Ordering::Relaxed) < self.head().capacity
    }

    /// Returns the items of a leaf that are not taken.
    #[inline]
    pub(crate) fn items(self) -> &'g [T] {
        assert!(self.is_leaf());
        self.places()
    }

    /// Returns the children of an inner node that are not taken.
    #[inline]
    pub(crate) fn children(self) -> &'g [RunCell<T>] {
        assert!(!self.is_leaf());
        self.places()
    }

    #[inline]
    fn places<P>(self) -> &'g [P] {
        let head = self.head();
        // Acquire: pairs with the Release in `take`. A reader that misses an item loads the
        // compacted revision that was published before the item was taken (I7).
        let start = usize::from(head.start.load(Ordering::Acquire));
        // Acquire: pairs with the Release in `append`. With Relaxed, an item could be read before it
        // was written. Loaded after `start`, and so not below it.
        let end = usize::from(head.end.load(Ordering::Acquire));
        head.published.read();
        // SAFETY: these places are written, and do not change as long as the run exists.
        unsafe { slice::from_raw_parts(place::<P>(self.head, start).as_ptr(), end - start) }
    }

    /// Appends an item to a leaf.
    ///
    /// # Safety
    /// Only the writer may call this.
    ///
    /// # Panics
    /// If there is no room.
    pub(crate) unsafe fn append_item(self, item: T) {
        assert!(self.is_leaf());
        // SAFETY: guaranteed by the caller.
        unsafe { self.append(item) };
    }

    /// Appends a child to an inner node.
    ///
    /// # Safety
    /// Only the writer may call this.
    ///
    /// # Panics
    /// If there is no room.
    pub(crate) unsafe fn append_child(self, child: NewRun<T>) {
        assert!(!self.is_leaf());
        // SAFETY: guaranteed by the caller.
        unsafe { self.append(RunCell::of(child)) };
    }

    /// # Safety
    /// Only the writer may call this, and the places of the run must have the type `P`.
    unsafe fn append<P>(self, content: P) {
        let head = self.head();
        let end = head.end.load(Ordering::Relaxed);
        assert!(end < head.capacity, "the caller checks the room");
        // SAFETY: the place is inside the run, was not written yet, and no reader accesses it before
        // `end` counts it.
        unsafe { place::<P>(self.head, end.into()).write(content) };
        // Release: pairs with the Acquire in `places`.
        head.end.store(end + 1, Ordering::Release);
    }

    /// Takes places at the front. Only for the writer.
    ///
    /// # Panics
    /// If there are fewer.
    pub(crate) fn take(self, count: usize) {
        let head = self.head();
        let start = usize::from(head.start.load(Ordering::Relaxed)) + count;
        assert!(start <= usize::from(head.end.load(Ordering::Relaxed)));
        #[expect(clippy::cast_possible_truncation, reason = "not above `end`")]
        let start = start as u16;
        // Release: pairs with the Acquire in `places`.
        head.start.store(start, Ordering::Release);
    }

    /// Copies the places that are not taken, bit by bit, to a run of another capacity.
    ///
    /// # Safety
    /// Only one of the two runs may be reachable afterwards: the items belong to that one.
    pub(crate) unsafe fn moved_to(self, capacity: usize) -> NewRun<T> {
        let new = NewRun::new(self.height(), capacity);
        if self.is_leaf() {
            new.copy_items(self.items());
        } else {
            for child in self.children() {
                // Relaxed: only the writer changes it.
                let pointer = child.pointer.load(Ordering::Relaxed);
                // SAFETY: the new run is an inner node too, and is not shared.
                unsafe { new.as_run().append(RunCell::<T>::at(pointer)) };
            }
        }
        new
    }

    /// Frees the memory of the run after all pins that exist now have ended. Drops no item.
    ///
    /// # Safety
    /// The run must not be reachable any more.
    pub(crate) unsafe fn free(self, guard: &Guard) {
        let head = self.head;
        // SAFETY: the run is not reachable, so pins that begin later do not access it.
        unsafe {
            guard.defer(self.layout().size() as u64, move || {
                let run = Run::<T> {
                    head,
                    _items: PhantomData,
                };
                run.head().published.free();
                pool::free(head.cast(), run.layout());
            });
        }
    }

    fn layout(self) -> Layout {
        if self.is_leaf() {
            layout::<T>(self.capacity())
        } else {
            layout::<RunCell<T>>(self.capacity())
        }
    }

    /// Drops all items and children, and frees the run.
    ///
    /// # Safety
    /// No other thread may access the run any more, its items must belong to it, and it must not be
    /// used again.
    unsafe fn destroy(self) {
        let layout = self.layout();
        // SAFETY: items and cells are written, and dropped once, as the caller guarantees.
        unsafe {
            if self.is_leaf() {
                ptr::from_ref(self.items()).cast_mut().drop_in_place();
            } else {
                ptr::from_ref(self.children()).cast_mut().drop_in_place();
            }
            pool::free(self.head.cast(), layout);
        }
    }
}

impl<T> NewRun<T> {
    /// Creates an empty run. `height` is 0 for a leaf.
    ///
    /// # Panics
    /// If the capacity is above [`RUN_CAPACITY_MAX`].
    pub(crate) fn new(height: u16, capacity: usize) -> Self {
        Self::allocated_by(pool::allocate, height, capacity)
    }

    /// Creates an empty leaf, with memory of a batch.
    ///
    /// # Panics
    /// If the capacity is above [`RUN_CAPACITY_MAX`].
    pub(crate) fn leaf_in(batch: &mut pool::Batch, capacity: usize) -> Self {
        Self::allocated_by(|layout| batch.allocate(layout), 0, capacity)
    }

    fn allocated_by(
        allocate: impl FnOnce(Layout) -> NonNull<u8>,
        height: u16,
        capacity: usize,
    ) -> Self {
        assert!(capacity <= RUN_CAPACITY_MAX);
        let layout = if height == 0 {
            layout::<T>(capacity)
        } else {
            layout::<RunCell<T>>(capacity)
        };
        let head = allocate(layout).cast::<Head>();
        #[expect(clippy::cast_possible_truncation, reason = "checked above")]
        let capacity = capacity as u16;
        // SAFETY: the memory is new, and has room for the head.
        unsafe {
            head.write(Head {
                start: AtomicU16::new(0),
                end: AtomicU16::new(0),
                capacity,
                height,
                published: Published::new(),
            });
        }
        Self {
            head,
            _items: PhantomData,
        }
    }

    /// Appends an item to a leaf, as [`Run::append_item`].
    pub(crate) fn push_item(&mut self, item: T) {
        // SAFETY: the run is not shared.
        unsafe { self.as_run().append_item(item) };
    }

    /// Appends a child to an inner node, as [`Run::append_child`].
    pub(crate) fn push_child(&mut self, child: Self) {
        // SAFETY: the run is not shared.
        unsafe { self.as_run().append_child(child) };
    }

    pub(crate) fn as_run(&self) -> Run<'_, T> {
        Run {
            head: self.head,
            _items: PhantomData,
        }
    }

    fn copy_items(&self, from: &[T]) {
        let head = self.as_run().head();
        assert!(from.len() <= usize::from(head.capacity));
        #[cfg(all(test, not(any(loom, shuttle))))]
        tests::COPIED_BYTES.set(tests::COPIED_BYTES.get() + size_of_val(from));
        // SAFETY: the run has room, and is a separate allocation.
        unsafe {
            let to = place::<T>(self.head, 0).as_ptr();
            ptr::copy_nonoverlapping(from.as_ptr(), to, from.len());
        }
        #[expect(clippy::cast_possible_truncation, reason = "checked above")]
        head.end.store(from.len() as u16, Ordering::Relaxed);
    }

    fn publish(self) -> *mut Head {
        let head = self.head.as_ptr();
        std::mem::forget(self);
        head
    }
}

impl<T> Drop for NewRun<T> {
    fn drop(&mut self) {
        // SAFETY: the run is not shared.
        unsafe { pool::free(self.head.cast(), self.as_run().layout()) };
    }
}

impl<T> RunCell<T> {
    /// Creates a cell without a run.
    pub(crate) fn empty() -> Self {
        Self::at(ptr::null_mut())
    }

    fn of(run: NewRun<T>) -> Self {
        Self::at(run.publish())
    }

    fn at(pointer: *mut Head) -> Self {
        Self {
            pointer: AtomicPtr::new(pointer),
            _items: PhantomData,
        }
    }

    /// Returns the run, which the pin protects.
    #[inline]
    pub(crate) fn load<'g>(&'g self, _guard: &'g Guard) -> Option<Run<'g, T>> {
        self.run()
    }

    /// Returns the run. Either a pin protects it, or nobody else can reach the cell.
    #[inline]
    fn run(&self) -> Option<Run<'_, T>> {
        // Acquire: pairs with the Release in `store`. With Relaxed, the run could be read before it
        // was written.
        let head = NonNull::new(self.pointer.load(Ordering::Acquire))?;
        Some(Run {
            head,
            _items: PhantomData,
        })
    }

    /// Replaces the run. Only for the writer, which then frees the previous one.
    pub(crate) fn store(&self, new: NewRun<T>) {
        // Release: pairs with the Acquire in `load`.
        self.pointer.store(new.publish(), Ordering::Release);
    }

    /// Replaces the run by one of its descendants. Only for the writer, which then frees the runs
    /// between the two.
    pub(crate) fn store_descendant(&self, run: Run<'_, T>) {
        // Release: as in `store`.
        self.pointer.store(run.head.as_ptr(), Ordering::Release);
    }

    /// Removes the run. Only for the writer, which then frees it.
    pub(crate) fn clear(&self) {
        // Release: pairs with the Acquire in `load`, as in `Run::take`.
        self.pointer.store(ptr::null_mut(), Ordering::Release);
    }

    /// Moves the run to a new root, as its first child.
    ///
    /// # Safety
    /// The caller must store the new root in this cell.
    pub(crate) unsafe fn lift(run: Run<'_, T>, root: &NewRun<T>) {
        // SAFETY: the new root is an inner node, and is not shared.
        unsafe { root.as_run().append(Self::at(run.head.as_ptr())) };
    }
}

impl<T> Drop for RunCell<T> {
    fn drop(&mut self) {
        // Without a pin, because what a pin holds back may run this: at the end of a thread, after its pins are gone,
        // each pin frees more of it, and these frees would be nested without a bound.
        if let Some(run) = self.run() {
            // SAFETY: the cell is borrowed mutably, and its run belongs to it.
            unsafe { run.destroy() };
        }
    }
}

impl<T> fmt::Debug for NewRun<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewRun").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for RunCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunCell").finish_non_exhaustive()
    }
}

fn layout<P>(capacity: usize) -> Layout {
    const { assert!(align_of::<P>() <= align_of::<Head>()) };
    let size = size_of::<Head>() + capacity * size_of::<P>();
    Layout::from_size_align(size, align_of::<Head>()).expect("a small layout")
}

/// Returns the address of a place.
#[inline]
fn place<P>(head: NonNull<Head>, at: usize) -> NonNull<P> {
    // SAFETY: the places follow the head in the same allocation.
    unsafe { head.add(1).cast::<P>().add(at) }
}

#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) mod tests {
    use std::cell::Cell;

    thread_local! {
        /// The number of bytes that this thread has copied to other runs.
        pub(crate) static COPIED_BYTES: Cell<usize> = const { Cell::new(0) };
    }
}
