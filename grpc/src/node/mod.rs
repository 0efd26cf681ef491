//! The node: the state that all services share.
//!
//! [`Node`] holds the engine, the limits, the alarms, users and roles, counters and the shutdown
//! signal. It admits requests that a cluster would propose to Raft, as etcd's `EtcdServer` does.

pub(crate) mod alarms;
pub(crate) mod counters;
pub(crate) mod identity;
pub(crate) mod raft_index;
pub(crate) mod shutdown;
pub(crate) mod version;
pub(crate) mod waker;

use revstore_engine::Engine;
use revstore_proto::etcdserverpb::ResponseHeader;

use crate::auth::Auth;
use crate::encode::response::Headers;
use crate::node::alarms::{Alarm, AlarmKind, Alarms};
use crate::node::counters::Counters;
use crate::node::identity::Identity;
use crate::node::raft_index::RaftIndex;
use crate::node::shutdown::Shutdown;
use crate::request::limits::Limits;
use crate::status::EtcdError;

/// One etcd node around one engine.
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
    pub(crate) counters: Counters,
    pub(crate) shutdown: Shutdown,
}

/// A request that a cluster would have to agree on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Proposal {
    /// The encoded request.
    pub(crate) request_bytes: usize,
    /// What the history grows by, if the request can make it grow: nothing else minds the quota.
    pub(crate) grows_bytes: Option<u64>,
}

impl Node {
    /// Lets a proposal through, or says why not. Each one that gets as far as the log of a cluster
    /// counts, whatever comes of it (DM-13).
    pub(crate) fn propose(&self, proposal: Proposal) -> Result<(), EtcdError> {
        if !self.limits.admit(proposal.request_bytes) {
            return Err(EtcdError::RequestTooLarge);
        }
        if let Some(grows_bytes) = proposal.grows_bytes {
            self.check_quota(grows_bytes);
        }
        self.raft_index.advance();
        if self.alarms.is_raised(AlarmKind::Corrupt) {
            return Err(EtcdError::Corrupt);
        }
        if proposal.grows_bytes.is_some() && self.alarms.is_raised(AlarmKind::NoSpace) {
            return Err(EtcdError::NoSpace);
        }
        Ok(())
    }

    /// The header of a reply that speaks of the present (DM-25).
    pub(crate) fn current_header(&self) -> ResponseHeader {
        self.headers.at(self.engine.current_revision())
    }

    /// MT-11: the first write above the quota raises the alarm that then refuses it.
    fn check_quota(&self, grows_bytes: u64) {
        let Some(quota_bytes) = self.limits.quota_bytes else {
            return;
        };
        let held_bytes = self.engine.history_bytes();
        if held_bytes.saturating_add(grows_bytes) > quota_bytes {
            self.alarms.raise(Alarm {
                kind: AlarmKind::NoSpace,
                member_id: self.identity.member_id,
            });
        }
    }
}
