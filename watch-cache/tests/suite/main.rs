//! The conformance tests of the behaviour specification (section G), each named by its id.
//!
//! What a client can see is asked of the raw store and of the cache through one trait (WC-103);
//! with the feature `etcd` and an etcd 3.5 at hand, also over that (`$ETCD`, `tests/.tools/bin`).

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
