//! Recorded scenarios: requests, and everything that a real etcd answered to them.
//!
//! The files are in `tests/scenarios`; [`text`] says how to read them. `cargo test` replays each
//! against our services in this process and compares the text. The binary `record` asks a real etcd
//! 3.5 anew and writes what it answers into the files, so that a difference is a diff.
//!
//! - [`text`] is the text of a file, [`message`] that of a message;
//! - [`target`] is a fresh server of either kind, [`wire`] calls it by names of methods;
//! - [`run`] carries the steps out; [`stream`] knows when a stream has told everything;
//! - [`families`] makes scenarios from tables;
//! - [`library`] finds the files and runs them;
//! - [`normal`] is all that may differ between two right answers.

pub mod families;
pub mod library;
pub mod message;
pub mod normal;
pub mod run;
pub mod stream;
pub mod target;
pub mod text;
pub mod wire;
