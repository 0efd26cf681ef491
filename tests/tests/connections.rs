//! HTTP/2 connections with many requests: no client that keeps to flow control is cut.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::future::{Future, poll_fn};

use bytes::{BufMut as _, Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request};
use prost::Message;
use revstore_proto::etcdserverpb as pb;
use revstore_proto::etcdserverpb::watch_request::RequestUnion;
use revstore_tests::on_every_server;
use revstore_tests::server::{Options, REVSTORE, Servers};

const WATCH: &str = "/etcdserverpb.Watch/Watch";
const PUT: &str = "/etcdserverpb.KV/Put";
const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";

// gRPC's numbers of codes.
const RESOURCE_EXHAUSTED: &str = "8";
const UNIMPLEMENTED: &str = "12";

/// A client of one connection. It reads whatever arrives, and limits itself only where a test says so.
struct Client(SendRequest<Bytes>);

/// One call, whose request can be written and whose response can be read.
struct Call {
    requests: SendStream<Bytes>,
    response: Response,
}

enum Response {
    Waiting(ResponseFuture),
    Body(RecvStream, BytesMut),
}

/// Runs `session` with a client of a new server.
fn with_client<F: Future<Output = ()>>(servers: &Servers, session: impl FnOnce(Client) -> F) {
    let server = servers.fresh(&Options::default());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let socket = tokio::net::TcpStream::connect(server.address())
            .await
            .unwrap();
        socket.set_nodelay(true).unwrap();
        let (requests, connection) = h2::client::Builder::new()
            .initial_connection_window_size(1 << 30)
            .data_frame_budget(1 << 30)
            .handshake(socket)
            .await
            .unwrap();
        tokio::spawn(connection);
        session(Client(requests)).await;
    });
}

impl Client {
    async fn call(&mut self, path: &str) -> Call {
        self.call_with(path, &[]).await
    }

    /// Starts a call with the given values of a header.
    async fn call_with(&mut self, path: &str, values: &[String]) -> Call {
        let mut request = Request::post(format!("http://node{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        for value in values {
            request = request.header("metadata", value);
        }
        let request = request.body(()).unwrap();
        let mut ready = self.0.clone().ready().await.unwrap();
        let (response, requests) = ready.send_request(request, false).unwrap();
        Call {
            requests,
            response: Response::Waiting(response),
        }
    }

    async fn put(&mut self, key: &str) -> pb::PutResponse {
        self.put_with(key, &[]).await.next().await
    }

    async fn put_with(&mut self, key: &str, metadata: &[String]) -> Call {
        let mut call = self.call_with(PUT, metadata).await;
        let request = pb::PutRequest {
            key: key.to_owned().into(),
            ..pb::PutRequest::default()
        };
        call.requests.send_data(encode(&request), true).unwrap();
        call
    }
}

impl Call {
    fn send(&mut self, message: &impl Message) {
        self.requests.send_data(encode(message), false).unwrap();
    }

    /// Reads the next message of the response.
    async fn next<M: Message + Default>(&mut self) -> M {
        if let Response::Waiting(response) = &mut self.response {
            let body = response.await.unwrap().into_body();
            self.response = Response::Body(body, BytesMut::new());
        }
        let Response::Body(body, read) = &mut self.response else {
            unreachable!("the response has arrived");
        };
        loop {
            if let Some((prefix, rest)) = read.split_at_checked(5)
                && let length = u32::from_be_bytes(prefix[1..].try_into().unwrap()) as usize
                && length <= rest.len()
            {
                let message = read.split_to(5 + length).split_off(5);
                return M::decode(message).unwrap();
            }
            let data = body.data().await.expect("a message").unwrap();
            body.flow_control().release_capacity(data.len()).unwrap();
            read.extend_from_slice(&data);
        }
    }

    /// Reads the response headers, which are the trailers of a call without messages.
    async fn trailers_only(&mut self) -> HeaderMap {
        let Response::Waiting(response) = &mut self.response else {
            unreachable!("nothing was read");
        };
        response.await.unwrap().into_parts().0.headers
    }

    async fn check_created(&mut self) {
        let response: pb::WatchResponse = self.next().await;
        assert!(response.created && !response.canceled, "{response:?}");
    }
}

fn encode(message: &impl Message) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(message.encoded_len().try_into().unwrap());
    message.encode(&mut bytes).unwrap();
    bytes.freeze()
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
    with_client(servers, async |mut client| {
        let mut calls = Vec::new();
        for _ in 0..20_000 {
            calls.push(client.call(WATCH).await);
        }
        for call in &mut calls {
            call.send(&create("k"));
        }
        for call in &mut calls {
            call.check_created().await;
        }
        client.put("k").await;
        for call in &mut calls {
            let response: pb::WatchResponse = call.next().await;
            assert_eq!(response.events.len(), 1);
        }
        // All of them are canceled at once.
        for call in &mut calls {
            call.requests.send_reset(Reason::CANCEL);
        }
        client.put("k").await;
    });
}

