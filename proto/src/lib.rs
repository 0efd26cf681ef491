//! The messages and services of etcd's v3 API, generated from `.proto` files of this crate.
//!
//! Packages, names and numbers are those of etcd 3.7, which added `RangeStream`. There is one module for
//! each protobuf package:
//!
//! | Module | Package | Contents |
//! |---|---|---|
//! | [`mvccpb`] | `mvccpb` | key-value pairs and events |
//! | [`authpb`] | `authpb` | users, roles, permissions |
//! | [`etcdserverpb`] | `etcdserverpb` | key-value, watch, lease, cluster, maintenance, auth |
//! | [`v3lockpb`] | `v3lockpb` | locks |
//! | [`v3electionpb`] | `v3electionpb` | elections |
//! | [`health`] | `grpc.health.v1` | gRPC's health check |
//!
//! For a service such as `KV`, the trait and the server are in `kv_server`, and the client is in `kv_client`.
//! No feature excludes them: neither depends on a transport, so a feature would save little compile time. A
//! client works over any tonic channel.
//!
//! # Copies
//!
//! Every `bytes` field is a [`bytes::Bytes`]. A field that is decoded from a `Bytes` is a slice of that
//! buffer, not a copy. So a field keeps the whole buffer in memory.
//!
//! # Names
//!
//! Rust names follow prost's rules: `peerURLs` becomes `peer_ur_ls`, `ID` becomes `id`, `remaining_TTL`
//! becomes `remaining_ttl`. Enum fields are `i32` with typed getters, and keep unknown numbers.
//!
//! # Example
//!
//! ```
//! use prost::Message;
//! use revstore_proto::etcdserverpb::range_request::{SortOrder, SortTarget};
//! use revstore_proto::etcdserverpb::RangeRequest;
//!
//! let request = RangeRequest {
//!     key: "user/".into(),
//!     range_end: "user0".into(),
//!     sort_order: SortOrder::Descend.into(),
//!     sort_target: SortTarget::Mod.into(),
//!     ..RangeRequest::default()
//! };
//! let received = RangeRequest::decode(request.encode_to_vec().as_slice())?;
//!
//! assert_eq!(received, request);
//! assert_eq!(received.sort_target(), SortTarget::Mod);
//! # Ok::<(), prost::DecodeError>(())
//! ```

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The descriptors of all messages, enums and services, as an encoded
/// `google.protobuf.FileDescriptorSet`.
///
/// Reflection and JSON gateways use it. It contains no comments and no source positions.
pub const FILE_DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("revstore_descriptor");

// One parent module for all packages: generated code refers to other packages as `super::<package>`.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    reason = "generated code; its lints change with the generator"
)]
mod generated {
    /// Key-value pairs and events.
    pub mod mvccpb {
        tonic::include_proto!("mvccpb");
    }

    /// Users, roles and permissions.
    pub mod authpb {
        tonic::include_proto!("authpb");
    }

    /// The services KV, Watch, Lease, Cluster, Maintenance and Auth.
    pub mod etcdserverpb {
        tonic::include_proto!("etcdserverpb");
    }

    /// The lock service.
    pub mod v3lockpb {
        tonic::include_proto!("v3lockpb");
    }

    /// The election service.
    pub mod v3electionpb {
        tonic::include_proto!("v3electionpb");
    }

    /// gRPC's health service, package `grpc.health.v1`.
    pub mod health {
        tonic::include_proto!("grpc.health.v1");
    }
}

pub use generated::{authpb, etcdserverpb, health, mvccpb, v3electionpb, v3lockpb};
