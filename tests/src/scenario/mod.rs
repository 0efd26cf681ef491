//! Recorded scenarios: gRPC requests with everything that a real etcd answered to them.
//!
//! The files are in `tests/scenarios`; [`text`] describes their format. `cargo test` replays each scenario
//! against the revstore services in this process and compares the text. The binary `record` sends the
//! requests to a real etcd 3.5 and writes its responses into the files, so a difference shows as a diff.
//!
//! | module | contains |
//! |---|---|
//! | [`text`], [`message`] | the text of a file, and that of a message |
//! | [`target`], [`wire`] | a new server of either kind, and calls by the name of a method |
//! | [`run`], [`stream`] | the execution of the steps, and open streams |
//! | [`families`] | scenarios that are generated from tables |
//! | [`library`] | the files: loading, running and comparing them |
//! | [`normalize`] | what may differ between two correct responses |

pub mod families;
pub mod library;
pub mod message;
pub mod normalize;
pub mod run;
pub mod stream;
pub mod target;
pub mod text;
pub mod wire;
