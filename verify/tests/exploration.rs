//! Explorations: what they find, that their bounds hold, and that failures can be repeated. The
//! same tests run with each backend.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use revstore_engine::{Engine, KeyRange, ManualClock, WatchOptions, WatchResponse};
#[cfg(any(loom, shuttle))]
use revstore_verify::sync::atomic::AtomicUsize;
use revstore_verify::sync::{Arc, Mutex};
#[cfg(any(loom, shuttle))]
use revstore_verify::thread;
use revstore_verify::thread::block_on;
use revstore_verify::{Backend, Options, explore, race, seed, try_explore};

/// The total number of executions of [`lost_update`] in this process.
static EXECUTIONS: AtomicU64 = AtomicU64::new(0);

fn engine() -> Engine {
    Engine::builder().clock(ManualClock::new()).build()
}

/// Two threads read and write a number under separate locks. One preemption loses an update.
fn lost_update() {
    EXECUTIONS.fetch_add(1, Ordering::SeqCst);
    let number = Arc::new(Mutex::new(0));
    race([(); 2].map(|()| {
        let number = number.clone();
        move || {
            let before = *number.lock().expect("not poisoned");
            *number.lock().expect("not poisoned") = before + 1;
        }
    }));
    assert_eq!(
        *number.lock().expect("not poisoned"),
        2,
        "an update was lost"
    );
}

/// Two puts, which are in order.
fn two_puts() {
    let engine = engine();
    let revisions = race(["a", "b"].map(|key| {
        let engine = engine.clone();
        move || engine.put(key, "value").expect("a valid put").revision
    }));
    assert_ne!(revisions[0], revisions[1]);
}

#[test]
fn the_report_names_the_backend_and_the_executions() {
    let report = explore(&Options::new().preemptions(1), two_puts);
    assert_eq!(report.backend, Backend::CURRENT);
    assert_eq!(report.complete, cfg!(loom), "{report}");
    let default = match Backend::CURRENT {
        Backend::Loom => report.executions,
        Backend::Shuttle => 1_000,
        Backend::Threads => 100,
    };
    assert_eq!(report.executions, default);
    assert_eq!(report.seed.is_some(), cfg!(shuttle));
}

#[test]
fn the_number_of_executions_is_exact() {
    for executions in [1, 2, 7] {
        let report = explore(&Options::new().executions(executions), two_puts);
        assert_eq!(report.executions, executions);
        assert!(!report.complete);
    }
}

#[test]
fn at_least_one_execution_runs() {
    let bounds = [
        Options::new().executions(0),
        Options::new().duration(Duration::ZERO),
    ];
    for options in bounds {
        assert_eq!(explore(&options, two_puts).executions, 1);
    }
}

#[cfg(any(loom, shuttle))]
#[test]
fn a_bug_is_found_with_as_many_preemptions_as_it_needs() {
    explore(&Options::new().preemptions(0), lost_update);
    for options in [Options::new().preemptions(1), Options::new()] {
        let failure = try_explore(&options, lost_update).expect_err("an update is lost");
        assert!(failure.message.contains("an update was lost"), "{failure}");
        assert!(failure.replay.is_some());
    }
}

/// Loom without a bound misses that the store of a thread that has loaded the value before may come
/// before the load of another thread.
#[cfg(any(loom, shuttle))]
#[test]
fn a_store_after_a_load_is_seen_by_another_thread() {
    let options = Options::new();
    let failed = try_explore(&options, || {
        let value = Arc::new(AtomicUsize::new(0));
        let (reader, writer) = (value.clone(), value);
        let read = move || reader.load(Ordering::Acquire);
        let write = move || {
            writer.load(Ordering::Acquire);
            writer.store(1, Ordering::Release);
        };
        let (seen, ()) = race((read, write));
        assert_eq!(seen, 0, "the store came first");
    });
    failed.expect_err("the store may come first");
}

