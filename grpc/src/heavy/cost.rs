//! The estimate of what a request takes.

use bytes::Bytes;
use revstore_engine::{Engine, KeyRange, LeaseId, Range};
use revstore_proto::etcdserverpb::request_op::Request as OpRequest;
use revstore_proto::etcdserverpb::{
    DeleteRangeRequest, LeaseRevokeRequest, LeaseTimeToLiveRequest, RangeRequest, RequestOp,
    TxnRequest,
};

use crate::request::kv::convert_keys;

/// The maximum number of visited keys of a request that runs in the task of its connection. Visiting
/// them takes about 100 µs.
const QUICK_KEYS_MAX: usize = 1_000;

/// The number of visited keys from which on a request runs on a worker. Visiting them takes about
/// 1 ms, much longer than it takes to get to another thread and back.
const HEAVY_KEYS_MIN: usize = 10_001;

/// The operations of a transaction that cost as much as a visit of this number of keys.
const OP_KEYS: usize = 50;

/// The number of changes of the store whose visit costs as much as that of one key.
const CHANGES_PER_KEY: usize = 4;

/// The memory of an answer for each of its keys: a reference, in a vector that has grown.
const KEY_BYTES: u64 = 16;

/// The number of references that take as much memory as a copied key, with a handle and its encoding.
const COPIED_KEY_REFERENCES: usize = 8;

/// The memory of a large answer apart from its keys: the encoded part that is about to be sent and,
/// in the gateway, its JSON.
pub(crate) const ANSWER_BYTES: u64 = 512 * 1024;

/// An estimate, made before the work and much cheaper than it: from the number of keys in a range,
/// which the index knows, the limits, and the number of operations. The store may change before the
/// work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// The number of visited keys. Other work is expressed in it.
    keys: usize,
    /// The number of keys to which the answer refers, also in between.
    answer_keys: usize,
    /// The number of deleted keys.
    deleted_keys: usize,
}

impl Cost {
    pub(crate) fn of_range(engine: &Engine, request: &RangeRequest) -> Self {
        if request.range_end.is_empty() {
            return Self::default();
        }
        // The count at an older revision visits the later changes, or all keys.
        let changes = match request.revision {
            revision if revision > 0 => engine.current_revision().0.saturating_sub(revision),
            _ => 0,
        };
        let changes = usize::try_from(changes).unwrap_or(0) / CHANGES_PER_KEY;
        // Sorting and filtering visit all keys before the limit applies.
        let is_plain = request.sort_order == 0
            && request.sort_target == 0
            && request.min_mod_revision == 0
            && request.max_mod_revision == 0
            && request.min_create_revision == 0
            && request.max_create_revision == 0;
        let limit = match usize::try_from(request.limit) {
            _ if request.count_only => 0,
            Ok(limit) if is_plain && limit > 0 => limit,
            _ => usize::MAX,
        };
        if limit.saturating_add(changes) <= QUICK_KEYS_MAX {
            // Without a look at the index.
            return Self {
                keys: limit + changes,
                answer_keys: limit,
                deleted_keys: 0,
            };
        }
        let count = count(engine, &request.key, &request.range_end);
        let answer_keys = limit.min(count);
        Self {
            keys: answer_keys + changes.min(count),
            answer_keys,
            deleted_keys: 0,
        }
    }

    pub(crate) fn of_delete_range(engine: &Engine, request: &DeleteRangeRequest) -> Self {
        if request.range_end.is_empty() {
            return Self::default();
        }
        let keys = count(engine, &request.key, &request.range_end);
        Self {
            keys,
            answer_keys: keys,
            deleted_keys: keys,
        }
    }

    /// The cost of ending a lease with its keys.
    pub(crate) fn of_lease_revoke(engine: &Engine, request: LeaseRevokeRequest) -> Self {
        let lease = LeaseId::new(request.id);
        let keys = lease.map_or(0, |lease| engine.lease_key_count(lease));
        Self {
            keys,
            answer_keys: 0,
            deleted_keys: keys,
        }
    }

    pub(crate) fn of_lease_time_to_live(engine: &Engine, request: &LeaseTimeToLiveRequest) -> Self {
        let lease = LeaseId::new(request.id).filter(|_| request.keys);
        let keys = lease.map_or(0, |lease| engine.lease_key_count(lease));
        Self {
            keys,
            answer_keys: keys.saturating_mul(COPIED_KEY_REFERENCES),
            deleted_keys: 0,
        }
    }

    /// The cost of a list of all leases.
    pub(crate) fn of_lease_leases(engine: &Engine) -> Self {
        let leases = engine.stats().leases;
        Self {
            keys: leases,
            answer_keys: leases,
            deleted_keys: 0,
        }
    }

