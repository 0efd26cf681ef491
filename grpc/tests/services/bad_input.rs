//! Input that no stock client sends: every request gets its clause's error, the node lives on, and
//! no revision is lost.

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use prost::Message;
use revstore_grpc::{Limits, Services};
use revstore_proto::etcdserverpb::watch_request::RequestUnion;
use revstore_proto::etcdserverpb::{
    CompactionRequest, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
    WatchCreateRequest, WatchRequest,
};
use tonic::Code;
use tonic::Status;
use tower_service::Service;

use crate::support::{
    EMPTY_KEY, KEY_NOT_FOUND, Node, TOO_LARGE, check_refused, delete, get, op_delete, op_get,
    op_put, op_txn, put, txn_of,
};

const MESSAGE_BYTES_MAX: usize = 2_097_152;

/// The node still takes writes, and has not taken any other since it was made.
async fn check_untouched(node: &Node) {
    assert_eq!(node.revision(), 1);
    node.put(put("alive", "v")).await.unwrap();
    assert_eq!(node.revision(), 2);
}

/// One message as it goes over the wire.
fn frame(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap());
    frame.put_slice(message);
    frame.freeze()
}

/// Sends a raw body to a path, and returns the status and how many messages came before it.
async fn call(services: &Services, path: &str, body: Bytes) -> (Status, usize) {
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
async fn rg_6_put_1_requests_without_a_key_are_refused() {
    let node = Node::new();
    check_refused(node.range(get("")).await, EMPTY_KEY);
    let with_end = RangeRequest {
        range_end: "z".into(),
        ..get("")
    };
    check_refused(node.range(with_end.clone()).await, EMPTY_KEY);
    check_refused(node.kv().range_stream(with_end).await, EMPTY_KEY);
    check_refused(node.put(put("", "v")).await, EMPTY_KEY);
    let deleted = node.kv().delete_range(delete("", "\0")).await;
    check_refused(deleted, EMPTY_KEY);
    for op in [
        op_get(get("")),
        op_put(put("", "v")),
        op_delete(delete("", "z")),
    ] {
        check_refused(node.txn(txn_of(vec![op])).await, EMPTY_KEY);
    }
    check_untouched(&node).await;
}

#[tokio::test]
async fn rg_44_rg_45_unknown_sort_options_are_refused_and_not_fatal() {
    let node = Node::new();
    let refusal = (Code::InvalidArgument, "etcdserver: invalid sort option");
    for (sort_order, sort_target) in [(0, 99), (1, 5), (3, 0), (-1, -1), (i32::MAX, i32::MIN)] {
        let request = RangeRequest {
            sort_order,
            sort_target,
            ..get("k")
        };
        check_refused(node.range(request.clone()).await, refusal);
        check_refused(node.txn(txn_of(vec![op_get(request)])).await, refusal);
    }
    check_untouched(&node).await;
}

#[tokio::test]
async fn put_3_contradictions_are_refused() {
    let node = Node::new();
    let value = PutRequest {
        ignore_value: true,
        ..put("k", "v")
    };
    let lease = PutRequest {
        ignore_lease: true,
        lease: -1,
        ..put("k", "v")
    };
    let refusals = [
        (value, "etcdserver: value is provided"),
        (lease, "etcdserver: lease is provided"),
    ];
    for (request, text) in refusals {
        check_refused(node.put(request).await, (Code::InvalidArgument, text));
    }
    check_untouched(&node).await;
}

#[tokio::test]
async fn txn_1_to_6_malformed_transactions_are_refused_whole() {
    let node = Node::new();
    let duplicate = (
        Code::InvalidArgument,
        "etcdserver: duplicate key given in txn request",
    );
    let too_many = (
        Code::InvalidArgument,
        "etcdserver: too many operations in txn request",
    );
    let (k, gone) = (|| op_put(put("k", "v")), || op_delete(delete("a", "z")));
    check_refused(node.txn(txn_of(vec![k(), k()])).await, duplicate);
    check_refused(node.txn(txn_of(vec![k(), gone()])).await, duplicate);
    let nested = op_txn(txn_of(vec![k()]));
    check_refused(node.txn(txn_of(vec![gone(), nested])).await, duplicate);
    let many = TxnRequest {
        failure: vec![op_get(get("k")); 129],
        ..TxnRequest::default()
    };
    check_refused(node.txn(many).await, too_many);
    let unset = txn_of(vec![k(), RequestOp { request: None }]);
    check_refused(node.txn(unset).await, KEY_NOT_FOUND);
    check_untouched(&node).await;
}

#[tokio::test]
async fn li_1_proposals_have_a_limit_that_reads_do_not_have() {
    let node = Node::new();
    let value_of = |length| PutRequest {
        key: "key".into(),
        value: vec![b'v'; length].into(),
        ..PutRequest::default()
    };
    check_refused(node.put(value_of(1_572_838)).await, TOO_LARGE);
    let long_key = Bytes::from(vec![b'k'; 1_600_000]);
    let deleted = DeleteRangeRequest {
        key: long_key.clone(),
        ..DeleteRangeRequest::default()
    };
    check_refused(node.kv().delete_range(deleted).await, TOO_LARGE);
    let read = || RangeRequest {
        key: long_key.clone(),
        ..RangeRequest::default()
    };
    node.range(read()).await.unwrap();
    node.txn(txn_of(vec![op_get(read())])).await.unwrap();
    let writes_too = txn_of(vec![op_get(read()), op_delete(delete("k", ""))]);
    check_refused(node.txn(writes_too).await, TOO_LARGE);
    assert_eq!(node.revision(), 1);
    let largest = value_of(1_572_837);
    assert_eq!(largest.encoded_len(), 1_572_846);
    node.put(largest).await.unwrap();
}

#[tokio::test]
async fn li_1_li_2_limits_can_be_set() {
    let node = Node::with_limits(Limits {
        request_bytes_max: 100,
        ..Limits::default()
    });
    let long = PutRequest {
        value: vec![b'v'; 100].into(),
        ..put("k", "")
    };
    check_refused(node.put(long).await, TOO_LARGE);
    let longer = PutRequest {
        value: vec![b'v'; 600_000].into(),
        ..put("k", "")
    };
    let refused = node.put(longer).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    // The limit may also be above tonic's own.
    let roomy = Node::with_limits(Limits {
        request_bytes_max: 20_000_000,
        ..Limits::default()
    });
    let long = PutRequest {
        value: vec![b'v'; 10_000_000].into(),
        ..put("k", "")
    };
    roomy.put(long).await.unwrap();
    check_untouched(&node).await;
}

#[tokio::test]
async fn li_2_a_message_of_exactly_the_limit_reaches_the_handler() {
    let node = Node::new();
    let key_of = |length: usize| RangeRequest {
        key: vec![b'k'; length].into(),
        ..RangeRequest::default()
    };
    let overhead = key_of(MESSAGE_BYTES_MAX - 10).encoded_len() - (MESSAGE_BYTES_MAX - 10);
    let fits = key_of(MESSAGE_BYTES_MAX - overhead);
    assert_eq!(fits.encoded_len(), MESSAGE_BYTES_MAX);
    node.range(fits).await.unwrap();
    let text = "grpc: received message larger than max (2097153 vs. 2097152)";
    let refused = node.range(key_of(MESSAGE_BYTES_MAX - overhead + 1)).await;
    check_refused(refused, (Code::ResourceExhausted, text));
    check_untouched(&node).await;
}

#[tokio::test]
async fn li_2_streams_end_with_a_message_that_is_too_large() {
    let node = Node::new();
    let long = WatchCreateRequest {
        key: vec![b'k'; MESSAGE_BYTES_MAX].into(),
        ..WatchCreateRequest::default()
    };
    let long = RequestUnion::CreateRequest(long);
    let mut watch = node.watch().await;
    watch.send(long);
    let refused = tokio_stream::StreamExt::next(&mut watch.responses)
        .await
        .unwrap();
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let text = refused.message();
    assert!(
        text.starts_with("grpc: received message larger than max ("),
        "{text}"
    );
    assert!(text.ends_with(" vs. 2097152)"), "{text}");
    check_untouched(&node).await;
}

#[tokio::test]
async fn hl_3_bodies_that_cannot_be_decoded_are_an_internal_error() {
    let node = Node::new();
    for body in [
        // A field that says it is longer than the message.
        frame(b"\x0a\xff\xff\xff\xff\x0f"),
        // A key that is a number.
        frame(b"\x08\x01"),
        // A tag that is none.
        frame(b"\x00"),
        frame(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
        // Half a message, half a prefix, none at all.
        frame(b"\x0a\x01k").slice(..6),
        Bytes::from_static(b"\0\0"),
        Bytes::new(),
        // Neither compressed nor not.
        Bytes::from_static(b"\x07\0\0\0\x00"),
        // Compressed with nothing that was agreed on.
        Bytes::from_static(b"\x01\0\0\0\x01x"),
    ] {
        for path in ["/etcdserverpb.KV/Put", "/etcdserverpb.KV/Txn"] {
            let (status, messages) = call(&node.services, path, body.clone()).await;
            assert_eq!(
                (status.code(), messages),
                (Code::Internal, 0),
                "{path} {body:?}"
            );
        }
    }
    check_untouched(&node).await;
}

#[tokio::test]
async fn hl_3_streams_answer_up_to_what_they_cannot_decode() {
    let node = Node::new();
    let create = WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(WatchCreateRequest::default())),
    };
    let mut body = BytesMut::from(&frame(&create.encode_to_vec())[..]);
    body.extend(frame(b"\x08\x01"));
    let path = "/etcdserverpb.Watch/Watch";
    let (status, messages) = call(&node.services, path, body.freeze()).await;
    assert_eq!((status.code(), messages), (Code::Internal, 1));
    let body = frame(b"\x0a\x01x");
    let path = "/etcdserverpb.Lease/LeaseKeepAlive";
    let (status, messages) = call(&node.services, path, body).await;
    assert_eq!((status.code(), messages), (Code::Internal, 0));
    assert_eq!(node.engine.stats().watches, 0);
    check_untouched(&node).await;
}

