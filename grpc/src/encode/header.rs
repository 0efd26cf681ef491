//! Response headers.

use bytes::BufMut;
use revstore_engine::Revision;
use revstore_proto::etcdserverpb::ResponseHeader;

use crate::encode::fields::{Small, delimited_len, int_len};

/// DM-12: the term of a node that never saw a second election.
pub(crate) const RAFT_TERM: u64 = 2;

/// Makes the headers of all replies (DM-10).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Headers {
    cluster_id: u64,
    member_id: u64,
    ids: Ids,
}

/// The header of events. The ids, which are the most of it and never change, are written already:
/// there are more events than all other replies together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventsHeader {
    ids: Ids,
    revision: Revision,
}

/// The first two fields of a header, as they go on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ids {
    bytes: [u8; Self::BYTES_MAX],
    len: usize,
}

impl Headers {
    pub(crate) fn new(cluster_id: u64, member_id: u64) -> Self {
        Self {
            cluster_id,
            member_id,
            ids: Ids::new(cluster_id, member_id),
        }
    }

    /// WA-32: the header of events that end with a revision.
    pub(crate) fn of_events(self, revision: Revision) -> EventsHeader {
        let ids = self.ids;
        EventsHeader { ids, revision }
    }

    /// The header of a reply that speaks of a revision.
    pub(crate) fn at(self, revision: Revision) -> ResponseHeader {
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

impl EventsHeader {
    /// What the header takes as a field.
    pub(crate) fn encoded_len(&self) -> usize {
        delimited_len(self.len())
    }

    /// Writes the header as the first field of a message.
    pub(crate) fn put(&self, small: &mut Small) {
        small.prefix(1, self.len());
        small.raw(self.ids.as_slice());
        small.int(3, self.revision.0);
        small.int(4, RAFT_TERM.cast_signed());
    }

    fn len(&self) -> usize {
        let ids = self.ids.as_slice();
        ids.len() + int_len(self.revision.0) + int_len(RAFT_TERM.cast_signed())
    }
}

impl Ids {
    /// Two numbers of the greatest length.
    const BYTES_MAX: usize = 2 * Small::FIELD_BYTES_MAX;

    fn new(cluster_id: u64, member_id: u64) -> Self {
        let mut fields = Small::new();
        fields.int(1, cluster_id.cast_signed());
        fields.int(2, member_id.cast_signed());
        let fields = fields.as_slice();
        let mut bytes = [0; Self::BYTES_MAX];
        bytes[..fields.len()].copy_from_slice(fields);
        let len = fields.len();
        Self { bytes, len }
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// DM-23: the header of an operation inside a transaction, which has a revision and nothing else.
pub(crate) fn of_operation(revision: Revision) -> ResponseHeader {
    ResponseHeader {
        revision: revision.0,
        ..ResponseHeader::default()
    }
}

/// What a header takes as the first field of a message.
pub(crate) fn header_len(header: &ResponseHeader) -> usize {
    delimited_len(fields_len(header))
}

fn fields_len(header: &ResponseHeader) -> usize {
    let values = numbers(header).map(|(_, value)| int_len(value));
    values.into_iter().sum()
}

/// The fields of a header with their numbers.
fn numbers(header: &ResponseHeader) -> [(u8, i64); 4] {
    [
        (1, header.cluster_id.cast_signed()),
        (2, header.member_id.cast_signed()),
        (3, header.revision),
        (4, header.raft_term.cast_signed()),
    ]
}

/// Writes a header as the first field of a message.
pub(crate) fn put_header(header: &ResponseHeader, buf: &mut impl BufMut) {
    let mut small = Small::new();
    small.prefix(1, fields_len(header));
    for (number, value) in numbers(header) {
        small.int(number, value);
    }
    small.put(buf);
}
