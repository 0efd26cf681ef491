//! Stress tests: the engine under real threads, with more operations than loom can explore.
//!
//! Threads run a seeded mix of operations on one engine and record all requests and responses.
//! Afterwards the recorded history is checked:
//!
//! | file | checks |
//! |---|---|
//! | `order.rs` | operations: the revisions in the responses are a linearization (I1, I3, I7) |
//! | `leases.rs` | leases: puts find them, and they expire with all their keys, not before their time |
//! | `search.rs` | the same for short histories, by a search that ignores revisions |
//! | `guarantees.rs` | watches: ordered, unique, atomic, reliable, resumable, bookmarkable (I5, I6) |
//!
//! Each check has tests with histories that it must reject. `scenarios.rs` tests for bugs that
//! earlier versions of etcd had. The printed seed determines the operations of each thread, but not
//! how the threads interleave, so a failure may need several runs to reproduce.
//!
//! With `--cfg shuttle` the same threads run with random schedules (`.ci/run shuttle`), and a
//! failure names the seed that repeats it. `mutations.rs` shows what these runs find.

mod guarantees;
mod history;
mod leases;
mod mix;
mod model;
#[cfg(shuttle)]
mod mutations;
mod order;
mod random;
mod scenarios;
mod search;
mod watched;
