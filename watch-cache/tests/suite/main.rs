//! The conformance tests of docs/watch-cache.md (section G), named by their ids.
//!
//! Tests of behaviour that a client can observe run on the raw store and on the cache, through one
//! trait (WC-103), over the engine. With the feature `etcd` they also run over our server through a
//! client of etcd, and over a real etcd 3.5 if it is installed (`$ETCD` or `tests/.tools/bin`; with
//! `REVSTORE_REQUIRE_ETCD=1` a missing etcd is a failure). T-56 and T-63 are about HTTP and are not
//! part of this crate; T-65 is in `benches/`.

#![expect(
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    clippy::default_trait_access,
    clippy::cast_possible_wrap,
    clippy::print_stdout,
    reason = "the helpers of tests are test code"
)]

mod compaction;
mod corrupt;
mod errors;
#[cfg(feature = "etcd")]
mod etcd;
mod forms;
mod get;
mod list;
mod load;
mod metrics;
mod pages;
mod protobuf;
mod registry;
mod reload;
mod resources;
mod support;
mod timing;
mod watch;
mod writes;
