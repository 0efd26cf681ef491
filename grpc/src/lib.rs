//! etcd v3 gRPC services over the revstore engine.
//!
//! [`Services`] is the whole of it: an HTTP service that a server puts on its connections, and that
//! a generated client can be put on without any.
//!
//! | folder | contents |
//! |---|---|
//! | `service/` | one file for each etcd service |
//! | `auth/` | users, roles, tokens, authorization |
//! | `request/` | limits, validation and conversion of requests |
//! | `encode/` | responses and headers as bytes |
//! | `node/` | the state that the services share |
//! | `snapshot/` | the store as etcd's database file |
//! | `gateway/` | JSON over HTTP in front of the services |

mod auth;
mod encode;
mod gateway;
mod methods;
mod node;
mod request;
mod service;
mod services;
mod snapshot;
mod status;

#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    reason = "generated code; which lints it trips changes with the generator"
)]
mod generated {
    tonic::include_proto!("etcdserverpb.KV");
    tonic::include_proto!("etcdserverpb.Watch");

    pub(crate) use k_v_server::{KV as Kv, KVServer as KvServer};
    pub(crate) use watch_server::{Watch, WatchServer};
}

pub use auth::client_name::CertifiedName;
pub use auth::{AuthOptions, AuthTokens};
pub use gateway::Gateway;
pub use methods::{RpcKind, RpcMethod};
pub use node::admission::{Alarm, AlarmKind, Alarms, Limits};
pub use node::counters::OpCounters;
pub use node::identity::Identity;
pub use node::shutdown::{Begun, Shutdown};
pub use services::{ResponseFuture, Services, ServicesBuilder};
pub use status::EtcdError;
