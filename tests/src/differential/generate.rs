//! Random operations, biased towards those that meet each other.

use std::collections::BTreeSet;

use fastrand::Rng;
use prost_reflect::DynamicMessage;
use prost_reflect::prost::Message;
use revstore_proto::etcdserverpb::compare::TargetUnion;
use revstore_proto::etcdserverpb::watch_request::RequestUnion;
use revstore_proto::etcdserverpb::{
    CompactionRequest, Compare, DeleteRangeRequest, HashKvRequest, LeaseGrantRequest,
    LeaseKeepAliveRequest, LeaseLeasesRequest, LeaseRevokeRequest, LeaseTimeToLiveRequest,
    PutRequest, RangeRequest, RequestOp, TxnRequest, WatchCancelRequest, WatchCreateRequest,
    WatchProgressRequest, WatchRequest, request_op,
};

use crate::scenario::message;
use crate::scenario::text::Request;
use crate::scenario::wire::Method;

/// Few enough keys that operations meet, and few enough that sorting keeps ties in order (RG-43).
const KEYS: [&[u8]; 9] = [b"a", b"a\0", b"ab", b"b", b"ba", b"c", b"d", b"\xff", b"\0"];

/// Ends of ranges besides the keys.
const ENDS: [&[u8]; 4] = [b"\0", b"", b"b\xff", b"z"];

/// Values, the empty one among them.
const VALUES: [&[u8]; 5] = [b"", b"1", b"2", b"10", b"\0\xff"];

/// The length of large values: what is kept of an episode with such is more than fits into one piece
/// of a response (WA-36).
const LARGE: usize = 64 * 1024;

/// The last of so many seeds has large values, which take their time.
const LARGE_SEEDS: u64 = 64;

/// Leases have ids up to this.
const LEASES: i64 = 5;

/// Ids that clients choose for watches go up to this.
const WATCHES: i64 = 6;

/// The streams that watches are put on.
const STREAMS: [&str; 2] = ["v", "w"];

/// The stream that leases are renewed on.
const KEEP_ALIVE: &str = "l";

/// How deep transactions are nested.
const DEPTH_MAX: usize = 2;

/// An operation, with its message in bytes and by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// The stream that it is sent on; none for a call.
    pub stream: Option<&'static str>,
    /// The method.
    pub method: Method,
    /// The request.
    pub message: DynamicMessage,
}

impl Operation {
    fn call(method: &str, message: &impl Message) -> Self {
        Self::of(None, method, message)
    }

    fn of(stream: Option<&'static str>, method: &str, message: &impl Message) -> Self {
        let method = Method::of_name(method).expect("a method of etcd");
        let message = DynamicMessage::decode(method.input(), message.encode_to_vec().as_slice())
            .expect("a message of that method");
        Self {
            stream,
            method,
            message,
        }
    }

    /// Whether it cancels a watch.
    pub fn is_cancel(&self) -> bool {
        self.method.name() == "Watch" && self.message.has_field_by_name("cancel_request")
    }

    /// Whether it is a transaction.
    pub fn is_txn(&self) -> bool {
        self.method.name() == "Txn"
    }

    /// The operation as a step of a scenario.
    pub fn request(&self) -> Request {
        let (method, text) = (self.method.clone(), message::line(&self.message));
        match self.stream {
            None => Request::Call { method, text },
            Some(stream) => Request::Send {
                stream: stream.to_owned(),
                method,
                text,
            },
        }
    }
}

/// What the operations so far have led to, as far as the next one depends on it.
#[derive(Clone, Debug)]
pub struct View {
    /// The current revision.
    pub revision: i64,
    /// Revisions that were compacted at.
    pub marks: BTreeSet<i64>,
    /// Revisions that may have written and deleted the same key (TXN-7, TXN-8).
    pub mixed: BTreeSet<i64>,
}

impl Default for View {
    fn default() -> Self {
        Self {
            revision: 1,
            marks: BTreeSet::new(),
            mixed: BTreeSet::new(),
        }
    }
}

impl View {
    fn mark(&self) -> i64 {
        self.marks.last().copied().unwrap_or(0)
    }
}

/// A source of operations.
#[derive(Debug)]
pub struct Generator {
    rng: Rng,
    large: bool,
}

