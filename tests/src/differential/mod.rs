//! Random operations against a real etcd and against our services, compared answer by answer.
//!
//! An *episode* is a sequence of operations on a fresh pair of servers: [`generate`] makes one
//! operation after the other, [`pair`] carries each out on both sides and compares what they answer
//! and what their watches tell. An episode that differs is made small by [`shrink`] and printed as a
//! scenario. A seed repeats it.
//!
//! What is not compared, because two right servers may differ in it, is what
//! [`normal`](crate::scenario::normal) lists, and in what batches a watch tells its events (WA-32):
//! it is looked at only now and then, so what one server tells as it happens may be history to the
//! other. Nor is when watches hear of progress. What no server may do is checked on each side: split a
//! revision, go back, or tell an event that progress has covered.
//!
//! What is not generated: an unknown sort target, which ends the real etcd (RG-44); a transaction
//! that deletes to the end of the keys and then puts with an ignore flag, which does too (TXN-10);
//! hashes at the marks of compactions (HK-5), and marks at transactions (TXN-9); negative start revisions (WA-7) and -1 as the id of a
//! watch (WA-5); leases that expire, since ours do so by another clock.

pub mod episode;
pub mod generate;
pub mod pair;
pub mod shrink;
pub mod told;
