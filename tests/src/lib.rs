//! What the tests across the crates stand on: real etcd servers, the stock `etcdctl`, and the
//! means to run one test case against every server that claims to be an etcd.
//!
//! - [`tools`] finds the real `etcd` and `etcdctl`, and says so loudly where they are missing;
//! - [`process`] runs a child process, captures what it prints and waits for it with limits;
//! - [`poll`] holds the only sleep of the test suite;
//! - [`http`] asks a server for `/health` and the like;
//! - [`server`] is the seam: what a case needs to know of a server, and [`on_every_server!`];
//! - [`etcd`] starts a real etcd behind that seam, [`revstore`] ours;
//! - [`etcdctl`] runs the stock command line client against a server;
//! - [`transcript`] replays a shell session and compares it with what was expected;
//! - [`gateway`] does the same with requests to the JSON gateway;
//! - [`scenario`] replays gRPC requests recorded with a real etcd;
//! - [`differential`] sends random ones to a real etcd and to ours;
//! - [`clauses`] tells which clauses of the behaviour specifications which test cites.
//!
//! Nothing here uses a fixed port or depends on the order of tests, and every wait has a limit.
//! Servers listen on the loopback interface only.

pub mod clauses;
pub mod differential;
pub mod etcd;
pub mod etcdctl;
pub mod gateway;
pub mod http;
pub mod poll;
pub mod process;
pub mod revstore;
pub mod scenario;
pub mod server;
pub mod tools;
pub mod transcript;
