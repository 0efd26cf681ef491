//! What the stock `etcdctl` 3.5 prints, command by command, against each server that claims to be
//! an etcd. Everything expected here is what it prints against a real etcd 3.5.16.
//!
//! Each case starts a fresh server, so revisions, ids and hashes are compared as they are; what a
//! server is free to choose (lease ids, sizes, times) is a `%name%` in the transcript.

mod auth;
mod compaction;
mod del;
mod endpoint;
mod get;
mod lease;
mod lock;
mod maintenance;
mod make_mirror;
mod put;
mod txn;
mod watch;