/// By this code kube-apiserver knows that it has to do without `RangeStream` (RG-67), and others that
/// there is no reflection (HL-2).
#[tokio::test]
async fn hl_3_unknown_methods_and_services_are_told_apart() {
    let node = Node::new();
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
        let (status, _) = call(&node.services, path, frame(b"")).await;
        assert_eq!(
            (status.code(), status.message()),
            (Code::Unimplemented, text)
        );
    }
    let (status, _) = call(&node.services, "/", frame(b"")).await;
    assert_eq!(status.code(), Code::Unimplemented);
    check_untouched(&node).await;
}

#[tokio::test]
async fn transactions_nest_as_deep_as_a_decoder_goes_and_no_deeper() {
    let node = Node::new();
    let nest = |depth: usize| {
        let mut request = txn_of(vec![op_get(get("k"))]);
        for _ in 0..depth {
            request = txn_of(vec![op_txn(request)]);
        }
        request
    };
    node.txn(nest(40)).await.unwrap();
    // Encoding nests as deep as it is told to; bytes do not.
    let mut message = Vec::new();
    for _ in 0..100_000 {
        let mut txn = vec![0x22];
        prost::encode_length_delimiter(message.len(), &mut txn).unwrap();
        txn.append(&mut message);
        let mut op = vec![0x12];
        prost::encode_length_delimiter(txn.len(), &mut op).unwrap();
        op.append(&mut txn);
        message = op;
        if message.len() > 5000 {
            break;
        }
    }
    let (status, _) = call(&node.services, "/etcdserverpb.KV/Txn", frame(&message)).await;
    assert_eq!(status.code(), Code::Internal);
    check_untouched(&node).await;
}

#[tokio::test]
async fn extreme_numbers_are_only_numbers() {
    let node = Node::new();
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
    check_untouched(&node).await;
}
