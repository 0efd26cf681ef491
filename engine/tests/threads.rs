//! Threads that end.

use std::thread;

use revstore_engine::Engine;

/// Removes versions while this thread is pinned, so that they cannot be freed yet.
fn leave_removed_versions(engine: &Engine) {
    let removed = engine.get_with("k", |_| {
        let engine = engine.clone();
        let remove = move || {
            for _ in 0..64 {
                engine.put("k", "v").expect("a valid put");
            }
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
        leave_removed_versions(&engine);
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
