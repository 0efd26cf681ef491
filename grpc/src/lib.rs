//! etcd v3 gRPC services over the revstore engine.
//!
//! [`Services`] is the whole of it: an HTTP service that a server puts on its connections, and that
//! a generated client can be put on without any.
//!
//! A request goes down once and comes back once: it is checked (`validate`), converted (`convert`),
//! given to the engine, and what comes back is converted and gets its header (`header`). Key-values
//! are written to the wire straight from the engine's records (`wire`, `codec`). Errors take the
//! short way through `status`, the one table of codes and texts. What a cluster would have to agree
//! on passes `node` on the way, where limits and alarms stand.
//!
//! [`Gateway`] is the same for clients that speak JSON: it turns each request into such a call.
//!
//! Clause ids such as DM-20 name rules of etcd's behaviour.

mod alarms;
mod auth;
mod auth_service;
mod candidate;
mod certified;
mod cluster;
mod codec;
mod convert;
mod election;
mod fields;
mod gateway;
mod guard;
mod hash;
mod header;
mod health;
mod identity;
mod kv;
mod lease;
mod limits;
mod lock;
mod maintenance;
mod node;
mod nudge;
mod peer_url;
mod raft_index;
mod range_body;
mod range_stream;
mod raw;
mod routes;
mod services;
mod shutdown;
mod snapshot;
mod status;
mod tally;
mod validate;
mod version;
mod watch;
mod wire;

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

pub use alarms::{Alarm, AlarmKind, Alarms};
pub use auth::{AuthOptions, AuthTokens};
pub use certified::CertifiedName;
pub use gateway::Gateway;
pub use identity::Identity;
pub use limits::Limits;
pub use raw::RawCodec;
pub use services::{ResponseFuture, Services, ServicesBuilder};
pub use shutdown::{Begun, Shutdown};
pub use status::EtcdError;
pub use tally::Tally;