    /// Only one branch of a transaction runs. Which one is not known before.
    pub(crate) fn of_txn(engine: &Engine, request: &TxnRequest) -> Self {
        let compared = request.compare.iter().map(|compare| {
            if compare.range_end.is_empty() {
                return 0;
            }
            count(engine, &compare.key, &compare.range_end)
        });
        let branch = |ops: &[RequestOp]| {
            let costs = ops.iter().map(|op| Self::of_op(engine, op));
            costs.fold(Self::default(), Self::plus)
        };
        let (success, failure) = (branch(&request.success), branch(&request.failure));
        let ops = request.compare.len() + request.success.len() + request.failure.len();
        let compared = compared.fold(ops.saturating_mul(OP_KEYS), usize::saturating_add);
        Self {
            keys: success.keys.max(failure.keys).saturating_add(compared),
            answer_keys: success.answer_keys.max(failure.answer_keys),
            deleted_keys: success.deleted_keys.max(failure.deleted_keys),
        }
    }

    fn of_op(engine: &Engine, op: &RequestOp) -> Self {
        match &op.request {
            Some(OpRequest::RequestRange(request)) => Self::of_range(engine, request),
            Some(OpRequest::RequestDeleteRange(request)) => Self::of_delete_range(engine, request),
            Some(OpRequest::RequestTxn(request)) => Self::of_txn(engine, request),
            Some(OpRequest::RequestPut(_)) | None => Self::default(),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            keys: self.keys.saturating_add(other.keys),
            answer_keys: self.answer_keys.saturating_add(other.answer_keys),
            deleted_keys: self.deleted_keys.saturating_add(other.deleted_keys),
        }
    }

    /// Returns whether the request may run in the task of its connection.
    pub(crate) fn is_quick(self) -> bool {
        self.keys <= QUICK_KEYS_MAX
    }

    /// Returns whether the request runs on a worker.
    pub(crate) fn is_heavy(self) -> bool {
        self.keys >= HEAVY_KEYS_MIN
    }

    /// Returns whether most of the request is a long write, during which no other can run.
    pub(crate) fn is_large_write(self) -> bool {
        self.deleted_keys >= HEAVY_KEYS_MIN.max(self.keys / 2)
    }

    /// Returns whether the answer may refer to keys.
    pub(crate) fn has_keys_in_answer(self) -> bool {
        self.answer_keys > 0
    }

    /// Returns the memory of the answer, in bytes.
    pub(crate) fn answer_bytes(self) -> u64 {
        answer_bytes(self.answer_keys)
    }
}

/// Returns the memory of a large answer with this number of keys, in bytes.
pub(crate) fn answer_bytes(keys: usize) -> u64 {
    (keys as u64)
        .saturating_mul(KEY_BYTES)
        .saturating_add(ANSWER_BYTES)
}

/// Returns the current number of keys in a range, in logarithmic time.
fn count(engine: &Engine, key: &Bytes, range_end: &Bytes) -> usize {
    let keys: KeyRange = convert_keys(&mut key.clone(), &mut range_end.clone());
    let found = engine.range(&Range::of(keys).count_only());
    // A read at the current revision cannot fail.
    found.map_or(0, |found| found.count)
}

#[cfg(test)]
mod tests {
    use revstore_engine::{Op, Put, Revision, Txn};
    use revstore_proto::etcdserverpb::{Compare, PutRequest};

    use super::*;

    /// Returns an engine with keys `k/000000` and so on.
    fn engine(keys: usize) -> Engine {
        let engine = Engine::builder().build();
        let puts = (0..keys).map(|number| Op::Put(Put::new(format!("k/{number:06}"), "v")));
        engine.txn(&Txn::new().and_then(puts)).unwrap();
        engine
    }

    fn range(mut request: RangeRequest) -> RangeRequest {
        request.key = "k/".into();
        request.range_end = "k0".into();
        request
    }

    fn all() -> RangeRequest {
        range(RangeRequest::default())
    }

    fn check(cost: Cost, is_quick: bool, is_heavy: bool) {
        assert_eq!(
            (cost.is_quick(), cost.is_heavy()),
            (is_quick, is_heavy),
            "{cost:?}"
        );
    }

    #[test]
    fn the_cost_of_a_range_is_the_number_of_keys_that_it_visits() {
        for (keys, is_quick, is_heavy) in [
            (0, true, false),
            (QUICK_KEYS_MAX, true, false),
            (QUICK_KEYS_MAX + 1, false, false),
            (HEAVY_KEYS_MIN - 1, false, false),
            (HEAVY_KEYS_MIN, false, true),
        ] {
            let engine = engine(keys);
            let limit = |limit| {
                range(RangeRequest {
                    limit,
                    ..RangeRequest::default()
                })
            };
            let count_only = range(RangeRequest {
                count_only: true,
                ..RangeRequest::default()
            });
            let one_key = RangeRequest {
                range_end: Bytes::new(),
                ..all()
            };
            let filtered = RangeRequest {
                min_mod_revision: 5,
                ..limit(1)
            };
            let sorted = RangeRequest {
                sort_order: 1,
                sort_target: 4,
                ..limit(1)
            };
            for request in [one_key, count_only, limit(500), limit(1000)] {
                check(Cost::of_range(&engine, &request), true, false);
            }
            for request in [all(), limit(1_000_000), filtered, sorted] {
                check(Cost::of_range(&engine, &request), is_quick, is_heavy);
            }
        }
    }