/// Nearly nothing of the responses is read at first, so the server stops to handle the requests of the stream, whose
/// client has to wait. Other streams of the connection go on.
fn requests_of_a_stream_that_is_not_read_wait(servers: &Servers) {
    with_client(servers, async |mut client| {
        const REQUESTS: usize = 30_000;
        let mut watches = client.call(WATCH).await;
        for _ in 0..REQUESTS {
            watches.send(&create("k"));
        }
        watches.check_created().await;
        for _ in 0..100 {
            client.put("other").await;
        }
        for _ in 1..REQUESTS {
            watches.check_created().await;
        }
        client.put("k").await;
        let mut seen = 0;
        while seen < REQUESTS {
            seen += watches.next::<pb::WatchResponse>().await.events.len();
        }
    });
}

/// A client that keeps many leases alive sends a small message for each.
fn many_requests_of_one_stream_are_served(servers: &Servers) {
    with_client(servers, async |mut client| {
        let mut leases = client.call(KEEP_ALIVE).await;
        for _ in 0..3 {
            for id in 1..=20_000 {
                leases.send(&pb::LeaseKeepAliveRequest { id });
            }
            for id in 1..=20_000 {
                let response: pb::LeaseKeepAliveResponse = leases.next().await;
                assert_eq!((response.id, response.ttl), (id, 0));
            }
        }
    });
}

/// Each request is refused at its first bytes (LI-2), while the client still sends the others.
fn requests_that_are_too_large_do_not_end_the_connection(servers: &Servers) {
    with_client(servers, async |mut client| {
        let mut watch = client.call(WATCH).await;
        watch.send(&create("k"));
        watch.check_created().await;
        let request = pb::PutRequest {
            key: "k".into(),
            value: vec![0; 2_200_000].into(),
            ..pb::PutRequest::default()
        };
        let request = encode(&request);
        for _ in 0..1_500 {
            let mut call = client.call(PUT).await;
            call.requests.send_data(request.clone(), true).unwrap();
            let status = call.trailers_only().await;
            assert_eq!(status["grpc-status"], RESOURCE_EXHAUSTED);
        }
        client.put("k").await;
        let response: pb::WatchResponse = watch.next().await;
        assert_eq!(response.events.len(), 1);
    });
}

/// Calls are refused before their messages are sent.
fn answers_before_the_request_do_not_end_the_connection(servers: &Servers) {
    with_client(servers, async |mut client| {
        for _ in 0..3_000 {
            let mut call = client.call("/etcdserverpb.KV/NoSuchMethod").await;
            call.requests
                .send_data(Bytes::from_static(&[0; 5]), false)
                .unwrap();
            assert_eq!(call.trailers_only().await["grpc-status"], UNIMPLEMENTED);
        }
        client.put("k").await;
    });
}

/// The client is still sending when the call has ended, and more than the server discards.
#[test]
fn the_rest_of_a_refused_request_is_stopped() {
    with_client(&REVSTORE, async |mut client| {
        let mut call = client.call(PUT).await;
        let mut body = vec![0, 0xff, 0xff, 0xff, 0xff];
        body.resize(16 << 20, 0);
        // Without the end: the client library ignores a reset of a stream that both sides have ended, also if it has
        // yet to send data.
        call.requests.send_data(body.into(), false).unwrap();
        assert_eq!(
            call.trailers_only().await["grpc-status"],
            RESOURCE_EXHAUSTED
        );
        let reset = poll_fn(|context| call.requests.poll_reset(context)).await;
        assert_eq!(reset.unwrap(), Reason::NO_ERROR);
        client.put("k").await;
    });
}

/// A call that has ended does not count as open for long, even if the client never ends its side.
fn a_refused_request_that_does_not_end_is_stopped(servers: &Servers) {
    with_client(servers, async |mut client| {
        let mut call = client.call("/etcdserverpb.KV/NoSuchMethod").await;
        assert_eq!(call.trailers_only().await["grpc-status"], UNIMPLEMENTED);
        let reset = poll_fn(|context| call.requests.poll_reset(context)).await;
        assert_eq!(reset.unwrap(), Reason::NO_ERROR);
    });
}

/// LI-10: one large value, and many small ones.
fn li_10_large_metadata_is_accepted(servers: &Servers) {
    with_client(servers, async |mut client| {
        for metadata in [vec!["a".repeat(200_000)], vec!["a".repeat(20); 10_000]] {
            let response: pb::PutResponse = client.put_with("k", &metadata).await.next().await;
            assert!(response.header.is_some());
        }
    });
}

/// LI-10: beyond the limit of the services, and beyond that of the connection. Other calls are not affected.
#[test]
fn li_10_metadata_beyond_the_limit_fails_only_its_call() {
    with_client(&REVSTORE, async |mut client| {
        let mut watch = client.call(WATCH).await;
        watch.send(&create("k"));
        watch.check_created().await;
        for _ in 0..3 {
            let metadata = vec!["a".repeat(10_000); 120];
            let mut call = client.put_with("k", &metadata).await;
            assert_eq!(
                call.trailers_only().await["grpc-status"],
                RESOURCE_EXHAUSTED
            );
            let metadata = vec!["a".repeat(10_000); 250];
            let Response::Waiting(response) = client.put_with("k", &metadata).await.response else {
                unreachable!("nothing was read");
            };
            assert_eq!(response.await.unwrap().status(), 431);
        }
        client.put("k").await;
        let response: pb::WatchResponse = watch.next().await;
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
