//! `Node`: the nodes of the index, which readers access without a lock.
//!
//! One allocation contains a node:
//!
//! | part | written | read |
//! |---|---|---|
//! | `height`, `capacity`, `prefix_len` | before the node is published | by every pin |
//! | `len` | before it is published; by the writer, when it appends to a leaf | by every pin |
//! | heads, items | before `len` counts them | by every pin, as far as `len` counts them |
//! | children | by the writer | by every pin |
//! | `live`, lives | by the writer | by counts, which check afterwards that no edit took place |
//!
//! There is one writer at a time. It changes an item or the shape of a node only by replacing the
//! node with a copy. The items move to the copy, bit by bit: an item belongs to the one node that is
//! reachable. So freeing a replaced node frees its memory, and drops no item.

use std::alloc::Layout;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::slice;

use crate::memory::pool;
use crate::sync::epoch::Guard;
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering, Published};

/// The part of a node at a fixed place. Heads and items follow, and in an inner node the children
/// and their numbers of live keys.
#[repr(C, align(8))]
struct Head {
    len: AtomicU32,
    capacity: u32,
    prefix_len: u32,
    /// 0 for a leaf.
    height: u32,
    /// In a leaf, bit i: whether item i is live.
    live: AtomicU64,
    published: Published,
}

/// A node that a pin protects.
pub(crate) struct Node<'g, T> {
    head: NonNull<Head>,
    _items: PhantomData<&'g T>,
}

impl<T> Clone for Node<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Node<'_, T> {}

/// A node that only the writer has so far. Dropping it frees the memory, but no item.
pub(crate) struct NewNode<T> {
    head: NonNull<Head>,
    _items: PhantomData<T>,
}

/// The pointer to a node, in the index or in an inner node. The node is valid as long as the pointer
/// is reachable; a node that was replaced is valid for the pins of that time.
pub(crate) struct NodeCell<T> {
    pointer: AtomicPtr<Head>,
    _items: PhantomData<T>,
}

// SAFETY: a new node owns its items, and no other thread has it.
unsafe impl<T: Send> Send for NewNode<T> {}
// SAFETY: a cell owns the items of its node, and lends them to several threads.
unsafe impl<T: Send + Sync> Send for NodeCell<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Send + Sync> Sync for NodeCell<T> {}

/// A node that was replaced, or is about to be.
#[derive(Debug)]
#[must_use = "`free` frees the memory"]
pub(crate) struct OldNode<T>(NonNull<Head>, PhantomData<T>);

// SAFETY: the memory is plain, and only `free` accesses it.
unsafe impl<T> Send for OldNode<T> {}

impl<T> OldNode<T> {
    /// Frees the memory of the node after all pins that exist now have ended. Drops no item.
    ///
    /// # Safety
    /// The node must not be reachable any more.
    pub(crate) unsafe fn free(self, guard: &Guard) {
        let head = self.0;
        // SAFETY: the node is not reachable, so pins that begin later do not access it. The memory
        // came from the pool with this layout.
        unsafe {
            guard.defer(layout_of::<T>(head).size() as u64, move || {
                head.as_ref().published.free();
                pool::free(head.cast(), layout_of::<T>(head));
            });
        }
    }
}

/// The places of the parts of a node with a capacity.
struct Places {
    items: usize,
    children: usize,
    lives: usize,
    end: usize,
}

