//! HTTP/2 connections with many requests: no client that keeps to flow control is cut.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::future::poll_fn;

use bytes::Bytes;
use h2::Reason;
use revstore_proto::etcdserverpb as pb;
use revstore_proto::etcdserverpb::watch_request::RequestUnion;
use revstore_tests::on_every_server;
use revstore_tests::raw_call::{RawCall, RawClient, plain, with_raw_client};
use revstore_tests::server::{REVSTORE, Servers};

const WATCH: &str = "/etcdserverpb.Watch/Watch";
const PUT: &str = "/etcdserverpb.KV/Put";
const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";

// gRPC's numbers of codes.
const RESOURCE_EXHAUSTED: &str = "8";
const UNIMPLEMENTED: &str = "12";

async fn put(client: &RawClient, key: &str) -> pb::PutResponse {
    put_with(client, key, &[]).await.decode().await
}

/// Starts a put with the given values of a header.
async fn put_with(client: &RawClient, key: &str, metadata: &[String]) -> RawCall {
    let fields = metadata.iter().map(|value| ("metadata", &**value));
    let mut call = client.call(PUT, fields).await;
    let request = pb::PutRequest {
        key: key.to_owned().into(),
        ..pb::PutRequest::default()
    };
    call.send(plain(&request), true);
    call
}

/// Checks the status of a call that has no messages.
async fn check_refused(call: &mut RawCall, code: &str) {
    assert_eq!(call.head().await.headers["grpc-status"], code);
}

async fn check_created(call: &mut RawCall) {
    let response: pb::WatchResponse = call.decode().await;
    assert!(response.created && !response.canceled, "{response:?}");
}

fn create(key: &str) -> pb::WatchRequest {
    let create = pb::WatchCreateRequest {
        key: key.to_owned().into(),
        ..pb::WatchCreateRequest::default()
    };
    pb::WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(create)),
    }
}

/// The requests of many streams arrive before one of the streams has run.
fn many_streams_of_one_connection_are_served(servers: &Servers) {
    with_raw_client(servers, async |client| {
        let mut calls = Vec::new();
        for _ in 0..20_000 {
            calls.push(client.call(WATCH, []).await);
        }
        for call in &mut calls {
            call.send(plain(&create("k")), false);
        }
        for call in &mut calls {
            check_created(call).await;
        }
        put(&client, "k").await;
        for call in &mut calls {
            let response: pb::WatchResponse = call.decode().await;
            assert_eq!(response.events.len(), 1);
        }
        // All of them are canceled at once.
        for call in &mut calls {
            call.requests.send_reset(Reason::CANCEL);
        }
        put(&client, "k").await;
    });
}

/// Nearly nothing of the responses is read at first, so the server stops to handle the requests of the stream, whose
/// client has to wait. Other streams of the connection go on.
fn requests_of_a_stream_that_is_not_read_wait(servers: &Servers) {
    with_raw_client(servers, async |client| {
        const REQUESTS: usize = 30_000;
        let mut watches = client.call(WATCH, []).await;
        for _ in 0..REQUESTS {
            watches.send(plain(&create("k")), false);
        }
        check_created(&mut watches).await;
        for _ in 0..100 {
            put(&client, "other").await;
        }
        for _ in 1..REQUESTS {
            check_created(&mut watches).await;
        }
        put(&client, "k").await;
        let mut seen = 0;
        while seen < REQUESTS {
            seen += watches.decode::<pb::WatchResponse>().await.events.len();
        }
    });
}

/// A client that keeps many leases alive sends a small message for each.
fn many_requests_of_one_stream_are_served(servers: &Servers) {
    with_raw_client(servers, async |client| {
        let mut leases = client.call(KEEP_ALIVE, []).await;
        for _ in 0..3 {
            for id in 1..=20_000 {
                leases.send(plain(&pb::LeaseKeepAliveRequest { id }), false);
            }
            for id in 1..=20_000 {
                let response: pb::LeaseKeepAliveResponse = leases.decode().await;
                assert_eq!((response.id, response.ttl), (id, 0));
            }
        }
    });
}

