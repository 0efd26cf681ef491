//! The clients of the server: those that behave, those that do not, and an administrator.
//!
//! | file | contents |
//! |---|---|
//! | `session.rs` | what the clients of one history share |
//! | `worker.rs`, `watcher.rs` | stock clients whose answers and events the judge gets |
//! | `bystander.rs` | small clients that check what they see themselves |
//! | `raw.rs` | clients that do not behave |
//! | `administrator.rs` | compactions, auth switches, new certificates |

pub(crate) mod administrator;
pub(crate) mod bystander;
pub(crate) mod raw;
pub(crate) mod session;
pub(crate) mod watcher;
pub(crate) mod worker;