    #[test]
    fn an_old_revision_costs_the_later_changes_as_well() {
        let engine = engine(HEAVY_KEYS_MIN);
        let Revision(old) = engine.current_revision();
        let changed = CHANGES_PER_KEY * QUICK_KEYS_MAX;
        (0..=changed).for_each(|_| drop(engine.put("other", "v").unwrap()));
        let at = |revision, limit, count_only| {
            let request = range(RangeRequest {
                revision,
                limit,
                count_only,
                ..RangeRequest::default()
            });
            Cost::of_range(&engine, &request)
        };
        check(at(old, 500, false), false, false);
        check(at(old + 4_000, 500, false), true, false);
        check(at(0, 500, false), true, false);
        check(at(old, 0, true), true, false);
        (0..40 * changed).for_each(|_| drop(engine.put("other", "v").unwrap()));
        check(at(old, 500, false), false, true);
        check(at(old, 0, true), false, true);
    }

    #[test]
    fn a_transaction_costs_its_compares_and_its_larger_branch() {
        let engine = engine(2_000);
        let get = |request| RequestOp {
            request: Some(OpRequest::RequestRange(request)),
        };
        let put = RequestOp {
            request: Some(OpRequest::RequestPut(PutRequest::default())),
        };
        let compare = Compare {
            key: "k/".into(),
            range_end: "k0".into(),
            ..Compare::default()
        };
        let txn = |compares, gets, puts| TxnRequest {
            compare: vec![compare.clone(); compares],
            success: vec![get(all()); gets],
            failure: vec![put.clone(); puts],
        };
        let cost = |request| Cost::of_txn(&engine, &request);
        check(cost(txn(0, 0, 16)), true, false);
        check(cost(txn(0, 0, 128)), false, false);
        check(cost(txn(1, 0, 1)), false, false);
        check(cost(txn(0, 5, 0)), false, true);
        check(cost(txn(6, 0, 0)), false, true);
        let nested = RequestOp {
            request: Some(OpRequest::RequestTxn(txn(6, 0, 0))),
        };
        let outer = TxnRequest {
            failure: vec![nested],
            ..TxnRequest::default()
        };
        check(cost(outer), false, true);
        assert_eq!(cost(txn(0, 3, 0)).answer_bytes(), answer_bytes(6_000));
        let delete = DeleteRangeRequest {
            key: "k/".into(),
            range_end: vec![0].into(),
            prev_kv: false,
        };
        check(Cost::of_delete_range(&engine, &delete), false, false);
    }

    #[test]
    fn requests_for_leases_cost_their_keys_and_lists_the_leases() {
        let engine = Engine::builder().build();
        let lease = engine.grant(LeaseId::new(7), 60).unwrap().id;
        let put = |number| {
            let put = Put::new(format!("{number:06}"), "v").attached_to(lease);
            Op::Put(put)
        };
        let costs = || {
            let list = LeaseTimeToLiveRequest { id: 7, keys: true };
            let state = LeaseTimeToLiveRequest {
                keys: false,
                ..list
            };
            let unknown = LeaseTimeToLiveRequest { id: 8, ..list };
            check(Cost::of_lease_time_to_live(&engine, &state), true, false);
            check(Cost::of_lease_time_to_live(&engine, &unknown), true, false);
            let list = Cost::of_lease_time_to_live(&engine, &list);
            let revoke = Cost::of_lease_revoke(&engine, LeaseRevokeRequest { id: 7 });
            assert!(!revoke.has_keys_in_answer());
            assert_eq!(revoke.keys, list.keys);
            list
        };
        check(costs(), true, false);
        let puts = |numbers| engine.txn(&Txn::new().and_then(Iterator::map(numbers, put)));
        puts(0..QUICK_KEYS_MAX + 1).unwrap();
        check(costs(), false, false);
        puts(QUICK_KEYS_MAX + 1..HEAVY_KEYS_MIN).unwrap();
        check(costs(), false, true);
        check(Cost::of_lease_leases(&engine), true, false);
        for _ in 1..HEAVY_KEYS_MIN {
            engine.grant(None, 60).unwrap();
        }
        check(Cost::of_lease_leases(&engine), false, true);
    }
}
