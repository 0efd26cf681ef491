//! The revstore server: an etcd-compatible node in memory, as a binary and as a library.
