//! Response headers, and the responses that contain key-values.
//!
//! The generated messages own the bytes of every key and value, which costs one allocation for
//! each. The messages in this file contain the engine's records and write them directly into the
//! buffer of the connection, so every byte is copied once. Their encoding equals that of the
//! generated messages of the same names.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::BufMut;
use revstore_engine::{
    DeleteResult, KeyValue, LeaseId, OpResult, PutResult, RangeResult, Revision, TxnResult,
};
use revstore_proto::etcdserverpb::request_op::Request;
use revstore_proto::etcdserverpb::{RequestOp, ResponseHeader, TxnRequest};

use crate::encode::codec::{
    Encode, FieldBuffer, Measured, bool_len, bytes_len, delimited_len, int_len, message_len,
    write_bool, write_int, write_message,
};
use crate::encode::large_answer::{InParts, Parts};

/// The raft term of a new node (DM-12): that of an etcd node without a second election.
pub(crate) const FIRST_RAFT_TERM: u64 = 2;

/// The capacity for the parts of a message other than key-values.
pub(super) const ENVELOPE_BYTES: usize = 128;

/// The number of bytes by which other records may be larger than the first one before the size hint
/// is too small.
const HINT_SLACK_BYTES: usize = 8;

/// Creates the headers of all responses (DM-10).
#[derive(Debug)]
pub(crate) struct Headers {
    cluster_id: u64,
    member_id: u64,
    /// Relaxed: nothing else follows from the term that a client sees.
    raft_term: AtomicU64,
    /// The raft term at the start of the node.
    first_raft_term: u64,
    pub(super) ids: EncodedIds,
}

/// The first two fields of a header, encoded. They never change and are most of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EncodedIds {
    bytes: [u8; Self::BYTES_MAX],
    len: usize,
}

/// `mvccpb.KeyValue`: the fields of a record, read once for both the length and the encoding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyValueMessage<'a> {
    key: &'a [u8],
    value: &'a [u8],
    create_revision: i64,
    mod_revision: i64,
    version: i64,
    lease: i64,
}

/// `etcdserverpb.RangeResponse`.
#[derive(Clone, Debug)]
pub(crate) struct RangeResponse {
    pub(crate) header: Option<ResponseHeader>,
    pub(crate) kvs: Vec<KeyValue>,
    /// Whether values are omitted (RG-24). All other fields are present (RG-25).
    pub(crate) keys_only: bool,
    pub(crate) more: bool,
    pub(crate) count: i64,
}

/// `etcdserverpb.RangeStreamResponse`.
#[derive(Debug)]
pub(crate) struct RangeStreamResponse {
    pub(crate) range_response: Measured<RangeResponse>,
}

/// `etcdserverpb.PutResponse`.
#[derive(Debug)]
pub(crate) struct PutResponse {
    pub(crate) header: ResponseHeader,
    pub(crate) prev_kv: Option<KeyValue>,
}

/// `etcdserverpb.DeleteRangeResponse`.
#[derive(Debug)]
pub(crate) struct DeleteRangeResponse {
    pub(crate) header: ResponseHeader,
    pub(crate) deleted: i64,
    pub(crate) prev_kvs: Vec<KeyValue>,
}

/// `etcdserverpb.TxnResponse`.
#[derive(Debug)]
pub(crate) struct TxnResponse {
    pub(crate) header: ResponseHeader,
    pub(crate) succeeded: bool,
    pub(crate) responses: Vec<Measured<ResponseOp>>,
}

/// `etcdserverpb.ResponseOp`.
#[derive(Debug)]
pub(crate) enum ResponseOp {
    Range(Measured<RangeResponse>),
    Put(Measured<PutResponse>),
    DeleteRange(Measured<DeleteRangeResponse>),
    Txn(Measured<TxnResponse>),
}

/// `etcdserverpb.CompactionResponse`.
#[derive(Debug)]
pub(crate) struct CompactionResponse {
    pub(crate) header: ResponseHeader,
}

