//! The conformance tests of the behaviour specification (section G), each named by its id.
//!
//! What a client can see is asked of the raw store and of the cache through one trait (WC-103);
//! with the feature `etcd` and an etcd 3.5 at hand, also over that (`$ETCD`, `tests/.tools/bin`).

#![expect(
    clippy::unwrap_used,
    clippy::too_many_lines,
    clippy::needless_pass_by_value,
    clippy::default_trait_access,
    clippy::items_after_statements,
    reason = "what the tests share is test code too, and a table is best read in one piece"
)]

mod errors;
mod get;
mod informer;
mod list;
mod model;
mod queue;
mod reflector;
mod support;
mod timing;
mod watch;
mod writes;
