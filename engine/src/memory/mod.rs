//! Memory: the allocations that records, entries and the nodes over them live in. Nearly all unsafe
//! code of the engine.
//!
//! | file | contains | used by |
//! |---|---|---|
//! | `pool` | a pool of slots of one size each, over memory mapped from the system, and [`Batch`], for a thread that allocates many | all others |
//! | `heap` | its replacement under loom and shuttle, and with `--cfg revstore_heap`, for sanitizers | all others |
//! | `thin` | [`Thin`], a reference-counted header with bytes; [`AtomicThin`], a cell for one | `history` |
//! | `run` | [`Run`], the nodes of a sequence of records | `history::sequence` |
//! | `node` | [`Node`], the nodes of the index | `index::tree` |
//!
//! # Guarantees
//! - A [`Thin`] owns its content, which is dropped once. The content changes only through
//!   [`Thin::get_mut`], which needs the only handle. So a record never changes after it is shared
//!   (I2).
//! - The pool returns a slab of 64 KiB to the system as soon as all its slots are free, except for
//!   the last slab of each size. So the memory of a store after a compaction does not depend on the
//!   allocator of the program.
//!
//! # Rules for readers without a lock
//! A reader pins its thread (`sync::epoch`), and then follows pointers: from the root of the index to
//! a leaf, to an entry, to a record, or from the root of a sequence to a record. It counts no
//! references. What it finds stays valid until the pin ends, because of these rules:
//!
//! 1. A place that readers follow is written before the pointer to it, or the number that counts it,
//!    is published: with Release, and loaded with Acquire.
//! 2. There is one writer at a time: of the index, the holder of its lock; of a sequence, the holder of
//!    its `SequenceWriter`, which the lock of an entry or of the log contains.
//! 3. A writer changes a node in place only by an append, by the exchange of one pointer, or by a
//!    number. All other changes replace the node with a copy. The items of the node move to the copy,
//!    bit by bit, so that they have one owner: the reachable node.
//! 4. What a writer has unlinked it frees with `Guard::defer`, after the unlinking: nodes
//!    ([`OldNode::free`], [`Run::free`]), and the handles in them (`history::Removed`, and entries that
//!    leave the index). So they are freed when all pins that may have found them have ended.
//! 5. Types borrow the pin: [`Borrowed`], `history::Record` and the references that nodes lend do not
//!    outlive it.
//!
//! The loom models `free_against_read`, `split_against_read`, `replace_against_read` and
//! `count_against_create` check these rules, and each has a broken twin. Loom explores neither
//! reference counts (see `sync::ReferenceCount`) nor the pool nor crossbeam's pins. The engine's
//! stress tests cover all three, also under the sanitizers for addresses and for threads.

mod node;
#[cfg_attr(any(loom, shuttle, revstore_heap), path = "heap.rs")]
mod pool;
mod run;
mod thin;

pub(crate) use node::{NewNode, Node, NodeCell, NodePointer, OldNode};
pub(crate) use pool::Batch;
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) use run::tests::COPIED_BYTES;
pub(crate) use run::{NewRun, RUN_CAPACITY_MAX, Run, RunCell};
pub(crate) use thin::{AtomicThin, BYTES_MAX, Borrowed, Thin};
