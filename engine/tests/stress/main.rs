//! The engine under real threads: what loom's small models cannot show.
//!
//! Threads run a seeded mix of operations on one engine and write down what they asked and what they
//! were told. Afterwards the history is judged:
//!
//! | file | judges |
//! |---|---|
//! | `order.rs` | operations: the revisions are a linearization of them (I1, I3, I7) |
//! | `search.rs` | the same for a few operations, by trying all orders and ignoring revisions |
//! | `guarantees.rs` | watches: ordered, unique, atomic, reliable, resumable, bookmarkable (I5, I6) |
//!
//! Each judge has tests of its own with histories that it must reject. `scenarios.rs` provokes the bugs
//! that etcd once had. The mix of each thread follows from the printed seed, how the threads interleave
//! does not: a failure may take a few runs to come back.

mod guarantees;
mod history;
mod mix;
mod model;
mod order;
mod random;
mod scenarios;
mod search;
mod watched;
