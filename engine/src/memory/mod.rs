//! Memory: the allocations that records and entries live in. Nearly all unsafe code of the engine.
//!
//! | file | contains | used by |
//! |---|---|---|
//! | `pool` | a pool of slots of one size each, over memory mapped from the system | `thin`, `list` |
//! | `heap` | its replacement under loom and shuttle, and with `--cfg revstore_heap`, for sanitizers | `thin`, `list` |
//! | `thin` | [`Thin`], a reference-counted header with bytes; [`AtomicThin`], a cell for one | `history` |
//! | `list` | [`List`], an array with exact growth | `history::sequence` |
//!
//! # Guarantees
//! - [`Thin`] and [`List`] own their contents: each header and each item is dropped once. Their
//!   functions are safe, with the exception of [`AtomicThin::peek`].
//! - The content of a [`Thin`] changes only through [`Thin::get_mut`], which needs the only handle.
//!   So a record never changes after it is shared (I2).
//! - The pool returns a slab of 64 KiB to the system as soon as all its slots are free, except for
//!   the last slab of each size. So the memory of a store after a compaction does not depend on the
//!   allocator of the program.
//!
//! # Callers
//! Only `history` uses these types. `pool::allocate` and `pool::free` are private to this folder;
//! `free` is unsafe, because it cannot check the pointer and the layout.
//!
//! # Rules for the unsafe reads
//! A read of the newest version takes no lock of its entry: [`AtomicThin::peek`] returns a handle
//! without counting a reference. The handle is valid until the last counted handle is dropped. The
//! following rules guarantee that this does not happen during the read:
//!
//! 1. The newest version of an entry leaves its cell only with the entry's lock held: into the
//!    entry's older versions (a put), or into a `history::Removed` (a compaction).
//! 2. A `Removed` frees nothing when it is dropped. Only `Index::free` frees its versions, and it
//!    first takes the lock of the index for writing.
//! 3. A lock-free read (`Entry::read`, `Entry::touch_newest`) takes place only with the lock of the
//!    index held for reading: `index::Found` exists only there. So when `Index::free` has taken the
//!    lock, all reads that may access the removed versions have ended, and later reads do not find
//!    them.
//! 4. A version that a put moves to the older versions stays in memory until a compaction removes
//!    it, for which rule 2 holds. A reader that holds the lock of the entry needs no other
//!    protection.
//!
//! The loom model `free_against_read` checks these rules. Its broken twin, the same model with a
//! mutation, does not take the lock of rule 2. Loom explores neither reference counts (see
//! `sync::ReferenceCount`) nor the pool. The engine's stress tests cover both.

mod list;
#[cfg_attr(any(loom, shuttle, revstore_heap), path = "heap.rs")]
mod pool;
mod thin;

pub(crate) use list::List;
#[cfg(all(test, not(loom)))]
pub(crate) use list::tests::COPIED_BYTES;
pub(crate) use thin::{AtomicThin, BYTES_MAX, Thin};