impl Headers {
    pub(crate) fn new(cluster_id: u64, member_id: u64) -> Self {
        Self {
            cluster_id,
            member_id,
            raft_term: AtomicU64::new(FIRST_RAFT_TERM),
            first_raft_term: FIRST_RAFT_TERM,
            ids: EncodedIds::new(cluster_id, member_id),
        }
    }

    /// Sets the raft term at the start of a node.
    pub(crate) fn with_raft_term(self, raft_term: u64) -> Self {
        Self {
            raft_term: AtomicU64::new(raft_term),
            first_raft_term: raft_term,
            ..self
        }
    }

    pub(crate) fn raft_term(&self) -> u64 {
        self.raft_term.load(Ordering::Relaxed)
    }

    /// Returns the number of terms that have begun since the start of the node.
    pub(crate) fn raft_terms_begun(&self) -> u64 {
        self.raft_term() - self.first_raft_term
    }

    /// Begins the next raft term, and returns it; `None` after the highest one.
    pub(crate) fn next_raft_term(&self) -> Option<u64> {
        let next = |term: u64| term.checked_add(1);
        let last = self
            .raft_term
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        last.ok().and_then(next)
    }

    /// Returns the header of a response that reports `revision`.
    pub(crate) fn at(&self, revision: Revision) -> ResponseHeader {
        ResponseHeader {
            revision: revision.0,
            ..self.without_revision()
        }
    }

    /// Returns a header with the ids and the term only (DM-27, WA-40).
    pub(crate) fn without_revision(&self) -> ResponseHeader {
        ResponseHeader {
            cluster_id: self.cluster_id,
            member_id: self.member_id,
            revision: 0,
            raft_term: self.raft_term(),
        }
    }
}

impl EncodedIds {
    /// Two integer fields of maximal length.
    const BYTES_MAX: usize = 2 * FieldBuffer::FIELD_BYTES_MAX;

    fn new(cluster_id: u64, member_id: u64) -> Self {
        let mut fields = FieldBuffer::new();
        fields.int(1, cluster_id.cast_signed());
        fields.int(2, member_id.cast_signed());
        let fields = fields.as_slice();
        let mut bytes = [0; Self::BYTES_MAX];
        bytes[..fields.len()].copy_from_slice(fields);
        let len = fields.len();
        Self { bytes, len }
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Returns the header of an operation in a transaction, which contains only a revision (DM-23).
fn op_header(revision: Revision) -> ResponseHeader {
    ResponseHeader {
        revision: revision.0,
        ..ResponseHeader::default()
    }
}

/// Returns the size of a header as the first field of a message.
fn header_len(header: &ResponseHeader) -> usize {
    delimited_len(header_fields_len(header))
}

fn header_fields_len(header: &ResponseHeader) -> usize {
    let values = header_fields(header).map(|(_, value)| int_len(value));
    values.into_iter().sum()
}

/// Returns the fields of a header with their numbers.
fn header_fields(header: &ResponseHeader) -> [(u8, i64); 4] {
    [
        (1, header.cluster_id.cast_signed()),
        (2, header.member_id.cast_signed()),
        (3, header.revision),
        (4, header.raft_term.cast_signed()),
    ]
}

/// Writes a header as the first field of a message.
fn write_header(header: &ResponseHeader, buf: &mut impl BufMut) {
    let mut fields = FieldBuffer::new();
    fields.message_prefix(1, header_fields_len(header));
    for (number, value) in header_fields(header) {
        fields.int(number, value);
    }
    fields.write_to(buf);
}

impl<'a> KeyValueMessage<'a> {
    /// Reads a record, with or without its value (RG-24).
    #[inline]
    pub(super) fn of(kv: &'a KeyValue, keys_only: bool) -> Self {
        Self {
            key: kv.key(),
            value: if keys_only { &[] } else { kv.value() },
            create_revision: kv.create_revision().0,
            mod_revision: kv.mod_revision().0,
            version: kv.version(),
            lease: kv.lease().map_or(0, LeaseId::get),
        }
    }
}

impl<'a> From<&'a KeyValue> for KeyValueMessage<'a> {
    /// Reads a record with its value.
    #[inline]
    fn from(kv: &'a KeyValue) -> Self {
        Self::of(kv, false)
    }
}

impl Encode for KeyValueMessage<'_> {
    #[inline]
    fn encoded_len(&self) -> usize {
        bytes_len(self.key)
            + int_len(self.create_revision)
            + int_len(self.mod_revision)
            + int_len(self.version)
            + bytes_len(self.value)
            + int_len(self.lease)
    }

