//! The history of the store: records, the versions of each key, and the log of all changes.
//!
//! A record is one version of one key. An entry holds the versions of its key, oldest first; etcd's
//! counterpart is the `keyIndex`. The log holds the same records in revision order; etcd's
//! counterpart is the bucket `key` of bbolt.

mod entry;
mod log;
mod record;
mod sequence;

pub(crate) use entry::{Entry, Removed};
pub(crate) use log::Log;
pub use record::{KeyValue, LeaseId, PUT_BYTES_MAX, RECORD_OVERHEAD_BYTES};
pub(crate) use record::{PendingRecord, Record};
pub(crate) use sequence::NewSequence;
