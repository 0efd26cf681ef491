//! The keys of requests.

use bytes::Bytes;
use prost::Message;
use revstore_engine::KeyRange;
use revstore_proto::etcdserverpb::request_op::Request as OpRequest;
use revstore_proto::etcdserverpb::{
    DeleteRangeRequest, PutRequest, RangeRequest, TxnRequest, WatchCreateRequest,
};
use revstore_proto::v3electionpb::{
    CampaignRequest, LeaderRequest, ProclaimRequest, ResignRequest,
};
use revstore_proto::v3lockpb::{LockRequest, UnlockRequest};

use crate::methods::{RpcMethod, ServiceId};
use crate::request::kv::convert_keys;
use crate::request::nesting::decode_txn;

/// Returns the keys that a request reads or writes: of a transaction, all in its compares and operations; of a lock or an
/// election, those below its name. Empty for methods without keys and for malformed messages.
///
/// Costs a decoding of the message, without a copy of its values.
pub fn request_keys(method: &RpcMethod, message: &Bytes) -> Vec<KeyRange> {
    let keys = match (method.service_id, method.name()) {
        (ServiceId::Kv, "Range" | "RangeStream") => RangeRequest::decode(message.clone())
            .ok()
            .map(|mut it| vec![convert_keys(&mut it.key, &mut it.range_end)]),
        (ServiceId::Kv, "Put") => decode(message, |it: PutRequest| KeyRange::One(it.key)),
        (ServiceId::Kv, "DeleteRange") => DeleteRangeRequest::decode(message.clone())
            .ok()
            .map(|mut it| vec![convert_keys(&mut it.key, &mut it.range_end)]),
        (ServiceId::Kv, "Txn") => decode_txn(message).ok().map(txn_keys),
        (ServiceId::Lock, "Lock") => decode(message, |it: LockRequest| below(&it.name)),
        (ServiceId::Lock, "Unlock") => decode(message, |it: UnlockRequest| KeyRange::One(it.key)),
        (ServiceId::Election, "Campaign") => decode(message, |it: CampaignRequest| below(&it.name)),
        (ServiceId::Election, "Leader" | "Observe") => {
            decode(message, |it: LeaderRequest| below(&it.name))
        }
        (ServiceId::Election, "Proclaim") => decode(message, |it: ProclaimRequest| {
            KeyRange::One(it.leader.unwrap_or_default().key)
        }),
        (ServiceId::Election, "Resign") => decode(message, |it: ResignRequest| {
            KeyRange::One(it.leader.unwrap_or_default().key)
        }),
        _ => None,
    };
    keys.unwrap_or_default()
}

/// Returns the keys of a watch (WA-9).
pub(super) fn watch_keys(request: &WatchCreateRequest) -> KeyRange {
    let (mut key, mut range_end) = (request.key.clone(), request.range_end.clone());
    if key.is_empty() {
        key = Bytes::from_static(crate::request::watch::SMALLEST_KEY);
    }
    convert_keys(&mut key, &mut range_end)
}

fn decode<T: Message + Default>(
    message: &Bytes,
    keys: impl FnOnce(T) -> KeyRange,
) -> Option<Vec<KeyRange>> {
    let request = T::decode(message.clone()).ok()?;
    Some(vec![keys(request)])
}

/// Returns the keys of the waiters for a lock or an election.
fn below(name: &[u8]) -> KeyRange {
    KeyRange::prefix([name, b"/"].concat())
}

fn txn_keys(txn: TxnRequest) -> Vec<KeyRange> {
    let mut keys = Vec::new();
    let mut nested = vec![txn];
    while let Some(txn) = nested.pop() {
        for mut compare in txn.compare {
            keys.push(convert_keys(&mut compare.key, &mut compare.range_end));
        }
        for op in txn.success.into_iter().chain(txn.failure) {
            match op.request {
                Some(OpRequest::RequestRange(mut it)) => {
                    keys.push(convert_keys(&mut it.key, &mut it.range_end));
                }
                Some(OpRequest::RequestPut(it)) => keys.push(KeyRange::One(it.key)),
                Some(OpRequest::RequestDeleteRange(mut it)) => {
                    keys.push(convert_keys(&mut it.key, &mut it.range_end));
                }
                Some(OpRequest::RequestTxn(it)) => nested.push(it),
                None => {}
            }
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use revstore_proto::etcdserverpb::{Compare, RequestOp};

    use super::*;

    fn check(path: &str, message: &impl Message, expected: &[KeyRange]) {
        let method = RpcMethod::of_path(path).unwrap();
        let message = message.encode_to_vec().into();
        assert_eq!(request_keys(method, &message), expected, "{path}");
    }

    #[test]
    fn keys_of_requests_are_found() {
        let put = PutRequest {
            key: "a".into(),
            value: "x".into(),
            ..PutRequest::default()
        };
        check("/etcdserverpb.KV/Put", &put, &[KeyRange::one("a")]);
        let range = RangeRequest {
            key: "a".into(),
            range_end: Bytes::from_static(b"\0"),
            ..RangeRequest::default()
        };
        check(
            "/etcdserverpb.KV/Range",
            &range,
            &[KeyRange::From("a".into())],
        );
        let inner = TxnRequest {
            success: vec![RequestOp {
                request: Some(OpRequest::RequestPut(put)),
            }],
            ..TxnRequest::default()
        };
        let txn = TxnRequest {
            compare: vec![Compare {
                key: "c".into(),
                ..Compare::default()
            }],
            failure: vec![
                RequestOp {
                    request: Some(OpRequest::RequestTxn(inner)),
                },
                RequestOp {
                    request: Some(OpRequest::RequestRange(range)),
                },
            ],
            ..TxnRequest::default()
        };
        check(
            "/etcdserverpb.KV/Txn",
            &txn,
            &[
                KeyRange::one("c"),
                KeyRange::From("a".into()),
                KeyRange::one("a"),
            ],
        );
        let lock = LockRequest {
            name: "l".into(),
            lease: 0,
        };
        check("/v3lockpb.Lock/Lock", &lock, &[KeyRange::prefix("l/")]);
        check(
            "/etcdserverpb.Lease/LeaseGrant",
            &revstore_proto::etcdserverpb::LeaseGrantRequest { ttl: 1, id: 2 },
            &[],
        );
    }

    #[test]
    fn malformed_requests_have_no_keys() {
        for method in RpcMethod::all() {
            assert_eq!(request_keys(method, &Bytes::from_static(b"\xff")), []);
        }
    }
}
