//! Random operations, sent to a real etcd and to the revstore services, with a comparison of all responses.
//!
//! An *episode* is a sequence of operations on a new pair of servers ([`episode`]). [`generate`] generates
//! the operations. [`pair`] runs each operation on both servers and compares the responses and the deliveries
//! of the watches ([`delivery`]). If an episode shows a difference, [`shrink`] removes operations from it,
//! and the rest is printed as a scenario. The same seed generates the same episode.
//!
//! Not compared, because two correct servers may differ:
//! - the parts of messages that [`normalize`](crate::scenario::normalize) lists;
//! - the batches of events (WA-32): watches are compared only every few operations, and one server may deliver
//!   an event live and the other from its history;
//! - the time of progress notifications.
//!
//! These rules are checked on each server: the events of a revision are in one batch, no event is repeated or
//! out of order, and no event follows a progress notification for its revision or a later one.
//!
//! Not generated:
//! - unknown sort targets, which crash etcd (RG-44);
//! - transactions that delete to the end of the keyspace and then put with an ignore flag, which crash etcd
//!   (TXN-10);
//! - hashes at compacted revisions (HK-5);
//! - compactions at revisions of transactions (TXN-9);
//! - negative start revisions (WA-7) and the watch id -1 (WA-5);
//! - leases that expire, since the two servers use different clocks.

pub mod delivery;
pub mod episode;
pub mod generate;
pub mod pair;
pub mod shrink;
