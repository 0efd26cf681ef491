//! Requests that no existing client sends: each has the error of its clause as its response, and
//! the store does not change.

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use prost::Message;
use revstore_grpc::{Limits, Services, has_client_disconnected};
use revstore_proto::etcdserverpb::watch_request::RequestUnion;
use revstore_proto::etcdserverpb::{
    CompactionRequest, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
    WatchCreateRequest, WatchRequest,
};
use tonic::Code;
use tonic::Status;
use tower_service::Service;

use crate::support::{
    EMPTY_KEY, KEY_NOT_FOUND, TOO_LARGE, TestNode, assert_error, delete, get, op_delete, op_get,
    op_put, op_txn, put, txn_of,
};

const MESSAGE_BYTES_MAX: usize = 2_097_152;

/// Checks that the store has no writes, and that the node accepts one.
async fn check_store_unchanged(node: &TestNode) {
    assert_eq!(node.revision(), 1);
    node.put(put("last", "v")).await.unwrap();
    assert_eq!(node.revision(), 2);
}

/// Encodes an uncompressed message as a gRPC frame.
fn frame(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap());
    frame.put_slice(message);
    frame.freeze()
}

/// Sends an encoded request body to a path. Returns the status and the number of messages before
/// it.
async fn call_raw(services: &Services, path: &str, body: Bytes) -> (Status, usize) {
    let request = http::Request::post(format!("http://node{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(body))
        .unwrap();
    let response = services.clone().call(request).await.unwrap();
    assert_eq!(response.status(), 200);
    if let Some(status) = Status::from_header_map(response.headers()) {
        return (status, 0);
    }
    let collected = response.into_body().collect().await.unwrap();
    let status = Status::from_header_map(collected.trailers().unwrap()).unwrap();
    let mut data = collected.to_bytes();
    let mut messages = 0;
    while !data.is_empty() {
        let length = u32::from_be_bytes(data[1..5].try_into().unwrap()) as usize;
        data = data.slice(5 + length..);
        messages += 1;
    }
    (status, messages)
}

#[tokio::test]
async fn rg_6_put_1_requests_without_a_key_are_rejected() {
    let node = TestNode::new();
    assert_error(node.range(get("")).await, EMPTY_KEY);
    let with_end = RangeRequest {
        range_end: "z".into(),
        ..get("")
    };
    assert_error(node.range(with_end.clone()).await, EMPTY_KEY);
    assert_error(node.kv().range_stream(with_end).await, EMPTY_KEY);
    assert_error(node.put(put("", "v")).await, EMPTY_KEY);
    let deleted = node.kv().delete_range(delete("", "\0")).await;
    assert_error(deleted, EMPTY_KEY);
    for op in [
        op_get(get("")),
        op_put(put("", "v")),
        op_delete(delete("", "z")),
    ] {
        assert_error(node.txn(txn_of(vec![op])).await, EMPTY_KEY);
    }
    check_store_unchanged(&node).await;
}

#[tokio::test]
async fn rg_44_rg_45_unknown_sort_options_are_rejected() {
    let node = TestNode::new();
    let invalid = (Code::InvalidArgument, "etcdserver: invalid sort option");
    for (sort_order, sort_target) in [(0, 99), (1, 5), (3, 0), (-1, -1), (i32::MAX, i32::MIN)] {
        let request = RangeRequest {
            sort_order,
            sort_target,
            ..get("k")
        };
        assert_error(node.range(request.clone()).await, invalid);
        assert_error(node.txn(txn_of(vec![op_get(request)])).await, invalid);
    }
    check_store_unchanged(&node).await;
}

#[tokio::test]
async fn put_3_ignore_flags_with_a_value_or_lease_are_rejected() {
    let node = TestNode::new();
    let value = PutRequest {
        ignore_value: true,
        ..put("k", "v")
    };
    let lease = PutRequest {
        ignore_lease: true,
        lease: -1,
        ..put("k", "v")
    };
    let cases = [
        (value, "etcdserver: value is provided"),
        (lease, "etcdserver: lease is provided"),
    ];
    for (request, text) in cases {
        assert_error(node.put(request).await, (Code::InvalidArgument, text));
    }
    check_store_unchanged(&node).await;
}

#[tokio::test]
async fn txn_1_to_6_invalid_transactions_are_rejected_as_a_whole() {
    let node = TestNode::new();
    let duplicate = (
        Code::InvalidArgument,
        "etcdserver: duplicate key given in txn request",
    );
    let too_many = (
        Code::InvalidArgument,
        "etcdserver: too many operations in txn request",
    );
    let (k, delete_range) = (|| op_put(put("k", "v")), || op_delete(delete("a", "z")));
    assert_error(node.txn(txn_of(vec![k(), k()])).await, duplicate);
    assert_error(node.txn(txn_of(vec![k(), delete_range()])).await, duplicate);
    let nested = op_txn(txn_of(vec![k()]));
    assert_error(
        node.txn(txn_of(vec![delete_range(), nested])).await,
        duplicate,
    );
    let many = TxnRequest {
        failure: vec![op_get(get("k")); 129],
        ..TxnRequest::default()
    };
    assert_error(node.txn(many).await, too_many);
    let unset = txn_of(vec![k(), RequestOp { request: None }]);
    assert_error(node.txn(unset).await, KEY_NOT_FOUND);
    check_store_unchanged(&node).await;
}

#[tokio::test]
async fn li_1_the_size_limit_holds_for_proposals_and_not_for_reads() {
    let node = TestNode::new();
    let value_of = |length| PutRequest {
        key: "key".into(),
        value: vec![b'v'; length].into(),
        ..PutRequest::default()
    };
    assert_error(node.put(value_of(1_572_838)).await, TOO_LARGE);
    let long_key = Bytes::from(vec![b'k'; 1_600_000]);
    let deleted = DeleteRangeRequest {
        key: long_key.clone(),
        ..DeleteRangeRequest::default()
    };
    assert_error(node.kv().delete_range(deleted).await, TOO_LARGE);
    let read = || RangeRequest {
        key: long_key.clone(),
        ..RangeRequest::default()
    };
    node.range(read()).await.unwrap();
    node.txn(txn_of(vec![op_get(read())])).await.unwrap();
    let writes_too = txn_of(vec![op_get(read()), op_delete(delete("k", ""))]);
    assert_error(node.txn(writes_too).await, TOO_LARGE);
    assert_eq!(node.revision(), 1);
    let largest = value_of(1_572_837);
    assert_eq!(largest.encoded_len(), 1_572_846);
    node.put(largest).await.unwrap();
}

#[tokio::test]
async fn li_1_li_2_size_limits_are_configurable() {
    let node = TestNode::with_limits(Limits::default().request_bytes_max(100));
    let long = PutRequest {
        value: vec![b'v'; 100].into(),
        ..put("k", "")
    };
    assert_error(node.put(long).await, TOO_LARGE);
    let longer = PutRequest {
        value: vec![b'v'; 600_000].into(),
        ..put("k", "")
    };
    let result = node.put(longer).await.unwrap_err();
    assert_eq!(result.code(), Code::ResourceExhausted);
    // The limit may be above the default of tonic.
    let large = TestNode::with_limits(Limits::default().request_bytes_max(20_000_000));
    let long = PutRequest {
        value: vec![b'v'; 10_000_000].into(),
        ..put("k", "")
    };
    large.put(long).await.unwrap();
    check_store_unchanged(&node).await;
}

#[tokio::test]
async fn li_2_a_message_of_exactly_the_limit_is_accepted() {
    let node = TestNode::new();
    let key_of = |length: usize| RangeRequest {
        key: vec![b'k'; length].into(),
        ..RangeRequest::default()
    };
    let overhead = key_of(MESSAGE_BYTES_MAX - 10).encoded_len() - (MESSAGE_BYTES_MAX - 10);
    let fits = key_of(MESSAGE_BYTES_MAX - overhead);
    assert_eq!(fits.encoded_len(), MESSAGE_BYTES_MAX);
    node.range(fits).await.unwrap();
    let text = "grpc: received message larger than max (2097153 vs. 2097152)";
    let result = node.range(key_of(MESSAGE_BYTES_MAX - overhead + 1)).await;
    assert_error(result, (Code::ResourceExhausted, text));
    check_store_unchanged(&node).await;
}

#[tokio::test]
async fn li_2_a_too_large_message_ends_its_stream() {
    let node = TestNode::new();
    let long = WatchCreateRequest {
        key: vec![b'k'; MESSAGE_BYTES_MAX].into(),
        ..WatchCreateRequest::default()
    };
    let long = RequestUnion::CreateRequest(long);
    let mut watch = node.watch().await;
    watch.send(long);
    let result = tokio_stream::StreamExt::next(&mut watch.responses)
        .await
        .unwrap();
    let result = result.unwrap_err();
    assert_eq!(result.code(), Code::ResourceExhausted);
    let text = result.message();
    assert!(
        text.starts_with("grpc: received message larger than max ("),
        "{text}"
    );
    assert!(text.ends_with(" vs. 2097152)"), "{text}");
    check_store_unchanged(&node).await;
}

#[tokio::test]
async fn hl_3_bodies_that_cannot_be_decoded_return_internal() {
    let node = TestNode::new();
    for body in [
        // A field whose length is above the length of the message.
        frame(b"\x0a\xff\xff\xff\xff\x0f"),
        // The key field with the wire type of a number.
        frame(b"\x08\x01"),
        // Invalid tags.
        frame(b"\x00"),
        frame(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
        // An incomplete message, an incomplete prefix, an empty body.
        frame(b"\x0a\x01k").slice(..6),
        Bytes::from_static(b"\0\0"),
        Bytes::new(),
        // An unknown compression flag.
        Bytes::from_static(b"\x07\0\0\0\x00"),
        // Compressed, although no compression was negotiated.
        Bytes::from_static(b"\x01\0\0\0\x01x"),
    ] {
        for path in ["/etcdserverpb.KV/Put", "/etcdserverpb.KV/Txn"] {
            let (status, messages) = call_raw(&node.services, path, body.clone()).await;
            assert_eq!(
                (status.code(), messages),
                (Code::Internal, 0),
                "{path} {body:?}"
            );
        }
    }
    check_store_unchanged(&node).await;
}

#[tokio::test]
async fn hl_3_streams_respond_to_the_messages_before_one_that_cannot_be_decoded() {
    let node = TestNode::new();
    let create = WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(WatchCreateRequest::default())),
    };
    let mut body = BytesMut::from(&frame(&create.encode_to_vec())[..]);
    body.extend(frame(b"\x08\x01"));
    let path = "/etcdserverpb.Watch/Watch";
    let (status, messages) = call_raw(&node.services, path, body.freeze()).await;
    assert_eq!((status.code(), messages), (Code::Internal, 1));
    let body = frame(b"\x0a\x01x");
    let path = "/etcdserverpb.Lease/LeaseKeepAlive";
    let (status, messages) = call_raw(&node.services, path, body).await;
    assert_eq!((status.code(), messages), (Code::Internal, 0));
    assert_eq!(node.engine.stats().watches, 0);
    check_store_unchanged(&node).await;
}

/// kube-apiserver detects by this code that `RangeStream` is unavailable (RG-67), and other clients
/// that reflection is (HL-2).
#[tokio::test]
async fn hl_3_unknown_methods_and_unknown_services_have_different_messages() {
    let node = TestNode::new();
    for (path, text) in [
        (
            "/etcdserverpb.KV/Nope",
            "unknown method Nope for service etcdserverpb.KV",
        ),
        (
            "/etcdserverpb.KV/",
            "unknown method  for service etcdserverpb.KV",
        ),
        (
            "/etcdserverpb.Nope/Range",
            "unknown service etcdserverpb.Nope",
        ),
        (
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            "unknown service grpc.reflection.v1alpha.ServerReflection",
        ),
        ("/a/b/c", "unknown service a/b"),
    ] {
        let (status, _) = call_raw(&node.services, path, frame(b"")).await;
        assert_eq!(
            (status.code(), status.message()),
            (Code::Unimplemented, text)
        );
    }
    let (status, _) = call_raw(&node.services, "/", frame(b"")).await;
    assert_eq!(status.code(), Code::Unimplemented);
    check_store_unchanged(&node).await;
}

#[tokio::test]
async fn extreme_numbers_do_not_change_the_store() {
    let node = TestNode::new();
    for number in [i64::MIN, i64::MIN + 1, -1, i64::MAX - 1, i64::MAX] {
        let request = RangeRequest {
            limit: number,
            min_mod_revision: number,
            max_mod_revision: number,
            min_create_revision: number,
            max_create_revision: number,
            ..get("k")
        };
        node.range(request.clone()).await.unwrap();
        node.txn(txn_of(vec![op_get(request)])).await.unwrap();
        let compact = CompactionRequest {
            revision: number,
            physical: true,
        };
        node.kv().compact(compact).await.unwrap_err();
        let mut watch = node.watch().await;
        let create = WatchCreateRequest {
            key: "k".into(),
            start_revision: number,
            watch_id: number,
            ..WatchCreateRequest::default()
        };
        watch.create(create).await;
        watch.send_cancel(number);
        watch.send_progress();
    }
    check_store_unchanged(&node).await;
}

/// HT-10: such calls are counted as canceled, not as failures of the server.
#[tokio::test]
async fn a_request_whose_client_disconnects_is_marked() {
    let node = TestNode::new();
    for path in ["/etcdserverpb.KV/Put", "/etcdserverpb.Watch/Watch"] {
        let part = Ok(http_body::Frame::data(Bytes::from_static(b"\0\0\0\0\x07")));
        let reset = Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        let body = http_body_util::StreamBody::new(tokio_stream::iter([part, reset]));
        let request = http::Request::post(format!("http://node{path}"))
            .header("content-type", "application/grpc")
            .body(body)
            .unwrap();
        let response = node.services.clone().call(request).await.unwrap();
        let headers = response.headers().clone();
        let body = response.into_body().collect().await.unwrap();
        let status = body.trailers().unwrap_or(&headers);
        assert!(has_client_disconnected(status), "{path}: {status:?}");
    }
    check_store_unchanged(&node).await;
}
