//! Tests over a file system in memory, which fails and crashes where a test wants it.

mod crash;
mod failure;
mod files;
mod memory_disk;
mod store;
