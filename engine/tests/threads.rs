//! Threads that end.

use std::cell::RefCell;
use std::thread;

use revstore_engine::{Engine, KeyRange};

/// Compacts while this thread is pinned, so that what is removed cannot be freed yet.
fn compact_while_pinned(engine: &Engine) {
    let removed = engine.get_with("k", |_| {
        let engine = engine.clone();
        let remove = move || {
            let current = engine.current_revision();
            engine.compact(current).expect("a kept revision").run();
        };
        thread::spawn(remove).join()
    });
    removed
        .expect("a live key")
        .expect("a thread without a panic");
}

/// A thread that ends may free what other threads have removed: its last pin looks for that, as each
/// 128th one does. That takes locks, after other data of the thread were destroyed, which once ended
/// the process in builds with debug assertions.
#[test]
fn a_thread_frees_removed_versions_at_its_end() {
    let engine = Engine::builder().build();
    engine.put("k", "v").expect("a valid put");
    for reads in 0..256 {
        for _ in 0..64 {
            engine.put("k", "v").expect("a valid put");
        }
        compact_while_pinned(&engine);
        let reader = engine.clone();
        let thread = thread::spawn(move || {
            reader.put("k", "v").expect("a valid put");
            for _ in 0..reads {
                assert!(reader.get("k").is_some());
            }
        });
        thread.join().expect("the thread ends without a panic");
    }
}

/// Reads from an engine when its thread ends.
struct ReadAtEnd(RefCell<Option<Engine>>);

impl Drop for ReadAtEnd {
    fn drop(&mut self) {
        let engine = self.0.get_mut().take().expect("the thread sets it");
        assert!(engine.get("k").is_some());
    }
}

/// After the pins of a thread are gone, each of its pins frees something. A free that pinned in its turn freed more,
/// and so on, until the stack overflowed.
#[test]
fn a_thread_whose_pins_are_gone_frees_without_nesting() {
    /// Room for a few frees inside of each other.
    const STACK_BYTES: usize = 256 << 10;
    /// Many times as many as that.
    const REMOVED_KEYS: usize = 20_000;
    /// A thread lets others free what they removed with each 128th pin, and after two of these.
    const PINS: usize = 3 * 128;
    thread_local! {
        static FIRST: ReadAtEnd = const { ReadAtEnd(RefCell::new(None)) };
        static LAST: ReadAtEnd = const { ReadAtEnd(RefCell::new(None)) };
    }
    let engine = Engine::builder().build();
    engine.put("k", "v").expect("a valid put");
    for key in 0..REMOVED_KEYS {
        let key = format!("removed/{key}");
        engine.put(key.clone(), "v").expect("a valid put");
        engine.delete(&KeyRange::one(key)).expect("a valid delete");
    }
    compact_while_pinned(&engine);
    let ending = move || {
        // The order in which the data of a thread is destroyed is not specified: one of the two follows the pins.
        FIRST.with(|first| first.0.replace(Some(engine.clone())));
        for _ in 0..PINS {
            assert!(engine.get("k").is_some());
        }
        LAST.with(|last| last.0.replace(Some(engine)));
    };
    let thread = thread::Builder::new().stack_size(STACK_BYTES).spawn(ending);
    let ended = thread.expect("a thread can be started").join();
    ended.expect("the thread ends without a panic");
}
