//! Transactions that are nested as deeply as etcd allows: TXN-2.
//!
//! prost does not decode their responses, so these tests send and receive bytes.

use std::thread;

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};
use revstore_proto::etcdserverpb::{Compare, PutRequest, RangeRequest, RequestOp, TxnRequest};
use tonic::{Code, Status};
use tower_service::Service;

use crate::support::{
    FUTURE, KEY_NOT_FOUND, TestNode, assert_error, delete, get, op_delete, op_get, op_put, put,
    txn_of,
};

const TOO_MANY_OPS: (Code, &str) = (
    Code::InvalidArgument,
    "etcdserver: too many operations in txn request",
);

/// A quarter of the stack of a thread that serves requests. Tests run without optimizations, which take
/// several times as much.
const STACK_BYTES: usize = 512 * 1024;

fn delimited(field: u32, message: &[u8]) -> BytesMut {
    let mut bytes = BytesMut::new();
    encode_key(field, WireType::LengthDelimited, &mut bytes);
    encode_varint(message.len() as u64, &mut bytes);
    bytes.put_slice(message);
    bytes
}

/// Returns an encoded transaction in `levels` others. Each of them has the fields of `around`, too.
fn nest(innermost: &TxnRequest, levels: usize, around: &TxnRequest) -> Bytes {
    let mut txn = BytesMut::from(&*innermost.encode_to_vec());
    let around = around.encode_to_vec();
    for _ in 0..levels {
        txn = delimited(2, &delimited(4, &txn));
        txn.put_slice(&around);
    }
    txn.freeze()
}

/// Runs a transaction on a thread with a small stack. Returns the encoded response.
fn run(node: &TestNode, message: Bytes) -> Result<Bytes, Status> {
    let services = node.services.clone();
    let call = async move {
        let mut body = BytesMut::new();
        body.put_u8(0);
        body.put_u32(u32::try_from(message.len()).unwrap());
        body.put_slice(&message);
        let request = http::Request::post("http://node/etcdserverpb.KV/Txn")
            .header("content-type", "application/grpc")
            .body(Full::new(body.freeze()))
            .unwrap();
        let response = services.clone().call(request).await.unwrap();
        if let Some(status) = Status::from_header_map(response.headers()) {
            return Err(status);
        }
        let collected = response.into_body().collect().await.unwrap();
        let status = Status::from_header_map(collected.trailers().unwrap()).unwrap();
        assert_eq!(status.code(), Code::Ok, "{status:?}");
        Ok(collected.to_bytes().slice(5..))
    };
    let thread = thread::Builder::new().stack_size(STACK_BYTES);
    let thread = thread.spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(call)
    });
    thread.unwrap().join().unwrap()
}

/// Returns the number of responses of nested transactions that consist of one operation each.
fn levels(mut response: &[u8]) -> usize {
    let mut levels = 0;
    // The tag of the field `responses`, then that of the field `response_txn`.
    while let Some(responses) = field(response, 3) {
        let Some(nested) = field(responses, 4) else {
            break;
        };
        (response, levels) = (nested, levels + 1);
    }
    levels
}

/// Returns the first field with a number and contents of a certain length.
fn field(mut message: &[u8], number: u32) -> Option<&[u8]> {
    while !message.is_empty() {
        let (field, wire_type) = decode_key(&mut message).unwrap();
        let length = decode_varint(&mut message).unwrap();
        if wire_type == WireType::LengthDelimited {
            let (contents, rest) = message.split_at(usize::try_from(length).unwrap());
            if field == number {
                return Some(contents);
            }
            message = rest;
        }
    }
    None
}

#[test]
fn txn_2_a_transaction_in_127_others_is_executed() {
    let node = TestNode::new();
    let innermost = txn_of(vec![op_put(put("k", "v"))]);
    for (nested, revision) in [(49, 2), (50, 3), (127, 4)] {
        let message = nest(&innermost, nested, &TxnRequest::default());
        let response = run(&node, message).unwrap();
        assert_eq!(levels(&response), nested);
        assert_eq!(node.revision(), revision);
    }
    let empty = nest(&TxnRequest::default(), 128, &TxnRequest::default());
    assert_eq!(levels(&run(&node, empty).unwrap()), 128);
    for nested in [128, 129, 1_000, 10_000] {
        let message = nest(&innermost, nested, &TxnRequest::default());
        assert_error(run(&node, message), TOO_MANY_OPS);
    }
    assert_eq!(node.revision(), 4);
}

#[test]
fn txn_2_the_maximum_depth_holds_at_every_limit_on_operations() {
    let limits = revstore_grpc::Limits::default().txn_ops_max(1_000_000);
    let node = TestNode::with_limits(limits);
    // All kinds of operations and a compare of a range at each level.
    let around = TxnRequest {
        compare: vec![Compare {
            key: "a".into(),
            range_end: "c".into(),
            ..Compare::default()
        }],
        success: vec![op_get(get("a")), op_delete(delete("x", "z"))],
        failure: vec![op_put(PutRequest {
            prev_kv: true,
            ..put("b", "v")
        })],
    };
    let innermost = txn_of(vec![op_put(put("k", "v"))]);
    let response = run(&node, nest(&innermost, 128, &around)).unwrap();
    assert_eq!(node.revision(), 2);
    assert!(response.len() > 128);
    assert_error(run(&node, nest(&innermost, 129, &around)), TOO_MANY_OPS);
    // An error at the innermost level.
    let invalid = TxnRequest {
        success: vec![RequestOp { request: None }],
        ..TxnRequest::default()
    };
    assert_error(run(&node, nest(&invalid, 128, &around)), KEY_NOT_FOUND);
    let future = txn_of(vec![op_get(RangeRequest {
        revision: 99,
        ..get("k")
    })]);
    assert_error(run(&node, nest(&future, 128, &around)), FUTURE);
    // A message that ends early at the innermost level has a short error.
    let mut malformed = BytesMut::from(&b"\x12\xff"[..]);
    for _ in 0..120 {
        malformed = delimited(2, &delimited(4, &malformed));
    }
    let status = run(&node, malformed.freeze()).unwrap_err();
    assert_eq!(status.code(), Code::Internal);
    assert!(status.message().len() < 100, "{status:?}");
    assert_eq!(node.revision(), 2);
}
