//! `List`: a growing array in the pool. An empty one takes one word.

use std::alloc::Layout;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::slice;

use crate::memory::pool;

/// Items in the order in which they were pushed. The capacity changes only by
/// [`List::set_capacity`].
pub(crate) struct List<T> {
    head: Option<NonNull<Head>>,
    _owned: PhantomData<T>,
}

/// The head of the allocation. Room for `capacity` items follows, of which the first `len` are
/// initialized.
#[repr(C, align(8))]
struct Head {
    len: u32,
    capacity: u32,
}

// SAFETY: a list owns its items, as an array does.
unsafe impl<T: Send> Send for List<T> {}
// SAFETY: a shared list lends only shared items.
unsafe impl<T: Sync> Sync for List<T> {}

impl<T> List<T> {
    /// Creates an empty list, without an allocation.
    pub(crate) const fn new() -> Self {
        Self {
            head: None,
            _owned: PhantomData,
        }
    }

    pub(crate) fn with_capacity(capacity: usize) -> Self {
        let mut list = Self::new();
        list.set_capacity(capacity);
        list
    }

    pub(crate) fn capacity(&self) -> usize {
        // SAFETY: `set_capacity` has created the head, which is valid as long as the list.
        self.head
            .map_or(0, |head| unsafe { head.as_ref().capacity as usize })
    }

    /// Appends an item.
    ///
    /// # Panics
    /// If the capacity is used up.
    pub(crate) fn push(&mut self, item: T) {
        let len = self.len();
        assert!(
            len < self.capacity(),
            "the caller sets the capacity before it pushes"
        );
        let Some(mut head) = self.head else { return };
        // SAFETY: the address is inside the allocation and not initialized.
        unsafe {
            Self::items(head).add(len).write(item);
            head.as_mut().len += 1;
        }
    }

    /// Drops the first `count` items, and moves the others to the front.
    pub(crate) fn remove_front(&mut self, count: usize) {
        let len = self.len();
        let count = count.min(len);
        let Some(mut head) = self.head else { return };
        #[expect(clippy::cast_possible_truncation, reason = "fewer than before")]
        let left = (len - count) as u32;
        // SAFETY: the first items are initialized and dropped once; the others are moved to the
        // front. If a drop panics, the remaining items are leaked.
        unsafe {
            head.as_mut().len = 0;
            let items = Self::items(head).as_ptr();
            ptr::slice_from_raw_parts_mut(items, count).drop_in_place();
            ptr::copy(items.add(count), items, len - count);
            head.as_mut().len = left;
        }
    }

    /// Removes and returns the first item.
    pub(crate) fn pop_front(&mut self) -> Option<T> {
        let len = self.len();
        let mut head = self.head.filter(|_| len > 0)?;
        #[expect(clippy::cast_possible_truncation, reason = "fewer than before")]
        let left = (len - 1) as u32;
        // SAFETY: the first item is initialized and moved out once; the others are moved to the
        // front, and `len` counts only these.
        unsafe {
            let items = Self::items(head).as_ptr();
            let first = items.read();
            ptr::copy(items.add(1), items, len - 1);
            head.as_mut().len = left;
            Some(first)
        }
    }

    /// Moves the items to an allocation with this capacity, or with their number if that is larger.
    pub(crate) fn set_capacity(&mut self, capacity: usize) {
        let capacity = capacity.max(self.len());
        if capacity == self.capacity() {
            return;
        }
        let old = self.head;
        let len = self.len();
        let new = (capacity > 0).then(|| {
            let counted = u32::try_from(capacity).expect("a list has fewer than 2^32 items");
            let head = pool::allocate(Self::layout(capacity)).cast::<Head>();
            // SAFETY: the memory is new and has room for the head and for `capacity` items, of
            // which `len` are moved from the old allocation. The two do not overlap.
            unsafe {
                head.write(Head {
                    #[expect(clippy::cast_possible_truncation, reason = "not above `counted`")]
                    len: len as u32,
                    capacity: counted,
                });
                if let Some(old) = old {
                    #[cfg(all(test, not(loom)))]
                    tests::COPIED_BYTES.set(tests::COPIED_BYTES.get() + len * size_of::<T>());
                    ptr::copy_nonoverlapping(
                        Self::items(old).as_ptr(),
                        Self::items(head).as_ptr(),
                        len,
                    );
                }
            }
            head
        });
        let layout = Self::layout(self.capacity());
        self.head = new;
        if let Some(old) = old {
            // SAFETY: its items were moved; it came from the pool with this layout.
            unsafe { pool::free(old.cast(), layout) };
        }
    }

    /// Returns the address of the first item.
    fn items(head: NonNull<Head>) -> NonNull<T> {
        const { assert!(align_of::<T>() <= align_of::<Head>()) };
        // SAFETY: the items follow the head in the same allocation.
        unsafe { head.add(1).cast() }
    }

    fn layout(capacity: usize) -> Layout {
        let items = Layout::array::<T>(capacity);
        let both = items.and_then(|items| Layout::new::<Head>().extend(items));
        both.expect("a layout below isize::MAX").0
    }
}

impl<T> Deref for List<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        match self.head {
            None => &[],
            // SAFETY: that many items are initialized.
            Some(head) => unsafe {
                slice::from_raw_parts(Self::items(head).as_ptr(), head.as_ref().len as usize)
            },
        }
    }
}

impl<T> DerefMut for List<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self.head {
            None => &mut [],
            // SAFETY: that many items are initialized, and the list is borrowed mutably.
            Some(head) => unsafe {
                slice::from_raw_parts_mut(Self::items(head).as_ptr(), head.as_ref().len as usize)
            },
        }
    }
}

impl<T> Drop for List<T> {
    fn drop(&mut self) {
        self.remove_front(usize::MAX);
        self.set_capacity(0);
    }
}

impl<T: fmt::Debug> fmt::Debug for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(all(test, not(loom)))]
pub(crate) mod tests {
    use super::List;
    use std::cell::Cell;
    use std::sync::Arc;

    thread_local! {
        /// The number of bytes that lists of this thread have copied to grow.
        pub(crate) static COPIED_BYTES: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn a_list_behaves_like_a_vec() {
        let shared = Arc::new(());
        let mut list = List::new();
        let mut vec = Vec::new();
        for round in 0..300_usize {
            if list.len() == list.capacity() {
                list.set_capacity(list.len() + 1 + round % 7);
            }
            list.push((round, shared.clone()));
            vec.push((round, shared.clone()));
            if round % 11 == 10 {
                let count = round % 5;
                list.remove_front(count);
                vec.drain(..count.min(vec.len()));
                assert_eq!(list.pop_front().is_some(), !vec.is_empty());
                vec.drain(..1.min(vec.len()));
                list.set_capacity(0);
                assert_eq!(list.capacity(), list.len());
            }
            assert_eq!(&list[..], &vec[..]);
        }
        assert_eq!(Arc::strong_count(&shared), 1 + list.len() + vec.len());
        drop(list);
        assert_eq!(Arc::strong_count(&shared), 1 + vec.len());
    }

    #[test]
    fn an_empty_list_takes_one_word() {
        let mut list: List<u64> = List::with_capacity(0);
        list.remove_front(3);
        assert!(list.is_empty() && list.capacity() == 0);
        assert_eq!(size_of::<List<u64>>(), size_of::<usize>());
    }
}
