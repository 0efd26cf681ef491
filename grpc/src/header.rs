//! Response headers.

use revstore_engine::MainRevision;
use revstore_proto::etcdserverpb::ResponseHeader;

/// DM-12: the term of a node that never saw a second election.
pub(crate) const RAFT_TERM: u64 = 2;

/// Makes the headers of all replies (DM-10).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Headers {
    pub(crate) cluster_id: u64,
    pub(crate) member_id: u64,
}

impl Headers {
    /// The header of a reply that speaks of a revision.
    pub(crate) fn at(self, revision: MainRevision) -> ResponseHeader {
        ResponseHeader {
            revision: revision.0,
            ..self.without_revision()
        }
    }

    /// DM-27, WA-40: ids and term alone.
    pub(crate) fn without_revision(self) -> ResponseHeader {
        ResponseHeader {
            cluster_id: self.cluster_id,
            member_id: self.member_id,
            revision: 0,
            raft_term: RAFT_TERM,
        }
    }
}

/// DM-23: the header of an operation inside a transaction, which has a revision and nothing else.
pub(crate) fn of_operation(revision: MainRevision) -> ResponseHeader {
    ResponseHeader {
        revision: revision.0,
        ..ResponseHeader::default()
    }
}
