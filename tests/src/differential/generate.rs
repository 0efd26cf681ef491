//! A generator of random operations. It prefers operations that affect each other.

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
use crate::scenario::text::Action;
use crate::scenario::wire::Method;

/// The keys. Their number is small, so that operations affect each other and that etcd's sort is stable
/// (RG-43).
const KEYS: [&[u8]; 9] = [b"a", b"a\0", b"ab", b"b", b"ba", b"c", b"d", b"\xff", b"\0"];

/// The ends of ranges, in addition to the keys.
const ENDS: [&[u8]; 4] = [b"\0", b"", b"b\xff", b"z"];

/// The values.
const VALUES: [&[u8]; 5] = [b"", b"1", b"2", b"10", b"\0\xff"];

/// The length of large values. With large values, the history of an episode is larger than a fragment of a
/// response (WA-36).
const LARGE: usize = 64 * 1024;

/// The number of consecutive seeds of which one uses large values, which are slow.
const LARGE_SEEDS: u64 = 64;

/// The highest id of a lease.
const LEASES: i64 = 5;

/// The highest id of a watch that a client chooses.
const WATCHES: i64 = 6;

/// The streams of the watches.
const STREAMS: [&str; 2] = ["v", "w"];

/// The stream of keep-alive requests.
const KEEP_ALIVE: &str = "l";

/// The maximum depth of nested transactions.
const DEPTH_MAX: usize = 2;

/// A request for both servers.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// The stream that it is sent on; `None` for a unary call.
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

    /// Returns whether it cancels a watch.
    pub fn is_cancel(&self) -> bool {
        self.method.name() == "Watch" && self.message.has_field_by_name("cancel_request")
    }

    /// Returns whether it is a transaction.
    pub fn is_txn(&self) -> bool {
        self.method.name() == "Txn"
    }

    /// Returns the operation as an action of a scenario.
    pub fn action(&self) -> Action {
        let (method, text) = (self.method.clone(), message::line(&self.message));
        match self.stream {
            None => Action::Call { method, text },
            Some(stream) => Action::Send {
                stream: stream.to_owned(),
                method,
                text,
            },
        }
    }
}

/// The state of the store after the operations so far. Contains only the parts that the generator uses.
#[derive(Clone, Debug)]
pub struct StoreState {
    /// The current revision.
    pub revision: i64,
    /// The revisions of all compactions.
    pub compactions: BTreeSet<i64>,
    /// The revisions of transactions that may have written and deleted the same key (TXN-7, TXN-8).
    pub mixed: BTreeSet<i64>,
}

impl Default for StoreState {
    fn default() -> Self {
        Self {
            revision: 1,
            compactions: BTreeSet::new(),
            mixed: BTreeSet::new(),
        }
    }
}

impl StoreState {
    /// Returns the compacted revision, or 0.
    fn compacted(&self) -> i64 {
        self.compactions.last().copied().unwrap_or(0)
    }
}

/// A generator of operations.
#[derive(Debug)]
pub struct Generator {
    rng: Rng,
    large: bool,
}