impl<'g, T> Node<'g, T> {
    #[inline]
    fn head(self) -> &'g Head {
        // SAFETY: the pin protects the node.
        unsafe { self.head.as_ref() }
    }

    /// Returns the number of items.
    #[inline]
    pub(crate) fn len(self) -> usize {
        // Acquire: pairs with the Release in `append`. With Relaxed, an item could be read before
        // it was written.
        self.head().len.load(Ordering::Acquire) as usize
    }

    pub(crate) fn capacity(self) -> usize {
        self.head().capacity as usize
    }

    #[inline]
    pub(crate) fn is_leaf(self) -> bool {
        self.head().height == 0
    }

    pub(crate) fn height(self) -> u32 {
        self.head().height
    }

    #[inline]
    pub(crate) fn prefix_len(self) -> usize {
        self.head().prefix_len as usize
    }

    /// Returns the first `len` heads and items. `len` must not be above a number that
    /// [`Node::len`] has returned.
    #[inline]
    pub(crate) fn content(self, len: usize) -> (&'g [u64], &'g [T]) {
        self.head().published.read();
        debug_assert!(len <= self.capacity());
        // SAFETY: the first `len` heads and items are written, and do not change as long as the
        // node exists.
        unsafe {
            let heads = slice::from_raw_parts(heads(self.head).as_ptr(), len);
            let items = slice::from_raw_parts(items::<T>(self.head).as_ptr(), len);
            (heads, items)
        }
    }

    /// Returns a copy of an item, bit by bit.
    ///
    /// # Safety
    /// The item must belong to no node afterwards.
    pub(crate) unsafe fn read_item(self, at: usize) -> T {
        let (_, items) = self.content(self.len());
        // SAFETY: the item is written; the caller guarantees that it has one owner.
        unsafe { ptr::read(&raw const items[at]) }
    }

    /// Returns the cells of the first children of an inner node: one more than `len` items, a number
    /// as for [`Node::content`].
    #[inline]
    pub(crate) fn children(self, len: usize) -> &'g [NodeCell<T>] {
        assert!(len <= self.capacity() && !self.is_leaf());
        // SAFETY: an inner node has these children, and they are written before it is published.
        unsafe { slice::from_raw_parts(children::<T>(self.head).as_ptr(), len + 1) }
    }

    /// Returns the numbers of live keys below the same children. Only the writer changes them, with
    /// Release; counts load them with Acquire, so that a count that uses a number of a change sees
    /// that this change has begun.
    #[inline]
    pub(crate) fn lives(self, len: usize) -> &'g [AtomicU32] {
        assert!(len <= self.capacity() && !self.is_leaf());
        // SAFETY: as in `children`.
        unsafe { slice::from_raw_parts(lives::<T>(self.head).as_ptr(), len + 1) }
    }

    /// Returns one bit for each item of a leaf: whether it is live.
    #[inline]
    pub(crate) fn live(self) -> u64 {
        // Acquire: as for `lives`.
        self.head().live.load(Ordering::Acquire)
    }

    /// As [`Node::live`]; only the writer changes the bits.
    pub(crate) fn set_live(self, bits: u64) {
        // Release: as for `lives`.
        self.head().live.store(bits, Ordering::Release);
    }

    /// Appends an item to a leaf, after the last one in the order of the keys.
    ///
    /// # Safety
    /// Only the writer may call this.
    ///
    /// # Panics
    /// If there is no room.
    pub(crate) unsafe fn append(self, head: u64, item: T) {
        assert!(self.is_leaf());
        // SAFETY: guaranteed by the caller.
        unsafe { self.add(head, item) };
    }

    /// # Safety
    /// Only the writer may call this, and for an inner node only before it is published.
    unsafe fn add(self, head: u64, item: T) {
        let len = self.len();
        assert!(len < self.capacity());
        // SAFETY: the place is inside the node and was not written yet, and no reader accesses it
        // before `len` counts it.
        unsafe {
            heads(self.head).add(len).write(head);
            items::<T>(self.head).add(len).write(item);
        }
        // Release: pairs with the Acquire in `len`.
        self.head().len.store(small(len + 1), Ordering::Release);
    }

    /// Returns the node, to be freed after it was replaced.
    pub(crate) fn retire(self) -> OldNode<T> {
        OldNode(self.head, PhantomData)
    }

    /// Drops all items, and frees the node.
    ///
    /// # Safety
    /// No other thread may access the node any more, its items must belong to it, and it must not be
    /// used again.
    pub(crate) unsafe fn destroy(self) {
        // SAFETY: the items are written, and dropped once, as the caller guarantees.
        unsafe {
            let layout = layout_of::<T>(self.head);
            let items = items::<T>(self.head).as_ptr();
            ptr::slice_from_raw_parts_mut(items, self.len()).drop_in_place();
            pool::free(self.head.cast(), layout);
        }
    }
}

impl<T> NewNode<T> {
    /// Creates an empty node. `height` is 0 for a leaf.
    pub(crate) fn new(height: u32, capacity: usize, prefix_len: usize) -> Self {
        Self::allocated_by(pool::allocate, height, capacity, prefix_len)
    }

