//! What wakers share between threads. The models of `loom-tests/tests/wakers` compile their files with other types.

pub(crate) use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use parking_lot::Mutex;
