#![doc = include_str!("../README.md")]
//!
//! # Reading the source
//!
//! | folder or file | contains |
//! |---|---|
//! | `clock/` | [`ControlClock`](clock::ControlClock), whose time tests move |
//! | `target.rs` | the trait of servers that control acts on |

pub mod clock;
mod target;

pub use target::Target;

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
