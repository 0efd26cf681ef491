//! Memory: the allocations that records and entries live in.

mod list;
#[cfg_attr(loom, path = "heap.rs")]
mod pool;
mod thin;

pub(crate) use list::List;
pub(crate) use thin::{AtomicThin, BYTES_MAX, Thin};
