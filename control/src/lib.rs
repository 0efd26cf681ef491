#![doc = include_str!("../README.md")]
//!
//! # Reading the source
//!
//! | folder or file | contains |
//! |---|---|
//! | `call.rs` | what is known of a request when its faults are decided |
//! | `clock/` | [`ControlClock`](clock::ControlClock), whose time tests move |
//! | `control.rs` | [`Control`], the handle with all operations |
//! | `wait.rs` | waiting for a state of the store |
//! | `service/` | the gRPC service, its JSON form, and who may use them |
//! | `ctl/` | the command line `revstore ctl` |
//! | `store/` | checkpoints, forks, and the replacement of the store |
//! | `error.rs` | the errors |
//! | `fault/` | rules, and which of them fires for a call |
//! | `journal/` | the last requests, and what happened to streams |
//! | `replay/` | the requests of a journal, sent to another server |
//! | `open/` | open connections and watches, the commands to them, and what the server does |
//! | `target.rs` | the trait of servers that control acts on |
//! | `address.rs` | the address of a server in a URL |
//! | `key_text.rs` | keys as texts |

mod address;
pub mod call;
pub mod clock;
mod control;
pub mod ctl;
mod error;
pub mod fault;
pub mod journal;
mod key_text;
pub mod open;
pub mod replay;
pub mod service;
pub mod store;
mod target;
mod wait;
mod waker_set;

pub use control::{Control, Hooks, LISTED_MAX, LeaseEntry, Point};
pub use error::ControlError;
pub use target::{AlarmName, ServedNode, Target};
pub use wait::{Condition, WAITS_MAX};

/// The messages and the gRPC service `revstore.control.v1.Control`, generated from `proto/control.proto`.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    reason = "generated code; its lints change with the generator"
)]
pub mod proto {
    tonic::include_proto!("revstore.control.v1");

    /// The descriptors of all messages and methods, as an encoded `google.protobuf.FileDescriptorSet`.
    pub const FILE_DESCRIPTOR_SET: &[u8] =
        tonic::include_file_descriptor_set!("control_descriptor");
}
