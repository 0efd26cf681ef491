//! etcd's v3 wire messages and services, generated from our own `.proto` files.
//!
//! A client written for etcd finds the packages, names and numbers it knows, up to those added in
//! etcd 3.7 (`RangeStream`). One module per protobuf package:
//!
//! | Module | Package | Holds |
//! |---|---|---|
//! | [`mvccpb`] | `mvccpb` | stored pairs and events |
//! | [`authpb`] | `authpb` | users, roles, rights |
//! | [`etcdserverpb`] | `etcdserverpb` | key-value, watch, lease, cluster, maintenance, auth |
//! | [`v3lockpb`] | `v3lockpb` | locks kept by the server |
//! | [`v3electionpb`] | `v3electionpb` | elections kept by the server |
//! | [`health`] | `grpc.health.v1` | gRPC's health check |
//!
//! For a service `KV` there is a trait and a server in `kv_server` and a client in `kv_client`.
//! Both are always there: neither pulls in a transport, so a feature for each would spare a moment
//! of compiling and cost a matrix of builds to test. A client wraps whatever channel it is given.
//!
//! # Copies
//!
//! Every `bytes` field is a [`bytes::Bytes`]. Decoding from a `Bytes` makes it a slice of the
//! incoming buffer, not a copy; the price is that one kept field keeps the whole buffer alive.
//!
//! # Names
//!
//! Rust names follow prost's rules, also where etcd's spelling makes them odd: `peerURLs` becomes
//! `peer_ur_ls`, `ID` becomes `id`, `remaining_TTL` becomes `remaining_ttl`. Enum fields are `i32`
//! with typed getters, and keep numbers they do not know.
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

/// Every message, enum and service of this crate as an encoded `google.protobuf.FileDescriptorSet`.
///
/// For what works by names: reflection, a JSON gateway, and the test that holds us to etcd's
/// numbers. It has no comments and no source positions.
pub const FILE_DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("revstore_descriptor");

// One parent for all packages: the generated code of one reaches another as `super::<package>`.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    reason = "generated code; which lints it trips changes with the generator"
)]
mod generated {
    /// Stored pairs and events.
    pub mod mvccpb {
        tonic::include_proto!("mvccpb");
    }

    /// Users, roles and rights.
    pub mod authpb {
        tonic::include_proto!("authpb");
    }

    /// etcd's own services: key-value, watch, lease, cluster, maintenance and auth.
    pub mod etcdserverpb {
        tonic::include_proto!("etcdserverpb");
    }

    /// Locks kept by the server.
    pub mod v3lockpb {
        tonic::include_proto!("v3lockpb");
    }

    /// Elections kept by the server.
    pub mod v3electionpb {
        tonic::include_proto!("v3electionpb");
    }

    /// gRPC's health check, package `grpc.health.v1`.
    pub mod health {
        tonic::include_proto!("grpc.health.v1");
    }
}

pub use generated::{authpb, etcdserverpb, health, mvccpb, v3electionpb, v3lockpb};
