//! The conformance tests of the behavior specification (section G), named by their ids.
//!
//! Tests of what a client can observe run on the raw store and on the cache, through one trait
//! (WC-103), over the engine. With the feature `etcd` they also run over our server through a client of
//! etcd, and over a real etcd 3.5 if there is one (`$ETCD` or `tests/.tools/bin`; with
//! `REVSTORE_REQUIRE_ETCD=1` a missing etcd is a failure). T-56 and T-63 are about HTTP and are not
//! part of this crate; T-65 is in `benches/`.

#![expect(
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    clippy::default_trait_access,
    clippy::cast_possible_wrap,
    clippy::print_stdout,
    reason = "helpers of tests are test code, and a test with a table is read in one piece"
)]

mod errors;
#[cfg(feature = "etcd")]
mod etcd;
mod get;
mod list;
mod metrics;
mod reload;
mod support;
mod timing;
mod watch;
mod writes;
