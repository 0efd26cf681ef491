//! Random operations, sent to a real etcd and to the revstore services, with a comparison of all responses.
//!
//! An *episode* is a sequence of operations on a new pair of servers ([`episode`]): [`generate`] makes one
//! operation after the other, [`pair`] runs each on both sides and compares the responses and what their
//! watches delivered ([`delivery`]). An episode that shows a difference is made smaller by [`shrink`] and
//! printed as a scenario. The same seed makes the same episode.
//!
//! Not compared, because two correct servers may differ: what [`normalize`](crate::scenario::normalize) lists;
//! the batches of events (WA-32), since watches are compared only from time to time, and events that one
//! server delivers live may be history for the other; and the time of progress notifications. Rules that no
//! server may break are checked on each side: no revision is divided, no event is repeated or out of order,
//! and no event comes after progress that covers it.
//!
//! Not generated: unknown sort targets, which crash etcd (RG-44); transactions that delete to the end of the
//! keyspace and then put with an ignore flag, which crash it too (TXN-10); hashes at compacted revisions
//! (HK-5); compactions at revisions of transactions (TXN-9); negative start revisions (WA-7) and the watch
//! id -1 (WA-5); leases that expire, since ours expire by another clock.

pub mod delivery;
pub mod episode;
pub mod generate;
pub mod pair;
pub mod shrink;
