//! etcd v3 gRPC services over the revstore engine.
//!
//! [`Services`] is an HTTP service for the connections of a server. Clients in the same process can call it
//! without a connection. [`Gateway`] is the JSON gateway to it. The crate opens no ports and starts no
//! runtime. The crate `revstore` is the server.
//!
//! # The path of a call
//!
//! 1. `services.rs` looks up the method of the path in the table of `methods.rs` and calls the generated
//!    server, which decodes the request.
//! 2. The method in `service/` calls `Node::accept`, which validates the request (`request/`) and, while
//!    auth is enabled, authorizes its client (`auth/authorize.rs`).
//! 3. `Node::admit` applies limits, alarms and the quota to writes (`node/admission.rs`).
//! 4. `request/` converts the request, the engine executes it, and `encode/` writes the response into
//!    the connection's buffer.
//!
//! An error at any step is converted to a status by the table in `status.rs`.
//!
//! | folder | contents |
//! |---|---|
//! | `service/` | one file for each etcd service |
//! | `auth/` | users, roles, tokens, authorization |
//! | `request/` | validation and conversion of requests |
//! | `encode/` | responses and headers as bytes |
//! | `heavy/` | long work on threads of its own, and the memory of answers under way |
//! | `node/` | the state that the services share, and admission |
//! | `image/` | a whole store in a file: dumps as text, and snapshots of a real etcd |
//! | `snapshot/` | the store as etcd's database file, and its hash |
//! | `gateway/` | the JSON gateway: JSON over HTTP |
//! | `intercept/` | messages as a program between clients and services sees them |

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod auth;
mod compression;
mod deadline;
mod durable_body;
mod encode;
mod gateway;
mod heavy;
mod image;
pub mod intercept;
mod limited_body;
mod methods;
mod node;
mod prefix;
mod request;
mod service;
mod services;
mod snapshot;
mod status;
mod sync;

#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    reason = "generated code; its lints change with the generator"
)]
mod generated {
    tonic::include_proto!("etcdserverpb.KV");
    tonic::include_proto!("etcdserverpb.Watch");

    pub(crate) use k_v_server::{KV as Kv, KVServer as KvServer};
    pub(crate) use watch_server::{Watch, WatchServer};
}

pub use auth::credentials::CertifiedName;
pub use auth::{AuthOptions, AuthTokens, JwtKeyError, JwtMethod, JwtTokens, UnknownJwtMethod};
pub use gateway::Gateway;
pub use heavy::HeavyStats;
pub use image::{Damage, Image, ImageError};
pub use methods::{RpcKind, RpcMethod};
pub use node::admission::{Alarm, AlarmKind, Alarms, Limits};
pub use node::counters::OpCounters;
pub use node::identity::Identity;
pub use node::members::{ClusterMember, PromoteFailures};
pub use node::shutdown::{Shutdown, ShutdownBegun};
pub use node::slow::{ApplyObserver, ApplyOp, CoarseInstant, RequestStats};
pub use node::state::NodeState;
pub use prefix::{MessagePrefix, PrefixReader};
pub use services::{ResponseFuture, Services, ServicesBuilder};
pub use status::{EtcdError, has_client_disconnected};
