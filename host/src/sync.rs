//! What a waker shares between threads. The models of `loom-tests/tests/wakers` compile its file with other types.

pub(crate) use std::sync::atomic::{AtomicU8, Ordering};

pub(crate) use parking_lot::Mutex;
