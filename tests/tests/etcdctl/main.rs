//! Tests of the output of `etcdctl` 3.5 with revstore and, if it is installed, with a real etcd. The expected
//! output was recorded with etcd 3.5.16.
//!
//! Each test starts a new server, so revisions, ids and hashes are compared exactly. A value that the server
//! chooses (lease id, size, time) is a placeholder `%name%` in the transcript.

mod auth;
mod check_perf;
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