impl Generator {
    /// Returns the generator for a seed.
    pub fn new(seed: u64) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            large: seed % LARGE_SEEDS == LARGE_SEEDS - 1,
        }
    }

    /// Returns the next operation.
    pub fn operation(&mut self, state: &StoreState) -> Operation {
        match self.rng.u32(..100) {
            0..28 => Operation::call("Put", &self.put(true)),
            28..40 => Operation::call("Range", &self.range(state)),
            40..48 => Operation::call("DeleteRange", &self.delete(true)),
            48..72 => {
                let open_deletes = self.rng.bool();
                Operation::call("Txn", &self.txn(state, open_deletes, 0))
            }
            72..75 => Operation::call("Compact", &self.compact(state)),
            75..80 => Operation::call("HashKV", &self.hash(state)),
            80..84 => {
                let id = self.lease();
                // The times to live differ, so that the order of leases is deterministic (LE-11).
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
                let create = self.create(state);
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

    fn range(&mut self, state: &StoreState) -> RangeRequest {
        let mut bound = |one_in| {
            if self.chance(one_in) {
                self.revision(state)
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
                self.revision(state)
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

    /// Returns a transaction with deletes to the end of the keyspace or with ignore flags, never both
    /// (TXN-10).
    fn txn(&mut self, state: &StoreState, open_deletes: bool, depth: usize) -> TxnRequest {
        let mut list = |max| {
            let length = self.rng.usize(..=max);
            (0..length)
                .map(|_| self.op(state, open_deletes, depth))
                .collect()
        };
        let (success, failure) = (list(4), list(3));
        let compares = self.rng.usize(..=2);
        TxnRequest {
            compare: (0..compares).map(|_| self.compare(state)).collect(),
            success,
            failure,
        }
    }

    fn op(&mut self, state: &StoreState, open_deletes: bool, depth: usize) -> RequestOp {
        use request_op::Request;
        let request = match self.rng.u32(..20) {
            0..9 => Request::RequestPut(self.put(!open_deletes)),
            9..13 => Request::RequestDeleteRange(self.delete(open_deletes)),
            13..17 => Request::RequestRange(self.range(state)),
            17 if self.chance(6) => return RequestOp { request: None },
            _ if depth < DEPTH_MAX => Request::RequestTxn(self.txn(state, open_deletes, depth + 1)),
            _ => Request::RequestPut(self.put(!open_deletes)),
        };
        RequestOp {
            request: Some(request),
        }
    }

    fn compare(&mut self, state: &StoreState) -> Compare {
        let target = self.rng.i32(0..5);
        let of = if self.chance(10) {
            self.rng.i32(0..6)
        } else {
            target
        };
        let value = match of {
            0 => Some(TargetUnion::Version(self.rng.i64(-1..5))),
            1 => Some(TargetUnion::CreateRevision(self.revision(state))),
            2 => Some(TargetUnion::ModRevision(self.revision(state))),
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

    /// Returns a physical compaction. Otherwise a hash could run before or after the removal of the
    /// revisions.
    fn compact(&mut self, state: &StoreState) -> CompactionRequest {
        let near = state.compacted().max(1)..=state.revision;
        let revision = match self.rng.u32(..12) {
            0 => self.revision(state),
            1 => state.revision,
            _ => self.rng.i64(near),
        };
        // A compaction at 0 would change all hashes of the current revision (HK-5). At a revision with two
        // events of one key, etcd drops the first event (TXN-9).
        let avoided = |revision: &i64| *revision == 0 || state.mixed.contains(revision);
        let mut choices = revision..=state.revision.max(revision).saturating_add(1);
        CompactionRequest {
            revision: choices.find(|revision| !avoided(revision)).unwrap_or(1),
            physical: true,
        }
    }

    fn hash(&mut self, state: &StoreState) -> HashKvRequest {
        let revision = self.revision(state);
        let revision = if state.compactions.contains(&revision) {
            0
        } else {
            revision
        };
        HashKvRequest { revision }
    }

    fn create(&mut self, state: &StoreState) -> WatchCreateRequest {
        let start_revision = match self.rng.u32(..20) {
            0..8 => 0,
            8 => state.revision + self.rng.i64(1..4),
            9 => self.rng.i64(1..=state.revision),
            _ => self.rng.i64(state.compacted().max(1)..=state.revision),
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

    /// Returns the end of a range; the end of the keyspace only if `open`.
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

    /// Returns a revision: in most cases a readable revision, otherwise one at or beyond a bound.
    fn revision(&mut self, state: &StoreState) -> i64 {
        match self.rng.u32(..20) {
            0 => -1,
            1 => 0,
            2 => state.compacted() - 1,
            3 => state.compacted(),
            4 => state.revision + 1,
            5..8 => state.revision,
            8 => self.rng.i64(1..=state.revision),
            _ => self.rng.i64(state.compacted().max(1)..=state.revision),
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
    fn a_seed_repeats_its_operations_and_each_round_trips_through_its_text() {
        let state = StoreState {
            revision: 40,
            compactions: BTreeSet::from([7]),
            ..StoreState::default()
        };
        let (mut one, mut other) = (Generator::new(3), Generator::new(3));
        for _ in 0..2000 {
            let operation = one.operation(&state);
            assert_eq!(operation, other.operation(&state));
            let text = operation.action().to_string();
            let text = text.replace("\n|", "").replace('\n', " ");
            let read = Action::parse(text.trim_start_matches('>').trim()).unwrap();
            let (Action::Call { method, text } | Action::Send { method, text, .. }) = read else {
                panic!("expected a call or a request on a stream, got {text}");
            };
            let message = message::parse(
                &method.input(),
                &text,
                &crate::scenario::normalize::LeaseNames::default(),
            );
            assert_eq!(message.unwrap(), operation.message);
        }
    }
}