    fn encode(self, buf: &mut impl BufMut) {
        self.write_after(FieldBuffer::new(), buf);
    }
}

impl KeyValueMessage<'_> {
    /// Writes `fields` and then the key-value, with as few calls to `buf` as possible.
    #[inline]
    fn write_after(self, mut fields: FieldBuffer, buf: &mut impl BufMut) {
        fields.bytes_prefix(1, self.key.len());
        fields.write_to(buf);
        buf.put_slice(self.key);
        let mut fields = FieldBuffer::new();
        fields.int(2, self.create_revision);
        fields.int(3, self.mod_revision);
        fields.int(4, self.version);
        fields.bytes_prefix(5, self.value.len());
        fields.write_to(buf);
        buf.put_slice(self.value);
        write_int(6, self.lease, buf);
    }
}

/// Returns the size of a key-value field.
pub(super) fn kv_len(kv: &KeyValue) -> usize {
    message_len(&KeyValueMessage::from(kv))
}

/// Writes a key-value as field `number` of a message.
pub(super) fn write_kv(number: u8, kv: KeyValueMessage<'_>, buf: &mut impl BufMut) {
    let mut fields = FieldBuffer::new();
    fields.message_prefix(number, kv.encoded_len());
    kv.write_after(fields, buf);
}

impl RangeResponse {
    pub(crate) fn new(
        result: RangeResult,
        keys_only: bool,
        header: Option<ResponseHeader>,
    ) -> Self {
        Self {
            header,
            kvs: result.kvs,
            keys_only,
            more: result.more,
            count: count(result.count),
        }
    }

    /// Returns the size of one key-value in the response.
    pub(crate) fn kv_len(kv: &KeyValue, keys_only: bool) -> usize {
        message_len(&KeyValueMessage::of(kv, keys_only))
    }

    /// Returns the size of all fields except the key-values.
    pub(crate) fn envelope_len(&self) -> usize {
        self.header.as_ref().map_or(0, header_len) + bool_len(self.more) + int_len(self.count)
    }

    /// Writes the fields before the key-values.
    pub(crate) fn write_head(&self, buf: &mut impl BufMut) {
        if let Some(header) = &self.header {
            write_header(header, buf);
        }
    }

    pub(crate) fn write_kv(&self, kv: &KeyValue, buf: &mut impl BufMut) {
        write_kv(2, KeyValueMessage::of(kv, self.keys_only), buf);
    }

    /// Writes the fields after the key-values.
    pub(crate) fn write_tail(&self, buf: &mut impl BufMut) {
        write_bool(3, self.more, buf);
        write_int(4, self.count, buf);
    }
}

impl Encode for RangeResponse {
    fn encoded_len(&self) -> usize {
        let keys_only = self.keys_only;
        let kv_len = |kv| Self::kv_len(kv, keys_only);
        self.envelope_len() + self.kvs.iter().map(kv_len).sum::<usize>()
    }

    fn size_hint(&self) -> usize {
        let first = self.kvs.first();
        let first = first.map_or(0, |kv| Self::kv_len(kv, self.keys_only));
        ENVELOPE_BYTES + self.kvs.len() * (HINT_SLACK_BYTES + first)
    }

    fn encode(mut self, buf: &mut impl BufMut) {
        self.write_head(buf);
        for kv in mem::take(&mut self.kvs) {
            self.write_kv(&kv, buf);
        }
        self.write_tail(buf);
    }
}

