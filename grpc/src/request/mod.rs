//! Requests on the way in: their validation, and their conversion to the engine's types.
//!
//! There is one file for each kind of request, with a `validate_*` function, which needs nothing but
//! the request and the limits, and a `convert_*` function, which takes the bytes out of the request.
//! These files alone know what zero means on the wire. etcd validates in `v3rpc`
//! (`checkRangeRequest`, `checkPutRequest`, `checkTxnRequest`).

pub(crate) mod concurrency;
pub(crate) mod kv;
pub(crate) mod peer_url;
pub(crate) mod txn;
pub(crate) mod watch;
mod write_set;
