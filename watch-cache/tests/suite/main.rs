//! The conformance tests of the behaviour specification (section G), each named by its id.
//!
//! What a client can see is asked of the raw store and of the cache through one trait (WC-103), over
//! the engine. With the feature `etcd` also over our server through a client of etcd, and over a real
//! etcd 3.5 where there is one (`$ETCD`, `tests/.tools/bin`; `REVSTORE_REQUIRE_ETCD=1` demands it).
//! T-56 and T-63 are about HTTP and not here; T-65 is `benches/`.

#![expect(
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    clippy::default_trait_access,
    clippy::cast_possible_wrap,
    clippy::print_stdout,
    reason = "what the tests share is test code too, and a table is best read in one piece"
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