impl Generator {
    /// The one that this seed stands for.
    pub fn new(seed: u64) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            large: seed % LARGE_SEEDS == LARGE_SEEDS - 1,
        }
    }

    /// The next operation.
    pub fn operation(&mut self, view: &View) -> Operation {
        match self.rng.u32(..100) {
            0..28 => Operation::call("Put", &self.put(true)),
            28..40 => Operation::call("Range", &self.range(view)),
            40..48 => Operation::call("DeleteRange", &self.delete(true)),
            48..72 => {
                let open_deletes = self.rng.bool();
                Operation::call("Txn", &self.txn(view, open_deletes, 0))
            }
            72..75 => Operation::call("Compact", &self.compact(view)),
            75..80 => Operation::call("HashKV", &self.hash(view)),
            80..84 => {
                let id = self.lease();
                // Different times to live, so that the order of leases is known (LE-11).
                let ttl = 10_000 + 1000 * id;
                Operation::call("LeaseGrant", &LeaseGrantRequest { id, ttl })
            }
            84..86 => Operation::call("LeaseRevoke", &LeaseRevokeRequest { id: self.lease() }),
            86..89 => {
                let (id, keys) = (self.lease(), self.rng.bool());
                Operation::call("LeaseTimeToLive", &LeaseTimeToLiveRequest { id, keys })
            }
            89 => Operation::call("LeaseLeases", &LeaseLeasesRequest {}),
            90 => {
                let request = LeaseKeepAliveRequest { id: self.lease() };
                Operation::of(Some(KEEP_ALIVE), "LeaseKeepAlive", &request)
            }
            91..96 => {
                let create = self.create(view);
                self.watch(RequestUnion::CreateRequest(create))
            }
            96 => self.watch(RequestUnion::ProgressRequest(WatchProgressRequest {})),
            _ => {
                let watch_id = self.rng.i64(0..=WATCHES + 2);
                self.watch(RequestUnion::CancelRequest(WatchCancelRequest { watch_id }))
            }
        }
    }

    fn watch(&mut self, union: RequestUnion) -> Operation {
        let stream = STREAMS[self.rng.usize(..STREAMS.len())];
        Operation::of(
            Some(stream),
            "Watch",
            &WatchRequest {
                request_union: Some(union),
            },
        )
    }

    fn put(&mut self, ignoring: bool) -> PutRequest {
        let ignore_value = ignoring && self.chance(12);
        let ignore_lease = ignoring && self.chance(12);
        PutRequest {
            key: self.key(),
            value: if ignore_value && !self.chance(10) {
                Vec::new()
            } else {
                self.value()
            }
            .into(),
            lease: if self.chance(4) && (!ignore_lease || self.chance(10)) {
                self.lease()
            } else {
                0
            },
            prev_kv: self.rng.bool(),
            ignore_value,
            ignore_lease,
        }
    }

    fn range(&mut self, view: &View) -> RangeRequest {
        let mut bound = |one_in| {
            if self.chance(one_in) {
                self.revision(view)
            } else {
                0
            }
        };
        let bounds = [bound(8), bound(8), bound(8), bound(8)];
        RangeRequest {
            key: self.key(),
            range_end: self.end(true),
            limit: if self.chance(3) {
                self.rng.i64(-1..=6)
            } else {
                0
            },
            revision: if self.chance(2) {
                self.revision(view)
            } else {
                0
            },
            sort_order: self.rng.i32(0..3),
            sort_target: self.rng.i32(0..5),
            serializable: self.chance(8),
            keys_only: self.chance(5),
            count_only: self.chance(6),
            min_mod_revision: bounds[0],
            max_mod_revision: bounds[1],
            min_create_revision: bounds[2],
            max_create_revision: bounds[3],
        }
    }

    fn delete(&mut self, open: bool) -> DeleteRangeRequest {
        DeleteRangeRequest {
            key: self.key(),
            range_end: if self.chance(3) {
                self.end(open)
            } else {
                Vec::new().into()
            },
            prev_kv: self.rng.bool(),
        }
    }

    /// Either deletes to the end of the keys or ignore flags, never both (TXN-10).
    fn txn(&mut self, view: &View, open_deletes: bool, depth: usize) -> TxnRequest {
        let mut list = |max| {
            let length = self.rng.usize(..=max);
            (0..length)
                .map(|_| self.op(view, open_deletes, depth))
                .collect()
        };
        let (success, failure) = (list(4), list(3));
        let compares = self.rng.usize(..=2);
        TxnRequest {
            compare: (0..compares).map(|_| self.compare(view)).collect(),
            success,
            failure,
        }
    }

    fn op(&mut self, view: &View, open_deletes: bool, depth: usize) -> RequestOp {
        use request_op::Request;
        let request = match self.rng.u32(..20) {
            0..9 => Request::RequestPut(self.put(!open_deletes)),
            9..13 => Request::RequestDeleteRange(self.delete(open_deletes)),
            13..17 => Request::RequestRange(self.range(view)),
            17 if self.chance(6) => return RequestOp { request: None },
            _ if depth < DEPTH_MAX => Request::RequestTxn(self.txn(view, open_deletes, depth + 1)),
            _ => Request::RequestPut(self.put(!open_deletes)),
        };
        RequestOp {
            request: Some(request),
        }
    }

    fn compare(&mut self, view: &View) -> Compare {
        let target = self.rng.i32(0..5);
        let of = if self.chance(10) {
            self.rng.i32(0..6)
        } else {
            target
        };
        let value = match of {
            0 => Some(TargetUnion::Version(self.rng.i64(-1..5))),
            1 => Some(TargetUnion::CreateRevision(self.revision(view))),
            2 => Some(TargetUnion::ModRevision(self.revision(view))),
            3 => Some(TargetUnion::Value(self.value().into())),
            4 => Some(TargetUnion::Lease(self.lease())),
            _ => None,
        };
        Compare {
            result: if self.chance(40) {
                9
            } else {
                self.rng.i32(0..4)
            },
            target: if self.chance(40) { 9 } else { target },
            key: self.key(),
            range_end: if self.chance(4) {
                self.end(true)
            } else {
                Vec::new().into()
            },
            target_union: value,
        }
    }

    /// Always physical: only then is it known how far the removal is that a hash may meet.
    fn compact(&mut self, view: &View) -> CompactionRequest {
        let near = view.mark().max(1)..=view.revision;
        let revision = match self.rng.u32(..12) {
            0 => self.revision(view),
            1 => view.revision,
            _ => self.rng.i64(near),
        };
        // Zero would be a mark too, for one that every hash of now is asked at (HK-5). And at a mark
        // that has two events of one key, etcd forgets the first (TXN-9).
        let avoided = |revision: &i64| *revision == 0 || view.mixed.contains(revision);
        let mut candidates = revision..=view.revision.max(revision).saturating_add(1);
        CompactionRequest {
            revision: candidates.find(|revision| !avoided(revision)).unwrap_or(1),
            physical: true,
        }
    }

    fn hash(&mut self, view: &View) -> HashKvRequest {
        let revision = self.revision(view);
        let revision = if view.marks.contains(&revision) {
            0
        } else {
            revision
        };
        HashKvRequest { revision }
    }

    fn create(&mut self, view: &View) -> WatchCreateRequest {
        let start_revision = match self.rng.u32(..20) {
            0..8 => 0,
            8 => view.revision + self.rng.i64(1..4),
            9 => self.rng.i64(1..=view.revision),
            _ => self.rng.i64(view.mark().max(1)..=view.revision),
        };
        let filters = self.rng.usize(..3);
        WatchCreateRequest {
            key: if self.chance(10) {
                Vec::new().into()
            } else {
                self.key()
            },
            range_end: self.end(true),
            start_revision,
            progress_notify: self.chance(8),
            filters: if self.chance(3) {
                (0..filters).map(|_| self.rng.i32(0..3)).collect()
            } else {
                Vec::new()
            },
            prev_kv: self.rng.bool(),
            watch_id: if self.rng.bool() {
                0
            } else {
                self.rng.i64(1..=WATCHES)
            },
            fragment: self.chance(5),
        }
    }

    fn key(&mut self) -> bytes::Bytes {
        let key = if self.chance(60) {
            b""
        } else {
            KEYS[self.rng.usize(..KEYS.len())]
        };
        bytes::Bytes::from_static(key)
    }

    /// The end of a range: none, a key, or what else ends one, but not all keys unless `open`.
    fn end(&mut self, open: bool) -> bytes::Bytes {
        let end = match self.rng.u32(..10) {
            0..3 => b"",
            3..6 => KEYS[self.rng.usize(..KEYS.len())],
            _ => ENDS[self.rng.usize(..ENDS.len())],
        };
        let end = if end == b"\0" && !open { b"z" } else { end };
        bytes::Bytes::from_static(end)
    }

    fn value(&mut self) -> Vec<u8> {
        if self.large && self.rng.bool() {
            return vec![b'v'; LARGE];
        }
        VALUES[self.rng.usize(..VALUES.len())].to_vec()
    }

    fn lease(&mut self) -> i64 {
        if self.chance(20) {
            -LEASES
        } else {
            self.rng.i64(1..=LEASES)
        }
    }

    /// A revision: mostly one that can be read, sometimes one at or beyond a bound.
    fn revision(&mut self, view: &View) -> i64 {
        match self.rng.u32(..20) {
            0 => -1,
            1 => 0,
            2 => view.mark() - 1,
            3 => view.mark(),
            4 => view.revision + 1,
            5..8 => view.revision,
            8 => self.rng.i64(1..=view.revision),
            _ => self.rng.i64(view.mark().max(1)..=view.revision),
        }
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.rng.u32(..one_in) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_operations_and_each_can_be_written_down() {
        let view = View {
            revision: 40,
            marks: BTreeSet::from([7]),
            ..View::default()
        };
        let (mut one, mut other) = (Generator::new(3), Generator::new(3));
        for _ in 0..2000 {
            let operation = one.operation(&view);
            assert_eq!(operation, other.operation(&view));
            let text = operation.request().to_string();
            let text = text.replace("\n|", "").replace('\n', " ");
            let read = Request::parse(text.trim_start_matches('>').trim()).unwrap();
            let (Request::Call { method, text } | Request::Send { method, text, .. }) = read else {
                panic!("{text}");
            };
            let message = message::parse(
                &method.input(),
                &text,
                &crate::scenario::normal::Names::default(),
            );
            assert_eq!(message.unwrap(), operation.message);
        }
    }
}
