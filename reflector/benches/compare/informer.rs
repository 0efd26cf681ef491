//! An informer over a source in memory: the first list, changes, a relist, and the memory of the store.

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use revstore_watch_cache::Object;

use crate::BoxError;
use crate::process::{client_go, cpu_time, figures, medians};
use crate::setup::{Setup, by_key, object};

const OBJECTS: usize = 100_000;
const EVENTS: usize = 10_000;
const EVENT_ROUNDS: usize = 10;
const RELISTS: usize = 3;

/// An allocator that counts the bytes in use, as glibc rounds them.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

/// Returns the size of the chunk of an allocation: 8 bytes more, a multiple of 16, at least 32.
fn chunk_size(layout: Layout) -> usize {
    (layout.size() + 8).next_multiple_of(16).max(32)
}

// SAFETY: every call is forwarded unchanged to the system allocator; the counter does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(chunk_size(layout), Ordering::Relaxed);
        // SAFETY: the caller fulfills the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(chunk_size(layout), Ordering::Relaxed);
        // SAFETY: the caller fulfills the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The figures, with their units, in the order of the table.
const ROWS: [(&str, &str); 7] = [
    ("changes", "changes per second, one subscription or handler"),
    ("change_cpu_ns", "CPU time of a change, ns"),
    ("first_list_ms", "first list of 100,000 objects, ms"),
    ("relist_ms", "relist of 100,000 objects, ms"),
    ("relist_cpu_ms", "CPU time of a relist, ms"),
    ("object_bytes", "memory of an object with 980 bytes of JSON"),
    (
        "store_bytes",
        "memory of its entries in the store and an index",
    ),
];

/// Runs both programs in turns, and prints the medians as a table.
pub(crate) fn compare(rounds: usize) -> Result<(), BoxError> {
    let (ours, client_go) = (std::env::current_exe()?, client_go()?);
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        here.push(figures(Command::new(&ours).arg("informer-once"))?);
        there.push(figures(Command::new(&client_go).arg("informer"))?);
    }
    let (here, there) = (medians(&here), medians(&there));
    println!(
        "| Medians of {rounds} rounds | here | client-go | here / client-go |\n|---|---|---|---|"
    );
    for (name, title) in ROWS {
        let (here, there) = (here[name], there[name]);
        println!("| {title} | {here:.0} | {there:.0} | {:.2} |", here / there);
    }
    Ok(())
}

/// Runs our informer, and prints the figures.
pub(crate) fn run_once() -> Result<(), BoxError> {
    let own = std::process::id();
    let each = |bytes: usize| bytes / OBJECTS;
    let in_use = || IN_USE.load(Ordering::Relaxed);

    let numbers = by_key(OBJECTS);
    let before = in_use();
    let objects: Vec<Object> = numbers.iter().map(|number| object(*number, 1)).collect();
    let created = in_use();
    let began = Instant::now();
    let mut setup = Setup::new(objects, 1);
    print("first_list_ms", began.elapsed().as_secs_f64() * 1e3);
    print("object_bytes", each(created - before));
    assert_eq!(setup.len(), OBJECTS);
    print("store_bytes", each(in_use() - created));

    let changes: Vec<Object> = numbers[..EVENTS]
        .iter()
        .map(|number| object(*number, 2))
        .collect();
    let (began, cpu) = (Instant::now(), cpu_time(own)?);
    for _ in 0..EVENT_ROUNDS {
        setup.source.push(&changes);
        assert_eq!(setup.deliver(), EVENTS);
    }
    let count = EVENTS * EVENT_ROUNDS;
    print("changes", count as f64 / began.elapsed().as_secs_f64());
    let cpu = cpu_time(own)? - cpu;
    print("change_cpu_ns", cpu * 1e9 / count as f64);

    let mut relists = Vec::new();
    let cpu = cpu_time(own)?;
    for _ in 0..RELISTS {
        setup.expire();
        let began = Instant::now();
        assert_eq!(setup.deliver(), OBJECTS);
        relists.push(began.elapsed());
    }
    print(
        "relist_cpu_ms",
        (cpu_time(own)? - cpu) * 1e3 / RELISTS as f64,
    );
    relists.sort_unstable();
    print("relist_ms", relists[RELISTS / 2].as_secs_f64() * 1e3);
    Ok(())
}

fn print(name: &str, value: impl std::fmt::Display) {
    println!("{name} {value}");
}
