//! What a response says about the effect of its request, for journals whose requests are repeated.

use bytes::Bytes;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use revstore_proto::etcdserverpb::response_op::Response as OpResponse;
use revstore_proto::etcdserverpb::{DeleteRangeResponse, LeaseGrantRequest, TxnResponse};

use super::varint_field;
use crate::methods::{RpcMethod, ServiceId};

/// Returns whether a request has made the revision in the header of its response. `None` if the response does not say so.
///
/// Costs a decoding of the responses of transactions and deletions, without a copy of their values.
pub fn has_written(method: &RpcMethod, response: &Bytes) -> Option<bool> {
    match (method.service_id, method.name()) {
        (ServiceId::Kv, "Put") => Some(true),
        (ServiceId::Kv, "DeleteRange") => {
            let response = DeleteRangeResponse::decode(response.clone()).ok()?;
            Some(response.deleted > 0)
        }
        (ServiceId::Kv, "Txn") => {
            let response = TxnResponse::decode(response.clone()).ok()?;
            Some(has_txn_written(&response))
        }
        (ServiceId::Lease, "LeaseRevoke") | (ServiceId::Lock | ServiceId::Election, _) => None,
        _ => Some(false),
    }
}

fn has_txn_written(response: &TxnResponse) -> bool {
    let mut responses = response.responses.iter();
    responses.any(|it| match &it.response {
        Some(OpResponse::ResponsePut(_)) => true,
        Some(OpResponse::ResponseDeleteRange(it)) => it.deleted > 0,
        Some(OpResponse::ResponseTxn(it)) => has_txn_written(it),
        Some(OpResponse::ResponseRange(_)) | None => false,
    })
}

/// Returns the id in the response to the grant of a lease. `None` for other methods.
pub fn granted_lease(method: &RpcMethod, response: &[u8]) -> Option<i64> {
    let is_grant = method.service_id == ServiceId::Lease && method.name() == "LeaseGrant";
    varint_field(response, 2)
        .filter(|id| is_grant && *id != 0)
        .map(u64::cast_signed)
}

/// Returns a request for a lease with this id, unless the request names one itself.
pub fn with_lease(request: &[u8], lease: i64) -> Option<Bytes> {
    if LeaseGrantRequest::decode(request).ok()?.id != 0 {
        return None;
    }
    // Of a field, the last value counts.
    let mut named = request.to_vec();
    encode_key(2, WireType::Varint, &mut named);
    encode_varint(lease.cast_unsigned(), &mut named);
    Some(named.into())
}

#[cfg(test)]
mod tests {
    use revstore_proto::etcdserverpb::{
        LeaseGrantResponse, PutResponse, RangeResponse, ResponseHeader, ResponseOp,
    };

    use super::*;

    fn method(path: &str) -> &'static RpcMethod {
        RpcMethod::of_path(path).unwrap()
    }

    #[test]
    fn responses_say_whether_their_request_has_written() {
        let check = |name: &str, response: &dyn Fn() -> Vec<u8>, expected| {
            let path = format!("/etcdserverpb.{name}");
            assert_eq!(
                has_written(method(&path), &response().into()),
                expected,
                "{name}"
            );
        };
        let deleted = |deleted| {
            let response = DeleteRangeResponse {
                deleted,
                ..DeleteRangeResponse::default()
            };
            move || response.encode_to_vec()
        };
        check("KV/Put", &Vec::new, Some(true));
        check("KV/Range", &Vec::new, Some(false));
        check("KV/DeleteRange", &deleted(0), Some(false));
        check("KV/DeleteRange", &deleted(2), Some(true));
        check("KV/DeleteRange", &|| vec![0xff], None);
        check("Lease/LeaseGrant", &Vec::new, Some(false));
        check("Lease/LeaseRevoke", &Vec::new, None);
        let txn = |op: OpResponse| {
            let inner = TxnResponse {
                responses: vec![ResponseOp { response: Some(op) }],
                ..TxnResponse::default()
            };
            let outer = TxnResponse {
                responses: vec![ResponseOp {
                    response: Some(OpResponse::ResponseTxn(inner)),
                }],
                ..TxnResponse::default()
            };
            move || outer.encode_to_vec()
        };
        let range = OpResponse::ResponseRange(RangeResponse::default());
        check("KV/Txn", &txn(range), Some(false));
        let put = OpResponse::ResponsePut(PutResponse::default());
        check("KV/Txn", &txn(put), Some(true));
        let none = OpResponse::ResponseDeleteRange(DeleteRangeResponse::default());
        check("KV/Txn", &txn(none), Some(false));
        check("KV/Txn", &Vec::new, Some(false));
    }

    #[test]
    fn a_grant_gets_the_id_that_the_server_has_chosen() {
        let response = LeaseGrantResponse {
            header: Some(ResponseHeader::default()),
            id: -5,
            ttl: 60,
            error: String::new(),
        };
        let response = response.encode_to_vec();
        let grant = method("/etcdserverpb.Lease/LeaseGrant");
        assert_eq!(granted_lease(grant, &response), Some(-5));
        let put = method("/etcdserverpb.KV/Put");
        assert_eq!(granted_lease(put, &response), None);
        for (asked, expected) in [(0, Some(-5)), (7, None)] {
            let request = LeaseGrantRequest { ttl: 60, id: asked };
            let named = with_lease(&request.encode_to_vec(), -5);
            let named = named.map(|it| LeaseGrantRequest::decode(it).unwrap());
            assert_eq!(named.map(|it| (it.ttl, it.id)), expected.map(|id| (60, id)));
        }
        assert_eq!(with_lease(b"\xff", 5), None);
    }
}