impl InParts for RangeResponse {
    fn add_to(self, parts: &mut Parts) {
        self.write_head(parts.fields());
        let tail = Self {
            header: None,
            kvs: Vec::new(),
            ..self
        };
        parts.key_values(2, self.keys_only, self.kvs);
        tail.write_tail(parts.fields());
    }

    fn placeholder(&self) -> Self {
        Self {
            kvs: Vec::new(),
            ..*self
        }
    }
}

impl Encode for RangeStreamResponse {
    fn encoded_len(&self) -> usize {
        message_len(&self.range_response)
    }

    fn encode(self, buf: &mut impl BufMut) {
        write_message(1, self.range_response, buf);
    }
}

impl PutResponse {
    pub(crate) fn new(result: PutResult, prev_kv: bool, header: ResponseHeader) -> Self {
        Self {
            header,
            prev_kv: result.previous.filter(|_| prev_kv),
        }
    }
}

impl PutResponse {
    fn add_to(self, parts: &mut Parts) {
        write_header(&self.header, parts.fields());
        if let Some(previous) = self.prev_kv {
            parts.key_values(2, false, vec![previous]);
        }
    }
}

impl Encode for PutResponse {
    fn encoded_len(&self) -> usize {
        header_len(&self.header) + self.prev_kv.as_ref().map_or(0, kv_len)
    }

    fn encode(self, buf: &mut impl BufMut) {
        write_header(&self.header, buf);
        if let Some(previous) = &self.prev_kv {
            write_kv(2, previous.into(), buf);
        }
    }
}

impl DeleteRangeResponse {
    pub(crate) fn new(result: DeleteResult, prev_kv: bool, header: ResponseHeader) -> Self {
        Self {
            header,
            deleted: count(result.deleted.len()),
            prev_kvs: if prev_kv { result.deleted } else { Vec::new() },
        }
    }
}

impl Encode for DeleteRangeResponse {
    fn encoded_len(&self) -> usize {
        header_len(&self.header)
            + int_len(self.deleted)
            + self.prev_kvs.iter().map(kv_len).sum::<usize>()
    }

    fn encode(self, buf: &mut impl BufMut) {
        write_header(&self.header, buf);
        write_int(2, self.deleted, buf);
        for previous in self.prev_kvs {
            write_kv(3, (&previous).into(), buf);
        }
    }
}

impl InParts for DeleteRangeResponse {
    fn add_to(self, parts: &mut Parts) {
        write_header(&self.header, parts.fields());
        write_int(2, self.deleted, parts.fields());
        parts.key_values(3, false, self.prev_kvs);
    }

    fn placeholder(&self) -> Self {
        Self {
            prev_kvs: Vec::new(),
            ..*self
        }
    }
}

impl TxnResponse {
    /// Creates a response. `request` is the executed request. Its flags determine the fields of the
    /// response of each operation.
    pub(crate) fn new(result: TxnResult, request: &TxnRequest, header: ResponseHeader) -> Self {
        let branch = if result.succeeded {
            &request.success
        } else {
            &request.failure
        };
        // TXN-26: one result for each operation.
        let responses = result.results.into_iter().zip(branch);
        Self {
            header,
            succeeded: result.succeeded,
            responses: responses
                .map(|(result, op)| Measured::new(ResponseOp::new(result, op)))
                .collect(),
        }
    }
}

impl TxnResponse {
    /// Returns the number of key-values.
    pub(crate) fn keys(&self) -> usize {
        self.responses.iter().map(|response| response.keys()).sum()
    }
}

impl Encode for TxnResponse {
    fn encoded_len(&self) -> usize {
        header_len(&self.header)
            + bool_len(self.succeeded)
            + self.responses.iter().map(message_len).sum::<usize>()
    }

    fn encode(self, buf: &mut impl BufMut) {
        write_header(&self.header, buf);
        write_bool(2, self.succeeded, buf);
        for response in self.responses {
            write_message(3, response, buf);
        }
    }
}