#[cfg(any(loom, shuttle))]
#[test]
fn an_execution_that_does_not_end_fails() {
    let endless = || {
        let flag = Arc::new(AtomicUsize::new(0));
        race([(); 2].map(|()| {
            let flag = flag.clone();
            move || {
                while flag.load(Ordering::SeqCst) == 0 {
                    thread::yield_now();
                }
            }
        }));
    };
    let failure = try_explore(&Options::new().steps(1_000), endless).expect_err("endless");
    assert_eq!(failure.execution, 1, "{failure}");
}

/// Runs only in the process that the next test starts: loom may end it.
#[cfg(any(loom, shuttle))]
#[test]
fn a_deadlock() {
    if std::env::var_os("REVSTORE_VERIFY_SEED").is_some() {
        explore(&Options::new(), || {
            let mut watcher = engine().watch(WatchOptions::of(KeyRange::all()));
            drop(watcher.as_mut().expect("a valid watch").next_blocking());
        });
    }
}

#[cfg(any(loom, shuttle))]
#[test]
fn an_execution_whose_threads_all_wait_fails() {
    let output = run_alone("a_deadlock", "REVSTORE_VERIFY_SEED", "5");
    assert!(!output.status.success());
    let written = String::from_utf8_lossy(&output.stderr);
    assert!(written.contains("deadlock"), "{written}");
    let replay = if cfg!(loom) { "1" } else { "5:0" };
    let replay = format!("REVSTORE_VERIFY_REPLAY={replay} ");
    assert!(written.contains(&replay), "{written}");
}

#[test]
fn a_watch_wakes_a_thread_that_waits() {
    explore(&Options::new().preemptions(2), || {
        let engine = engine();
        let mut watcher = engine
            .watch(WatchOptions::of(KeyRange::all()))
            .expect("a valid watch");
        let write = move || engine.put("key", "value").expect("a valid put").revision;
        let read = move || {
            let batch = watcher.next_blocking().expect("the watch continues");
            batch.expect("nothing is compacted").revision
        };
        let (written, read) = race((write, read));
        assert_eq!(written, read);
    });
}

#[test]
fn a_watch_wakes_a_task_that_waits() {
    explore(&Options::new().preemptions(2), || {
        let engine = engine();
        let mut stream = engine.watch_stream();
        stream
            .watch(WatchOptions::of(KeyRange::all()))
            .expect("a valid watch");
        let write = move || engine.put("key", "value").expect("a valid put").revision;
        let read = move || block_on(poll_fn(|context| stream.poll_response(context)));
        let (written, read) = race((write, read));
        assert!(
            matches!(&read, WatchResponse::Events { revision, .. } if *revision == written),
            "{read:?}"
        );
    });
}

#[test]
#[should_panic(expected = "the second closure")]
fn a_panic_of_a_closure_is_the_panic_of_the_exploration() {
    explore(&Options::new(), || {
        race((|| (), || panic!("the second closure")));
    });
}

#[test]
fn an_exploration_after_a_failed_one_succeeds() {
    for _ in 0..3 {
        let failure = try_explore(&Options::new(), || {
            let engine = engine();
            two_puts();
            assert!(engine.get("key").is_some(), "the key is absent");
        });
        let failure = failure.expect_err("the key is absent");
        assert_eq!(failure.message, "the key is absent");
        explore(&Options::new().executions(10), two_puts);
    }
}

#[test]
fn an_exploration_in_an_exploration_is_refused() {
    let failure = try_explore(&Options::new(), || {
        explore(&Options::new(), || ());
    });
    let failure = failure.expect_err("nested");
    assert_eq!(failure.message, "`explore` is called in an exploration");
}

#[cfg(loom)]
#[test]
fn more_threads_than_loom_explores_are_refused() {
    explore(&Options::new().executions(3), || {
        race([(); 4].map(|()| || ()));
    });
    let failure = try_explore(&Options::new(), || {
        race([(); 2].map(|()| || ()));
        race([(); 3].map(|()| || ()));
    });
    let failure = failure.expect_err("five threads");
    assert!(failure.message.contains("more than 4 threads"), "{failure}");
}