/// Each request is refused at its first bytes (LI-2), while the client still sends the others.
fn requests_that_are_too_large_do_not_end_the_connection(servers: &Servers) {
    with_raw_client(servers, async |client| {
        let mut watch = client.call(WATCH, []).await;
        watch.send(plain(&create("k")), false);
        check_created(&mut watch).await;
        let request = pb::PutRequest {
            key: "k".into(),
            value: vec![0; 2_200_000].into(),
            ..pb::PutRequest::default()
        };
        let request = plain(&request);
        for _ in 0..1_500 {
            let mut call = client.call(PUT, []).await;
            call.send(request.clone(), true);
            check_refused(&mut call, RESOURCE_EXHAUSTED).await;
        }
        put(&client, "k").await;
        let response: pb::WatchResponse = watch.decode().await;
        assert_eq!(response.events.len(), 1);
    });
}

/// Calls are refused before their messages are sent.
fn answers_before_the_request_do_not_end_the_connection(servers: &Servers) {
    with_raw_client(servers, async |client| {
        for _ in 0..3_000 {
            let mut call = client.call("/etcdserverpb.KV/NoSuchMethod", []).await;
            call.send(Bytes::from_static(&[0; 5]), false);
            check_refused(&mut call, UNIMPLEMENTED).await;
        }
        put(&client, "k").await;
    });
}

/// The client is still sending when the call has ended, and more than the server discards.
#[test]
fn the_rest_of_a_refused_request_is_stopped() {
    with_raw_client(&REVSTORE, async |client| {
        let mut call = client.call(PUT, []).await;
        let mut body = vec![0, 0xff, 0xff, 0xff, 0xff];
        body.resize(16 << 20, 0);
        // Without the end: the client library ignores a reset of a stream that both sides have ended, also if it has
        // yet to send data.
        call.send(body, false);
        check_refused(&mut call, RESOURCE_EXHAUSTED).await;
        let reset = poll_fn(|context| call.requests.poll_reset(context)).await;
        assert_eq!(reset.unwrap(), Reason::NO_ERROR);
        put(&client, "k").await;
    });
}

/// A call that has ended does not count as open for long, even if the client never ends its side.
fn a_refused_request_that_does_not_end_is_stopped(servers: &Servers) {
    with_raw_client(servers, async |client| {
        let mut call = client.call("/etcdserverpb.KV/NoSuchMethod", []).await;
        check_refused(&mut call, UNIMPLEMENTED).await;
        let reset = poll_fn(|context| call.requests.poll_reset(context)).await;
        assert_eq!(reset.unwrap(), Reason::NO_ERROR);
    });
}

/// LI-10: one large value, and many small ones.
fn li_10_large_metadata_is_accepted(servers: &Servers) {
    with_raw_client(servers, async |client| {
        for metadata in [vec!["a".repeat(200_000)], vec!["a".repeat(20); 10_000]] {
            let response: pb::PutResponse = put_with(&client, "k", &metadata).await.decode().await;
            assert!(response.header.is_some());
        }
    });
}

/// LI-10: beyond the limit of the services, and beyond that of the connection. Other calls are not affected.
#[test]
fn li_10_metadata_beyond_the_limit_fails_only_its_call() {
    with_raw_client(&REVSTORE, async |client| {
        let mut watch = client.call(WATCH, []).await;
        watch.send(plain(&create("k")), false);
        check_created(&mut watch).await;
        for _ in 0..3 {
            let metadata = vec!["a".repeat(10_000); 120];
            let mut call = put_with(&client, "k", &metadata).await;
            check_refused(&mut call, RESOURCE_EXHAUSTED).await;
            let metadata = vec!["a".repeat(10_000); 250];
            let mut call = put_with(&client, "k", &metadata).await;
            assert_eq!(call.head().await.status, 431);
        }
        put(&client, "k").await;
        let response: pb::WatchResponse = watch.decode().await;
        assert_eq!(response.events.len(), 1);
    });
}

on_every_server! {
    needs: [];
    many_streams_of_one_connection_are_served,
    requests_of_a_stream_that_is_not_read_wait,
    many_requests_of_one_stream_are_served,
    requests_that_are_too_large_do_not_end_the_connection,
    answers_before_the_request_do_not_end_the_connection,
    a_refused_request_that_does_not_end_is_stopped,
    li_10_large_metadata_is_accepted,
}
