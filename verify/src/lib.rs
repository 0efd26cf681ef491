//! Runs programs over [`revstore_engine`] under a model checker: all interleavings of their threads
//! with [loom](https://docs.rs/loom), or random ones that a seed repeats with
//! [shuttle](https://docs.rs/shuttle).
//!
//! The engine itself runs, not a copy or a mock: its locks, atomics and wakers are those of the
//! model checker. So a model shows races in the program and in its use of the engine.
//!
//! ```
//! use revstore_engine::{Compare, Engine, ManualClock, Op, Put, Txn};
//! use revstore_verify::{Options, explore, race};
//!
//! /// Becomes the leader if there is none.
//! fn campaign(engine: &Engine, name: &'static str) -> bool {
//!     let txn = Txn::new()
//!         .when([Compare::absent("leader")])
//!         .and_then([Op::Put(Put::new("leader", name))]);
//!     engine.txn(&txn).unwrap().succeeded
//! }
//!
//! // In a program this is a `#[test]`.
//! let report = explore(&Options::new(), || {
//!     let engine = Engine::builder().clock(ManualClock::new()).build();
//!     let won = race(["a", "b"].map(|name| {
//!         let engine = engine.clone();
//!         move || campaign(&engine, name)
//!     }));
//!     assert!(won[0] != won[1], "no leader, or two");
//! });
//! println!("{report}");
//! ```
//!
//! The example `leader_election` of this crate is the whole model: with leases, resignation and
//! expiry, and with a worker that reads first and then puts, which the model checker detects.
//!
//! # Turning it on
//! A cfg chooses what runs the threads, so the same test file serves all builds:
//!
//! | `RUSTFLAGS` | `explore` runs | use it for |
//! |---|---|---|
//! | `--cfg loom` | every interleaving within the bounds, and the weaker orders of atomics | two or three threads with one or two calls each |
//! | `--cfg shuttle` | 1,000 random interleavings | larger programs, stress tests |
//! | none | 100 executions on threads of the system, which start together | a quick check in every `cargo test` |
//!
//! Without a cfg the test is useful, but proves little: whether a bug shows is chance, and an
//! execution cannot be repeated. It adds no dependency to the build: loom and shuttle are
//! dependencies of these cfgs alone.
//!
//! ```toml
//! [dependencies]
//! revstore-engine = "0.1" # before the first release: { path = "path/to/revstore/engine" }
//!
//! [dev-dependencies]
//! revstore-verify = "0.1" # before the first release: { path = "path/to/revstore/verify" }
//!
//! # For tests that exist with a model checker only.
//! [lints.rust]
//! unexpected_cfgs = { level = "warn", check-cfg = ['cfg(loom)', 'cfg(shuttle)'] }
//! ```
//!
//! ```text
//! cargo test --test models
//! RUSTFLAGS="--cfg loom" cargo test --test models --target-dir target/loom
//! RUSTFLAGS="--cfg shuttle" cargo test --test models --target-dir target/shuttle
//! ```
//!
//! The directories keep the builds apart. Loom explores several times as many executions per second
//! in an optimized build (`--release`, with `-C debug-assertions` in `RUSTFLAGS` for the engine's
//! own assertions). The cfgs hold for all crates of the build, and some of them change, too: tokio
//! has no network under `--cfg loom`, for example. So depend on the engine and not on the server,
//! and put models into a crate or a test without other dependencies.
//!
//! # Writing a model
//! - The closure is one execution. It creates the engine, with a
//!   [`ManualClock`](revstore_engine::ManualClock), and everything else that its threads share.
//!   With a model checker there is no `SystemClock`, and a manual clock is the default.
//! - Apart from the interleaving, each execution does the same. Time comes from the clock of the
//!   model, and random choices from [`seed`], not from the system.
//! - [`race`] runs the calls whose interleavings matter. Assertions come after it.
//! - State that the threads share beside the engine uses the types of [`sync`] and [`thread`]: a
//!   model checker does not know those of `std`.
//! - A model of a watch calls `try_next` or `poll_response` if the event may not come: an execution
//!   in which all threads wait fails.
//! - Write the model with the bug first, and check with [`try_explore`] that it fails. A model that
//!   cannot fail shows nothing.
//! - In these builds queues and steps of the engine have room for a few events, so that a small
//!   model also covers a watch that falls behind, and a scan that is interrupted.
//!
//! # Bounds and failures
//! [`Options`] bound an exploration, and its [`Report`] says how many executions ran and whether
//! those were all. If one fails, the panic of its thread ends the test, and standard error names
//! the execution:
//!
//! ```text
//! revstore-verify: execution 10 with loom failed: two workers lead
//! repeat it: REVSTORE_VERIFY_REPLAY=10 RUSTFLAGS="--cfg loom" cargo test one_of_two_workers_leads
//! ```
//!
//! With that variable only this execution runs, with the same options, for example in a debugger.
//! Loom first repeats the executions before it, as fast as in the first run, and then writes each
//! step of this one. Under shuttle the value is a seed, which determines the execution alone.
//!
//! # Limits
//! Loom explores the locks around data on the heap, but not the accesses to the data, and treats
//! `SeqCst` as `AcqRel`. Shuttle treats all orderings as `SeqCst`. Neither explores reference counts
//! of the engine, but both detect reads of records that the engine has freed. Its pool of memory is
//! replaced. The stress tests of the engine cover these with real threads and with sanitizers.

#[cfg(loom)]
#[path = "loom.rs"]
mod backend;
#[cfg(all(shuttle, not(loom)))]
#[path = "shuttle.rs"]
mod backend;
#[cfg(not(any(loom, shuttle)))]
#[path = "threads.rs"]
mod backend;
mod explore;
mod options;
mod race;
pub mod sync;
pub mod thread;

pub use explore::{Backend, Failure, Report, explore, seed, try_explore};
pub use options::{Options, STEPS_MAX};
pub use race::{Racers, race};

/// The example in `README.md`, compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
