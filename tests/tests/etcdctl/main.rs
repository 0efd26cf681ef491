//! The output of `etcdctl` 3.5 against revstore and, where it is installed, a real etcd. All expected
//! output is that of etcd 3.5.16.
//!
//! Each test starts a new server, so revisions, ids and hashes are compared exactly. A value that a server
//! may choose (lease id, size, time) is a `%name%` in the transcript.

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
