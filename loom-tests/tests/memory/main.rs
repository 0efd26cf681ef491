//! The memory of records alone: the orderings and the reference counts of `Thin` and `AtomicThin`.
//!
//! The models of the engine do not explore reference counts, because there are too many of them. So
//! these models compile `engine/src/memory/thin.rs` itself into this crate, over atomics that loom
//! explores. Nothing else of the engine takes part.
//!
//! The header of a handle is a cell of loom, which reports each access that is not ordered with
//! another one: a read of a header before its content is written, or one that is not over when the
//! header is dropped. Each broken twin weakens one access of that file.
//!
//! The nodes of `run.rs` and `node.rs` are explored with the engine around them (`split_against_read`
//! and others). In `pool.rs` all shared state is behind the locks of the pool, and the memory comes from the system,
//! which loom cannot simulate; here `heap.rs` takes its place, as in all builds with loom. The
//! stress tests cover it.
#![cfg(loom)]

#[expect(dead_code, reason = "the models use a part of the file")]
#[path = "../../../engine/src/memory/heap.rs"]
mod pool;
mod sync;
#[expect(dead_code, reason = "the models use a part of the file")]
#[path = "../../../engine/src/memory/thin.rs"]
mod thin;

/// The path by which `thin.rs` names the other file.
mod memory {
    pub(crate) use crate::pool;
}

use std::mem::ManuallyDrop;

use loom::cell::UnsafeCell;
use loom::sync::{Arc, RwLock};
use loom::thread;
use revstore_verify::{Options, explore};
use sync::Weakened;
use sync::epoch::Guard;
use thin::{AtomicThin, Thin};

/// A header whose accesses loom checks.
struct Header(UnsafeCell<u32>);

// SAFETY: as the models have to show.
unsafe impl Send for Header {}
// SAFETY: as above.
unsafe impl Sync for Header {}

impl Header {
    fn get(&self) -> u32 {
        // SAFETY: loom reports a write at the same time, and ends the model.
        self.0.with(|value| unsafe { *value })
    }

    fn set(&mut self, new: u32) {
        // SAFETY: as in `get`.
        self.0.with_mut(|value| unsafe { *value = new });
    }
}

impl Drop for Header {
    fn drop(&mut self) {
        // A write, which must come after all reads. While a violation unwinds, another one would end
        // the process.
        if !std::thread::panicking() {
            self.set(0);
        }
    }
}

fn handle() -> Thin<Header> {
    let mut handle = Thin::new(Header(UnsafeCell::new(0)), 0, [b"key", b"value"]);
    let (header, _) = handle.get_mut().expect("the only handle");
    header.set(1);
    handle
}

fn check(handle: &Thin<Header>) {
    assert_eq!(handle.header().get(), 1, "a freed record was read");
    assert_eq!(handle.bytes(), b"keyvalue");
}

/// Explores a model, with one access weakened or none.
fn run(weakened: Option<Weakened>, model: fn()) {
    explore(&Options::new(), move || {
        sync::WEAKENED.set(weakened);
        model();
    });
}

/// Three handles that are read and dropped at the same time.
fn three_handles() {
    let one = handle();
    let readers = [one.clone(), one.clone()].map(|handle| {
        thread::spawn(move || {
            check(&handle);
            drop(handle);
        })
    });
    check(&one);
    drop(one);
    for reader in readers {
        reader.join().expect("loom ends the model");
    }
}

/// Handles that are cloned at the same time, and dropped in another order.
fn clones() {
    let one = Arc::new(handle());
    let cloned = [one.clone(), one.clone()].map(|one| {
        thread::spawn(move || {
            let handle = Thin::clone(&one);
            drop(one);
            check(&handle);
            handle
        })
    });
    let cloned = cloned.map(|thread| thread.join().expect("loom ends the model"));
    drop(one);
    let [first, second] = cloned;
    drop(first);
    check(&second);
}

/// A handle that becomes the only one while another is dropped.
fn a_write_through_the_only_handle() {
    let mut one = handle();
    let other = one.clone();
    let reader = thread::spawn(move || check(&other));
    if let Some((header, bytes)) = one.get_mut() {
        header.set(2);
        bytes.fill(0);
    }
    reader.join().expect("loom ends the model");
}

/// A cell, and a lock that protects reads of it, in place of pins.
struct Shared {
    cell: AtomicThin<Header>,
    readers: RwLock<()>,
}

/// Reads the cell without counting a reference.
fn read(shared: &Shared) {
    let _reading = shared.readers.read().expect("not poisoned");
    if let Some(found) = shared.cell.load(&Guard) {
        check(&found);
        // As reads of the engine do.
        drop(Thin::clone(&found));
    }
}

/// A handle that is stored in a cell, read, and taken out again.
fn a_cell() {
    let shared = Arc::new(Shared {
        cell: AtomicThin::new(),
        readers: RwLock::new(()),
    });
    let reader = {
        let shared = shared.clone();
        thread::spawn(move || read(&shared))
    };
    assert!(shared.cell.replace(Some(handle())).is_none());
    let replaced = shared.cell.replace(Some(handle()));
    if !sync::is_weakened(Weakened::FreeWithoutWaiting) {
        drop(shared.readers.write().expect("not poisoned"));
    }
    drop(replaced.map(ManuallyDrop::into_inner));
    reader.join().expect("loom ends the model");
}

#[test]
fn the_last_of_three_handles_frees_the_record_after_all_reads() {
    run(None, three_handles);
}

#[test]
fn no_clone_is_lost() {
    run(None, clones);
}

#[test]
fn only_the_only_handle_writes() {
    run(None, a_write_through_the_only_handle);
}

#[test]
fn a_read_of_a_cell_sees_a_whole_record() {
    run(None, a_cell);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_drop_without_release_is_detected() {
    run(Some(Weakened::ReleaseOfDrop), three_handles);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_last_drop_without_acquire_is_detected() {
    run(Some(Weakened::AcquireOfCount), three_handles);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_write_without_acquire_is_detected() {
    run(
        Some(Weakened::AcquireOfCount),
        a_write_through_the_only_handle,
    );
}

#[test]
#[should_panic(expected = "a freed record was read")]
fn a_lost_clone_is_detected() {
    run(Some(Weakened::AtomicityOfClone), clones);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_store_to_a_cell_without_release_is_detected() {
    run(Some(Weakened::ReleaseOfCell), a_cell);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_read_of_a_cell_without_acquire_is_detected() {
    run(Some(Weakened::AcquireOfCell), a_cell);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn freeing_without_waiting_for_reads_is_detected() {
    run(Some(Weakened::FreeWithoutWaiting), a_cell);
}
