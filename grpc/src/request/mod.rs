//! Requests on the way in: limits on their size, validation, and conversion to the engine's types.
//!
//! Nothing here changes state. etcd has these checks in `v3rpc` (`checkPutRequest`,
//! `checkTxnRequest` and the like).

pub(crate) mod convert;
pub(crate) mod limits;
pub(crate) mod peer_url;
pub(crate) mod validate;