    /// Creates an empty leaf, with memory of a batch.
    pub(crate) fn leaf_in(batch: &mut pool::Batch, capacity: usize) -> Self {
        Self::allocated_by(|layout| batch.allocate(layout), 0, capacity, 0)
    }

    fn allocated_by(
        allocate: impl FnOnce(Layout) -> NonNull<u8>,
        height: u32,
        capacity: usize,
        prefix_len: usize,
    ) -> Self {
        let layout = layout::<T>(capacity, height == 0);
        let head = allocate(layout).cast::<Head>();
        // SAFETY: the memory is new, and has room for the head.
        unsafe {
            head.write(Head {
                len: AtomicU32::new(0),
                capacity: small(capacity),
                prefix_len: small(prefix_len),
                height,
                live: AtomicU64::new(0),
                published: Published::new(),
            });
        }
        Self {
            head,
            _items: PhantomData,
        }
    }

    pub(crate) fn as_node(&self) -> Node<'_, T> {
        Node {
            head: self.head,
            _items: PhantomData,
        }
    }

    /// Adds an item at the end.
    pub(crate) fn push(&mut self, head: u64, item: T) {
        // SAFETY: the node is not shared.
        unsafe { self.as_node().add(head, item) };
    }

    /// Adds some items of another node at the end, with their heads.
    ///
    /// # Safety
    /// Only one of the two nodes may be reachable afterwards: the items belong to that one.
    pub(crate) unsafe fn move_items(&mut self, from: Node<'_, T>, range: Range<usize>) {
        let (heads_from, items_from) = from.content(range.end);
        let (heads_from, items_from) = (&heads_from[range.clone()], &items_from[range]);
        let node = self.as_node();
        let len = node.len();
        let count = items_from.len();
        assert!(len + count <= node.capacity());
        // SAFETY: the places are inside the node and were not written yet; the two nodes are
        // separate allocations.
        unsafe {
            let heads = heads(self.head).add(len).as_ptr();
            ptr::copy_nonoverlapping(heads_from.as_ptr(), heads, count);
            let items = items::<T>(self.head).add(len).as_ptr();
            ptr::copy_nonoverlapping(items_from.as_ptr(), items, count);
        }
        let len = small(len + count);
        node.head().len.store(len, Ordering::Relaxed);
    }

    /// Sets the prefix, and all heads to the result of `head_of`.
    pub(crate) fn set_prefix(&mut self, prefix_len: usize, head_of: impl Fn(&T) -> u64) {
        let node = self.as_node();
        let (_, items) = node.content(node.len());
        for (at, item) in items.iter().enumerate() {
            // SAFETY: the node has a head for each item, and is not shared.
            unsafe { heads(self.head).add(at).write(head_of(item)) };
        }
        // SAFETY: the node is not shared.
        unsafe { self.head.as_mut() }.prefix_len = small(prefix_len);
    }

    /// Sets a child of an inner node, with its number of live keys. An inner node must have one child
    /// more than items before it is published.
    pub(crate) fn set_child(&mut self, at: usize, live: u32, child: NodePointer<T>) {
        let node = self.as_node();
        assert!(at <= node.capacity() && !node.is_leaf());
        let cell = NodeCell {
            pointer: AtomicPtr::new(child.0.as_ptr()),
            _items: PhantomData,
        };
        // SAFETY: the places are inside the node.
        unsafe {
            children::<T>(self.head).add(at).write(cell);
            lives::<T>(self.head).add(at).write(AtomicU32::new(live));
        }
    }

    pub(crate) fn set_live(&mut self, bits: u64) {
        self.as_node().set_live(bits);
    }

    /// Gives the node away, to be stored in a cell.
    pub(crate) fn publish(self) -> NodePointer<T> {
        let head = self.head;
        std::mem::forget(self);
        NodePointer(head, PhantomData)
    }
}

impl<T> Drop for NewNode<T> {
    fn drop(&mut self) {
        // SAFETY: the node is not shared.
        unsafe { pool::free(self.head.cast(), layout_of::<T>(self.head)) };
    }
}

/// A pointer to a node, to be stored in a cell.
pub(crate) struct NodePointer<T>(NonNull<Head>, PhantomData<T>);

impl<T> Clone for NodePointer<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for NodePointer<T> {}