impl InParts for TxnResponse {
    fn add_to(self, parts: &mut Parts) {
        write_header(&self.header, parts.fields());
        write_bool(2, self.succeeded, parts.fields());
        for response in self.responses {
            add_message(3, response, parts, ResponseOp::add_to);
        }
    }

    fn placeholder(&self) -> Self {
        Self {
            responses: Vec::new(),
            ..*self
        }
    }
}

/// Adds a message as a field with this number.
fn add_message<M: Encode>(
    number: u8,
    message: Measured<M>,
    parts: &mut Parts,
    add: impl FnOnce(M, &mut Parts),
) {
    let mut fields = FieldBuffer::new();
    fields.message_prefix(number, message.encoded_len());
    fields.write_to(parts.fields());
    add(message.into_inner(), parts);
}

impl ResponseOp {
    fn add_to(self, parts: &mut Parts) {
        match self {
            Self::Range(response) => add_message(1, response, parts, InParts::add_to),
            Self::Put(response) => add_message(2, response, parts, PutResponse::add_to),
            Self::DeleteRange(response) => add_message(3, response, parts, InParts::add_to),
            Self::Txn(response) => add_message(4, response, parts, InParts::add_to),
        }
    }

    /// Returns the number of key-values.
    fn keys(&self) -> usize {
        match self {
            Self::Range(response) => response.kvs.len(),
            Self::Put(response) => usize::from(response.prev_kv.is_some()),
            Self::DeleteRange(response) => response.prev_kvs.len(),
            Self::Txn(response) => response.keys(),
        }
    }

    fn new(result: OpResult, op: &RequestOp) -> Self {
        let request = op.request.as_ref();
        match result {
            OpResult::Range(result) => {
                let keys_only =
                    matches!(request, Some(Request::RequestRange(range)) if range.keys_only);
                let header = op_header(result.revision);
                let response = RangeResponse::new(result, keys_only, Some(header));
                Self::Range(Measured::new(response))
            }
            OpResult::Put(result) => {
                let prev_kv = matches!(request, Some(Request::RequestPut(put)) if put.prev_kv);
                let header = op_header(result.revision);
                Self::Put(Measured::new(PutResponse::new(result, prev_kv, header)))
            }
            OpResult::Delete(result) => {
                let prev_kv =
                    matches!(request, Some(Request::RequestDeleteRange(delete)) if delete.prev_kv);
                let header = op_header(result.revision);
                let response = DeleteRangeResponse::new(result, prev_kv, header);
                Self::DeleteRange(Measured::new(response))
            }
            OpResult::Txn(result) => {
                let empty = TxnRequest::default();
                let request = match request {
                    Some(Request::RequestTxn(request)) => request,
                    _ => &empty,
                };
                // DM-24
                let header = ResponseHeader::default();
                Self::Txn(Measured::new(TxnResponse::new(result, request, header)))
            }
        }
    }
}

impl Encode for ResponseOp {
    fn encoded_len(&self) -> usize {
        match self {
            Self::Range(response) => message_len(response),
            Self::Put(response) => message_len(response),
            Self::DeleteRange(response) => message_len(response),
            Self::Txn(response) => message_len(response),
        }
    }

    fn encode(self, buf: &mut impl BufMut) {
        match self {
            Self::Range(response) => write_message(1, response, buf),
            Self::Put(response) => write_message(2, response, buf),
            Self::DeleteRange(response) => write_message(3, response, buf),
            Self::Txn(response) => write_message(4, response, buf),
        }
    }
}

impl Encode for CompactionResponse {
    fn encoded_len(&self) -> usize {
        header_len(&self.header)
    }

    fn encode(self, buf: &mut impl BufMut) {
        write_header(&self.header, buf);
    }
}

/// Converts a number of keys to the integer type of the message.
fn count(keys: usize) -> i64 {
    i64::try_from(keys).unwrap_or(i64::MAX)
}
