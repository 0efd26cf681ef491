//! The MVCC engine of revstore: a revision-ordered key-value store in memory.