#[test]
fn the_seed_differs_between_executions_if_the_backend_allows_it() {
    let seeds = std::sync::Arc::new(std::sync::Mutex::new(BTreeSet::new()));
    let sum = seeds.clone();
    let report = explore(&Options::new().executions(5), move || {
        sum.lock().expect("not poisoned").insert(seed());
        two_puts();
    });
    let seeds = seeds.lock().expect("not poisoned");
    let expected = if cfg!(loom) { 1 } else { report.executions };
    assert_eq!(seeds.len() as u64, expected);
    assert_eq!(report.seed.is_some(), cfg!(shuttle));
    assert!(report.seed.is_none_or(|first| seeds.contains(&first)));
}

#[test]
#[should_panic(expected = "`seed` is called by the thread")]
fn the_seed_outside_of_an_exploration_is_refused() {
    explore(&Options::new().executions(1), || ());
    seed();
}

#[cfg(shuttle)]
#[test]
fn a_seed_determines_the_executions() {
    let explored = |seed| try_explore(&Options::new().seed(seed), lost_update);
    for seed in 0..20 {
        assert_eq!(explored(seed), explored(seed));
    }
}

#[test]
#[should_panic(expected = "steps: 10000001 is above the maximum of 10000000")]
fn a_bound_of_steps_above_the_maximum_is_refused() {
    let _ = Options::new().steps(10_000_001);
}

/// The model that the next tests run in another process.
#[test]
fn a_lost_update() {
    let explored = try_explore(&Options::new(), lost_update);
    match explored {
        // Threads of the system lose one only by chance.
        Ok(report) => assert_eq!(Backend::CURRENT, Backend::Threads, "{report}"),
        Err(failure) => {
            assert_eq!(
                failure.replay.is_some(),
                Backend::CURRENT != Backend::Threads
            );
            eprintln!("after {} executions", EXECUTIONS.load(Ordering::SeqCst));
            eprintln!("{failure}");
        }
    }
}

/// Runs a test in a process of its own, with a variable.
fn run_alone(test: &str, variable: &str, value: &str) -> Output {
    let program = std::env::current_exe().expect("the path of the test");
    Command::new(program)
        .args(["--exact", test, "--nocapture"])
        .env(variable, value)
        .output()
        .expect("the test can be run")
}

#[cfg(any(loom, shuttle))]
#[test]
fn a_failure_is_repeated_by_its_variable() {
    let failure = try_explore(&Options::new(), lost_update).expect_err("an update is lost");
    let replay = failure.replay.expect("a model checker ran it");
    let output = run_alone("a_lost_update", "REVSTORE_VERIFY_REPLAY", &replay);
    let written = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{written}");
    assert!(written.contains("an update was lost"), "{written}");
    // Loom runs the executions before it again, without a trace.
    let executions = if cfg!(loom) { failure.execution } else { 1 };
    assert!(
        written.contains(&format!("after {executions} executions")),
        "{written}"
    );
    if cfg!(loom) {
        assert!(written.contains("loom::rt::mutex"), "no trace: {written}");
    }
}

#[cfg(loom)]
#[test]
fn the_number_of_an_execution_that_does_not_exist_is_reported() {
    let output = run_alone("a_lost_update", "REVSTORE_VERIFY_REPLAY", "0");
    let written = String::from_utf8_lossy(&output.stderr);
    assert!(written.contains("expected the number of an execution"));
}

#[test]
fn a_variable_with_an_invalid_value_is_refused() {
    let output = run_alone("a_lost_update", "REVSTORE_VERIFY_EXECUTIONS", "many");
    assert!(!output.status.success());
    let written = String::from_utf8_lossy(&output.stderr);
    let expected = "invalid REVSTORE_VERIFY_EXECUTIONS \"many\": expected a number";
    assert!(written.contains(expected), "{written}");
}