impl<T> NodePointer<T> {
    /// Returns the node, which the writer may store in a cell of a copied inner node.
    pub(crate) fn of(node: Node<'_, T>) -> Self {
        Self(node.head, PhantomData)
    }
}

impl<T> NodeCell<T> {
    pub(crate) fn new(node: NewNode<T>) -> Self {
        Self {
            pointer: AtomicPtr::new(node.publish().0.as_ptr()),
            _items: PhantomData,
        }
    }

    /// Returns the node, which the pin protects.
    #[inline]
    pub(crate) fn load<'g>(&'g self, _guard: &'g Guard) -> Node<'g, T> {
        // Acquire: pairs with the Release in `store`. With Relaxed, the node could be read before it
        // was written.
        let pointer = self.pointer.load(Ordering::Acquire);
        Node {
            // SAFETY: a cell always points to a node.
            head: unsafe { NonNull::new_unchecked(pointer) },
            _items: PhantomData,
        }
    }

    /// Replaces the node. Only for the writer, which then frees the previous one.
    pub(crate) fn store(&self, new: NodePointer<T>) {
        // Release: pairs with the Acquire in `load`.
        self.pointer.store(new.0.as_ptr(), Ordering::Release);
    }

    /// As [`NodeCell::store`], with an order that lets readers find a node that is not written yet,
    /// for a model that must detect that.
    pub(crate) fn store_unordered(&self, new: NodePointer<T>) {
        self.pointer.store(new.0.as_ptr(), Ordering::Relaxed);
    }
}

impl<T> fmt::Debug for NewNode<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewNode").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for NodeCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeCell").finish_non_exhaustive()
    }
}

/// Converts the length of a node or of a key.
fn small(number: usize) -> u32 {
    u32::try_from(number).expect("nodes and keys are below 4 GiB")
}

fn places<T>(capacity: usize) -> Places {
    // All parts before `lives` are aligned to eight bytes, so no gaps are between them.
    const {
        assert!(align_of::<T>() == 8 && size_of::<T>().is_multiple_of(8));
        assert!(align_of::<NodeCell<T>>() == 8 && size_of::<Head>().is_multiple_of(8));
    }
    let items = size_of::<Head>() + capacity * size_of::<u64>();
    let children = items + capacity * size_of::<T>();
    let lives = children + (capacity + 1) * size_of::<NodeCell<T>>();
    let end = lives + (capacity + 1) * size_of::<AtomicU32>();
    Places {
        items,
        children,
        lives,
        end,
    }
}

fn layout<T>(capacity: usize, is_leaf: bool) -> Layout {
    let Places { children, end, .. } = places::<T>(capacity);
    let size = if is_leaf { children } else { end };
    Layout::from_size_align(size, align_of::<Head>()).expect("a small layout")
}

/// # Safety
/// The node must be valid.
unsafe fn layout_of<T>(head: NonNull<Head>) -> Layout {
    // SAFETY: guaranteed by the caller.
    let head = unsafe { head.as_ref() };
    layout::<T>(head.capacity as usize, head.height == 0)
}

#[inline]
fn heads(head: NonNull<Head>) -> NonNull<u64> {
    // SAFETY: the heads follow the head in the same allocation.
    unsafe { head.add(1).cast() }
}

#[inline]
fn items<T>(head: NonNull<Head>) -> NonNull<T> {
    // SAFETY: the place is inside the allocation.
    unsafe {
        let at = places::<T>(head.as_ref().capacity as usize).items;
        head.cast::<u8>().add(at).cast()
    }
}

/// # Safety
/// The node must be an inner one.
#[inline]
unsafe fn children<T>(head: NonNull<Head>) -> NonNull<NodeCell<T>> {
    // SAFETY: the place is inside the allocation of an inner node.
    unsafe {
        let at = places::<T>(head.as_ref().capacity as usize).children;
        head.cast::<u8>().add(at).cast()
    }
}

/// # Safety
/// The node must be an inner one.
#[inline]
unsafe fn lives<T>(head: NonNull<Head>) -> NonNull<AtomicU32> {
    // SAFETY: the place is inside the allocation of an inner node.
    unsafe {
        let at = places::<T>(head.as_ref().capacity as usize).lives;
        head.cast::<u8>().add(at).cast()
    }
}
