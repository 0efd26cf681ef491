//! The node: the state that all services share.
//!
//! [`Node`] contains the engine, the limits, the alarms, the users and roles, counters and the
//! shutdown signal, like `EtcdServer` in etcd. `admission` checks the requests that change it.

pub(crate) mod admission;
pub(crate) mod counters;
pub(crate) mod identity;
pub(crate) mod shutdown;
pub(crate) mod version;
pub(crate) mod waker;

use std::sync::Arc;
use std::time::Duration;

use revstore_engine::Engine;
use revstore_proto::etcdserverpb::ResponseHeader;

use self::admission::{Alarms, Limits, RaftIndex};
use self::counters::AtomicCounters;
use self::identity::Identity;
use self::shutdown::Shutdown;
use crate::auth::Auth;
use crate::encode::response::Headers;
use crate::heavy::Heavy;

/// An etcd node with one engine.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) engine: Engine,
    pub(crate) identity: Identity,
    pub(crate) headers: Headers,
    pub(crate) version: String,
    pub(crate) limits: Limits,
    pub(crate) alarms: Alarms,
    pub(crate) auth: Auth,
    pub(crate) raft_index: RaftIndex,
    pub(crate) counters: AtomicCounters,
    pub(crate) heavy: Arc<Heavy>,
    pub(crate) shutdown: Shutdown,
    pub(crate) watch_catch_up_delay: Duration,
}

impl Node {
    /// Returns a header with the current revision (DM-25).
    pub(crate) fn current_header(&self) -> ResponseHeader {
        self.headers.at(self.engine.current_revision())
    }
}
