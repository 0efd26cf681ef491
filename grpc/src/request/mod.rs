//! Validation of requests, and their conversion to the engine's types.
//!
//! There is one file for each kind of request. Its `validate_*` functions depend only on the
//! request and the limits. Its `convert_*` functions move the bytes out of the request. Only these
//! files interpret zero in a field of a request as absent. etcd validates in `v3rpc`
//! (`checkRangeRequest`, `checkPutRequest`, `checkTxnRequest`).

pub(crate) mod concurrency;
pub(crate) mod kv;
pub(crate) mod nesting;
pub(crate) mod peer_url;
pub(crate) mod text;
pub(crate) mod txn;
pub(crate) mod watch;
mod write_set;
