//! Writes: single puts, deletions and transactions.
//!
//! `request` contains the requests and results. `transaction` decides which operations run, and
//! checks that they can; `compare` evaluates the conditions; `commit` numbers and stores the
//! changes, publishes the revision and notifies the watches. Together they correspond to etcd's
//! `server/etcdserver/txn` and mvcc's `watchableStoreTxnWrite`.

mod commit;
mod compare;
mod request;
mod transaction;

pub(crate) use commit::Writer;
pub use request::{
    Branch, Compare, CompareTarget, DeleteResult, Op, OpPath, OpResult, Put, PutLease, PutResult,
    Relation, Txn, TxnResult,
};
pub(crate) use transaction::{delete, put, txn};
