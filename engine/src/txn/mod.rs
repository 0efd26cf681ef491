//! Writes: single puts, deletions and transactions.
//!
//! `transaction` checks a request, evaluates its compares and decides which operations run; `commit` numbers
//! what they write, publishes the revision and notifies the watches. In etcd both are parts of mvcc's
//! `watchableStoreTxnWrite` and the `apply` package.

mod commit;
mod transaction;

pub(crate) use commit::Committed;
pub use transaction::{
    Compare, CompareTarget, DeleteResult, Op, OpResult, Put, PutLease, PutResult, Relation, Txn,
    TxnResult,
};
