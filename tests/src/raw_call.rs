//! A client of gRPC that shows what other clients hide: headers, the flags of messages, resets, flow control.
//!
//! All functions panic if a connection or a call does not go on as they say: a failed step fails the test.

#![expect(
    clippy::missing_panics_doc,
    reason = "the documentation of the module says it for all"
)]

use bytes::{Bytes, BytesMut};
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::response::Parts;
use http::{HeaderMap, Request};
use prost::Message;
use revstore_grpc::MessagePrefix;

use crate::server::{Options, Servers};

/// A client of one connection. It reads whatever arrives, and limits itself only where a test says so.
#[derive(Debug)]
pub struct RawClient(SendRequest<Bytes>);

/// One call, whose request can be written and whose response can be read.
#[derive(Debug)]
pub struct RawCall {
    /// The request.
    pub requests: SendStream<Bytes>,
    response: Response,
}

#[derive(Debug)]
enum Response {
    Waiting(ResponseFuture),
    Arrived {
        head: Box<Parts>,
        body: RecvStream,
        /// What has arrived of the next messages.
        read: BytesMut,
    },
}

/// Runs `session` with a client of a new server.
pub fn with_raw_client(servers: &Servers, session: impl AsyncFnOnce(RawClient)) {
    let server = servers.fresh(&Options::default());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let socket = tokio::net::TcpStream::connect(server.address()).await;
        let socket = socket.expect("a connection");
        socket.set_nodelay(true).expect("an option of the socket");
        let (requests, connection) = Builder::new()
            .initial_connection_window_size(1 << 30)
            .data_frame_budget(1 << 30)
            .handshake(socket)
            .await
            .expect("an HTTP/2 connection");
        tokio::spawn(connection);
        session(RawClient(requests)).await;
    });
}

impl RawClient {
    /// Starts a call with these header fields.
    pub async fn call<'a>(
        &self,
        path: &str,
        fields: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> RawCall {
        let mut request = Request::post(format!("http://node{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        for (name, value) in fields {
            request = request.header(name, value);
        }
        let request = request.body(()).expect("valid fields");
        let mut ready = self.0.clone().ready().await.expect("an open connection");
        let sent = ready.send_request(request, false);
        let (response, requests) = sent.expect("a new stream");
        RawCall {
            requests,
            response: Response::Waiting(response),
        }
    }
}

impl RawCall {
    /// Sends bytes of the request, of which they may be the last.
    pub fn send(&mut self, bytes: impl Into<Bytes>, is_last: bool) {
        let sent = self.requests.send_data(bytes.into(), is_last);
        sent.expect("an open stream");
    }

    /// Waits for the status line and the headers of the response.
    pub async fn head(&mut self) -> &Parts {
        self.arrived().await.0
    }

    async fn arrived(&mut self) -> (&Parts, &mut RecvStream, &mut BytesMut) {
        if let Response::Waiting(response) = &mut self.response {
            let (head, body) = response.await.expect("a response").into_parts();
            self.response = Response::Arrived {
                head: Box::new(head),
                body,
                read: BytesMut::new(),
            };
        }
        let Response::Arrived { head, body, read } = &mut self.response else {
            unreachable!("the response has arrived");
        };
        (head, body, read)
    }

    /// Returns the flag and the bytes of the next message of the response; `None` after the last one.
    pub async fn next(&mut self) -> Option<(u8, Bytes)> {
        let (_, body, read) = self.arrived().await;
        loop {
            if let Some((prefix, rest)) = read.split_first_chunk()
                && let MessagePrefix { flag, length } = MessagePrefix::parse(*prefix)
                && length as usize <= rest.len()
            {
                let mut message = read.split_to(MessagePrefix::BYTES + length as usize);
                return Some((flag, message.split_off(MessagePrefix::BYTES).freeze()));
            }
            let Some(data) = body.data().await else {
                assert!(read.is_empty(), "a part of a message");
                return None;
            };
            let data = data.expect("a response");
            let released = body.flow_control().release_capacity(data.len());
            released.expect("as much as has arrived");
            read.extend_from_slice(&data);
        }
    }

    /// Decodes the next message of the response, which is not compressed.
    pub async fn decode<M: Message + Default>(&mut self) -> M {
        let (flag, message) = self.next().await.expect("a message");
        assert_eq!(flag, 0);
        M::decode(message).expect("a valid message")
    }

    /// Returns the fields with the status of the call: the trailers, or the headers of a response without a body.
    pub async fn status(&mut self) -> HeaderMap {
        let (head, body, _) = self.arrived().await;
        let trailers = body.trailers().await.expect("a response");
        trailers.unwrap_or_else(|| head.headers.clone())
    }
}

/// Returns a message with its prefix.
pub fn framed(flag: u8, message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).expect("a message of less than 4 GiB");
    [&MessagePrefix { flag, length }.to_bytes(), message]
        .concat()
        .into()
}

/// Encodes a message that is not compressed, with its prefix.
pub fn plain(message: &impl Message) -> Bytes {
    framed(0, &message.encode_to_vec())
}
