//! Recorded scenarios: gRPC requests with the responses of a real etcd.
//!
//! The files are in `tests/scenarios`; [`text`] describes their format. `cargo test` replays each scenario
//! against the revstore services in this process and compares the text. The binary `record` sends the
//! requests to a real etcd 3.5 and writes its responses into the files. A change of a response is a diff of
//! the files.
//!
//! | module | contains |
//! |---|---|
//! | [`text`] | the text format of a file |
//! | [`message`] | the text format of a message |
//! | [`target`] | the servers that scenarios run on |
//! | [`wire`] | calls by the name of a method |
//! | [`run`] | the execution of the steps |
//! | [`stream`] | client streams, and draining them after each step |
//! | [`families`] | scenarios that are generated from tables |
//! | [`library`] | the files: loading, running and comparing them |
//! | [`normalize`] | the parts of a message that are not compared |

pub mod families;
pub mod library;
pub mod message;
pub mod normalize;
pub mod run;
pub mod stream;
pub mod target;
pub mod text;
pub mod wire;
